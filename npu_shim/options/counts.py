"""Option values that are a whole number, or one word in its place. No TensorFlow."""

from __future__ import annotations

from typing import Any

from npu_shim.rewriter.errors import ConfigError, nearest


def checked(value: Any, word: str, least: int, what: str, expected: str) -> int | str:
    """Returns the number or the word that a value is.

    Args:
        value: the user's: a number, or text.
        word: what may stand in a number's place.
        least: the smallest number.
        what: where the value stands, for messages.
        expected: the numbers that are meant, for messages.

    Raises:
        ConfigError: it is neither.
    """
    text = "" if isinstance(value, (bool, float)) else str(value).strip()
    if value == word:
        return word
    if text.isdigit() and int(text) >= least:
        return int(text)
    near = "" if text.lstrip("-").isdigit() else nearest(text, [word])
    raise ConfigError("%s is %r, expected %s or '%s'%s" % (what, value, expected, word, near))
