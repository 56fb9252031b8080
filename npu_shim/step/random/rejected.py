"""Distributions that draw again until a number is accepted, as TensorFlow's kernels on CPUs do: gamma and Poisson.

Each element has 256 blocks of the generator to itself, and goes through them by its own count of numbers, so that what
it draws does not depend on the others: all draw at once, until each has one that is accepted. A block gives two
doubles, of which the second is taken first. What is compared is computed in doubles, whatever the dtype.

tensorflow/core/kernels/random_op.cc (Marsaglia and Tsang, A simple method for generating gamma variables, 2000),
random_poisson_op.cc (Knuth; Hoermann, The transformed rejection method for generating Poisson random variables, 1993).
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from npu_shim.step.counters import BLOCKS
from npu_shim.step.random import distributions
from npu_shim.step.random.philox import Generator, blocks

F64 = np.dtype(np.float64)
TRIES = 10_000  # TensorFlow tries for ever, as it does with a rate that is not a number
KNUTH = 10.0  # rates below it are drawn by Knuth's way


def _elements(samples: int, parameters: Any) -> tuple[Any, Any]:
    """(The parameter of each element, all samples of the first one first; the first block of each): [elements]."""
    wide = jnp.repeat(jnp.asarray(parameters).reshape(-1).astype(F64), samples)
    return wide, np.arange(wide.shape[0], dtype=np.uint64) * np.uint64(BLOCKS)


def _in_place(values: Any, samples: int, dtype: Any) -> Any:
    """[samples, parameters] of elements; halves come of float32, as static_cast makes them of doubles."""
    turned = values.reshape(-1, samples).T
    return turned.astype(dtype) if dtype.itemsize > 2 else turned.astype(np.float32).astype(dtype)


# -- gamma -------------------------------------------------------------------------------------------------------------


class _Pairs(NamedTuple):
    """Numbers that are drawn in pairs: [elements, 2], and how many of them are left, int32 [elements]."""

    held: Any
    left: Any


class _Gamma(NamedTuple):
    """Where the elements are: the next block, what is left of normal and uniform numbers, the result, whether it is."""

    at: Any
    normal: _Pairs
    uniform: _Pairs
    result: Any
    is_done: Any


def _taken(generator: Generator, at: Any, pairs: _Pairs, wanted: Any, make: Callable[..., Any]) -> tuple[Any, ...]:
    """(A number for each element that wants one, the next blocks, what is left)."""
    fetches = wanted & (pairs.left == 0)
    held = jnp.where(fetches[:, None], make(blocks(generator, at), F64), pairs.held)
    left = jnp.where(fetches, np.int32(2), pairs.left) - wanted.astype(np.int32)
    value = jnp.take_along_axis(held, left[:, None], 1, mode="clip")[:, 0]
    return value, at + fetches.astype(np.uint64), _Pairs(held, left)


def gamma(generator: Generator, samples: int, alpha: Any, dtype: Any) -> Any:
    """Gamma numbers of these shapes alpha and scale 1: [samples, alphas]."""
    shape, first = _elements(samples, alpha)
    is_small, is_one = shape < 1, shape == 1
    d = shape + jnp.where(is_small, np.float64(2 / 3), np.float64(-1 / 3))
    c = np.float64(1 / 3) / jnp.sqrt(d)

    def tried(carried: tuple[Any, _Gamma]) -> tuple[Any, _Gamma]:
        number, (at, normal, uniform, result, is_done) = carried
        x, at, normal = _taken(generator, at, normal, ~is_done & ~is_one, distributions.box_muller)
        v = 1 + c * x
        wanted = ~is_done & (is_one | (v > 0))
        v = v * v * v
        u, at, uniform = _taken(generator, at, uniform, wanted, distributions.unit)
        squeezed = u < 1 - 0.0331 * (x * x) * (x * x)
        accepted = squeezed | (jnp.log(u) < 0.5 * x * x + d * (1 - v + jnp.log(v)))
        accepted = wanted & (is_one | accepted)
        b, at, uniform = _taken(generator, at, uniform, accepted & is_small, distributions.unit)
        own = jnp.where(is_small, d * v * jnp.power(b, 1 / shape), d * v)
        own = jnp.where(is_one, -jnp.log(1 - u), own)
        return number + 1, _Gamma(at, normal, uniform, jnp.where(accepted, own, result), is_done | accepted)

    none = _Pairs(jnp.zeros((shape.shape[0], 2), F64), jnp.zeros(shape.shape, np.int32))
    start = _Gamma(jnp.asarray(first), none, none, jnp.full(shape.shape, np.nan, F64), jnp.zeros(shape.shape, bool))
    return _in_place(_until_done(tried, start).result, samples, dtype)


def _until_done(tried: Callable[[Any], Any], start: Any) -> Any:
    def goes_on(carried: Any) -> Any:
        number, state = carried
        return (number < TRIES) & ~jnp.all(state.is_done)

    return lax.while_loop(goes_on, tried, (jnp.int32(0), start))[1]


# -- Poisson -----------------------------------------------------------------------------------------------------------


class _Poisson(NamedTuple):
    """The product of the numbers so far, their number, the result, whether it is: [elements]."""

    product: Any
    count: Any
    result: Any
    is_done: Any


def poisson(generator: Generator, samples: int, rate: Any, dtype: Any) -> Any:
    """Poisson numbers of these rates: [samples, rates]."""
    rates, first = _elements(samples, rate)
    most = np.float64(np.iinfo(dtype).max if np.issubdtype(dtype, np.integer) else jnp.finfo(dtype).max)
    least = jnp.exp(-rates)

    def tried(carried: tuple[Any, _Poisson]) -> tuple[Any, _Poisson]:
        number, (product, count, result, is_done) = carried
        pair = distributions.unit(blocks(generator, first + number.astype(np.uint64)), F64)
        accepted, own = _transformed(rates, pair, most)
        one, two = product * pair[:, 1], product * pair[:, 1] * pair[:, 0]
        is_small = rates < KNUTH
        accepted = jnp.where(is_small, two <= least, accepted)
        own = jnp.where(is_small, jnp.where(one <= least, count, count + 1), own)
        result = jnp.where(accepted & ~is_done, own, result)
        return number + 1, _Poisson(two, count + 2, result, is_done | accepted)

    zeros = jnp.zeros(rates.shape, F64)
    start = _Poisson(zeros + 1, zeros, zeros + np.nan, jnp.zeros(rates.shape, bool))
    return _in_place(_until_done(tried, start).result, samples, dtype)


def _transformed(rates: Any, pair: Any, most: Any) -> tuple[Any, Any]:
    """(Whether a try is accepted, what it gives) of transformed rejection, of uniform numbers [elements, 2]."""
    u, v = pair[:, 1] - 0.5, pair[:, 0]
    b = 0.931 + 2.53 * jnp.sqrt(rates)
    a = -0.059 + 0.02483 * b
    inverse = 1.1239 + 1.1328 / (b - 3.4)
    near = 0.5 - jnp.abs(u)
    k = jnp.floor((2 * a / near + b) * u + rates + 0.43)
    is_inside = (near >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2))
    is_out = (k < 0) | ((near < 0.013) & (v > near))
    s = jnp.log(v * inverse / (a / (near * near) + b))
    t = -rates + k * jnp.log(rates) - jax.scipy.special.gammaln(k + 1)
    return (k <= most) & (is_inside | (~is_out & (s <= t))), k
