"""Philox 4x32-10, TensorFlow's generator: blocks of four numbers of 32 bits from a key and a counter of 128 bits.

Salmon and others, Parallel random numbers: as easy as 1, 2, 3 (2011); tensorflow/core/lib/random/philox_random.h.

Where ten rounds follow each other, XLA for CPUs makes about ten kernels of each draw, and compiling those of six
dropouts took a quarter of the time that a small BERT took. There they are a loop of one round, which takes no longer to
run unless few blocks are drawn.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from npu_shim.step import platforms

ROUNDS = 10
FEW = 256  # blocks; for fewer the loop itself takes longer than its rounds
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
    looped = platforms.is_cpu() and numbers.size >= FEW
    return _compiled(*(jnp.asarray(part, jnp.uint64) for part in generator), numbers, looped)


def _blocks(key: Any, low: Any, high: Any, numbers: Any, looped: bool) -> Any:
    first = low
    low = first + numbers
    high = high + (low < first).astype(np.uint64)
    counter = [jnp.broadcast_to(part, numbers.shape) for part in (*halves(low), *halves(high))]
    key = list(halves(key))
    if looped:
        return _in_a_loop(counter, key)
    for _ in range(ROUNDS):
        counter = _round(counter, key)
        key = [part + step for part, step in zip(key, WEYL)]
    return jnp.stack(counter, -1)


# traced once for each size: ten rounds take longer to trace than most layers
_compiled = jax.jit(_blocks, static_argnums=4)


def _round(counter: list[Any], key: list[Any]) -> list[Any]:
    low0, high0 = halves(counter[0].astype(np.uint64) * MULTIPLIERS[0])
    low1, high1 = halves(counter[2].astype(np.uint64) * MULTIPLIERS[1])
    return [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0]


def _in_a_loop(counter: list[Any], key: list[Any]) -> Any:
    """The rounds one by one; words 0 and 2, which are multiplied, are one array, and 1 and 3: two kernels a round."""
    wide = (2,) + (1,) * counter[0].ndim
    first = jnp.stack(key).reshape(wide)
    steps, multipliers = (np.array(constants).reshape(wide) for constants in (WEYL, MULTIPLIERS))

    def one(number: Any, words: Any) -> Any:
        even, odd = words
        low, high = halves(even.astype(np.uint64) * multipliers)
        keys = first + number * steps
        return jax.lax.rev(high, (0,)) ^ odd ^ keys, jax.lax.rev(low, (0,))

    words = jnp.stack(counter[0::2]), jnp.stack(counter[1::2])
    even, odd = jax.lax.fori_loop(np.uint32(0), np.uint32(ROUNDS), one, words)
    return jnp.stack([even[0], odd[0], even[1], odd[1]], -1)


def of_seeds(seeds: Any) -> Generator:
    """The generator of a stateless op with these two seeds."""
    wide = jnp.asarray(seeds).astype(np.uint64)
    mixed = blocks(Generator(STATELESS_KEY, wide[0], wide[1]), np.zeros(1, np.uint64))[0].astype(np.uint64)
    return Generator(mixed[0] | mixed[1] << SHIFT, np.uint64(0), mixed[2] | mixed[3] << SHIFT)
