"""Numbers of a distribution from a generator, as tensorflow/core/lib/random/random_distributions.h makes them.

A block gives four numbers of 32 bits, or two of 64. A truncated normal draws a variable number of them: each group of
elements has 256 blocks an element to itself.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jax import lax

from npu_shim.step.counters import BLOCKS
from npu_shim.step.random.philox import SHIFT, Generator, blocks

SMALLEST = 1e-7  # of the uniform number in a Box-Muller transform
CUTOFF = 2.0  # of a truncated normal, in standard deviations
# blocks that are looked at for a group of a truncated normal: too few of them are accepted in 1e-14 of all groups
TRIED = {4: 4, 2: 6}


def bits(generator: Generator, count: int, width: int = 32) -> Any:
    """uint32 or uint64 [count]."""
    per_block = 128 // width
    number = -(-count // per_block)
    drawn = blocks(generator, jnp.arange(number, dtype=np.uint64))
    return _joined(drawn, width).reshape(-1)[:count]


def _joined(drawn: Any, width: int) -> Any:
    """[..., 4] of 32 bits, or [..., 2] of 64, the lower half first."""
    if width == 32:
        return drawn
    wide = drawn.astype(np.uint64)
    return wide[..., 0::2] | wide[..., 1::2] << SHIFT


def _per_block(dtype: Any) -> int:
    return 2 if dtype.itemsize == 8 else 4


def unit(drawn: Any, dtype: Any) -> Any:
    """[0, 1) of uint32 numbers [..., 4], as the mantissas of numbers in [1, 2): [..., 4 or 2]."""
    if dtype == np.float64:
        wide = drawn.astype(np.uint64)
        mantissa = (wide[..., 0::2] & np.uint64(0xFFFFF)) << SHIFT | wide[..., 1::2]
        return lax.bitcast_convert_type(mantissa | np.uint64(1023 << 52), np.float64) - 1
    if dtype == np.float32:
        return lax.bitcast_convert_type(drawn & np.uint32(0x7FFFFF) | np.uint32(127 << 23), np.float32) - 1
    mantissa, exponent = (0x3FF, 15 << 10) if dtype == np.float16 else (0x7F, 127 << 7)
    short = (drawn & np.uint32(mantissa) | np.uint32(exponent)).astype(np.uint16)
    return lax.bitcast_convert_type(short, dtype) - np.ones((), dtype)


def _filled(generator: Generator, shape: Sequence[int], dtype: Any, make: Callable[[Any, Any], Any]) -> Any:
    count = math.prod(shape)
    drawn = blocks(generator, jnp.arange(-(-count // _per_block(dtype)), dtype=np.uint64))
    return make(drawn, dtype).reshape(-1)[:count].reshape(shape)


def uniform(generator: Generator, shape: Sequence[int], dtype: Any) -> Any:
    """Floats in [0, 1)."""
    return _filled(generator, shape, dtype, unit)


def uniform_int(generator: Generator, shape: Sequence[int], low: Any, high: Any) -> Any:
    """Whole numbers in [low, high)."""
    dtype = low.dtype
    unsigned = np.dtype("uint%d" % (8 * dtype.itemsize))
    drawn = bits(generator, math.prod(shape), 8 * dtype.itemsize)
    start = jnp.asarray(low).astype(unsigned)
    within = lax.rem(drawn, jnp.broadcast_to(jnp.asarray(high).astype(unsigned) - start, drawn.shape))
    return (start + within).astype(dtype).reshape(shape)


def box_muller(drawn: Any, dtype: Any) -> Any:
    """Box-Muller: two numbers of two uniform ones, sine first."""
    inner = dtype if dtype == np.float64 else np.dtype(np.float32)
    numbers = unit(drawn, inner)
    rounded = lambda function, x: function(x.astype(np.float64)).astype(inner)  # noqa: E731  as libm's, not XLA's own
    size = jnp.sqrt(np.array(-2, inner) * rounded(jnp.log, jnp.maximum(numbers[..., 0::2], np.array(SMALLEST, inner))))
    angle = rounded(lambda x: np.float64(2 * math.pi) * x, numbers[..., 1::2])
    both = jnp.stack([rounded(jnp.sin, angle) * size, rounded(jnp.cos, angle) * size], -1)
    return both.reshape((*both.shape[:-2], 2 * both.shape[-2])).astype(dtype)


def normal(generator: Generator, shape: Sequence[int], dtype: Any) -> Any:
    """Standard normal numbers."""
    return _filled(generator, shape, dtype, box_muller)


def truncated_normal(generator: Generator, shape: Sequence[int], dtype: Any) -> Any:
    """Standard normal numbers of less than two in size: of each group the first that are."""
    count, group = math.prod(shape), _per_block(dtype)
    groups = -(-count // group)
    first = jnp.arange(groups, dtype=np.uint64) * np.uint64(BLOCKS * group // 4)
    numbers = first[:, None] + np.arange(TRIED[group], dtype=np.uint64)
    inner = dtype if dtype == np.float64 else np.dtype(np.float32)
    tried = box_muller(blocks(generator, numbers), inner).reshape(groups, TRIED[group] * group)
    accepted = jnp.abs(tried) < np.array(CUTOFF, inner)
    order = jnp.argsort(jnp.logical_not(accepted), axis=1, stable=True)[:, :group]
    return jnp.take_along_axis(tried, order, 1).reshape(-1)[:count].reshape(shape).astype(dtype)


def multinomial(generator: Generator, logits: Any, samples: int, dtype: Any) -> Any:
    """[rows, samples] of classes: where a uniform number lies among the sums of the probabilities.

    The numbers are those of one of TensorFlow's threads. Where rows and classes are many, several share the rows, and
    each begins at a place that depends on how many there are.
    """
    rows = logits.shape[0]
    drawn = uniform(generator, (rows * samples,), np.dtype(np.float64)).reshape(rows, samples)
    wide = logits.astype(np.float64)
    finite = jnp.isfinite(wide)
    most = jnp.max(jnp.where(finite, wide, np.finfo(np.float64).min), 1, keepdims=True)
    sums = jnp.cumsum(jnp.where(finite, jnp.exp(wide - most), np.float64(0)), 1)
    below = sums[:, None, :] <= drawn[:, :, None] * sums[:, None, -1:]
    return jnp.sum(below, -1, dtype=np.int64).astype(dtype)


def permutation(generator: Generator, size: int, count: Any = None) -> Any:
    """int32 [size]: each place in turn is exchanged with one at or behind it.

    Args:
        generator: of the op.
        size: how many places there are.
        count: int32, how many of the first take part; None for all.
    """
    drawn, number = bits(generator, max(size - 1, 0)), np.int32(size) if count is None else count

    def exchange(at: Any, order: Any) -> Any:
        left = (number - at).astype(np.uint32)
        other = at + lax.rem(drawn[at], left).astype(np.int32)
        one, two = order[at], order[other]
        return order.at[at].set(two).at[other].set(one)

    last = number - np.int32(1) if size else np.int32(0)
    return lax.fori_loop(np.int32(0), last, exchange, jnp.arange(size, dtype=np.int32))
