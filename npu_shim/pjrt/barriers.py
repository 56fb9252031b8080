"""Bounds how often XLA computes a value anew, in StableHLO for CPUs.

XLA for CPUs fuses an elementwise value into each of its readers, with all that it is made of:

    c1 = f(c0)   h1 = tanh(c1) w   c2 = f(c1)   h2 = tanh(c2) w   ...   ->   h2 = tanh(f(f(c0))) w

In a loop that Python wrote out, the code grows with the square of the steps, and so do the times to compile and to run
it. An optimization barrier behind a value has it computed once. An LSTM of two layers with Adam, CPU seconds to compile
and ms a step (JAX 0.12, two cores):

    steps written out   without barriers   with barriers
    24                    9.8 s    2.4       2.8 s    1.7
    48                   43.2 s    5.8       5.0 s    2.9
    128                       -      -      11.5 s    7.2

The barriers stand where a value has several readers and many ops in it, so that other programs have few of them: BERT
21, a dynamic LSTM 5, LeNet 1, with the same times. XLA for GPUs weighs what fusing costs, and compiles the same LSTMs
in a time that grows with the steps alone.
"""

from __future__ import annotations

from typing import Any, Iterator

from npu_shim.pjrt import artifacts

MOST = 64  # ops that XLA may compute anew for each reader of a value
# what XLA moves without computing: it costs next to nothing to do it again
MOVES = frozenset([
    "bitcast_convert", "broadcast", "broadcast_in_dim", "convert", "reshape", "reverse", "slice", "transpose",
])  # fmt: skip
# what XLA fuses into its readers
FUSED = MOVES | frozenset([
    "abs", "add", "and", "atan2", "cbrt", "ceil", "clamp", "compare", "complex", "concatenate", "cosine",
    "count_leading_zeros", "divide", "dynamic_slice", "dynamic_update_slice", "exponential",
    "exponential_minus_one", "floor", "gather", "imag", "iota", "is_finite", "log", "log_plus_one", "logistic",
    "maximum", "minimum", "multiply", "negate", "not", "or", "pad", "popcnt", "power", "real", "reduce",
    "reduce_precision", "remainder", "round_nearest_afz", "round_nearest_even", "rsqrt", "select", "shift_left",
    "shift_right_arithmetic", "shift_right_logical", "sign", "sine", "sqrt", "subtract", "tan", "tanh", "xor",
])  # fmt: skip


def placed(artifact: bytes) -> bytes:
    """Returns a StableHLO portable artifact with barriers where they are needed; the same bytes where none are."""
    from jax.interpreters import mlir

    with mlir.make_ir_context() as context:
        module = artifacts.parsed(artifact)
        heavy = list(_heavy_of(module.operation))
        with context:
            for op, following in heavy:
                _place(op, following)
        return artifacts.portable(module, artifacts.newest()) if heavy else artifact


def _heavy_of(parent: Any) -> Iterator[tuple[Any, Any]]:
    """Yields (op, the one behind it) for values that need a barrier, of all blocks in an op."""
    for region in parent.regions:
        for block in region:
            ops = [op.operation for op in block.operations]
            yield from _heavy(ops)
            for op in ops:
                if op.name != "stablehlo.reduce":
                    yield from _heavy_of(op)


def _heavy(ops: list[Any]) -> Iterator[tuple[Any, Any]]:
    weights: dict[Any, int] = {}  # value -> how many ops XLA computes for it where it is read
    for op, following in zip(ops, ops[1:]):
        kind = op.name.rpartition(".")[2]
        if kind not in FUSED or len(op.results) != 1:
            continue
        value = op.results[0]
        weight = (kind not in MOVES) + sum(weights.get(operand, 0) for operand in op.operands)
        if weight > MOST and sum(1 for _ in value.uses) > 1:
            weight = 0
            yield op, following
        weights[value] = weight


def _place(op: Any, following: Any) -> None:
    """Puts a barrier between a value and all that read it."""
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo as dialect

    value = op.results[0]
    readers = [(use.owner, use.operand_number) for use in value.uses]
    with ir.InsertionPoint(following), ir.Location.unknown():
        behind = dialect.OptimizationBarrierOp([value]).results[0]
    for owner, number in readers:
        owner.operands[number] = behind
