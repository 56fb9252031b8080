"""For which platform a step is traced, where that makes a difference.

GPUs' products of float16 and bfloat16 sum in float32 whatever they give; those of XLA for CPUs sum in the dtype that
they give.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from typing import Any, Callable, Iterator

import jax
import numpy as np

_platform = contextvars.ContextVar("npu_shim_platform", default="")


@contextlib.contextmanager
def traced_for(platform: str) -> Iterator[None]:
    """Context for traces of programs for a platform, as JAX names it; outside of one it is that of JAX's devices."""
    token = _platform.set(platform)
    try:
        yield
    finally:
        _platform.reset(token)


def is_cpu() -> bool:
    """Whether the trace is of a program for CPUs."""
    return bool((_platform.get() or jax.default_backend()) == "cpu")


def has_own_memory(platform: str) -> bool:
    """Whether what is fed crosses a bus to a device's own memory."""
    return platform != "cpu"


def summed_in(dtype: Any) -> Any:
    """The dtype in which values of a dtype are summed."""
    return np.dtype(np.float32) if dtype in (np.float16, jax.numpy.bfloat16) else dtype


def summed_widely(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A rule that adds up in `summed_in`, and rounds what it gives once.

    A sum in bfloat16 stays where it is once it is 256 times as large as what is added.
    """

    @functools.wraps(rule)
    def computed(attrs: Any, *values: Any) -> Any:
        dtypes = [getattr(value, "dtype", None) for value in values]
        low = [dtype for dtype in dtypes if dtype is not None and summed_in(dtype) != dtype]
        if not low:
            return rule(attrs, *values)
        wide = [v.astype(summed_in(dtype)) if dtype in low else v for v, dtype in zip(values, dtypes)]
        return rule(attrs, *wide).astype(low[0])

    return computed


def product_of(dtype: Any) -> Any:
    """The dtype that a product of values of a dtype must give, for sums in `summed_in`, before it is rounded."""
    return summed_in(dtype) if is_cpu() else dtype
