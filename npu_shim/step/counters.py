"""The state of a step's random ops, made where its variables are. Python 3.7, no JAX.

Steps with the same random ops share it, as they share the ops' counters in a session.
"""

from __future__ import annotations

import functools
import hashlib
import json
import operator
import os
from typing import Any, Iterable, Sequence

import numpy as np

from npu_shim.pjrt import manifest

STATE = "npu_shim/random_counters/"  # int64 [ops, 3]: for each op its two seeds, and how many blocks it has used
BOUNDS = manifest.HOLDS  # whether buffers of loops had room for what they kept
CHECKED = manifest.CHECKED
ROWS = manifest.ROWS  # and a fetch's name: how many rows it has, where that depends on data
LEAST = -(2**63)
BLOCKS = 256  # that an op reserves for each number, however many it needs


def state_name(draws: Iterable[Any]) -> str:
    """The name of the state of a step with these random ops, which `packing.draws` returns."""
    told = json.dumps([list(draw) for draw in draws])
    return STATE + hashlib.sha256(told.encode()).hexdigest()[:12]


def initial_state(draws: Iterable[Any]) -> Any:
    """Returns a new state.

    Args:
        draws: what `packing.draws` returns; seeds that are both zero are drawn from the system here.
    """
    rows = [[*(seeds if any(seeds) else _drawn()), 0] for _, _, *seeds in draws]
    return np.array(rows, np.int64).reshape(-1, 3)


def blocks_of(op: str, shape: Sequence[int]) -> int:
    """Returns how many blocks a run of a random op uses.

    Args:
        op: of `packing.DRAWING`.
        shape: of what it gives.
    """
    if op == "RandomShuffle":  # one number for each row but the last, without a reserve
        return -(-(shape[0] - 1) // 4) if len(shape) and shape[0] > 1 else 0
    if op == "Multinomial":
        rows, samples = shape
        return -(-samples // 4) * 4 * 2 * rows * BLOCKS  # doubles take two numbers
    return functools.reduce(operator.mul, map(int, shape), 1) * BLOCKS


def _drawn() -> tuple[int, int]:
    one, two = (int.from_bytes(os.urandom(8), "little") + LEAST for _ in range(2))
    return one, two
