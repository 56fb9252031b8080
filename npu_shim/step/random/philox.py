"""Philox 4x32-10, TensorFlow's generator: blocks of four numbers of 32 bits from a key and a counter of 128 bits.

Salmon and others, Parallel random numbers: as easy as 1, 2, 3 (2011); tensorflow/core/lib/random/philox_random.h.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

ROUNDS = 10
MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
WEYL = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)
LOW = np.uint64(0xFFFFFFFF)
SHIFT = np.uint64(32)
STATELESS_KEY = np.uint64(0x02461E293EC8F720)  # stateless_random_ops.cc scrambles an op's seeds by it


class Generator(NamedTuple):
    """Where numbers are drawn: a key, and the two halves of the counter; uint64, known or traced."""

    key: Any
    low: Any
    high: Any


def halves(number: Any) -> tuple[Any, Any]:
    """The lower and the upper 32 bits of uint64 numbers."""
    return (number & LOW).astype(np.uint32), (number >> SHIFT).astype(np.uint32)


def blocks(generator: Generator, numbers: Any) -> Any:
    """The blocks of these numbers, counted from a generator's counter: uint32 [..., 4] for uint64 [...]."""
    return _compiled(*(jnp.asarray(part, jnp.uint64) for part in generator), numbers)


def _blocks(key: Any, low: Any, high: Any, numbers: Any) -> Any:
    first = low
    low = first + numbers
    high = high + (low < first).astype(np.uint64)
    counter = [jnp.broadcast_to(part, numbers.shape) for part in (*halves(low), *halves(high))]
    key = list(halves(key))
    for _ in range(ROUNDS):
        counter = _round(counter, key)
        key = [part + step for part, step in zip(key, WEYL)]
    return jnp.stack(counter, -1)


_compiled = jax.jit(_blocks)  # traced once for each size: ten rounds take longer to trace than most layers


def _round(counter: list[Any], key: list[Any]) -> list[Any]:
    low0, high0 = halves(counter[0].astype(np.uint64) * MULTIPLIERS[0])
    low1, high1 = halves(counter[2].astype(np.uint64) * MULTIPLIERS[1])
    return [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0]


def of_seeds(seeds: Any) -> Generator:
    """The generator of a stateless op with these two seeds."""
    wide = jnp.asarray(seeds).astype(np.uint64)
    mixed = blocks(Generator(STATELESS_KEY, wide[0], wide[1]), np.zeros(1, np.uint64))[0].astype(np.uint64)
    return Generator(mixed[0] | mixed[1] << SHIFT, np.uint64(0), mixed[2] | mixed[3] << SHIFT)
