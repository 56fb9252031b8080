"""Constants beyond a low dtype whose size counts after all: what carries them and what computes with them is float32.

    Const(-1e9) -> Select(mask, scores, .) -> Softmax     a number that hides others: clamped to -65504, see clamping.py
    Const(1e6) -> Select(mask, x, .) -> Mul(1e-3)         1000, of 65504 it were 65.5: Select and Mul keep float32

Whether a clamp does harm is told by what reads the carrier, through all that moves, chooses, adds and bounds. So this
is the one rule of the planner that looks downstream, and only where a constant is beyond the dtype. Fetches do not
count.
"""

from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from ..graph.facts import Facts
from ..graph.folding import known
from ..graph.graph_view import GraphView, Port
from ..tables.dtypes import FLOATS, LIMITS
from ..tables.op_table import OpTable
from .clamping import COMPARES, HIDES, MOVES, is_mask, only_size_matters

NEGATIVE, POSITIVE = 1, 2
BOTH = NEGATIVE | POSITIVE
HIDING = 1e3  # a number of this size still hides what else there is, for example in a Softmax
# op -> of which sign a large number leaves nothing of its size in the result; of the other sign it is handed on
VANISHES: Dict[str, int] = {
    **dict.fromkeys((
        "Softmax", "LogSoftmax", "SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits", "ArgMax",
        "ArgMin", "Multinomial", "Exp", "Expm1", "Sigmoid", "Tanh", "Erf", "Sign", "Relu6", "IsFinite", "IsInf",
        "IsNan", "Where", "Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike", *COMPARES,
    ), BOTH),
    **dict.fromkeys(("Relu", "Elu", "Selu", "Softplus", "Max", "MaxPool", "MaxPoolV2", "SegmentMax"), NEGATIVE),
    **dict.fromkeys(("UnsortedSegmentMax", "SegmentMaxV2"), NEGATIVE),
    **dict.fromkeys(("Min", "SegmentMin", "UnsortedSegmentMin", "SegmentMinV2"), POSITIVE),
}  # fmt: skip
# a bound takes away what is beyond it, unless it is that large itself
BOUNDS = {"Maximum": NEGATIVE, "Minimum": POSITIVE}
HANDS_ON = HIDES | MOVES | {"TopK", "TopKV2", "Mul", "RealDiv", "Neg", "Abs"}


class Carried(NamedTuple):
    """What a tensor may carry: numbers beyond the low dtype, of these signs, since multiplied by `scale` at least."""

    signs: int
    scale: float = 1.0


COMPUTES = Carried(0)  # what reads it computes with its size
Effect = Optional[Carried]  # None: nothing of the size is left


def carriers(view: GraphView, facts: Facts, table: OpTable, low: int) -> Set[int]:
    """Positions of the nodes that carry constants beyond a low dtype to ops that compute with their size, and of these.

    Args:
        view: the graph.
        facts: what is known of its constants.
        table: which ops move data, and which compute.
        low: the low dtype.
    """
    walk = _Walk(view, facts, table, low)
    if not walk.carried:
        return set()
    walk.follow()
    return walk.kept()


class _Walk:
    def __init__(self, view: GraphView, facts: Facts, table: OpTable, low: int) -> None:
        self._view, self._facts, self._table, self._low = view, facts, table, low
        self._readers = view.consumers()
        self.carried: Dict[Port, Carried] = {}
        for position in view.of_ops([*HIDES, *MOVES, "Fill", "OneHot", "PadV2", "Mul"]):
            for number, port in enumerate(view.nodes[position].inputs):
                if port not in self.carried and only_size_matters(view, position, number) and self._is_beyond(port):
                    self.carried[port] = Carried(self._signs(port))
        self._constants = set(self.carried)

    def follow(self) -> None:
        """Finds what each tensor carries, to a fixed point: whether a bound bounds depends on what it carries."""
        ahead = list(self.carried)
        while ahead:
            for reader in {*self._readers[ahead.pop().node]}:
                for _, effect, given in self._steps(reader):
                    ahead += [port for port in given if effect is not None and self._merge(port, effect)]

    def _merge(self, port: Port, carried: Carried) -> bool:
        """Adds to what a tensor carries; returns whether that is more than before."""
        old = self.carried.get(port, carried)
        new = Carried(old.signs | carried.signs, min(old.scale, carried.scale))
        is_more = self.carried.get(port) != new
        self.carried[port] = new
        return is_more

    def kept(self) -> Set[int]:
        """The nodes from the constants to where they are computed with."""
        givers: Dict[Port, List[Port]] = {}
        ahead, positions = [], set()
        for reader in {reader for port in self.carried for reader in self._readers[port.node]}:
            for taken, effect, given in self._steps(reader):
                if effect is COMPUTES:
                    ahead.append(taken)
                    positions.update([reader] if self._role(reader) == "computes" else [])
                for port in given:
                    givers.setdefault(port, []).append(taken)
        seen: Set[Port] = set()
        while ahead:
            port = ahead.pop()
            if port not in seen and port not in self._constants:
                seen.add(port)
                positions.add(port.node)
                ahead += givers.get(port, ())
        return positions

    def _steps(self, reader: int) -> Iterator[Tuple[Port, Effect, List[Port]]]:
        """For each tensor that a node reads and that carries: it, what the node makes of it, and what it gives so."""
        node = self._view.nodes[reader]
        for number, port in enumerate(node.inputs):
            if port in self.carried:
                effect = self._effect(reader, number, self.carried[port])
                outputs = range(len(node.layout.outputs)) if node.op != "IdentityN" else [number]
                given = [Port(reader, n) for n in outputs if node.output_dtype(n) in FLOATS]
                yield port, effect, [p for p in given if effect and effect.signs and p not in self._view.fed]

    def _effect(self, position: int, number: int, carried: Carried) -> Effect:
        node = self._view.nodes[position]
        if node.inputs[number] in self._constants and not only_size_matters(self._view, position, number):
            return None  # no constant that is clamped for this reader
        left = carried.signs & ~VANISHES.get(node.op, 0)
        if not left:
            return None if carried.scale * LIMITS[self._low].largest >= HIDING else COMPUTES
        rule = _RULES.get(node.op)
        if rule is not None:
            return rule(self, position, number, carried)
        role = self._role(position)
        if role in ("moves", "cast") or node.op in HANDS_ON or node.op in VANISHES:
            return carried._replace(signs=left)
        return None if role == "container" else COMPUTES

    def _role(self, position: int) -> Optional[str]:
        entry = self._table.entries.get(self._view.nodes[position].op)
        return None if entry is None else entry.role

    def added(self, position: int, number: int, carried: Carried) -> Effect:
        """A sum or a difference: what cancels such a number computes with its size."""
        node = self._view.nodes[position]
        turned = node.op == "Sub" and number == 1
        own = _flipped(carried.signs) if turned else carried.signs
        for other, port in enumerate(node.inputs):
            if other != number and port in self.carried:
                signs = self.carried[port].signs
                signs = _flipped(signs) if node.op == "Sub" and other == 1 else signs
                if signs != own or own == BOTH:
                    return COMPUTES
        return carried._replace(signs=own)

    def bounded(self, position: int, number: int, carried: Carried) -> Effect:
        """A bound leaves nothing behind it that is beyond it, nor of itself: what it bounds is not beyond the dtype.

        Where both sides carry such numbers, either may be the result.
        """
        node = self._view.nodes[position]
        if node.inputs[1 - number] in self.carried:
            return carried
        signs = carried.signs & ~BOUNDS[node.op]
        return carried._replace(signs=signs) if signs else None

    def multiplied(self, position: int, number: int, carried: Carried) -> Effect:
        """A product with a mask, or a product or quotient with a constant that leaves the number a large one."""
        node = self._view.nodes[position]
        other = node.inputs[1 - number]
        if node.op == "Mul" and is_mask(self._view, other):
            return carried._replace(signs=_masked(self._view, other, carried.signs))
        limits = self._facts.range(other)
        if limits is None or limits[0] != limits[1] or not limits[0] or (node.op == "RealDiv" and number == 1):
            return COMPUTES
        factor = limits[0] if node.op == "Mul" else 1.0 / limits[0]
        scale = carried.scale * min(abs(factor), 1.0)
        if scale * LIMITS[self._low].largest < HIDING:
            return COMPUTES
        return Carried(carried.signs if factor > 0 else _flipped(carried.signs), scale)

    def turned(self, position: int, number: int, carried: Carried) -> Effect:
        """Neg and Abs."""
        is_neg = self._view.nodes[position].op == "Neg"
        return carried._replace(signs=_flipped(carried.signs) if is_neg else POSITIVE)

    def _is_beyond(self, port: Port) -> bool:
        return known(self._view, port) and self._facts.overflows(port, self._low)

    def _signs(self, port: Port) -> int:
        limits, most = self._facts.range(port), LIMITS[self._low].largest
        if limits is None:
            return BOTH
        return (NEGATIVE if limits[0] < -most else 0) | (POSITIVE if limits[1] > most else 0)


def _masked(view: GraphView, mask: Port, signs: int) -> int:
    """The signs of a product with a mask: 1 - mask is none below zero, mask - 1 none above."""
    node = view.nodes[mask.node]
    if node.op != "Sub":
        return signs
    ones = [known(view, port) for port in node.inputs]
    return BOTH if ones[0] == ones[1] else signs if ones[0] else _flipped(signs)


def _flipped(signs: int) -> int:
    return (NEGATIVE if signs & POSITIVE else 0) | (POSITIVE if signs & NEGATIVE else 0)


_RULES: Dict[str, Callable[[_Walk, int, int, Carried], Effect]] = {
    **dict.fromkeys(("Add", "AddV2", "AddN", "Sub", "BiasAdd"), _Walk.added),
    **dict.fromkeys(BOUNDS, _Walk.bounded),
    **dict.fromkeys(("Mul", "RealDiv"), _Walk.multiplied),
    **dict.fromkeys(("Neg", "Abs"), _Walk.turned),
}
