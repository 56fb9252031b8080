"""Numbers as a tensor's dtype holds them: -4294967295 is minus infinity in float16. No TensorFlow."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

EPSILONS = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24}  # how far rounding moves a number of 1
INTEGERS = frozenset(["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
ROUNDINGS = 4  # of a constant on its way: 1 - rate, its inverse, and their product


def rounded(array: Any, dtype: str) -> Any:
    """Returns the nearest numbers of a dtype, as float64; integers, and what is of another dtype, as they are.

    Args:
        array: array of numpy.
        dtype: the name of a dtype, such as "bfloat16".
    """
    if array.dtype.kind != "f" or dtype not in EPSILONS:
        return array
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        single = array.astype(np.float16 if dtype == "float16" else np.float32)
        return (_bfloat16(single) if dtype == "bfloat16" else single).astype(np.float64)


def _bfloat16(single: Any) -> Any:
    """The nearest bfloat16 of each float32, ties to even, as float32."""
    bits = np.atleast_1d(single).view(np.uint32)
    up = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    kept = np.where(np.isnan(np.atleast_1d(single)), bits, up) & np.uint32(0xFFFF0000)
    return kept.view(np.float32).reshape(single.shape)


def rounded_number(number: float, dtype: str) -> float:
    """Returns the nearest number of a dtype."""
    return float(rounded(np.array(number, np.float64), dtype))


def held(number: float, dtype: str) -> float | None:
    """Returns what a dtype makes of a number: integers end its digits; None for a number that an integer cannot be."""
    if dtype not in INTEGERS:
        return rounded_number(number, dtype)
    limits = np.iinfo(dtype)
    return float(math.trunc(number)) if limits.min <= number <= limits.max else None


def close(number: float, expected: float, dtype: str) -> bool:
    """Whether a constant is another one but for roundings to a dtype."""
    return abs(number - expected) <= ROUNDINGS * EPSILONS.get(dtype, EPSILONS["float32"]) * abs(expected)
