"""Lets the kernel of tf.nn.convolution be an array, or lists, of any float dtype: it takes the input's, as in 1.15.

    tf.nn.convolution(image, np.ones([3, 3, 1, 8]), "SAME"), image float32: 1.15 convolves in float32

TensorFlow 2 makes a float64 tensor of the array first, which does not match. tf.nn.atrous_conv2d calls it.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals


def install() -> None:
    """Wraps the function wherever TensorFlow and scripts look it up; a second call does nothing."""
    if not hasattr(tf.nn.convolution, "takes_arrays"):
        tf.nn.convolution = tf_internals.python_module("ops.nn_ops").convolution = _typed(tf.nn.convolution)


def _typed(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = args[0] if args else kwargs.get("input")
        if tf.is_tensor(given):
            args = (*args[:1], *(_like(kernel, given) for kernel in args[1:2]), *args[2:])
            kwargs = {name: _like(value, given) if name == "filter" else value for name, value in kwargs.items()}
        return function(*args, **kwargs)

    vars(call)["takes_arrays"] = True
    return call


def _like(kernel: Any, given: Any) -> Any:
    return kernel if kernel is None or tf.is_tensor(kernel) else tf.convert_to_tensor(kernel, given.dtype.base_dtype)
