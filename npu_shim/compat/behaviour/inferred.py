"""Infers the static shapes that TensorFlow 1.15 inferred and TensorFlow 2 does not.

    conv2d_backprop_input([8, 4, 4, 5], filter, x), x: (?, 2, 2, 4) -> (8, 4, 4, 5)

    image.flip_left_right(image), image: unknown -> (?, ?, ?)

TensorFlow 2 takes the batch size from x alone: (?, 4, 4, 5); it flips batches as well, so that an image of unknown rank
stays unknown, which `tf.image.resize_images` then refuses. `scripts/compare_versions` finds such functions.

    parse_example(serialized, ...), serialized: unknown -> (?, n) of a feature of length n

TensorFlow 2 parses one record, and records of any shape, too.

    table.export() -> (?,) and (?, 2) of a table whose values are of shape [2]

The op of TensorFlow 2 tells neither.

tf.nn.conv2d_transpose, conv1d_transpose and atrous_conv2d_transpose are made of that op, and so are gradients.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals

# modules of tensorflow.python and their functions whose op's first input holds the result's shape
SIZED = {"ops.gen_nn_ops": ("conv2d_backprop_input",)}
# functions of tf.image whose result is one image where the rank of what they are given is unknown
OF_ONE_IMAGE = (
    *("flip_left_right", "flip_up_down", "random_flip_left_right", "random_flip_up_down", "rot90"),
    *("transpose", "transpose_image"),
)
TABLES = ("StaticHashTable", "MutableHashTable", "DenseHashTable")  # classes of tables that export what they hold
OF_VECTORS = ("parse_example", "parse_sequence_example")  # functions whose first argument, `serialized`, is a vector


def install() -> None:
    """Makes the functions above keep what is constant in a shape that they are given; a second call does nothing."""
    for path, functions in SIZED.items():
        module = tf_internals.python_module(path)
        for name in functions:
            _replace(module, name, _giving(_sizes))
    for name in OF_ONE_IMAGE:
        for module in (tf_internals.python_module("ops.image_ops_impl"), tf.image):
            if hasattr(module, name):
                _replace(module, name, _giving(_one_image))
    for name in OF_VECTORS:
        for module in (tf_internals.python_module("ops.parsing_ops"), tf, tf.io):
            if hasattr(module, name):
                _replace(module, name, _of_vector)
    for name in TABLES:
        _replace(getattr(tf_internals.python_module("ops.lookup_ops"), name), "export", _exporting)


def _replace(module: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replaces a function by `make(function)`, once."""
    function = getattr(module, name)
    if not hasattr(function, "infers_more"):
        call = functools.wraps(function)(make(function))
        vars(call)["infers_more"] = True
        setattr(module, name, call)


def _giving(infer: Callable[[Any], Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What has a function's result in a graph take the shape that `infer` gives for it."""

    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            if not tf.executing_eagerly() and tf.is_tensor(result):
                result.set_shape(infer(result))
            return result

        return call

    return make


def _of_vector(function: Callable[..., Any]) -> Callable[..., Any]:
    """Has a function take a tensor of unknown rank for a vector."""

    def call(serialized: Any, *args: Any, **kwargs: Any) -> Any:
        if not tf.executing_eagerly() and tf.is_tensor(serialized) and serialized.shape.rank is None:
            serialized = tf.identity(serialized, "serialized")  # the given one stays as it is
            serialized.set_shape([None])
        return function(serialized, *args, **kwargs)

    return call


def _exporting(export: Callable[..., Any]) -> Callable[..., Any]:
    """Has a table's keys and values, in a graph, their rank and the shape of one value."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        keys, values = export(self, *args, **kwargs)
        if not tf.executing_eagerly():
            keys.set_shape([None])
            values.set_shape(keys.shape.concatenate(self._value_shape))
        return keys, values

    return call


def _sizes(result: Any) -> Any:
    # the op's own input: what was given may be a list, a shape or a tensor
    known = tf_internals.constant_shape(result.op.inputs[0])
    return known if known.rank == result.shape.rank else None


def _one_image(result: Any) -> Any:
    return [None] * 3 if result.shape.rank is None else None
