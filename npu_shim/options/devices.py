"""On how many of this machine's devices the engine runs each training step. No TensorFlow, no JAX."""

from __future__ import annotations

import os
from typing import Any, Mapping

from npu_shim.options import counts
from npu_shim.pjrt.placement import ALL

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
    return counts.checked(word, ALL, 1, what, "a number of devices")
