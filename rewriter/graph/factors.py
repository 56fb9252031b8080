"""Scalars that tensors are multiplied by, and a loss scale that a script takes out of its gradients by hand.

    loss * 8192 -> tf.gradients -> g / 8192 -> optimizer            what a script writes
    ones (grad_ys) -> Mul(8192) -> ... backward ... -> g -> RealDiv(8192)     what its graph says of that

The scaled start of the backward pass is upstream of what takes the scale out again. So whoever asks about a division
learns the same whatever else is in the graph. Sessions ask of the tf.Graph, since TensorFlow folds the start into other
constants before it hands the graph over; files are asked as they are.
"""

from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Set

from .walks import reached

PASSES_ON = frozenset(
    {"Identity", "Cast", "Reshape", "Squeeze", "ExpandDims", "ReadVariableOp", "StopGradient", "Enter"}
)
DIVISIONS = ("RealDiv", "Div")
RECIPROCALS = ("Reciprocal", "Inv")
CLOSE = 1e-3  # reciprocals are rounded
# op -> the inputs that give the values of its result: the start of a backward pass is made of constants by these
STARTS: Dict[str, Sequence[int]] = {
    "Const": (), "OnesLike": (), "Fill": (1,), "Tile": (0,), "BroadcastTo": (0,), "Neg": (0,), "Mul": (0, 1),
    "RealDiv": (0, 1), **dict.fromkeys(sorted(PASSES_ON - {"ReadVariableOp"}), (0,)),
}  # fmt: skip
DEEP = 64  # ops that are looked at for the start of a backward pass


class Factor(NamedTuple):
    """A scalar that something is multiplied by.

    Attributes:
        name: str, the op that gives it; "" for a constant.
        value: float, the constant; or the exponent of what the op gives, 1 or -1.
    """

    name: str
    value: float


class Graph:
    """What the functions here ask of a graph: tensors and ops are whatever the class that answers makes of them."""

    def op(self, tensor: Any) -> Any:
        """The op that gives a tensor."""
        raise NotImplementedError

    def kind(self, op: Any) -> str:
        """The type of an op."""
        raise NotImplementedError

    def name(self, op: Any) -> str:
        """The name of an op."""
        raise NotImplementedError

    def inputs(self, op: Any) -> Sequence[Any]:
        """The tensors that an op reads."""
        raise NotImplementedError

    def readers(self, op: Any) -> Iterable[Any]:
        """The ops that read what an op gives."""
        raise NotImplementedError

    def is_scalar(self, tensor: Any) -> bool:
        """Whether a tensor is a float scalar."""
        raise NotImplementedError

    def constant(self, tensor: Any) -> Optional[float]:
        """The value of a float scalar that is a constant; None for anything else."""
        raise NotImplementedError


def factors_of(graph: Graph, op: Any) -> List[Factor]:
    """Returns the scalars that an op multiplies by or divides by: none, one or two."""
    kind = graph.kind(op)
    if kind == "Mul":
        return [factor(graph, tensor) for tensor in graph.inputs(op) if graph.is_scalar(tensor)]
    if kind in DIVISIONS and graph.is_scalar(graph.inputs(op)[1]):
        return [_inverse(factor(graph, graph.inputs(op)[1]))]
    return []


def factor(graph: Graph, tensor: Any) -> Factor:
    """Returns the scalar as its source gives it: a read of a variable is the variable."""
    value = graph.constant(tensor)
    if value is not None:
        return Factor("", value)
    op = graph.op(tensor)
    kind, inputs = graph.kind(op), graph.inputs(op)
    if kind in PASSES_ON and inputs:
        return factor(graph, inputs[0])
    if kind in RECIPROCALS:
        return _inverse(factor(graph, inputs[0]))
    if kind in DIVISIONS and graph.constant(inputs[0]) == 1.0:
        return _inverse(factor(graph, inputs[1]))
    return Factor(graph.name(op), 1.0)


def cancel(one: Factor, other: Factor) -> bool:
    """Whether two factors are one over the other; half a loss is no scale: of constants the first is above 1."""
    if one.name or other.name:
        return one.name == other.name and one.value == -other.value
    return abs(one.value) > 1.0 + CLOSE and abs(one.value * other.value - 1.0) < CLOSE


def unscaling(graph: Graph, products: Iterable[Any]) -> Set[Any]:
    """Returns the ops that take a scale out of gradients, which the script multiplied their loss by.

    Args:
        graph: the graph.
        products: all of its ops of type Mul.
    """
    starts: Dict[Factor, List[Any]] = {}
    for op in products:
        scale = _scale_of_start(graph, op)
        if scale is not None:
            starts.setdefault(scale, []).append(op)
    return {
        op
        for scale, ops in starts.items()
        for op in reached(ops, graph.readers)
        if any(cancel(scale, one) for one in factors_of(graph, op))
    }


def _scale_of_start(graph: Graph, op: Any) -> Optional[Factor]:
    """The scale by which an op multiplies what is made of constants alone, as the incoming gradient of a loss is."""
    one, other = graph.inputs(op)
    for scaled, by in ((one, other), (other, one)):
        if _is_of_constants(graph, scaled) and graph.is_scalar(by):  # in this order: a shape costs more
            scale = factor(graph, by)
            if scale.value > (0.0 if scale.name else 1.0 + CLOSE):
                return scale
    return None


def _is_of_constants(graph: Graph, tensor: Any) -> bool:
    for count, op in enumerate(reached([graph.op(tensor)], lambda op: _givers(graph, op))):
        if graph.kind(op) not in STARTS or count == DEEP:
            return False
    return True


def _givers(graph: Graph, op: Any) -> Iterator[Any]:
    inputs = graph.inputs(op)
    return (graph.op(inputs[number]) for number in STARTS.get(graph.kind(op), ()))


def _inverse(one: Factor) -> Factor:
    if one.name:
        return one._replace(value=-one.value)
    return one._replace(value=1.0 / one.value if one.value else 0.0)
