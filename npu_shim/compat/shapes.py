"""Three functions of tensorflow.python.framework.tensor_shape that TensorFlow 2 has dropped."""

import tensorflow.compat.v1 as tf


def scalar_shape():
    """The shape of a scalar."""
    return tf.TensorShape([])


def vector_shape(length):
    """The shape of a vector."""
    return tf.TensorShape([length])


def matrix_shape(rows, cols):
    """The shape of a matrix."""
    return tf.TensorShape([rows, cols])
