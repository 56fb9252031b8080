"""The blocks that the kernels work in, and which attention they cannot compute. Needs no JAX."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

from npu_shim.pjrt.attention.spec import Shape, Spec

DTYPES = {"bfloat16": 2, "float16": 2, "float32": 4}  # of products: bytes
WIDEST = 256  # size of a head
MOST = 2**31 - 1  # elements of an operand: the kernels count in int32
PROGRAMS = 2**16 - 1  # batches, and heads: what CUDA launches along its second and third axis


@dataclass(frozen=True)
class Blocks:
    """How a kernel goes through an attention.

    Attributes:
        rows: queries at a time, a power of two of 16 or more.
        columns: keys at a time, likewise.
        warps: of 32 threads, which share a block.
        stages: loads that are under way while a block is computed.
    """

    rows: int
    columns: int
    warps: int = 4
    stages: int = 2


FORWARD = {128: Blocks(128, 64), 256: Blocks(64, 64), 512: Blocks(64, 32, stages=1), 1024: Blocks(32, 16, stages=1)}
BACKWARD = {128: Blocks(64, 64), 256: Blocks(64, 32), 512: Blocks(32, 32, stages=1), 1024: Blocks(16, 16, stages=1)}


def power_of_two(size: int) -> int:
    """Returns the smallest power of two of 16 or more that is not below a size."""
    return max(16, 1 << (size - 1).bit_length())


def blocks(spec: Spec) -> Blocks:
    """Returns Blocks whose operands fit into 99 KiB, which threads share on the smallest card since Ampere."""
    table = BACKWARD if spec.kind == "backward" else FORWARD
    row = power_of_two(max(spec.q[3], spec.v[3])) * DTYPES[spec.dtype]  # bytes of one query, key or value
    chosen = table[max(row, min(table))]
    _, _, queries, keys = spec.scores
    rows, columns = min(chosen.rows, power_of_two(queries)), min(chosen.columns, power_of_two(keys))
    return Blocks(rows, columns, chosen.warps, chosen.stages)


def looped(spec: Spec) -> str:
    """Returns the axis along which the kernel of a bias's gradient sums: "b" or else "h", "" for neither."""
    pairs = zip("bh", spec.bias or (), spec.scores)
    return next((axis for axis, one, size in pairs if one < size), "")


def partial_shape(spec: Spec) -> Shape:
    """Returns the shape of what that kernel writes, [b, h, s, t]: a sum for each head and block of keys or queries.

    What the bias has but once is still to be added up.
    """
    chosen, axis = blocks(spec), looped(spec)
    batch, heads, queries, keys = spec.scores
    rows, columns = (spec.bias or spec.scores)[2:]
    return (
        1 if axis == "b" else batch,
        1 if axis == "h" else heads,
        queries if rows == queries else -(-queries // chosen.rows),
        keys if columns == keys else -(-keys // chosen.columns),
    )


def refused(spec: Spec) -> str:
    """Returns why no kernel computes a Spec, "" where one does."""
    if spec.dtype not in DTYPES:
        return "products of %s, the kernel has %s" % (spec.dtype, ", ".join(DTYPES))
    if max(spec.q[3], spec.v[3]) > WIDEST:
        return "heads of %d, the kernel takes %d at most" % (max(spec.q[3], spec.v[3]), WIDEST)
    if max(spec.q[:2]) > PROGRAMS:
        return "%d batches or heads, the kernel takes %d at most" % (max(spec.q[:2]), PROGRAMS)
    shapes = [argument.shape for argument in spec.arguments]
    largest = max(map(_elements, [*shapes, partial_shape(spec)] if spec.bias_gradient else shapes))
    if largest > MOST:
        return "an operand of %d elements, the kernel takes %d at most" % (largest, MOST)
    return "an operand is empty" if 0 in spec.scores + spec.out else ""


def _elements(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
