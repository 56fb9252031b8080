"""Who asks for the interpreter: the environment, as long as it is experimental. Python 3.7, no JAX."""

from __future__ import annotations

import contextlib
import contextvars
import os
from typing import Iterator

from npu_shim.rewriter.errors import one_of

VARIABLE = "NPU_SHIM_STEP"
WAYS = ("tensorflow", "jax")


_is_asked = contextvars.ContextVar("npu_shim_step", default=False)


def is_on() -> bool:
    """Whether steps are interpreted by JAX in the place of TensorFlow's converter; ConfigError for another word."""
    return _is_asked.get() or one_of(os.environ.get(VARIABLE) or WAYS[0], WAYS, VARIABLE) == "jax"


@contextlib.contextmanager
def turned_on() -> Iterator[None]:
    """Context in which steps are made for the interpreter, whatever the environment says."""
    token = _is_asked.set(True)
    try:
        yield
    finally:
        _is_asked.reset(token)
