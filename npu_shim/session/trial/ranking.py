"""Ranks lowered nodes by the error that they bring into a step, with few replays. No TensorFlow.

The error of a group is that of the step in which only the group is low: faults are then told apart, however many there
are, which they are not by keeping one group in float32 while the others spoil the step. The group with the largest
error is split, at a border of name scopes as near as possible to its middle, until what is left are single nodes.
"""

from __future__ import annotations

import heapq
import itertools
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Sequence

SIGNIFICANT = 0.1  # share of the whole error from which a group counts
HARMLESS = 0.02  # an error this small is what rounding to float16 does to any step
MOST_HINTS = 24
# how the types of ops begin that no line of customize_dtypes changes: they follow what goes into them
FIXED = ("Cast", "Enter", "Exit", "Merge", "NextIteration", "Stack", "Switch", "TensorArray", "TensorList")
Error = Callable[..., float]


class Group(NamedTuple):
    """Nodes in the order of the graph, and the error of the step in which only these are low."""

    names: tuple[str, ...]
    error: float


def rank(lines: Mapping[str, str], hints: Iterable[str], error: Error, most: int, noise: float = 0.0) -> dict[str, Any]:
    """Ranks nodes.

    Args:
        lines: name of each lowered node, in the order of the graph -> its line of customize_dtypes.
        hints: names that are likely at fault, the likeliest first; those that are not lowered do not count.
        error: of (names in float32) and of (names in float32, names low whatever feeds them).
        most: number of replays, about.
        noise: the error of float32 against itself.

    Returns:
        As `replay.ranking`.
    """
    counted = _Counted(error)
    names = tuple(lines)
    whole = counted(())
    level = max(SIGNIFICANT * min(whole, 1.0), 2 * noise)
    likely = [name for name in dict.fromkeys(hints) if name in lines][:MOST_HINTS]
    rest = tuple(name for name in names if name not in set(likely))
    groups = [
        Group(members, counted.alone(members, names)) for members in [*((name,) for name in likely), rest] if members
    ]
    groups = _split_all(groups, names, counted, level, most)
    first = _needed(groups, counted, level)
    kept = {name for group in groups[:first] for name in group.names}
    return {
        "problem": None,
        "groups": [{"lines": {name: lines[name] for name in group.names}, "error": group.error} for group in groups],
        "first": first,
        "errors": [whole, counted(tuple(name for name in names if name in kept))],
        "replays": counted.count,
    }


class _Counted:
    """The error of a step, computed once for each question."""

    def __init__(self, error: Error):
        self._error, self.count = error, 0
        self._known: dict[Any, float] = {}

    def __call__(self, float32: Sequence[str], low: Any = None) -> float:
        key = frozenset(float32), None if low is None else frozenset(low)
        if key not in self._known:
            self.count += 1
            self._known[key] = self._error(float32, low)
        return self._known[key]

    def alone(self, low: Sequence[str], names: Sequence[str]) -> float:
        """The error of a step in which only `low` of all lowered `names` are low."""
        chosen = set(low)
        return self([name for name in names if name not in chosen], low)


def _split_all(groups: Sequence[Group], names: Sequence[str], error: _Counted, level: float, most: int) -> list[Group]:
    """Splits the groups with large errors down to single nodes; returns all, the largest error first.

    Single nodes with a large error go before groups that could not be split further within `most` replays.
    """
    numbers = itertools.count()
    waiting = [(-group.error, next(numbers), group) for group in groups]
    heapq.heapify(waiting)
    done: list[Group] = []
    while waiting:
        _, _, group = heapq.heappop(waiting)
        if len(group.names) == 1 or group.error < level or error.count >= most:
            done.append(group)
            continue
        for half in halves(group.names):
            new = Group(half, error.alone(half, names))
            heapq.heappush(waiting, (-new.error, next(numbers), new))
    single = [group for group in done if len(group.names) == 1 and group.error >= level]
    return single + [group for group in done if group not in single]


def halves(names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Splits two names or more where the outermost scope that differs changes, as near to the middle as possible.

    >>> halves(["a/x", "a/y", "a/z", "b/x"])
    (('a/x', 'a/y', 'a/z'), ('b/x',))
    """
    ordered = sorted(names, key=lambda name: name.split("/"))
    paths = [name.split("/") for name in ordered]
    shared = 0
    while all(len(path) > shared + 1 and path[shared] == paths[0][shared] for path in paths):
        shared += 1
    borders = [k for k in range(1, len(paths)) if paths[k][shared] != paths[k - 1][shared]]
    middle = min(borders or [len(paths) // 2], key=lambda k: abs(2 * k - len(paths)))
    return tuple(ordered[:middle]), tuple(ordered[middle:])


def _needed(groups: list[Group], error: _Counted, level: float) -> int:
    """Puts the groups that make up for the error to the front of the list; returns how many they are, 1 or more.

    Of those with a large error, any that the others make up for is taken out: what follows a node in float32 is in
    float32 by the mode's own rule.
    """
    large = [group for group in groups if group.error >= level]
    names = [name for group in large for name in group.names]
    good = max(2 * error(names), HARMLESS)
    for group in reversed(large[1:]):
        fewer = [other for other in large if other is not group]
        if error([name for other in fewer for name in other.names]) <= good:
            large = fewer
    groups[:] = large + [group for group in groups if group not in large]
    return max(1, len(large))
