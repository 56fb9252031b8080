"""Infers the static shapes that TensorFlow 1.15 inferred and TensorFlow 2 does not.

    conv2d_backprop_input([8, 4, 4, 5], filter, x), x: (?, 2, 2, 4) -> (8, 4, 4, 5)

TensorFlow 2 takes the batch size from x alone: (?, 4, 4, 5). `scripts/compare_versions` finds such functions.

tf.nn.conv2d_transpose, conv1d_transpose and atrous_conv2d_transpose are made of that op, and so are gradients.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals

# modules of tensorflow.python and their functions whose op's first input holds the result's shape
SIZED = {"ops.gen_nn_ops": ("conv2d_backprop_input",)}


def install() -> None:
    """Makes the functions above keep what is constant in a shape that they are given; a second call does nothing."""
    for path, functions in SIZED.items():
        module = tf_internals.python_module(path)
        for name in functions:
            if not hasattr(getattr(module, name), "keeps_sizes"):
                setattr(module, name, _keeping(getattr(module, name)))


def _keeping(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if not tf.executing_eagerly() and tf.is_tensor(result):
            # the op's own input: what was given may be a list, a shape or a tensor
            known = tf_internals.constant_shape(result.op.inputs[0])
            if known.rank == result.shape.rank:
                result.set_shape(known)
        return result

    vars(call)["keeps_sizes"] = True
    return call
