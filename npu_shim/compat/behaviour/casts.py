"""Casts numbers to small integers as TensorFlow 1.15 did on x86: through int32, whose low bits stay.

    tf.cast([295.8, -5.0], tf.uint8) -> [39, 251]

C++ leaves a number beyond the integer's range undefined. TensorFlow 2 gives the nearest integer in most elements of an
array, 255 and 0, and wraps in the few that its vector instructions leave over. Images that were augmented without
clipping, as for RandAugment, look different then.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals

SMALL = (tf.uint8, tf.int8, tf.uint16, tf.int16)


def install() -> None:
    """Wraps tf.cast wherever TensorFlow and scripts look it up; a second call does nothing."""
    if not hasattr(tf.cast, "wraps_integers"):
        tf.cast = tf_internals.python_module("ops.math_ops").cast = _wrapping(tf.cast)


def _wrapping(cast: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(cast)
    def call(x: Any, dtype: Any, name: str | None = None) -> Any:
        if tf.as_dtype(dtype).base_dtype in SMALL and not isinstance(x, tf.SparseTensor):
            tensor = x if tf.is_tensor(x) else tf.convert_to_tensor(x)
            if tensor.dtype.base_dtype.is_floating:
                x = cast(tensor, tf.int32)
        return cast(x, dtype, name)

    vars(call)["wraps_integers"] = True
    return call
