"""Which gradients travel together: buckets of one dtype, in one order on every rank. Standard library only.

A collective costs its latency once, however little it moves, so gradients are laid end to end and moved together. What
a rank plans depends on names, dtypes and sizes alone, not on the order in which its script built its graph: the ranks
must meet in the same collectives. The order is that in which a backward pass finishes, as far as names tell it:
the last layers first, with numbers in names read as numbers (layer_10 comes after layer_9).
"""

from __future__ import annotations

import re
from typing import Iterable, NamedTuple, Sequence


class Member(NamedTuple):
    """A tensor to move: its variable's name, its dtype's name, and its bytes (None where no shape is known)."""

    name: str
    dtype: str
    bytes: int | None


def by_bytes(members: Sequence[Member], limit: float) -> list[list[int]]:
    """Returns positions in `members` by bucket. A bucket is full when it holds `limit` bytes; 0 keeps each alone.

    sizes 10 10 10 50 10, limit 25 -> 10 10 10 | 50 | 10 (in the order of `ordered`)

    A tensor that fills a bucket of its own does not close that of the small ones around it, so that there are at most
    1 + bytes / limit buckets of each dtype.
    """
    full: list[list[int]] = []
    filling: dict[str, tuple[list[int], int]] = {}
    for at in ordered(members):
        size = members[at].bytes or 0
        if size >= limit:
            full.append([at])
            continue
        bucket, held = filling.pop(members[at].dtype, ([], 0))
        bucket.append(at)
        if held + size >= limit:
            full.append(bucket)
        else:
            filling[members[at].dtype] = bucket, held + size
    return full + [bucket for bucket, _ in filling.values()]


def by_index(members: Sequence[Member], last: Iterable[int]) -> list[list[int]]:
    """Returns the buckets of `set_split_strategy_by_idx`: a new one begins after each of the gradients `last`.

    5 gradients, last (1, 4) -> 0 1 | 2 3 4
    """
    ends = set(last)
    segments: list[list[int]] = [[]]
    for number, at in enumerate(ordered(members)):
        segments[-1].append(at)
        if number in ends:
            segments.append([])
    return _of_one_dtype(members, segments)


def by_share(members: Sequence[Member], percent: Sequence[float]) -> list[list[int]]:
    """Returns the buckets of `set_split_strategy_by_size`: each holds about its share of all bytes, in percent.

    sizes 10 10 10 10, percent (50, 50) -> 10 10 | 10 10
    """
    total = sum(member.bytes or 0 for member in members)
    bounds = [sum(percent[: number + 1]) / 100 * total for number in range(len(percent))]
    segments: list[list[int]] = [[] for _ in percent]
    before = 0
    for at in ordered(members):
        middle = before + (members[at].bytes or 0) / 2  # a tensor goes where most of it lies
        segments[min(sum(middle > bound for bound in bounds), len(percent) - 1)].append(at)
        before += members[at].bytes or 0
    return _of_one_dtype(members, segments)


def ordered(members: Sequence[Member]) -> list[int]:
    """Returns positions in `members`, the last layer first; it does not depend on how `members` are ordered."""
    return sorted(range(len(members)), key=lambda at: (natural(members[at].name), members[at].dtype), reverse=True)


def natural(name: str) -> tuple[list[tuple[int, int, str]], str]:
    """Returns a sort key that reads numbers in a name as numbers: layer_9 < layer_10."""
    parts = [part for part in re.split(r"([0-9]+)", name) if part]
    return [(0, int(part), "") if part[0] in "0123456789" else (1, 0, part) for part in parts], name


def _of_one_dtype(members: Sequence[Member], segments: list[list[int]]) -> list[list[int]]:
    parts: list[list[int]] = []
    for segment in segments:
        by_dtype: dict[str, list[int]] = {}
        for at in segment:
            by_dtype.setdefault(members[at].dtype, []).append(at)
        parts.extend(by_dtype.values())
    return parts
