"""The cheapest way to have values again: keep some, compute the rest. A minimum cut, after Dinic (1970). No TensorFlow.

Each value costs what keeping it costs, or what computing it again costs if all its inputs are there again.
"""

from __future__ import annotations

import collections
from typing import Hashable, Iterable, Mapping, TypeVar

INFINITE = float("inf")
Value = TypeVar("Value", bound=Hashable)


def cheapest(
    keeping: Mapping[Value, float],
    computing: Mapping[Value, float],
    edges: Iterable[tuple[Value, Value]],
    wanted: Iterable[Value],
) -> set[Value]:
    """Returns the values to keep, so that the wanted ones can be had again at the least cost.

    Of several such sets it is the one nearest to the inputs.

    Args:
        keeping: value -> cost of keeping it, finite.
        computing: value -> cost of computing it again, INFINITE for what is computed once.
        edges: pairs (value, value that is computed from it).
        wanted: values that are to be had again.
    """
    net = _Net()
    for value, cost in keeping.items():
        net.join((value, "in"), (value, "out"), cost)
        net.join("source", (value, "in"), computing[value])
    for first, second in edges:
        net.join((first, "out"), (second, "in"), INFINITE)
    for value in wanted:
        net.join((value, "out"), "sink", INFINITE)
    net.saturate("source", "sink")
    reached = net.levels("source")
    return {value for value in keeping if (value, "in") in reached and (value, "out") not in reached}


class _Net:
    """A flow network with what is left of each edge's capacity."""

    def __init__(self) -> None:
        self.left: dict[Hashable, dict[Hashable, float]] = collections.defaultdict(dict)

    def join(self, first: Hashable, second: Hashable, capacity: float) -> None:
        """Adds an edge, or widens it."""
        self.left[first][second] = self.left[first].get(second, 0) + capacity
        self.left[second].setdefault(first, 0)

    def saturate(self, source: Hashable, sink: Hashable) -> None:
        """Sends as much from source to sink as can be sent."""
        level = self.levels(source)
        while sink in level:
            ahead = {vertex: list(edges) for vertex, edges in self.left.items()}
            path = self._path(source, sink, level, ahead)
            while path:
                steps = list(zip(path, path[1:]))
                amount = min(self.left[first][second] for first, second in steps)
                for first, second in steps:
                    self.left[first][second] -= amount
                    self.left[second][first] += amount
                path = self._path(source, sink, level, ahead)
            level = self.levels(source)

    def levels(self, source: Hashable) -> dict[Hashable, int]:
        """Returns vertex -> edges from the source, for vertices to which more could be sent."""
        level: dict[Hashable, int] = {source: 0}
        ahead = collections.deque([source])
        while ahead:
            vertex = ahead.popleft()
            for other, capacity in self.left[vertex].items():
                if capacity > 0 and other not in level:
                    level[other] = level[vertex] + 1
                    ahead.append(other)
        return level

    def _path(
        self, source: Hashable, sink: Hashable, level: Mapping[Hashable, int], ahead: Mapping[Hashable, list[Hashable]]
    ) -> list[Hashable]:
        """A path of rising levels with room left, [] if there is none; dead ends leave `ahead`."""
        path = [source]
        while path and path[-1] != sink:
            vertex = path[-1]
            while ahead[vertex]:
                other = ahead[vertex][-1]
                if self.left[vertex][other] > 0 and level.get(other) == level[vertex] + 1:
                    path.append(other)
                    break
                ahead[vertex].pop()
            else:
                path.pop()
                if path:
                    ahead[path[-1]].pop()
        return path
