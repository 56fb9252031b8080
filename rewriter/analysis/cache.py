"""Answers about a graph that hold until it changes, or until a function of its module does."""

from __future__ import annotations

import functools
from typing import Callable, TypeVar

from ..ir.graph import Graph

Answer = TypeVar("Answer")


def analysis(find: Callable[[Graph], Answer]) -> Callable[[Graph], Answer]:
    """Makes a function of a graph one that looks again only after a change; callers must not change its result."""
    return _kept(find, lambda graph: graph.version)


def analysis_of_calls(find: Callable[[Graph], Answer]) -> Callable[[Graph], Answer]:
    """Likewise of a function that looks into the functions that a graph calls: these change without the graph."""
    return _kept(find, lambda graph: graph.module.version)


def _kept(find: Callable[[Graph], Answer], version_of: Callable[[Graph], int]) -> Callable[[Graph], Answer]:
    @functools.wraps(find)
    def asked(graph: Graph) -> Answer:
        version, answer = graph.properties.get(find, (-1, None))
        if version != version_of(graph):
            answer = find(graph)
            graph.properties[find] = version_of(graph), answer  # what it has read of the library counts, too
        return answer  # type: ignore[no-any-return]

    return asked
