"""The rule about epsilons: small constants that keep a divisor off zero, and that float16 rounds to zero.

x / (sqrt(v) + 1e-8)      the sum is zero in float16 where v is, and the quotient infinity or NaN
rsqrt(maximum(s, 1e-12))  a million where s is zero, which float16 rounds to infinity
"""

from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from ..graph.graph_view import Node, Port
from ..tables.dtypes import INFINITE_FROM, ZERO_UP_TO
from .seen import MOVES, WAY_OUT, Finding, Seen, told

ADDS = ("Add", "AddV2", "Maximum")
# op -> the input that it divides by, or whose logarithm it takes
DIVIDES = {"RealDiv": 1, "Div": 1, "Rsqrt": 0, "Reciprocal": 0, "Inv": 0, "Log": 0}
# op -> the exponent that it applies to what it reads
POWERS = {"Sqrt": 0.5, "Rsqrt": -0.5, "Reciprocal": -1.0, "Inv": -1.0}
LARGEST = 1e-3  # of what counts as an epsilon
DEEP = 16  # ops that the rule follows a divisor through


class Guard(NamedTuple):
    """An op that adds a small constant to a divisor, or takes the larger one of the two.

    Attributes:
        position: of the op.
        epsilon: the constant.
        at: the position of the op whose result or whose reading is rounded to float16.
        value: what the constant has become there, before it is rounded.
        divides: the position of the op that divides; -1 where what is rounded is infinity.
    """

    position: int
    epsilon: float
    at: int
    value: float
    divides: int


def lost_epsilons(seen: Seen) -> Iterator[str]:
    """Epsilons that are zero in float16, and divisors whose reciprocal is infinity there."""
    nodes, findings = seen.plan.view.nodes, []
    for guard in guards(seen):
        node, at, by = nodes[guard.position], nodes[guard.at], nodes[guard.divides]
        if guard.divides < 0:
            text = (
                "'%%s' (op %%s)%s keeps a divisor at %%g or more, whose reciprocal %%g is rounded to float16 for '%%s' "
                "(op %%s): infinity, and NaN times zero; %%s"
            )
            values: Tuple[object, ...] = (node.name, node.op, guard.epsilon, guard.value, at.name, at.op)
        elif guard.at == guard.position:
            text = (
                "'%%s' (op %%s) divides by what has %%g added to it, which becomes zero: '%%s' (op %%s)%s is "
                "computed in float16; %%s"
            )
            values = (by.name, by.op, guard.epsilon, node.name, node.op)
        else:
            text = (
                "'%%s' (op %%s)%s keeps a divisor off zero by %%g, which becomes zero where it is rounded to float16 "
                "for '%%s' (op %%s); %%s"
            )
            values = (node.name, node.op, guard.epsilon, at.name, at.op)
        kind = (guard.epsilon, node.op, at.op, by.op)
        findings.append((kind, Finding(text, (*values, WAY_OUT))))
    yield from told(findings)


def guards(seen: Seen) -> List[Guard]:
    """The guards of divisors that float16 takes away."""
    view = seen.plan.view
    return [guard for position in view.of_ops(ADDS) for guard in _guard(seen, position, view.nodes[position])]


def _guard(seen: Seen, position: int, node: Node) -> Iterator[Guard]:
    if not seen.is_lowered(position) and seen.rounded.keys().isdisjoint(_powers(seen, position, 1.0)):
        return  # of most sums no constant needs to be read
    small = [value for value in map(seen.scalar, node.inputs) if value is not None and 0 < value <= LARGEST]
    if not small:
        return
    epsilon = small[0]
    if seen.is_lowered(position):
        divides = _divider(seen, position) if epsilon <= ZERO_UP_TO else None
        if divides is not None:
            yield Guard(position, epsilon, position, epsilon, divides)
        return
    for port, value in _powers(seen, position, epsilon).items():
        for reader in sorted(seen.rounded.get(port, ())):
            if value <= ZERO_UP_TO and _divides(seen, reader, port):
                yield Guard(position, epsilon, reader, value, reader)
            elif value >= INFINITE_FROM and node.op == "Maximum":
                yield Guard(position, epsilon, reader, value, -1)


def _powers(seen: Seen, position: int, epsilon: float) -> Dict[Port, float]:
    """The float32 tensors that a sum becomes by roots and reciprocals, and what the epsilon has become there."""
    epsilons = {Port(position, 0): epsilon}
    waiting = [(position, epsilon)]
    while waiting and len(epsilons) < DEEP:
        here, value = waiting.pop()
        for reader in seen.readers[here]:
            op, port = seen.plan.view.nodes[reader].op, Port(reader, 0)
            if (op in POWERS or op in MOVES) and port not in epsilons and not seen.is_low(port):
                epsilons[port] = value ** POWERS.get(op, 1.0)
                waiting.append((reader, epsilons[port]))
    return epsilons


def _divider(seen: Seen, position: int) -> Optional[int]:
    """The position of the first op that divides by what a node gives, through roots; None if there is none."""
    done, waiting = {position}, [position]
    while waiting and len(done) < DEEP:
        here = waiting.pop(0)
        for reader in sorted(seen.readers[here]):
            if _divides(seen, reader, Port(here, 0)):
                return reader
            op = seen.plan.view.nodes[reader].op
            if reader not in done and (op == "Sqrt" or op in MOVES):
                done.add(reader)
                waiting.append(reader)
    return None


def _divides(seen: Seen, position: int, port: Port) -> bool:
    node = seen.plan.view.nodes[position]
    return node.op in DIVIDES and node.inputs[DIVIDES[node.op]] == port
