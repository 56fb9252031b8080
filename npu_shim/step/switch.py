"""Who asks for the interpreter: the environment, as long as it is experimental. Python 3.7, no JAX."""

from __future__ import annotations

import os

from npu_shim.rewriter.errors import one_of

VARIABLE = "NPU_SHIM_STEP"
WAYS = ("tensorflow", "jax")


def is_on() -> bool:
    """Whether steps are interpreted by JAX in the place of TensorFlow's converter; ConfigError for another word."""
    return one_of(os.environ.get(VARIABLE) or WAYS[0], WAYS, VARIABLE) == "jax"
