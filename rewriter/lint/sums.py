"""Rules about sums in float16: long ones, and variances.

A sum in float16 no longer grows where a term is less than 1/2048 of it, and is infinity beyond 65504.
"""

from typing import Iterable, Iterator, Optional, Tuple

from ..graph.graph_view import Node, Port
from ..inference.properties import Attributes
from ..tables.dtypes import INFINITE_FROM
from .seen import WAY_OUT, Finding, Seen, told

LONG = 2048  # equal terms from which a partial sum no longer grows
OVER_AXES = ("Sum", "Mean")  # their second input has the axes
SUMS = frozenset((*OVER_AXES, "Cumsum", "L2Loss", "BiasAddGrad", "AvgPool"))  # all ops that `_count` knows
SQUARES = ("Square", "SquaredDifference")


def long_sums(seen: Seen) -> Iterator[str]:
    """Sums and means in float16 of so many elements that partial sums lose terms or overflow."""
    findings = []
    for position in seen.plan.view.of_ops(SUMS):
        node = seen.plan.view.nodes[position]
        if not seen.is_lowered(position):
            continue
        count = _count(seen, position, node)
        if count > LONG:
            over = _overflowing(seen, node.inputs[0], count)
            text = (
                "'%%s' (op %%s)%s adds %%s%%d elements in float16: terms below 1/2048 of a partial sum are lost%%s; %%s"
            )
            values = (node.name, node.op, "at least " if _is_open(seen, node) else "", count, over, WAY_OUT)
            findings.append(((node.op, count), Finding(text, values)))
    yield from told(findings)


def _overflowing(seen: Seen, port: Port, count: int) -> str:
    """In words whether partial sums overflow, as far as is known."""
    limits = seen.facts.range(port)
    if limits is None:
        return ", and it is infinity from 65504 on"
    most = max(map(abs, limits)) * count
    return ", and it may reach %g, which becomes infinity" % most if most >= INFINITE_FROM else ""


def _count(seen: Seen, position: int, node: Node) -> int:
    """The number of elements that go into one sum, as far as is known: open dimensions count once; 0 for no sum."""
    if node.op == "AvgPool":
        return _product(Attributes(seen.protos[position])["ksize"].list.i)
    summed = _summed(seen, node)
    return 0 if summed is None else _product(summed)


def _summed(seen: Seen, node: Node) -> Optional[Tuple[object, ...]]:
    """The dimensions that a node sums over; None for no sum, or where nothing is known."""
    shape = seen.facts.shape(node.inputs[0]) if node.op in (*OVER_AXES, "Cumsum", "L2Loss", "BiasAddGrad") else None
    if shape is None or node.op == "L2Loss":
        return shape
    if node.op == "BiasAddGrad":
        return shape[:-1]
    axes = seen.facts.integers(node.inputs[1])
    if axes is None or not all(-len(shape) <= axis < len(shape) for axis in axes):
        return None
    return tuple(shape[axis] for axis in axes)


def _is_open(seen: Seen, node: Node) -> bool:
    return not all(isinstance(dim, int) for dim in _summed(seen, node) or ())


def _product(dims: Iterable[object]) -> int:
    product = 1
    for dim in dims:
        product *= dim if isinstance(dim, int) else 1
    return product


def variances(seen: Seen) -> Iterator[str]:
    """Variances in float16: means of squares that are lowered themselves."""
    findings = []
    for position in seen.plan.view.of_ops(OVER_AXES):
        node = seen.plan.view.nodes[position]
        if not seen.is_lowered(position):
            continue
        source = seen.origin(node.inputs[0])
        squares = seen.node(source)
        if _is_square(squares) and seen.is_lowered(source.node):
            text = (
                "'%%s' (op %%s)%s is a variance in float16: '%%s' (op %%s) is zero for differences below 0.00017 and "
                "infinity above 255; %%s"
            )
            values = (node.name, node.op, squares.name, squares.op, WAY_OUT)
            findings.append(((node.op, squares.op), Finding(text, values)))
    yield from told(findings)


def _is_square(node: Node) -> bool:
    return node.op in SQUARES or (node.op == "Mul" and node.inputs[0] == node.inputs[1])
