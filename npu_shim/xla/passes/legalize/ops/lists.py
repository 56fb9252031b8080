"""Lists of tensors of one shape, which loops over time read and write."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


def of(tensor: Any) -> Any:
    """Returns the list of a tensor's rows."""
    return tf.raw_ops.TensorListFromTensor(tensor=tensor, element_shape=tensor.shape[1:].as_list())


def empty(like: Any) -> Any:
    """Returns a list with one empty element for each row of a tensor, of that row's shape."""
    shape, count = like.shape[1:].as_list(), like.shape[0]
    return tf.raw_ops.TensorListReserve(element_shape=shape, num_elements=count, element_dtype=like.dtype)


def get(handle: Any, number: Any, like: Any) -> Any:
    """Returns an element, of the shape and dtype of the tensor `like`."""
    shape = like.shape.as_list()
    got = tf.raw_ops.TensorListGetItem(
        input_handle=handle, index=number, element_shape=shape, element_dtype=like.dtype
    )  # fmt: skip
    return tf.ensure_shape(got, shape)


def put(handle: Any, number: Any, value: Any) -> Any:
    """Returns the list with one element replaced."""
    return tf.raw_ops.TensorListSetItem(input_handle=handle, index=number, item=value)


def stacked(handle: Any, like: Any) -> Any:
    """Stacks a list's elements into one tensor, of the shape and dtype of the tensor `like`."""
    shape = like.shape.as_list()
    tensor_list_stack = tf.raw_ops.TensorListStack(
        input_handle=handle, element_shape=shape[1:], element_dtype=like.dtype, num_elements=shape[0]
    )
    return tf.ensure_shape(tensor_list_stack, shape)
