"""The order that edges give to the units of a graph: which follow which."""

from __future__ import annotations

import collections
from typing import Collection, Iterator, Mapping, Sequence


def users_of(before: Mapping[str, Collection[str]]) -> Mapping[str, Sequence[str]]:
    """Unit -> the units that follow it at once.

    Args:
        before: unit -> the units that it follows at once.
    """
    users: dict[str, list[str]] = collections.defaultdict(list)
    for unit, sources in before.items():
        for source in sources:
            users[source].append(unit)
    return users


def in_order(before: Mapping[str, Collection[str]], users: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yields units, each behind those that it follows; units that wait for themselves, and what follows these, never.

    Args:
        before: as of `users_of`.
        users: what that returned.
    """
    left = {unit: len(sources) for unit, sources in before.items()}
    ready = [unit for unit, count in left.items() if not count]
    for unit in ready:  # grows while it is read
        yield unit
        for user in users[unit]:
            left[user] -= 1
            if not left[user]:
                ready.append(user)


def reached(before: Mapping[str, Collection[str]], bits: Mapping[str, int]) -> dict[str, int]:
    """Unit -> the bits of the units that it follows; 0 for units that wait for themselves.

    Args:
        before: as of `users_of`.
        bits: unit -> its bit, of those that are asked for.
    """
    users, follows = users_of(before), dict.fromkeys(before, 0)
    for unit in in_order(before, users):
        for user in users[unit]:
            follows[user] |= follows[unit] | bits.get(unit, 0)
    return follows
