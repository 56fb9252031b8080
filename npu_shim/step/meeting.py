"""Who runs a step together: the ranks of a job, each with devices of its own."""

from __future__ import annotations

from typing import Mapping, NamedTuple, Sequence


class Ranks(NamedTuple):
    """The ranks that run a program together.

    Attributes:
        size: how many.
        groups: key of a group, as TensorFlow numbers it -> the numbers of its ranks among these, in TensorFlow's order.
        assumed: what the program takes for granted of the others, in words; filled while it is interpreted.
        devices: how many each of them has, of which each computes a part of a batch.
    """

    size: int
    groups: Mapping[int, Sequence[int]]
    assumed: list[str]
    devices: int = 1


ALONE = Ranks(1, {}, [])
