"""Scalars that tensors are multiplied by, and a loss scale that a script takes out of its gradients by hand.

    loss * 8192 -> tf.gradients -> g / 8192 -> optimizer            what a script writes
    ones (grad_ys) -> Mul(8192) -> ... backward ... -> g -> RealDiv(8192)     what its graph says of that

The scaled start of the backward pass is upstream of what takes the scale out again. So whoever asks about a division
learns the same whatever else is in the graph. Sessions ask of the tf.Graph, since TensorFlow folds the start into other
constants before it hands the graph over; files are asked as they are.

    loss * 64 * 128, g / 8192        factors that follow one another are one, their product
    AddN(g, g) / (2 * 8192)          what takes out the scale, and a whole number of towers, batches or ranks with it
"""

import math
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from .walks import reached

PASSES_ON = frozenset(
    {"Identity", "Cast", "Reshape", "Squeeze", "ExpandDims", "ReadVariableOp", "StopGradient", "Enter"}
)
DIVISIONS = ("RealDiv", "Div", "DivNoNan")
RECIPROCALS = ("Reciprocal", "Inv")
CLOSE = 1e-3  # reciprocals are rounded
# op -> the inputs that give the values of its result: the start of a backward pass is made of constants by these
STARTS: Dict[str, Sequence[int]] = {
    "Const": (), "OnesLike": (), "Fill": (1,), "Tile": (0,), "BroadcastTo": (0,), "Neg": (0,), "Mul": (0, 1),
    "RealDiv": (0, 1), **dict.fromkeys(sorted(PASSES_ON - {"ReadVariableOp"}), (0,)),
}  # fmt: skip
DEEP = 64  # ops that are looked at for the start of a backward pass
EXPRESSION = 8  # ops that a scalar is made of, at most
RUN = 4  # factors that follow one another, at most
SUMS = ("AddN",)  # of gradients that are scaled alike, between two factors of a run
LEAST = (
    16.0  # a smaller constant is a loss scale only if just that is taken out: losses have weights, batches sizes
)
MOST_PARTS = 4096  # towers, batches and ranks that a gradient is the mean of
# what only a backward pass or a model computes: a division before it is that of a mean, for example of a layer norm
PRODUCTS = ("MatMul", "BatchMatMul", "Conv", "DepthwiseConv", "Einsum")


class Factor(NamedTuple):
    """A number, and powers of scalars that ops give, that something is multiplied by.

    Attributes:
        names: ((name of an op, its exponent), ...), by name; empty for a constant.
        value: float.
    """

    names: Tuple[Tuple[str, int], ...]
    value: float

    def times(self, other: "Factor") -> "Factor":
        """The product of two factors."""
        if not (self.names and other.names):
            return Factor(self.names or other.names, self.value * other.value)
        exponents = dict(self.names)
        for name, exponent in other.names:
            exponents[name] = exponents.get(name, 0) + exponent
        names = sorted((name, exponent) for name, exponent in exponents.items() if exponent)
        return Factor(tuple(names), self.value * other.value)

    def inverse(self) -> "Factor":
        """One over the factor; 0 for 0."""
        names = tuple((name, -exponent) for name, exponent in self.names)
        return Factor(names, 1.0 / self.value if self.value else 0.0)

    def __str__(self) -> str:
        number = [] if self.names and self.value == 1.0 else ["%g" % self.value]
        return " * ".join(number + ["'%s'" % name for name, _ in self.names])


# scale -> the ops that a backward pass starts with and that multiply by it, and those that take it out
ByScale = Dict[Factor, Tuple[List[Any], Set[Any]]]


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
        """Whether a tensor is a float scalar, or is known to have one element."""
        raise NotImplementedError

    def constant(self, tensor: Any) -> Optional[float]:
        """The value of a float scalar that is a constant; None for anything else."""
        raise NotImplementedError


def factors_of(graph: Graph, op: Any) -> List[Factor]:
    """Returns the scalars that an op multiplies by or divides by: none, one or two."""
    return [by for by, _ in scalings(graph, op)]


def scalings(graph: Graph, op: Any) -> List[Tuple[Factor, Any]]:
    """Returns what an op multiplies by or divides by, each with the tensor that it scales so: none, one or two."""
    kind = graph.kind(op)
    if kind == "Mul":
        one, other = graph.inputs(op)
        return [(factor(graph, by), scaled) for by, scaled in ((one, other), (other, one)) if graph.is_scalar(by)]
    if kind in DIVISIONS and graph.is_scalar(graph.inputs(op)[1]):
        scaled, by = graph.inputs(op)
        return [(factor(graph, by).inverse(), scaled)]
    return []


def products(graph: Graph, op: Any, left: int = RUN) -> Iterator[Tuple[Factor, Tuple[Any, ...]]]:
    """Yields the products of the factors that follow one another up to an op, each with the ops that multiply by them.

    Args:
        graph: the graph.
        op: the last of these ops.
        left: how many factors are looked for.
    """
    for by, scaled in scalings(graph, op):
        yield by, (op,)
        before = graph.op(scaled)
        while graph.kind(before) in PASSES_ON or graph.kind(before) in SUMS:
            before = graph.op(graph.inputs(before)[0])
        for other, ops in products(graph, before, left - 1) if left > 1 else ():
            yield by.times(other), (op, *ops)


def factor(graph: Graph, tensor: Any, left: int = EXPRESSION) -> Factor:
    """Returns the scalar as its sources give it: a read of a variable is the variable, a product that of its factors.

    Args:
        graph: the graph.
        tensor: a scalar, or a tensor of one element.
        left: how many products and quotients are looked into.
    """
    value = graph.constant(tensor)
    if value is not None:
        return Factor((), value)
    op = graph.op(tensor)
    kind, inputs = graph.kind(op), graph.inputs(op)
    if kind in PASSES_ON and inputs:
        return factor(graph, inputs[0], left)
    if kind in RECIPROCALS:
        return factor(graph, inputs[0], left).inverse()
    if left and (kind == "Mul" or kind in DIVISIONS):
        other = factor(graph, inputs[1], left - 1)
        return factor(graph, inputs[0], left - 1).times(other if kind == "Mul" else other.inverse())
    power = _power(graph, inputs) if kind == "Pow" else None
    return power or Factor(((graph.name(op), 1),), 1.0)


def _power(graph: Graph, inputs: Sequence[Any]) -> Optional[Factor]:
    """A constant to the power of another, or one over something; None for another power."""
    base, exponent = (factor(graph, tensor, 0) for tensor in inputs)
    if exponent.names:
        return None
    if base.names:
        return base.inverse() if exponent.value == -1.0 else None
    try:
        return Factor((), math.pow(base.value, exponent.value))
    except (OverflowError, ValueError):
        return None


def cancel(one: Factor, other: Factor) -> bool:
    """Whether a factor of gradients takes that of their loss out of them, or that and a whole number of parts.

    Half a loss is no scale: of constants the first is above 1.
    """
    if len(one.names) != len(other.names):
        return False
    rest = one.times(other)
    if rest.names or rest.value <= 0.0 or (not one.names and abs(one.value) <= 1.0 + CLOSE):
        return False
    parts = round(1.0 / rest.value) if rest.value > 0.5 / MOST_PARTS else 0
    if not 1 <= parts <= MOST_PARTS or abs(rest.value * parts - 1.0) >= CLOSE / parts:
        return False
    return parts == 1 or bool(one.names) or abs(one.value) >= LEAST


def unscaling(graph: Graph, scales: ByScale) -> Set[Any]:
    """Returns the ops that take a scale out of gradients, which the script multiplied their loss by.

    Those that go on to scale what these give are among them: TensorFlow makes one op of two.

    Args:
        graph: the graph.
        scales: as `unscaling_by_start` returns them.
    """
    ops: Set[Any] = set()
    for _, taken in scales.values():
        ops |= taken
    following = reached(ops, lambda op: [reader for reader in graph.readers(op) if _goes_on(graph, reader)])
    return {op for op in following if scalings(graph, op)}


def unscaling_by_start(graph: Graph, multiplications: Iterable[Any]) -> ByScale:
    """Returns, for each scale that a backward pass starts with, the ops that do so, and those that take it out.

    Args:
        graph: the graph.
        multiplications: all of its ops of type Mul.
    """
    starts: Dict[Factor, List[Any]] = {}
    for op in multiplications:
        for scale in _scales_of_start(graph, op):
            starts.setdefault(scale, []).append(op)
    known: Dict[Any, List[Tuple[Factor, Tuple[Any, ...]]]] = {}
    by_scale: ByScale = {}
    for scale, ops in starts.items():
        _, taken = by_scale[scale] = ops, set()
        for op in reached(ops, graph.readers):
            if op not in known:
                known[op] = list(products(graph, op))
            for by, run in known[op]:
                if cancel(scale, by) and (_is_all(scale, by, run) or _ends(graph, op)):
                    taken.update(run)
    return by_scale


def _is_all(scale: Factor, by: Factor, run: Sequence[Any]) -> bool:
    """Whether one op takes out just the scale."""
    return len(run) == 1 and abs(scale.times(by).value - 1.0) < CLOSE


def _ends(graph: Graph, op: Any) -> bool:
    """Whether an op scales a gradient that no backward pass goes on with."""
    if all(_is_of_constants(graph, tensor) for tensor in graph.inputs(op)):
        return False
    return not any(graph.kind(reader).startswith(PRODUCTS) for reader in reached([op], graph.readers))


def _goes_on(graph: Graph, op: Any) -> bool:
    return graph.kind(op) in PASSES_ON or bool(scalings(graph, op))


def _scales_of_start(graph: Graph, op: Any) -> Iterator[Factor]:
    """The scales by which an op, and those before it, multiply what is of constants, as a loss's first gradient is."""
    one, other = graph.inputs(op)
    for scaled, by in ((one, other), (other, one)):
        if _is_of_constants(graph, scaled) and graph.is_scalar(by):  # in this order: a shape costs more
            scales = {product for product, _ in products(graph, op)}
            yield from sorted(scale for scale in scales if _is_scale(scale))
            return


def _is_scale(scale: Factor) -> bool:
    if not scale.names:
        return scale.value > 1.0 + CLOSE
    return scale.value > 0.0 and all(exponent > 0 for _, exponent in scale.names)


def _is_of_constants(graph: Graph, tensor: Any) -> bool:
    for count, op in enumerate(reached([graph.op(tensor)], lambda op: _givers(graph, op))):
        if graph.kind(op) not in STARTS or count == DEEP:
            return False
    return True


def _givers(graph: Graph, op: Any) -> Iterator[Any]:
    inputs = graph.inputs(op)
    return (graph.op(inputs[number]) for number in STARTS.get(graph.kind(op), ()))
