"""Updates of one variable that edges leave unordered: each of them counts, as in one of the serial orders.

Whatever sets a variable is an update of it: an assignment of something made of its own value, which reads it before it
sets it, and what adds to it, overwrites it, or is a loop or call that does, which reads and sets it at once. Updates
that one read serves are a group: they take one value, and any of them may come last. Of two groups, one of which reads
before it sets, one is read after all of the other one have set the variable.
"""

from __future__ import annotations

import itertools
from typing import Iterable, Mapping, NamedTuple, Sequence

from npu_shim.step.graph import Node
from npu_shim.step.order import reached
from npu_shim.step.refusals import Refusal

Before = dict[str, set[str]]


class Update(NamedTuple):
    """What sets a variable.

    Attributes:
        node: that does it, or one of a loop that does.
        unit: that it is.
        reads: units that read the variable for the value that it is set to and for nothing else.
        behind: the ReadVariableOps in front of these, in whose place they can read.
    """

    node: Node
    unit: str
    reads: tuple[str, ...] = ()
    behind: frozenset[str] = frozenset()


Group = list[Update]


def put_in_order(before: Before, updates: Mapping[str, Sequence[Update]]) -> set[tuple[str, str]]:
    """Has each group of a variable's updates read after those before it.

    Args:
        before: unit -> the units that it follows; changed.
        updates: variable -> its updates in the order of their creation.

    Returns:
        (name of a node, variable that it must read afresh).

    Raises:
        Refusal: no order counts all of them.
    """
    several = {variable: _sharing(own) for variable, own in updates.items() if any(update.reads for update in own)}
    several = {variable: groups for variable, groups in several.items() if len(groups) > 1}
    order = _Order(before, {point for groups in several.values() for group in groups for point in _points(group)})
    afresh = set[tuple[str, str]]()
    for variable, groups in several.items():
        pairs = sorted(itertools.combinations(range(len(groups)), 2), key=lambda pair: pair[1] - pair[0])
        for one, other in ((groups[a], groups[b]) for a, b in pairs):
            if _reads(one) or _reads(other):
                afresh |= {(name, variable) for name in _ordered(order, variable, one, other)}
    return afresh


class _Order:
    """Which of some units follow which, by edges and by what is added to them."""

    def __init__(self, before: Before, points: set[str]) -> None:
        self._before = before
        self._bits = {unit: 1 << number for number, unit in enumerate(sorted(points))}
        follows = reached(before, self._bits) if points else {}
        self._follows = {unit: follows[unit] | bit for unit, bit in self._bits.items()}

    def follows(self, unit: str, other: str) -> bool:
        """Whether a unit follows another one, or is it."""
        return bool(self._follows[unit] & self._bits[other])

    def wait(self, unit: str, other: str) -> None:
        """Has a unit follow another one."""
        if self.follows(unit, other):
            return
        self._before[unit].add(other)
        bit, more = self._bits[unit], self._follows[other]
        self._follows = {at: bits | more if bits & bit else bits for at, bits in self._follows.items()}


def _sharing(updates: Iterable[Update]) -> list[Group]:
    """The updates, those together that share a read."""
    groups: list[tuple[set[str], Group]] = []
    for update in updates:
        reads = {*update.behind, *update.reads}
        sharing = [group for group in groups if group[0] & reads]
        groups = [group for group in groups if not group[0] & reads]
        names = reads.union(*(names for names, _ in sharing))
        groups.append((names, [*itertools.chain.from_iterable(group for _, group in sharing), update]))
    return [group for _, group in groups]


def _points(group: Group) -> set[str]:
    """Where a group reads, in front of its reads too, and sets."""
    return {point for update in group for point in (update.unit, *update.reads, *update.behind)}


def _reads(group: Group) -> list[str]:
    return list(dict.fromkeys(read for update in group for read in update.reads))


def _begins(group: Group) -> list[str]:
    return [*_reads(group), *(update.unit for update in group)]


def _ordered(order: _Order, variable: str, one: Group, other: Group) -> set[str]:
    """Puts two groups in order; returns the reads that wait."""
    if _is_after(order, one, other) or _is_after(order, other, one):
        return set()
    if not _is_before_any(order, other, one):
        return _wait(order, variable, one, other)
    if not _is_before_any(order, one, other):
        return _wait(order, variable, other, one)
    if not _is_partly_after(order, one, other):
        raise _refusal(variable, one, other)
    return set()


def _is_after(order: _Order, other: Group, one: Group) -> bool:
    """Whether all of a group follows all updates of the other one."""
    return all(order.follows(begin, update.unit) for begin in _begins(other) for update in one)


def _is_before_any(order: _Order, other: Group, one: Group) -> bool:
    """Whether an update of a group follows a read of the other one, or what that reads in the place of."""
    return any(order.follows(update.unit, point) for point in _points(other) for update in one)


def _is_partly_after(order: _Order, one: Group, other: Group) -> bool:
    pairs = [(begin, update) for a, b in ((one, other), (other, one)) for begin in _begins(a) for update in b]
    return any(order.follows(begin, update.unit) for begin, update in pairs)


def _wait(order: _Order, variable: str, one: Group, other: Group) -> set[str]:
    """Has a group read after the other one; what shares a read reads before the first of its group sets it."""
    reads = set(_reads(other))
    for begin, update in itertools.product(_begins(other), one):
        order.wait(begin, update.unit)
    for update in other if len(other) > 1 else ():
        if any(order.follows(name, update.unit) for name in reads):
            raise _refusal(variable, one, other)
        for name in reads:
            order.wait(update.unit, name)
    return reads


def _refusal(variable: str, one: Group, other: Group) -> Refusal:
    text = "'%s' is set from its own value by '%s' too, and no order of the two counts both"
    return Refusal(other[0].node, text % (variable, one[0].node.name))
