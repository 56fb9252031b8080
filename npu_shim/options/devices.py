"""On how many of this machine's devices the engine runs each training step. No TensorFlow, no JAX."""

from __future__ import annotations

import os
from typing import Any, Mapping

from npu_shim.pjrt.placement import ALL
from npu_shim.rewriter.errors import ConfigError, nearest

KEY, VARIABLE = "npu_shim_devices", "NPU_SHIM_DEVICES"


def of(values: Mapping[str, Any]) -> int | str:
    """Returns a number of devices, or "all": that of option values, else the environment's, else 1.

    Raises:
        ConfigError: another word.
    """
    word = values.get(KEY)
    return checked(word, KEY) if word else checked(os.environ.get(VARIABLE) or 1, VARIABLE)


def checked(word: Any, what: str) -> int | str:
    """Returns a number of devices, or "all".

    Args:
        word: the user's.
        what: where it stands, for messages.

    Raises:
        ConfigError: it is neither.
    """
    if word == ALL:
        return ALL
    text = "" if isinstance(word, (bool, float)) else str(word).strip()
    if not (text.isdigit() and int(text)):
        near = "" if text.lstrip("-").isdigit() else nearest(text, [ALL])
        raise ConfigError("%s is %r, expected a number of devices or 'all'%s" % (what, word, near))
    return int(text)
