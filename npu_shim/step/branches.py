"""Conditionals of TensorFlow 1: under which predicates each node lives, and what of them is one unit of a schedule.

The order of a graph says what each node reads and writes (`schedule`); here nodes of one conditional are moved together
as far as edges, and reads and writes of one variable, allow. So a unit never waits for what waits for it: where one
unit would, as a gradient's branch waits for the loss, which waits for the branch, the conditional has several.
"""

from __future__ import annotations

import collections
import heapq
from dataclasses import dataclass
from typing import Any, Callable, Collection, Iterable, Iterator, Mapping

from npu_shim.step import seldom
from npu_shim.step.frames import ENTERS, MERGES, NEXTS, SWITCHES, value_source
from npu_shim.step.graph import Node, Source

Sides = Mapping[Source, bool]  # predicate -> the side on which something lives
TRIGGER = "ControlTrigger"  # it runs where what it waits for is dead, too
APART = frozenset([  # into a buffer, of which a conditional would make a copy: they write a row, or none, outside
    "StackPushV2", "StackPush", "StackPopV2", "StackPop", "TensorArrayWriteV3",
])  # fmt: skip
MANY = 64  # nodes that are worth skipping however little each of them computes


@dataclass(frozen=True)
class Lives:
    """Where the nodes of a graph live.

    Attributes:
        nodes: name -> Sides.
        outputs: output of a Switch -> Sides.
        joins: name of a Merge -> the predicate whose two sides it joins.
    """

    nodes: Mapping[str, Sides]
    outputs: Mapping[Source, Sides]
    joins: Mapping[str, Source]

    @property
    def are_one(self) -> bool:
        """Whether all nodes live under the same predicates: there is no conditional."""
        return not self.outputs

    def of(self, source: Source) -> Sides:
        """Where what stands on an edge lives."""
        return self.outputs.get(source) or self.nodes[source[0]]

    def of_unit(self, members: Collection[str], nodes: Mapping[str, Node]) -> Sides:
        """Where a node lives, or a loop: what enters it does."""
        if len(members) == 1:
            return self.nodes[next(iter(members))]
        sides: dict[Source, bool] = {}
        for name in members:
            if nodes[name].op in ENTERS and nodes[name].inputs[0][0] not in members:
                sides.update(self.nodes[name])
        return sides

    def outermost(self, sides: Sides, within: Collection[Source]) -> Source | None:
        """The predicate that is within the fewest others, but for some."""
        around = [key for key in sides if key not in within]
        return min(around, key=lambda key: (len(self.of(key)), key)) if around else None


def lives(order: Iterable[Node], nodes: Mapping[str, Node]) -> Lives:
    """Finds where nodes live.

    Args:
        order: the nodes, each behind its inputs.
        nodes: by name.
    """
    order, known = list(order), Lives({}, {}, {})
    if all(node.op not in SWITCHES for node in order):
        return Lives({node.name: {} for node in order}, {}, {})
    for node in order:
        if node.op in MERGES:
            _merge(known, node, nodes)
            continue
        known.nodes[node.name] = {} if node.op == TRIGGER else _sides(known, node)  # type: ignore[index]
        if node.op in SWITCHES:
            _switch(known, node, nodes)
    return known


def _sides(known: Lives, node: Node) -> dict[Source, bool]:
    sides: dict[Source, bool] = {}
    for source in node.inputs:
        sides.update(known.of(source))
    for name in node.controls:
        sides.update(known.nodes[name])
    return sides


def _switch(known: Any, node: Node, nodes: Mapping[str, Node]) -> None:
    key, sides = value_source(node.inputs[1], nodes), known.nodes[node.name]
    if nodes[key[0]].op != "LoopCond" and key not in sides:
        known.outputs.update(((node.name, int(side)), {**sides, key: side}) for side in (False, True))


def _merge(known: Any, node: Node, nodes: Mapping[str, Node]) -> None:
    given = [known.of(source) for source in node.inputs if nodes[source[0]].op not in NEXTS]
    first, *others = given
    known.nodes[node.name] = {
        key: side for key, side in first.items() if all(other.get(key) == side for other in others)
    }  # fmt: skip
    if len(others) == 1:
        differing = [key for key, side in first.items() if others[0].get(key) == (not side)]
        if len(differing) == 1:
            known.joins[node.name] = differing[0]


@dataclass(frozen=True)
class Conditional:
    """Nodes of a conditional that can be computed at once.

    Attributes:
        predicate: of it, as the graph names it.
        items: all of it, in order.
        sides: the part of each side, False first, with the Merges of both.
        on: name of a node -> its side; of others than the Merges.
        kept: names of nodes whose outputs others take.
        nodes: name -> Node.
    """

    predicate: Source
    items: tuple[Any, ...]
    sides: tuple[tuple[Any, ...], tuple[Any, ...]]
    on: Mapping[str, bool]
    kept: tuple[str, ...]
    nodes: Mapping[str, Node]


@dataclass(frozen=True)
class Level:
    """The units of one frame.

    Attributes:
        before: unit -> the units that it follows, in each order that means the same.
        members: unit -> names of its nodes; the first is where it stands.
        item: makes a unit what the schedule holds.
        lives: of the graph.
        users: name of a node -> names of the nodes that take an output of it.
        results: names of nodes whose outputs the graph returns.
        nodes: of the graph.
        is_costly: whether an op is worth skipping.
        writes: the numbers of a node's inputs through which it may write to a variable.
        is_light: as of `seldom.is_skipped_seldom`.
    """

    before: Mapping[str, set[str]]
    members: Mapping[str, list[str]]
    item: Callable[[str], Any]
    lives: Lives
    users: Mapping[str, list[str]]
    results: Collection[str]
    nodes: Mapping[str, Node]
    is_costly: Callable[[str], bool]
    writes: Callable[[Node], Collection[int]]
    is_light: Callable[[Node], bool]

    def arranged(self, units: Iterable[str], within: frozenset[Source]) -> Iterator[Any]:
        """Yields the items of units in an order of theirs, the conditionals among them as one item each.

        Args:
            units: in order.
            within: the predicates of the conditionals around all of them.
        """
        units = list(units)
        if self.lives.are_one:
            yield from map(self.item, units)
            return
        keys = {unit: self._key(unit, within) for unit in units}
        if not any(keys.values()):
            yield from map(self.item, units)
            return
        for key, group in _groups(units, self.before, keys):
            if key is None or not self._is_worth(group, key, within):
                yield from map(self.item, group)
            else:
                yield self._conditional(key, group, within | {key})

    def _key(self, unit: str, within: frozenset[Source]) -> Source | None:
        first = self.members[unit][0]
        if len(self.members[unit]) == 1 and self.nodes[first].op in APART:
            return None
        return self.lives.outermost(self._sides(unit), within) or self.lives.joins.get(unit)

    def _sides(self, unit: str) -> Sides:
        return self.lives.of_unit(self.members[unit], self.nodes)

    def _is_worth(self, group: list[str], key: Source, within: frozenset[Source]) -> bool:
        names = [name for unit in group for name in self.members[unit]]
        worth = len(names) > MANY or any(self._costs(self.nodes[name]) for name in names)
        return worth and not self._is_seldom_skipped(group, names, key, within | {key})

    def _is_seldom_skipped(self, group: list[str], names: list[str], key: Source, within: frozenset[Source]) -> bool:
        alone = all(within.issuperset(self._sides(unit)) for unit in group)  # no conditional is in it
        writing = {self._sides(unit).get(key) for unit in group if self.writes(self.nodes[self.members[unit][0]])}
        alone = alone and len(writing) == 1
        return alone and seldom.is_skipped_seldom(key, names, self.nodes, self.writes, self.is_light)

    def _costs(self, node: Node) -> bool:
        if node.op == "Sum" and self.nodes[node.inputs[1][0]].op == "BroadcastGradientArgs":
            return False  # of nothing, as a rule
        return node.op == "LoopCond" or self.is_costly(node.op)

    def _conditional(self, key: Source, group: list[str], within: frozenset[Source]) -> Conditional:
        side_of = {unit: self._sides(unit).get(key) for unit in group}
        sides = [
            tuple(self.arranged([unit for unit in group if side_of[unit] is not other], within))
            for other in (True, False)
        ]  # fmt: skip
        nodes = {name: self.nodes[name] for unit in group for name in self.members[unit]}
        on = {name: side for unit, side in side_of.items() for name in self.members[unit] if side is not None}
        kept = tuple(name for name in nodes if name in self.results or set(self.users.get(name, ())) - nodes.keys())
        return Conditional(key, tuple(map(self.item, group)), (sides[0], sides[1]), on, kept, nodes)


def _groups(
    units: list[str], before: Mapping[str, set[str]], keys: Mapping[str, Source | None]
) -> Iterator[tuple[Source | None, list[str]]]:
    """Yields units in an order of theirs: those of one predicate together, as late and as many as can be."""
    number = {unit: at for at, unit in enumerate(units)}
    left = {unit: sum(source in number for source in before[unit]) for unit in units}
    users: dict[str, list[str]] = collections.defaultdict(list)
    for unit in units:
        for source in before[unit]:
            users[source].append(unit)
    ready: dict[Source | None, list[int]] = collections.defaultdict(list)
    for unit in units:
        if not left[unit]:
            heapq.heappush(ready[keys[unit]], number[unit])
    while ready:
        key = None if None in ready else min(ready, key=lambda key: ready[key][0])
        group = []
        while ready[key]:
            unit = units[heapq.heappop(ready[key])]
            group.append(unit)
            for user in users[unit]:
                left[user] -= 1
                if not left[user]:
                    heapq.heappush(ready[keys[user]], number[user])
        del ready[key]
        yield key, group


def in_conflict(
    order: Iterable[str], written: Mapping[str, set[str]], read: Mapping[str, set[str]]
) -> Iterator[tuple[str, str]]:
    """Yields (unit, other one before it) where exchanging the two would change what one of them reads.

    Args:
        order: units.
        written: unit -> variables that it writes to.
        read: variable -> units that read it.
    """
    reads: dict[str, list[str]] = collections.defaultdict(list)
    for variable, readers in read.items():
        for unit in readers:
            reads[unit].append(variable)
    last: dict[str, str] = {}
    since: dict[str, list[str]] = collections.defaultdict(list)
    for unit in order:
        for variable in reads[unit]:
            if last.get(variable, unit) != unit:
                yield unit, last[variable]
            since[variable].append(unit)
        for variable in written.get(unit, ()):
            others = since[variable] + ([last[variable]] if variable in last else [])
            yield from ((unit, other) for other in others if other != unit)
            last[variable], since[variable] = unit, []
