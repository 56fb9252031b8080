"""What a walk over a graph of any kind reaches: nodes, tensors, names, functions."""

from typing import Callable, Iterable, Iterator, Set, TypeVar

Place = TypeVar("Place")


def reached(starts: Iterable[Place], neighbours: Callable[[Place], Iterable[Place]]) -> Iterator[Place]:
    """Yields where a walk comes, depth first, each place once.

    It goes no further than it is asked to: a caller that has seen enough stops.

    Args:
        starts: where it begins; they are yielded too.
        neighbours: function of a place that returns those that it leads to; called when the next one is asked for.
    """
    seen: Set[Place] = set()
    ahead = list(starts)
    while ahead:
        place = ahead.pop()
        if place not in seen:
            seen.add(place)
            yield place
            ahead += neighbours(place)
