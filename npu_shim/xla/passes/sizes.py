"""Dtypes and sizes of a module's tensors as TensorFlow infers them, also while passes add nodes."""

from __future__ import annotations

from typing import Callable

from npu_shim.pjrt.attention import spec as specs
from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.graph import Node, Value
from npu_shim.rewriter.ir.module import Module
from npu_shim.rewriter.tables import dtypes
from npu_shim.xla.passes import static_shapes

DTYPES = {"Const": "dtype", "Cast": "DstT"}  # the attributes that say the dtype of a new node's result, else T
BOOLS = frozenset(["Equal", "LogicalAnd", "LogicalNot", "LogicalOr", "NotEqual"])


class Sizes:
    """What is known of the tensors of a module.

    TensorFlow is asked once. Nodes that passes add have the sizes that a few rules say, and those that were there keep
    theirs.

    Args:
        module: a Module whose feeds have full shapes.
    """

    def __init__(self, module: Module) -> None:
        self._inferred = static_shapes.loopless(graphdef.write(module))

    def of(self, value: Value) -> tuple[int, ...] | None:
        """The sizes of a value, None where one is open."""
        return self.results(value.node)[value.index][1]

    def results(self, node: Node) -> list[tuple[int, tuple[int, ...] | None]]:
        """(Number of its dtype, sizes or None) of each output of a node."""
        if node.op == specs.CALL:
            spec = specs.Spec.from_json(node.attrs["spec"].decode())
            return [(dtypes.NUMBERS[result.dtype], result.shape) for result in spec.results]
        if node.op == specs.SEED:
            return [(dtypes.NUMBERS["int32"], (2,))]
        if self._inferred.has(node.name):
            return self._inferred.results(node.name)  # type: ignore[no-any-return]
        dtype = dtypes.NUMBERS["bool"] if node.op in BOOLS else node.attrs[DTYPES.get(node.op, "T")]
        rule = RULES.get(node.op)
        return [(int(dtype), rule(self, node) if rule else None)]


def _constant(sizes: Sizes, node: Node) -> tuple[int, ...] | None:
    return tuple(node.attrs["value"].dims)


def _numbers(value: Value) -> tuple[int, ...] | None:
    """The elements of a constant."""
    return tuple(value.node.attrs["value"].numbers() or ()) if value.node.op == "Const" else None


def _reshaped(sizes: Sizes, node: Node) -> tuple[int, ...] | None:
    shape = _numbers(node.inputs[1])
    return None if shape is None or -1 in shape else shape


def _transposed(sizes: Sizes, node: Node) -> tuple[int, ...] | None:
    before, order = sizes.of(node.inputs[0]), _numbers(node.inputs[1])
    return None if before is None or order is None else tuple(before[axis] for axis in order)


def _same(sizes: Sizes, node: Node) -> tuple[int, ...] | None:
    return sizes.of(node.inputs[0])


RULES: dict[str, Callable[[Sizes, Node], tuple[int, ...] | None]] = {
    "Cast": _same,
    "Const": _constant,
    "Identity": _same,
    "Reshape": _reshaped,
    "Transpose": _transposed,
}
