"""How many batches of an iterator the engine reads while a training step runs. No TensorFlow."""

from __future__ import annotations

import os
from typing import Any, Mapping

from npu_shim.options import counts

KEY, VARIABLE, AUTO = "npu_shim_prefetch", "NPU_SHIM_PREFETCH", "auto"


def of(values: Mapping[str, Any]) -> int | str:
    """Returns a number of batches, or "auto": that of option values, else the environment's, else "auto".

    Raises:
        ConfigError: another word.
    """
    word = values.get(KEY)
    what = VARIABLE if word in (None, "") else KEY
    value = (os.environ.get(VARIABLE) or AUTO) if what == VARIABLE else word
    return counts.checked(value, AUTO, 0, what, "a number of batches (0: none)")
