"""Casts between float32, float16 and bfloat16, with a report of what each cast loses; numpy only.

A bfloat16 array is held as its bits, uint16, since numpy has no such dtype.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

Array = Any  # numpy.ndarray, whose type parameters numpy of Python 3.7 lacks
CHUNK = 1 << 14  # elements at a time: the temporaries fit the cache, which measures fastest
LIMITS = {  # largest finite, smallest positive normal
    "float16": (65504.0, 2.0**-14),
    "bfloat16": (float(np.uint32(0x7F7F0000).view(np.float32)), 2.0**-126),
    "float32": (float(np.finfo(np.float32).max), 2.0**-126),
}
HOLD = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16}


@dataclasses.dataclass(frozen=True)
class RangeReport:
    """What casting one tensor, or several, loses. All counts are of elements.

    Attributes:
        count: how many there are.
        overflow: finite before, and beyond the largest finite value of the new dtype.
        largest: the largest magnitude among these, 0.0 when there is none.
        flushed: not zero before, and zero after.
        subnormal: subnormal after, with fewer significant bits.
        non_finite: infinite or NaN before.
        relative_error: the worst |after - before| / |before| among values that stay finite and normal.
    """

    count: int = 0
    overflow: int = 0
    largest: float = 0.0
    flushed: int = 0
    subnormal: int = 0
    non_finite: int = 0
    relative_error: float = 0.0

    def __add__(self, other: RangeReport) -> RangeReport:
        mine, theirs = dataclasses.asdict(self), dataclasses.asdict(other)
        worst = ("largest", "relative_error")
        return RangeReport(**{k: max(v, theirs[k]) if k in worst else v + theirs[k] for k, v in mine.items()})


def cast(array: Array, dtype: str, to: str, clamp: bool = False) -> tuple[Array, RangeReport]:
    """Casts `array` (held as HOLD[dtype]) with one rounding, to nearest even.

    Args:
        array: numpy array of any shape.
        dtype: its dtype's name.
        to: the new dtype's name.
        clamp: bool; finite values beyond the new dtype become its largest, in place of infinity.

    Returns:
        (numpy array held as HOLD[to], RangeReport)
    """
    result = np.empty(array.shape, HOLD[to])
    source, target = array.reshape(-1), result.reshape(-1)
    report = RangeReport()
    for start in range(0, source.size, CHUNK):
        wide = _widen(source[start:start + CHUNK], dtype)
        narrow = _narrow(wide, to)
        after = _widen(narrow, to)
        lost = _measure_loss(wide, after, to)
        if clamp and lost.overflow:
            largest = np.float32(LIMITS[to][0])
            narrow = _narrow(np.where(np.isfinite(wide), np.clip(wide, -largest, largest), wide), to)
        target[start:start + CHUNK] = narrow
        report = report + lost
    return result, report


def _widen(array: Array, dtype: str) -> Array:
    if dtype == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32, copy=False)


def _narrow(wide: Array, to: str) -> Array:
    if to == "float32":
        return wide
    if to == "float16":
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return wide.astype(np.float16)
    bits = np.ascontiguousarray(wide).view(np.uint32)
    # Half of the last kept bit, a little less when that bit is even: ties go to even. NaN must not round to infinity.
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(wide), ((bits >> 16) | 0x40).astype(np.uint16), rounded)


def _measure_loss(before: Array, after: Array, to: str) -> RangeReport:
    tiny = np.float32(LIMITS[to][1])
    size, size_after = np.abs(before), np.abs(after)
    finite = np.isfinite(before)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):  # what is not finite is counted, not warned of
        overflow = finite & ~np.isfinite(after)
        normal = finite & (size_after >= tiny) & ~overflow
        error = np.abs(after - before) / size
        return RangeReport(
            count=before.size,
            overflow=int(np.count_nonzero(overflow)),
            largest=float(size.max(where=overflow, initial=0.0)),
            flushed=int(np.count_nonzero((size_after == 0) & (size != 0))),
            subnormal=int(np.count_nonzero((size_after != 0) & (size_after < tiny))),
            non_finite=int(before.size - np.count_nonzero(finite)),
            relative_error=float(error.max(where=normal, initial=0.0)),
        )
