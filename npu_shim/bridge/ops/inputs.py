"""The vendor's input ops in TensorFlow's own: dataset transformations, constants from files, images.

Source: Ascend adapter of 2023-12 (r1.15), experimental.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.errors import ConfigError, nearest

DEVICES = ("cpu", "npu")


def map(
    map_func: Callable[..., Any],
    num_parallel_calls: int | None = None,
    num_parallel_npu: int | None = 28,
    deterministic: bool | None = None,
    output_device: str | None = "cpu",
) -> Callable[[Any], Any]:
    """Returns a function for tf.data.Dataset.apply: the dataset's `map`.

    Args:
        map_func: function of an element.
        num_parallel_calls: int or None.
        num_parallel_npu: int, taken and not used.
        deterministic: bool or None, whether the order of elements is kept.
        output_device: "cpu" or "npu", where the elements are; TensorFlow places them itself.

    Raises:
        ConfigError: another output_device.
    """
    _check_device("map", output_device)

    def apply(dataset):
        batches = dataset.map(map_func, num_parallel_calls=num_parallel_calls)
        if deterministic is None:
            return batches
        options = tf.data.Options()
        options.experimental_deterministic = deterministic
        return batches.with_options(options)

    return apply


def map_and_batch(
    map_func: Callable[..., Any],
    batch_size: Any,
    num_parallel_batches: int | None = None,
    drop_remainder: bool = False,
    num_parallel_calls: int | None = None,
    num_parallel_npu: int | None = 28,
    output_device: str | None = "cpu",
) -> Callable[[Any], Any]:
    """Returns a function for tf.data.Dataset.apply: the dataset's `map`, then its `batch`.

    Args:
        map_func: function of an element.
        batch_size: int.
        num_parallel_batches: int, batches made at a time, or None; this or num_parallel_calls.
        drop_remainder: bool, whether a last batch that is smaller is left out.
        num_parallel_calls: int or None.
        num_parallel_npu: int, taken and not used.
        output_device: "cpu" or "npu", as in `map`.

    Raises:
        ConfigError: both numbers of parallel calls, or another output_device.
    """
    _check_device("map_and_batch", output_device)
    if num_parallel_batches is not None and num_parallel_calls is not None:
        raise ConfigError("map_and_batch: expected num_parallel_batches or num_parallel_calls, got both")
    calls = num_parallel_calls or batch_size * (num_parallel_batches or 1)

    def apply(dataset):
        return dataset.map(map_func, num_parallel_calls=calls).batch(batch_size, drop_remainder=drop_remainder)

    return apply


def _check_device(name, device):
    if device not in DEVICES:
        words = (name, " or ".join(DEVICES), device, nearest(device, DEVICES))
        raise ConfigError("%s: output_device must be %s, got %r%s" % words)


def file_constant(
    shape: Any, dtype: Any, file_path: str | None = None, file_id: str | None = None, name: str | None = None
) -> tf.Tensor:
    """Returns a file's bytes as a Tensor, read at each run.

    Args:
        shape: list of int.
        dtype: dtype of the numbers in the file, little-endian.
        file_path: str.
        file_id: a name that the NPU's compiler knows a file by; it is not known here.
        name: str or None.

    Raises:
        ConfigError: no file_path.
    """
    if not file_path:
        raise ConfigError("file_constant: expected file_path=; file_id=%r is known on the NPU only" % (file_id,))
    with tf.name_scope(name, "file_constant"):
        return tf.reshape(tf.decode_raw(tf.read_file(file_path), dtype), shape)


def decode_image(
    contents: tf.Tensor, channels: int = 0, dtype: Any = tf.uint8, expand_animations: bool = True
) -> tf.Tensor:
    """Returns the image in a scalar string Tensor, see tf.image.decode_image."""
    return _decoded(contents, channels, dtype, expand_animations)


def decode_image_v3(
    contents: tf.Tensor, channels: int = 0, dct_method: str = "", expand_animations: bool = True
) -> tf.Tensor:
    """Returns the image in a scalar string Tensor as uint8, see tf.image.decode_image; dct_method is not used."""
    return _decoded(contents, channels, tf.uint8, expand_animations)


def _decoded(contents, channels, dtype, expand_animations):
    return tf.image.decode_image(contents, channels=channels, dtype=dtype, expand_animations=expand_animations)


def getshape(x: tf.Tensor, name: str | None = None) -> tf.Tensor:
    """Returns the shape of a Tensor, int32."""
    return tf.shape(x, name=name)
