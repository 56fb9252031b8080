"""For which platform a step is traced, where that makes a difference.

GPUs' products of float16 and bfloat16 sum in float32 whatever they give; those of XLA for CPUs sum in the dtype that
they give.
"""

from __future__ import annotations

import contextlib
import contextvars
from typing import Any, Iterator

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


def has_own_memory(platform: str) -> bool:
    """Whether what is fed crosses a bus to a device's own memory."""
    return platform != "cpu"


def summed_in(dtype: Any) -> Any:
    """The dtype in which values of a dtype are summed."""
    return np.dtype(np.float32) if dtype in (np.float16, jax.numpy.bfloat16) else dtype


def product_of(dtype: Any) -> Any:
    """The dtype that a product of values of a dtype must give, for sums in `summed_in`, before it is rounded."""
    return summed_in(dtype) if (_platform.get() or jax.default_backend()) == "cpu" else dtype
