"""Colours of images in YIQ space, as tf.contrib.image changes them (behaviour of TensorFlow 1.15.5)."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

# RGB to luminance and two chrominances (NTSC)
YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])


def adjust_hsv_in_yiq(
    image: Any, delta_hue: Any = 0, scale_saturation: Any = 1, scale_value: Any = 1, name: str | None = None
) -> tf.Tensor:
    """Turns and scales the chrominances of RGB images, and scales all of them.

    Args:
        image: [..., height, width, 3] of a number type.
        delta_hue: float, radians.
        scale_saturation: float, by which the chrominances are multiplied.
        scale_value: float, by which everything is multiplied.
        name: name scope, "adjust_hsv_in_yiq" by default.

    Raises:
        ValueError: the image has fewer than three dimensions.
        InvalidArgumentError: it has another number of channels.
    """
    with tf.name_scope(name, "adjust_hsv_in_yiq", [image]):
        image = tf.convert_to_tensor(image, name="image")
        if image.shape.ndims is not None and image.shape.ndims < 3:
            raise ValueError("Shape must be at least rank 3 but is rank %d" % image.shape.ndims)
        if image.shape.dims is not None and not image.shape[-1:].is_compatible_with([3]):
            problem = "input must have 3 channels but instead has %s channels" % image.shape[-1]
            raise tf.errors.InvalidArgumentError(None, None, problem)
        hue, saturation, value = (tf.cast(x, tf.float32) for x in (delta_hue, scale_saturation, scale_value))
        u, w, nothing = saturation * tf.cos(hue), saturation * tf.sin(hue), tf.zeros([])
        turn = value * tf.reshape(
            tf.stack([1.0, nothing, nothing, nothing, u, -w, nothing, w, u]), [3, 3]
        )  # fmt: skip
        matrix = tf.matmul(np.linalg.inv(YIQ).astype(np.float32), tf.matmul(turn, YIQ.astype(np.float32)))
        numbers = tf.image.convert_image_dtype(image, tf.float32)
        changed = tf.tensordot(numbers, matrix, [[-1], [1]])
        changed.set_shape(image.shape)
        return tf.image.convert_image_dtype(changed, image.dtype)


def random_hsv_in_yiq(
    image: Any,
    max_delta_hue: float = 0,
    lower_saturation: float = 1,
    upper_saturation: float = 1,
    lower_value: float = 1,
    upper_value: float = 1,
    seed: int | None = None,
) -> tf.Tensor:
    """As `adjust_hsv_in_yiq`, by uniform random numbers: the hue's in [-max_delta_hue, max_delta_hue].

    Raises:
        ValueError: a bound is negative, or a lower one exceeds the upper one.
    """
    bounds = {"saturation": (lower_saturation, upper_saturation), "value": (lower_value, upper_value)}
    if max_delta_hue < 0:
        raise ValueError("max_delta must be non-negative, got %s" % max_delta_hue)
    for what, (low, high) in bounds.items():
        if low < 0 or low > high:
            raise ValueError("the bounds of the %s must be 0 <= lower <= upper, got %s and %s" % (what, low, high))
    hue, saturation, value = (
        low if low == high else tf.random_uniform([], low, high, seed=seed)
        for low, high in [(-max_delta_hue, max_delta_hue), *bounds.values()]
    )
    return adjust_hsv_in_yiq(image, hue, saturation, value)
