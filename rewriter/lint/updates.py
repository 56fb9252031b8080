"""The rule about updates: float32 variables whose new value is computed in float16.

w = w - 0.0001 * g    with the difference in float16: steps below 1/2048 of a weight do not move it
moving -= (moving - mean) * 0.01    the same for the statistics of a batch norm
"""

from typing import Iterator, List, NamedTuple, Optional

from ..graph.graph_view import Port
from .seen import MOVES, WAY_OUT, Finding, Seen, told


class Writer(NamedTuple):
    """An op that writes a variable: the number of the input with the value, and whether it adds to what is there."""

    value: int
    adds: bool


WRITERS = {
    "Assign": Writer(1, False),
    "AssignVariableOp": Writer(1, False),
    "AssignAdd": Writer(1, True),
    "AssignAddVariableOp": Writer(1, True),
    "AssignSub": Writer(1, True),
    "AssignSubVariableOp": Writer(1, True),
    "ScatterAdd": Writer(2, True),
    "ScatterSub": Writer(2, True),
    "ResourceScatterAdd": Writer(2, True),
    "ResourceScatterSub": Writer(2, True),
}
ARITHMETIC = ("Add", "AddV2", "AddN", "Sub", "Mul", "RealDiv", "Div", "Neg", "Sqrt", "Rsqrt", "Select", "SelectV2")
READS = ("ReadVariableOp",)
# what is lost, for a writer that replaces the value, and for one that adds to it
LOST = {
    False: "a change below 1/2048 of a value does not move it",
    True: "a change below 6e-08 is zero, and a difference below 1/2048 of its terms is lost",
}
SMALL = 1e-3  # learning rates up to this make gradients zero that float16 still holds
DEEP = 64  # nodes that the rule looks at for a variable


def low_updates(seen: Seen) -> Iterator[str]:
    """Variables that are written with what float16 computes from them."""
    findings = []
    for node in (seen.plan.view.nodes[position] for position in seen.plan.view.of_ops(WRITERS)):
        writer = WRITERS[node.op]
        source = seen.origin(node.inputs[writer.value])
        given = seen.node(source)
        if given.op not in ARITHMETIC or not seen.is_lowered(source.node):
            continue
        variable, within = node.inputs[0].node, _expression(seen, source)
        factor = _factor(seen, within)
        small = writer.adds and factor is not None and abs(factor) <= SMALL
        if small or variable in within:
            text = "variable '%%s'%s is updated by '%%s' (op %%s), computed in float16%%s: %%s; %%s"
            name = seen.plan.view.nodes[variable].name
            values = (name, given.name, given.op, _times(factor), LOST[writer.adds], WAY_OUT)
            findings.append(((node.op, given.op, values[3]), Finding(text, values)))
    yield from told(findings)


def _expression(seen: Seen, port: Port) -> List[int]:
    """Positions of the nodes that compute a value by arithmetic, and of what that reads."""
    reached, waiting = {port.node: None}, [port]
    while waiting and len(reached) < DEEP:
        node = seen.node(waiting.pop(0))
        if node.op in ARITHMETIC or node.op in MOVES or node.op in READS:
            for taken in node.inputs:
                if taken.node not in reached:
                    reached[taken.node] = None
                    waiting.append(taken)
    return list(reached)


def _factor(seen: Seen, within: List[int]) -> Optional[float]:
    """The smallest constant below 1 that an update is multiplied by: a learning rate, or one less a decay."""
    products = [seen.plan.view.nodes[position] for position in within if seen.plan.view.nodes[position].op == "Mul"]
    factors = [seen.scalar(port) for node in products for port in node.inputs]
    small = [factor for factor in factors if factor is not None and 0 < abs(factor) < 1]
    return min(small, key=abs) if small else None


def _times(factor: Optional[float]) -> str:
    return "" if factor is None else " (times %g)" % factor
