"""How many batches of an iterator the engine reads while a training step runs. No TensorFlow."""

from __future__ import annotations

import os
from typing import Any, Mapping

from npu_shim.rewriter.errors import ConfigError, nearest

KEY, VARIABLE, AUTO = "npu_shim_prefetch", "NPU_SHIM_PREFETCH", "auto"


def of(values: Mapping[str, Any]) -> int | str:
    """Returns a number of batches, or "auto": that of option values, else the environment's, else "auto".

    Raises:
        ConfigError: another word.
    """
    word = values.get(KEY)
    return checked(word, KEY) if word not in (None, "") else checked(os.environ.get(VARIABLE) or AUTO, VARIABLE)


def checked(word: Any, what: str) -> int | str:
    """Returns a number of batches, or "auto".

    Args:
        word: the user's.
        what: where it stands, for messages.

    Raises:
        ConfigError: it is neither.
    """
    text = "" if isinstance(word, (bool, float)) else str(word).strip()
    if text == AUTO:
        return AUTO
    if not text.isdigit():
        near = "" if text.lstrip("-").isdigit() else nearest(text, [AUTO])
        raise ConfigError("%s is %r, expected a number of batches (0: none) or 'auto'%s" % (what, word, near))
    return int(text)
