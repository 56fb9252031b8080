"""Assignments that set a variable to something made of its own value: each of them counts, where edges leave it open.

Updates that one read serves are a group: they take one value, and any of them may come last. Of two groups one is read
after all of the other one have set the variable.
"""

from __future__ import annotations

import itertools
from typing import Callable, Iterable, Mapping, NamedTuple

from npu_shim.step.graph import Node
from npu_shim.step.refusals import Refusal

Before = dict[str, set[str]]


class Update(NamedTuple):
    """An assignment, and what reads its variable for the value that it is set to and for nothing else."""

    node: Node
    reads: list[Node]


Group = list[Update]


def put_in_order(
    before: Before, variable: str, updates: Iterable[Update], reads_of: Callable[[Iterable[Node]], set[str]]
) -> set[str]:
    """Has each group of a variable's updates read after those before it; returns the nodes that must read afresh.

    Args:
        before: unit -> the units that it follows; changed.
        variable: its name.
        updates: in the order of their creation.
        reads_of: gives the names of the ReadVariableOps in front of nodes.

    Raises:
        Refusal: no order counts all of them.
    """
    afresh = set[str]()
    for one, other in itertools.combinations(_sharing(updates, reads_of), 2):
        if _is_after(before, one, other) or _is_after(before, other, one):
            continue
        if not _is_before_any(before, other, one):
            afresh |= _wait(before, variable, one, other)
        elif not _is_before_any(before, one, other):
            afresh |= _wait(before, variable, other, one)
        elif not _is_partly_after(before, one, other):
            raise _refusal(variable, one, other)
    return afresh


def _sharing(updates: Iterable[Update], reads_of: Callable[[Iterable[Node]], set[str]]) -> list[Group]:
    """The updates, those together that share a read."""
    groups: list[tuple[set[str], Group]] = []
    for update in updates:
        reads = reads_of(update.reads) | {read.name for read in update.reads}
        sharing = [group for group in groups if group[0] & reads]
        groups = [group for group in groups if not group[0] & reads]
        names = reads.union(*(names for names, _ in sharing))
        groups.append((names, [*itertools.chain.from_iterable(group for _, group in sharing), update]))
    return [group for _, group in groups]


def _reads(group: Group) -> list[Node]:
    return list({read.name: read for update in group for read in update.reads}.values())


def _is_after(before: Before, other: Group, one: Group) -> bool:
    """Whether each read of a group follows all updates of the other one."""
    return all(follows(before, read.name, update.node.name) for read in _reads(other) for update in one)


def _is_before_any(before: Before, other: Group, one: Group) -> bool:
    """Whether an update of a group follows a read of the other one."""
    return any(follows(before, update.node.name, read.name) for read in _reads(other) for update in one)


def _is_partly_after(before: Before, one: Group, other: Group) -> bool:
    pairs = [(read, update) for a, b in ((one, other), (other, one)) for read in _reads(a) for update in b]
    return any(follows(before, read.name, update.node.name) for read, update in pairs)


def _wait(before: Before, variable: str, one: Group, other: Group) -> set[str]:
    """Has a group read after the other one; what shares a read reads before the first of its group sets it."""
    reads = {read.name for read in _reads(other)}
    for name in reads:
        before[name].update(update.node.name for update in one)
    for update in other if len(other) > 1 else ():
        if any(follows(before, name, update.node.name) for name in reads):
            raise _refusal(variable, one, other)
        before[update.node.name] |= reads
    return reads


def _refusal(variable: str, one: Group, other: Group) -> Refusal:
    text = "'%s' is set from its own value by '%s' too, and no order of the two counts both"
    return Refusal(other[0].node, text % (variable, one[0].node.name))


def follows(before: Mapping[str, set[str]], unit: str, other: str) -> bool:
    """Whether a unit follows another one, or is it."""
    pending, seen = [unit], {unit}
    while pending:
        at = pending.pop()
        if at == other:
            return True
        new = before.get(at, set()) - seen
        seen |= new
        pending += new
    return False
