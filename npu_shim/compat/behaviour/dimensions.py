"""Lets a dimension be any number that is whole, as TensorFlow 1.15 did: `[h / 4, w]` is a shape if 4 divides h.

`/` gives a float in Python 3, also where it divides evenly. 1.15 took `int(value)` where it equals the value, in every
shape: of placeholders, variables, cells, queues. TensorFlow 2 takes only what has an `__index__`.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow.compat.v1 as tf


def install() -> None:
    """Makes tf.Dimension take whole numbers of any kind; a second call does nothing."""
    original = tf.Dimension.__init__
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def __init__(self: Any, value: Any) -> None:
        try:
            original(self, int(value) if isinstance(value, bool) else value)  # True is 1
        except TypeError:
            original(self, whole(value))

    tf.Dimension.__init__ = __init__


def whole(value: Any) -> int:
    """The int that a number or a text equals.

    Raises:
        TypeError: it is neither; a DType, although it has an int.
        ValueError: there is a fraction: "Ambiguous dimension: 1.5", in 1.15's words.
    """
    if isinstance(value, tf.DType):
        raise TypeError("Cannot convert %s to Dimension" % value)
    value = value.item() if hasattr(value, "item") and not hasattr(value, "op") else value  # an array of one number
    number = int(value)
    if not isinstance(value, (bytes, str)) and number != value:
        raise ValueError("Ambiguous dimension: %s" % value)
    return number
