"""Sparse tensors that a program is fed, padded to few sizes: one program serves many numbers of values.

    indices [11, 2], values [11]    as    indices [16, 2], values [16]    of which the first 11 rows are there

The numbers of values of a batch vary, and each would have a program of its own. What is fed beside indices that are as
many as its rows, in all batches so far, is of the same sparse tensors. Behind the last row the first index is -1, which
no sparse tensor has: so the program counts how many rows there are (`step.lowering`). To the interpreter they are rows
whose number depends on data.
"""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

LEAST = 16  # rows; sizes are powers of two from here on
NONE = -1  # the first index of a row that is not there
MANY = 3  # numbers of values that are seen before a program serves several


class Bundle(NamedTuple):
    """Feeds with equally many rows.

    Attributes:
        indices: name of the int64 indices that say how many there are.
        others: names of the others.
    """

    indices: str
    others: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return (self.indices, *self.others)


Bundles = Tuple[Bundle, ...]


def bundles_among(feeds: Mapping[str, Any], seen: Sequence[Sequence[Sequence[int]]]) -> Bundles:
    """Returns the bundles among a program's feeds.

    Args:
        feeds: name -> tf.DType, in order.
        seen: their shapes in several batches, in the same order.
    """
    numbers: dict[tuple[int, ...], dict[str, Sequence[int]]] = {}
    for (name, _), *shapes in zip(feeds.items(), *seen):
        if all(shapes) and len({tuple(shape[1:]) for shape in shapes}) == 1:
            numbers.setdefault(tuple(shape[0] for shape in shapes), {})[name] = shapes[0]
    bundles = []
    for counts, shapes_of in numbers.items():
        leading = [n for n, shape in shapes_of.items() if feeds[n].name == "int64" and len(shape) == 2 and shape[1] > 1]
        if len(set(counts)) >= MANY and leading:
            bundles.append(Bundle(leading[0], tuple(name for name in shapes_of if name != leading[0])))
    return tuple(bundles)


def fits(bundles: Bundles, given: Mapping[str, Any]) -> bool:
    """Whether all feeds of each bundle have equally many rows, whose indices are none below zero."""
    for bundle in bundles:
        numbers = {np.shape(given[name])[:1] for name in bundle.names}
        if len(numbers) > 1 or np.any(np.asarray(given[bundle.indices])[:, 0] < 0):
            return False
    return True


def shape_of(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape to which a feed is padded."""
    size = LEAST
    while size < shape[0]:
        size *= 2
    return (size, *shape[1:])


def padded(bundles: Bundles, given: Mapping[str, Any]) -> dict[str, Any]:
    """Feeds with those of bundles padded."""
    values = dict(given)
    for bundle in bundles:
        for name in bundle.names:
            value = np.asarray(given[name])
            result = np.full(shape_of(value.shape), NONE if name == bundle.indices else 0, value.dtype)
            result[: len(value)] = value
            values[name] = result
    return values
