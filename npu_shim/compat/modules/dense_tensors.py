"""How tensorflow.python.framework.ops of TensorFlow 1.15 told tensors from other values."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

# 1.15's base class of the three; `isinstance` takes a tuple as well
_TensorLike = (tf.Tensor, tf.SparseTensor, tf.IndexedSlices)
_dense: list[Any] = [tf.Tensor, tf.Variable]


def is_dense_tensor_like(t: Any) -> bool:
    """Whether a value is a tensor, a variable, or of a type that a library has registered."""
    return isinstance(t, tuple(_dense))


def register_dense_tensor_like_type(tensor_type: type) -> None:
    """Lets `is_dense_tensor_like` be true of the values of a type.

    Raises:
        TypeError: it lacks one of the properties `name` and `dtype`.
    """
    for name in ("name", "dtype"):
        if not isinstance(getattr(tensor_type, name, None), property):
            raise TypeError("Type %s does not define a `%s` property" % (tensor_type.__name__, name))
    _dense.append(tensor_type)
