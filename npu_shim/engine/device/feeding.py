"""Places for the feeds of programs, and feeds that reach the device before their step.

    step n runs, fed from one of two places   |   what step n + 1 is given is copied to the other, and to the device

A step for which nothing was staged has a third place, which it fills when the step before it is done.
"""

from __future__ import annotations

import threading
from typing import Any, Collection, Mapping, NamedTuple, Sequence

import numpy as np

from npu_shim.pjrt import arrays

MAIN, STAGED = 0, (1, 2)


class Staged(NamedTuple):
    """Feeds of a program's next step that are on the device.

    Attributes:
        number: of the program.
        values: dict of tensor name to the array that was staged: nothing has changed it since, as its owner says.
        since, until: time.monotonic() when its transfer began and ended.
    """

    number: int
    values: Mapping[str, Any]
    since: float = 0.0
    until: float = 0.0


class Turns:
    """In which place the feeds of a step are: MAIN, or one of two others in turn where they were staged."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = STAGED[0]  # the place of the last step whose feeds were staged
        self._values: Any = None  # what is staged in the other one, or being so; it is told by its identity

    @property
    def _next(self) -> int:
        return STAGED[0] + STAGED[1] - self._last

    def begin(self, values: Mapping[str, Any]) -> int:
        """Returns the place in which these values are to be staged; what was staged there before is no more.

        All steps are done but one at most, which has begun.
        """
        with self._lock:
            self._values = values
            return self._next

    def take(self, number: int, staged: Staged | None) -> int:
        """Returns the place of a step's feeds, which is MAIN where what was staged for it is not there any more.

        No step runs meanwhile.

        Args:
            number: of its program.
            staged: what was staged for it, None for nothing.
        """
        with self._lock:
            if staged is None or staged.number != number or staged.values is not self._values:
                return MAIN
            self._last, self._values = self._next, None
            return self._last


def among(staged: Staged | None, feeds: Mapping[str, Any]) -> list[str]:
    """Names of the feeds of a step that were staged: those whose values are the same objects."""
    return [] if staged is None else [name for name, value in staged.values.items() if feeds.get(name) is value]


def is_large(feeds: Mapping[str, Any]) -> bool:
    """Whether feeds of a step are worth being staged while the step before it runs: np.ndarrays by name."""
    size: int = sum(value.nbytes for value in feeds.values())
    return size >= arrays.PART


def as_they_are(places: Mapping[str, Any], feeds: Mapping[str, Any], alignment: int = 1) -> dict[str, Any]:
    """Large feeds that need no copy in their places, by name: rows one behind the other, of the places' dtypes.

    Args:
        places: dict of name to np.ndarray.
        feeds: dict of name to value.
        alignment: bytes, of which their addresses are multiples.
    """

    def fits(value: Any, place: Any) -> bool:
        alike = isinstance(value, np.ndarray) and (value.dtype, value.shape) == (place.dtype, place.shape)
        is_large = alike and value.flags.c_contiguous and value.nbytes >= arrays.PART
        return is_large and int(value.ctypes.data) % alignment == 0

    fitting = (name for name, place in places.items() if name in feeds and fits(feeds[name], place))
    return {name: np.asarray(feeds[name]) for name in fitting}  # of a memory map, its array


def rows_of(places: dict[str, Any], iterations: int) -> list[dict[str, Any]]:
    """Returns the parts of a program's feeds for each step of a run."""
    if iterations == 1:
        return [places]
    return [{name: place[number, ...] for name, place in places.items()} for number in range(iterations)]


def fill(rows: Sequence[dict[str, Any]], steps: Sequence[Mapping[str, Any]], there: Collection[str] = ()) -> None:
    """Copies each step's feeds to their places, where those of float32 may be rounded to 16 bits.

    Args:
        rows: for each step, dict of name to place.
        steps: for each step, dict of name to value.
        there: names of those that are in their places.

    Raises:
        ValueError: one has another shape. TypeError: another dtype.
    """
    for row, feeds in zip(rows, steps):
        for name, place in row.items():
            if name in there:
                continue
            value = feeds[name] if isinstance(feeds[name], arrays.Uncast) else np.asarray(feeds[name])
            if value.shape != place.shape:
                raise ValueError("feed '%s' has shape %s, expected %s" % (name, value.shape, place.shape))
            narrows = value.dtype == np.float32 and place.dtype.name in arrays.NARROW
            arrays.copy(value, place, "same_kind" if narrows else "equiv")
