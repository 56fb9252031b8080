"""Three functions of tensorflow.python.framework.tensor_shape that TensorFlow 2 has dropped."""

from __future__ import annotations

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
