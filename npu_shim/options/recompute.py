"""How much of the forward pass a compiled step computes again in its backward pass. No TensorFlow."""

from __future__ import annotations

import os
from typing import Any, Mapping

from npu_shim.rewriter.errors import ConfigError, nearest

MODES = ("auto", "off", "memory")
KEY, VARIABLE = "npu_shim_recompute", "NPU_SHIM_RECOMPUTE"


def wanted(values: Mapping[str, Any]) -> str:
    """Returns one of MODES: what is asked for, else "auto".

    Args:
        values: option values; `npu_shim_recompute` wins over the environment's NPU_SHIM_RECOMPUTE.

    Raises:
        ConfigError: another word.
    """
    asked = values.get(KEY)
    word, what = (asked, "recompute") if asked is not None else (os.environ.get(VARIABLE) or "auto", VARIABLE)
    if word not in MODES:
        expected = ", ".join(MODES) + nearest(str(word), MODES)
        raise ConfigError("%s is '%s', expected one of %s" % (what, word, expected))
    return str(word)
