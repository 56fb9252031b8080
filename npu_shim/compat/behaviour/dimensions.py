"""Lets a dimension be any number that is whole, as TensorFlow 1.15 did: `[h / 4, w]` is a shape if 4 divides h.

`/` gives a float in Python 3, also where it divides evenly. 1.15 took `int(value)` where it equals the value, in every
shape: of placeholders, variables, cells, queues. TensorFlow 2 takes only what has an `__index__`.

    TensorShape([None, 3]) == TensorShape([None, 3])     False: nobody knows whether both batches are as large

So 1.15 answered a script, which may build another network then; TensorFlow 2 compares None as if it were a size.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from npu_shim.compat import callers


def install() -> None:
    """Makes tf.Dimension and tf.TensorShape what they were in 1.15; a second call does nothing."""
    original = tf.Dimension.__init__
    if hasattr(original, "__wrapped__"):
        return
    for name in ("__eq__", "__ne__"):
        setattr(tf.TensorShape, name, _compares(getattr(tf.TensorShape, name)))

    @functools.wraps(original)
    def __init__(self: Any, value: Any) -> None:
        try:
            original(self, int(value) if isinstance(value, bool) else value)  # True is 1
        except TypeError:
            original(self, whole(value))

    tf.Dimension.__init__ = __init__


def _compares(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A comparison by which a script finds shapes with an open dimension different, but for a shape and itself."""
    if_open = compare.__name__ == "__ne__"

    @functools.wraps(compare)
    def comparison(self: Any, other: Any) -> Any:
        answer = compare(self, other)
        is_taken_for_equal = answer is not NotImplemented and bool(answer) != if_open and self is not other
        if is_taken_for_equal and self.rank and None in self.as_list() and callers.is_script(sys._getframe(1)):
            return if_open
        return answer

    return comparison


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
