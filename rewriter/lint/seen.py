"""What the rules look at: a plan, its constants, and where its values are rounded to its low dtype."""

from operator import attrgetter
from typing import Any, Dict, Hashable, Iterable, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np
import tensorflow.compat.v1 as tf

from ..graph import folding
from ..graph.facts import Facts
from ..graph.graph_view import Node, Port
from ..planner.casts import CastEdit
from ..planner.decisions import Plan
from ..tables.dtypes import FLOAT32, LIMITS, LOW, Limits
from ..tables.dtypes import name as dtype_name

# ops that hand on some of the values of their first input, and no others
MOVES = ("Identity", "Reshape", "ExpandDims", "Squeeze", "Transpose", "StridedSlice", "Slice", "Tile", "StopGradient")
WAY_OUT = "a keep_dtype_scope around that, or its op type on the black-list, keeps float32"


class Seen(NamedTuple):
    """A plan as the rules see it.

    Attributes:
        plan, protos, facts: as `rules.warnings` takes them.
        down: (Cast, node) for each Cast of a tensor to the low dtype that has consumers, the first by name.
            The Cast of an output that was itself lowered does not count: it rounds the result of a float32 kernel.
        rounded: the tensor of each of these that is no inserted Cast -> the positions that read it rounded, and
            not clamped.
        readers: positions of the nodes that read each node.
        scalars: what `scalar` has told, since several rules ask.
    """

    plan: Plan
    protos: Any
    facts: Facts
    down: List[Tuple[CastEdit, Node]]
    rounded: Dict[Port, List[int]]
    readers: List[List[int]]
    scalars: Dict[Port, Optional[float]]

    @property
    def limits(self) -> Limits:
        """Of the plan's low dtype."""
        return LIMITS[self.plan.policy.low]

    @property
    def low(self) -> str:
        """The name of the plan's low dtype."""
        return dtype_name(self.plan.policy.low)

    def node(self, port: Port) -> Node:
        """The node that gives an output."""
        return self.plan.view.nodes[port.node]

    def is_low(self, port: Port) -> bool:
        """Whether the plan has an output in low precision."""
        return _is_low(self.plan, port)

    def is_lowered(self, position: int) -> bool:
        """Whether the plan lowers the first output of a node."""
        node = self.plan.view.nodes[position]
        slot = node.layout.outputs[0] if node.layout.outputs else -1
        if slot < 0 or node.dtypes[slot] != FLOAT32:
            return False
        return self.plan.becomes[self.plan.first[position] + slot] == self.plan.policy.low

    def origin(self, port: Port, moves: Tuple[str, ...] = MOVES) -> Port:
        """The output that a value comes from, through ops that only hand values on."""
        return origin(self.plan, port, moves)

    def constant(self, port: Port) -> Optional[Any]:
        """The value of a float32 constant, or of arithmetic on such: float64 array; None for anything else."""
        source = self.origin(port)
        if not folding.known(self.plan.view, source):
            return None
        return self.evaluated(source)

    def evaluated(self, port: Port) -> Any:
        """The value of an output that is known to be constant: float64 array."""
        with np.errstate(all="ignore"):
            value = folding.value(self.plan.view, port, lambda p: tf.make_ndarray(self.protos[p].attr["value"].tensor))
            return np.asarray(value, np.float64)

    def scalar(self, port: Port) -> Optional[float]:
        """The value of a constant whose elements are all the same; None for anything else."""
        source = self.origin(port)
        if source not in self.scalars:
            values = self.constant(source)
            same = values is not None and values.size and (values == values.flat[0]).all()
            self.scalars[source] = float(values.flat[0]) if values is not None and same else None
        return self.scalars[source]


def look(plan: Plan, protos: Any, facts: Facts) -> Seen:
    """Returns a `Seen`; arguments as of `rules.warnings`."""
    down: List[Tuple[CastEdit, Node]] = []
    rounded: Dict[Port, List[int]] = {}
    behind = {cast.source: cast.consumers for cast in plan.casts}  # consumers behind the up-cast of a rounding
    for cast in plan.casts:
        readers = [*cast.consumers, *behind.get(cast.name, ())]
        if cast.dtype != plan.policy.low or not isinstance(cast.source, Port):
            continue
        if readers and not _is_low(plan, cast.source):
            down.append((cast, min((plan.view.nodes[position] for position, _ in readers), key=attrgetter("name"))))
            if not cast.clamped:
                rounded.setdefault(cast.source, []).extend(position for position, _ in readers)
    return Seen(plan, protos, facts, down, rounded, plan.view.consumers(), {})


def origin(plan: Plan, port: Port, moves: Tuple[str, ...] = MOVES) -> Port:
    """The output that a value comes from, through ops that only hand values on."""
    view = plan.view
    while view.nodes[port.node].op in moves and port not in view.fed:
        port = view.nodes[port.node].inputs[0]
    return port


class Finding(NamedTuple):
    """A warning to be told: `text` with "%s" for the number of findings like it, and "%%s" and so on for `values`."""

    text: str
    values: Tuple[object, ...]


def told(findings: Iterable[Tuple[Hashable, Finding]]) -> Iterator[str]:
    """Yields one warning for each kind of finding: its first, with the number of the others.

    Args:
        findings: (kind, Finding).
    """
    kinds: Dict[Hashable, List[Finding]] = {}
    for kind, finding in findings:
        kinds.setdefault(kind, []).append(finding)
    for (text, values), *others in kinds.values():
        yield text % (" (and %d more like it)" % len(others) if others else "") % values


def _is_low(plan: Plan, port: Port) -> bool:
    slot = plan.view.nodes[port.node].layout.outputs[port.port]
    return slot >= 0 and plan.becomes[plan.first[port.node] + slot] in LOW
