"""Answers about a graph that hold until it changes."""

from __future__ import annotations

import functools
from typing import Callable, TypeVar

from ..ir.graph import Graph

Answer = TypeVar("Answer")


def analysis(find: Callable[[Graph], Answer]) -> Callable[[Graph], Answer]:
    """Makes a function of a graph one that looks again only after a change; callers must not change its result."""

    @functools.wraps(find)
    def asked(graph: Graph) -> Answer:
        version, answer = graph.properties.get(find, (-1, None))
        if version != graph.version:
            answer = find(graph)
            graph.properties[find] = graph.version, answer
        return answer  # type: ignore[no-any-return]

    return asked
