"""NPU_SHIM_STEP, which once chose who makes programs of steps: JAX, which interprets them, does. Python 3.7, no JAX."""

from __future__ import annotations

import os

from npu_shim.rewriter.errors import one_of

VARIABLE = "NPU_SHIM_STEP"
WAYS = ("jax", "tensorflow")


def without_effect() -> str:
    """What is to be told of a word that the environment names and that chooses nothing, "" for none.

    Raises:
        ConfigError: the word is none of WAYS.
    """
    word = one_of(os.environ.get(VARIABLE) or WAYS[0], WAYS, VARIABLE)
    return "" if word == WAYS[0] else "%s=%s has no effect: steps are interpreted by JAX" % (VARIABLE, word)
