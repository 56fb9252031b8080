"""Whether attention becomes kernels in compiled steps on GPUs. No TensorFlow."""

from __future__ import annotations

import os
from typing import Any, Mapping

from npu_shim.rewriter.errors import ConfigError, nearest

MODES = ("auto", "off")
KEY, VARIABLE = "npu_shim_attention", "NPU_SHIM_ATTENTION"


def wanted(values: Mapping[str, Any]) -> str:
    """Returns one of MODES: what is asked for, else "auto".

    Args:
        values: option values; `npu_shim_attention` wins over the environment's NPU_SHIM_ATTENTION.

    Raises:
        ConfigError: another word.
    """
    asked = values.get(KEY)
    word, what = (asked, "attention") if asked is not None else (os.environ.get(VARIABLE) or "auto", VARIABLE)
    if word not in MODES:
        expected = ", ".join(MODES) + nearest(str(word), MODES)
        raise ConfigError("%s is '%s', expected one of %s" % (what, word, expected))
    return str(word)
