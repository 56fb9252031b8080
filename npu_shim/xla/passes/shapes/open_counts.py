"""Finds sizes that XLA bounds wrongly where they are computed of a number of rows that the data decide.

XLA gives a tensor the largest size that it may have, and computes that from the largest numbers of rows. Sums and
differences it computes rightly; but

    n = tf.shape(boolean_mask(x))[0], at most 6
    tf.range(8 + n * -1)         has 2 elements, for every n          tf.range(6, n, -1)         none
    tf.range(n, 7)               begins too late, or is cut short     tf.tile([1, 2], [6 - n])   half as many
    tf.ones([12 // (n + 1)])     has 1 element, as for n = 6, and writes the others into memory that is not its own

Source: TensorFlow 2.15.1 and 2.21, tried one by one.
"""

from __future__ import annotations

from typing import Any, Iterator, Sequence

from npu_shim.rewriter.analysis.order import closes_loop
from npu_shim.rewriter.graph.walks import reached
from npu_shim.rewriter.ir.graph import Node, Value
from npu_shim.xla.passes.shapes.compile_time import SHAPES, STRICT

# op -> inputs that say sizes
SIZES = {
    **STRICT, "Slice": (1, 2), "StridedSlice": (1, 2), "TopKV2": (1,), "LinSpace": (2,), "ScatterNd": (2,),
    **dict.fromkeys(["UnsortedSegment" + name for name in ("Max", "Min", "Prod", "Sum")], (2,)),
}  # fmt: skip
AXES = frozenset(["All", "Any", "ArgMax", "ArgMin", "ExpandDims", "Max", "Mean", "Min", "Prod", "Split", "Sum"])
FALLING = frozenset(["Neg", "Sub"])
QUOTIENTS = frozenset(["Div", "FloorDiv", "RealDiv", "TruncateDiv"])
PRODUCTS = QUOTIENTS | {"Mul", "Pow", "Prod", "Square", "SquaredDifference"}
# ops whose numbers are none of their inputs': places of elements, and truth values
OF_NONE = frozenset([
    "Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "LogicalAnd", "LogicalNot", "LogicalOr", "NotEqual",
    "Where",
])  # fmt: skip
# ops whose result is made of their first input; the others say which part, or along which axis
OF_FIRST = frozenset([
    "ExpandDims", "Gather", "GatherV2", "Max", "Min", "Prod", "Reshape", "Slice", "Squeeze", "StridedSlice", "Sum",
    "Transpose",
])  # fmt: skip
# ops whose numbers XLA bounds as it does the shapes that they are made of
OF_SHAPES = SHAPES | {"BroadcastGradientArgs", "ConcatOffset", "DynamicStitch", "ParallelDynamicStitch"}
# ops whose result rises with their inputs, or is a part of them: for the most rows it is the most. What differences are
# at most XLA knows too, but not in the bodies of branches and loops
RISING = OF_FIRST | {
    "Add", "AddN", "AddV2", "Cast", "Ceil", "ConcatV2", "EnsureShape", "Enter", "Exit", "Floor", "Identity",
    "IdentityN", "Maximum", "Minimum", "Mul", "Neg", "NextIteration", "Pack", "PreventGradient", "Rint", "Round",
    "Snapshot", "Split", "SplitV", "Sqrt", "Square", "StopGradient", "Sub", "Switch", "Unpack",
}  # fmt: skip
POP = "StackPopV2"
INTO_BODIES = frozenset(["Switch", "Enter"])  # lead into what becomes the body of a branch or loop


def problem(node: Node, view: Any) -> tuple[Value, str] | None:
    """Returns (an input, what XLA does with it) of a node whose size XLA bounds wrongly, else None.

    Args:
        node: one of the view's graph.
        view: `dynamic_shapes.View`.
    """
    for size in (node.inputs[number] for number in SIZES.get(node.op, ()) if number < len(node.inputs)):
        if view.constant(size) is not None or not (view.depends_on_open(size) or varies(size, view)):
            continue
        if node.op == "Range" and not _is_rising(node, size, view):
            return size, "is bounded from its first element up to the most rows that there may be"
        if node.op == "Tile" and not _repeats_single(node, view):
            return size, "has as many rows as it has copies"
        if any(_may_be_negative(view, factor) for factor in _factors(size)):
            return size, "is bounded by the most rows that there may be, though a factor may be negative"
        unbounded = None if node.op in AXES else _unbounded(size, view)
        if unbounded is not None:
            what = "is bounded by what node '%s' (%s) gives for the most rows, though it may give more for fewer"
            return size, what % (unbounded.name, unbounded.op)
    return None


def varies(value: Value, view: Any) -> bool:
    """Whether a value is computed of tensors of open size, or of their shapes; a rank is always known."""
    pending, seen = [value], set[Value]()
    while pending:
        value = pending.pop()
        node, sources = value.node, _sources(value)
        if value in seen or node.op == "Rank":
            continue
        seen.add(value)
        if node in view.counts or any(source in sources for source in view.open_inputs(node)):
            return True
        pending += sources if node.op not in SHAPES else []
        pending += _pushed(node) if node.op == POP else []
    return False


def _sources(value: Value) -> Sequence[Value]:
    """The inputs that an output is computed of."""
    inputs = value.node.inputs
    return inputs[value.index : value.index + 1] if value.node.op == "IdentityN" else inputs


def _pushed(pop: Node) -> list[Value]:
    """What a loop has pushed on the Stack that its gradient takes a value from."""
    stack = _stack(pop)
    return [node.inputs[1] for node in pop.graph if node.op == "StackPushV2" and _stack(node) is stack]


def _stack(node: Node) -> Node:
    handle = node.inputs[0].node
    while handle.op in ("Enter", "Switch", "Identity"):
        handle = handle.inputs[0].node
    return handle


def _unbounded(size: Value, view: Any) -> Node | None:
    """A node on the way to a size that may give more for fewer rows than for the most; None if there is none."""
    pending, seen, way = [size], set[Value](), dict[Node, None]()
    while pending:
        value = pending.pop()
        node = value.node
        if value in seen or node.op in OF_SHAPES or not varies(value, view):
            continue
        seen.add(value)
        way[node] = None
        if node not in view.counts:
            if not _rises(node, view):
                return node
            pending += _sources(value)
    in_body = any(node.op in INTO_BODIES or node in view.counts for node in way)
    return next((node for node in way if node.op in FALLING or node in view.falling), None) if in_body else None


def falls(value: Value, view: Any) -> bool:
    """Whether a number is computed of differences."""
    return any(node.op in FALLING or node in view.falling for node in _upstream(value))


def _rises(node: Node, view: Any) -> bool:
    if node.op == "Merge":
        return closes_loop(node)
    if node.op in QUOTIENTS:
        return not varies(node.inputs[1], view) or _is_reduced_shape(node.inputs[1])
    if node.op in OF_FIRST:
        return not any(varies(value, view) for value in node.inputs[1:])
    return node.op in RISING


def _is_reduced_shape(value: Value) -> bool:
    """Whether a divisor is the shape of a sum, as in the sum's gradient: the quotient is the number of its terms."""
    node = value.node
    return node.op == "Maximum" and any(source.node.op == "DynamicStitch" for source in node.inputs)


def _is_rising(node: Node, size: Value, view: Any) -> bool:
    """Whether it is the limit alone that is computed, and the range rises; XLA itself refuses a computed step."""
    start, limit, step = node.inputs
    by = view.constant(step)
    return by is None or (size is limit and bool((by > 0).all()) and not view.depends_on_open(start))


def _repeats_single(node: Node, view: Any) -> bool:
    """Whether each axis whose new size is open has size 1 before."""
    before, after = view.static_shape(node.inputs[0]), view.static_shape(node.value)
    if before.rank is None or after.rank is None:
        return False
    return all(size is not None or was == 1 for was, size in zip(before.as_list(), after.as_list()))


def _upstream(value: Value) -> Iterator[Node]:
    """The nodes that a size is computed of, up to shapes of tensors and places of elements, which are not negative."""
    return reached([value.node], lambda node: [
        operand.node for operand in ([] if node.op in SHAPES or node.op in OF_NONE else _operands(node))
    ])  # fmt: skip


def _operands(node: Node) -> Sequence[Value]:
    inputs = node.inputs
    return inputs[:1] if node.op in OF_FIRST else inputs[:-1] if node.op == "ConcatV2" else inputs


def _factors(size: Value) -> Iterator[Value]:
    """What is multiplied, or divided, on the way to a size."""
    for node in _upstream(size):
        if node.op in PRODUCTS:
            yield from [node.value] if node.op == "SquaredDifference" else _operands(node)


def _may_be_negative(view: Any, factor: Value) -> bool:
    """Whether a factor is a difference, or has a negative constant."""
    for node in _upstream(factor):
        if node.op in FALLING or node.op == "SquaredDifference":
            return True
        constant = view.constant(node.value)
        if constant is not None and bool((constant < 0).any()):
            return True
    return False
