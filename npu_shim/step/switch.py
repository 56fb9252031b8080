"""Who asks for the interpreter: the engine, unless the environment says otherwise. Python 3.7, no JAX."""

from __future__ import annotations

import contextlib
import contextvars
import os
from typing import ContextManager, Iterator

from npu_shim.rewriter.errors import one_of

VARIABLE = "NPU_SHIM_STEP"
WAYS = ("jax", "tensorflow")


_is_asked = contextvars.ContextVar("npu_shim_step", default=False)


def is_wanted() -> bool:
    """Whether the engine's steps are interpreted by JAX, where it can; ConfigError for a word that is none of WAYS."""
    return one_of(os.environ.get(VARIABLE) or WAYS[0], WAYS, VARIABLE) == "jax"


def without_effect() -> str:
    """What is to be told of a word that the environment names and that chooses nothing, "" for none.

    Raises:
        ConfigError: as `is_wanted`.
    """
    return "" if is_wanted() else "%s=tensorflow has no effect: steps are interpreted by JAX" % VARIABLE


def is_on() -> bool:
    """Whether steps are made for the interpreter now."""
    return _is_asked.get()


@contextlib.contextmanager
def turned_on() -> Iterator[None]:
    """Context in which steps are made for the interpreter, whatever the environment says."""
    token = _is_asked.set(True)
    try:
        yield
    finally:
        _is_asked.reset(token)


def for_engine() -> ContextManager[None]:
    """Context in which steps are made as the engine runs them; errors as of `is_wanted`."""
    return turned_on() if is_wanted() else contextlib.nullcontext()
