"""Three functions of tensorflow.python.framework.tensor_shape that TensorFlow 2 has dropped."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


def scalar_shape() -> tf.TensorShape:
    """The shape of a scalar."""
    return tf.TensorShape([])


def vector_shape(length: int) -> tf.TensorShape:
    """The shape of a vector."""
    return tf.TensorShape([length])


def matrix_shape(rows: int, cols: int) -> tf.TensorShape:
    """The shape of a matrix."""
    return tf.TensorShape([rows, cols])


class RegisterShape:
    """A decorator of shape functions of ops, which has done nothing since TensorFlow 1.0: ops have their own in C++."""

    def __init__(self, op_type: str) -> None:
        self._op_type = op_type

    def __call__(self, f: Any) -> Any:
        """Returns the function."""
        return f
