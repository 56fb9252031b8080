"""The largest batch whose step fits, found by compiling few of them.

Memory grows nearly in proportion to the batch: where 8 and 16 take 5.5 GB and 7.0 GB, a line through both leads to 112
for 25.4 GB; 112 fits, 113 does not.
"""

from __future__ import annotations

from typing import Callable

MOST = 1 << 16  # batches above it are not tried
CLOSE = 64  # the answer is right to 1 part in so many


def largest(peak: Callable[[int], float], memory: float, first: int = 8) -> int:
    """Returns the largest batch whose peak is at most `memory`; 0 where not even 1 fits, at most `MOST`.

    The batch that is returned was seen to fit; one above it that was seen not to is at most a `CLOSE`th away.

    Args:
        peak: batch -> bytes; dear to call, and called once for a batch.
        memory: bytes.
        first: batch that is tried first.
    """
    peaks = {0: 0.0}
    low, high, guess = 0, MOST + 1, max(1, min(first, MOST))  # `low` fits, `high` does not
    while high - low > max(1, low // CLOSE):
        peaks[guess] = peak(guess)
        low, high = (guess, high) if peaks[guess] <= memory else (low, guess)
        guess = max(low + 1, min(high - 1, _guess(peaks, memory, low, high)))
    return low


def _guess(peaks: dict[int, float], memory: float, low: int, high: int) -> int:
    """Where the line through two batches meets the memory; in a long search the middle, for there lines mislead.

    The two are the last ones that fit, or those on both sides of the memory. Near the limit XLA computes values again
    rather than keep them, and the line bends.
    """
    left, right = [batch for batch in sorted(peaks) if batch <= high][-2:]
    slope = (peaks[right] - peaks[left]) / (right - left)
    straight = slope > 0 and low > 0 and len(peaks) < 7
    met = int(left + (memory - peaks[left]) / slope) if straight else 0
    if high > MOST:
        return min(8 * low, met) if straight else 2 * low
    return met if straight else (low + high) // 2
