"""Geometric transforms of tf.contrib.image and tf.contrib.resampler (behaviour of TensorFlow 1.15.5).

A projective transform is [a0, a1, a2, b0, b1, b2, c0, c1]: output (x, y) reads input
((a0 x + a1 y + a2) / k, (b0 x + b1 y + b2) / k), k = c0 x + c1 y + 1.
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


def rotate(images: Any, angles: Any, interpolation: str = "NEAREST", name: str | None = None) -> tf.Tensor:
    """Rotates images [batch, height, width, channels], [height, width, channels] or [height, width].

    Args:
        images: tensor of a number type.
        angles: float32, radians counterclockwise, a scalar or [batch].
        interpolation: "NEAREST" or "BILINEAR".
        name: the name scope.
    """
    with tf.name_scope(name, "rotate"):
        height, width = _sizes(images)
        return transform(images, angles_to_projective_transforms(angles, height, width), interpolation)


def translate(images: Any, translations: Any, interpolation: str = "NEAREST", name: str | None = None) -> tf.Tensor:
    """Translates images by float32 [dx, dy] or [batch, 2]."""
    with tf.name_scope(name, "translate"):
        return transform(images, translations_to_projective_transforms(translations), interpolation)


def transform(
    images: Any, transforms: Any, interpolation: str = "NEAREST", output_shape: Any = None, name: str | None = None
) -> tf.Tensor:
    """Applies projective transforms [8] or [batch, 8]; what lies outside is 0.

    Args:
        images: [batch, height, width, channels], [height, width, channels] or [height, width].
        transforms: float32 [8] or [batch, 8].
        interpolation: "NEAREST" or "BILINEAR".
        output_shape: optional int32 [height, width].
        name: the name scope.
    """
    with tf.name_scope(name, "transform"):
        images = tf.convert_to_tensor(images)
        batch, undo = _as_batch(images)
        transforms = tf.convert_to_tensor(transforms, tf.float32)
        transforms = transforms[None] if transforms.shape.ndims == 1 else transforms
        size = tf.shape(batch)[1:3] if output_shape is None else tf.convert_to_tensor(output_shape, tf.int32)
        moved = tf.raw_ops.ImageProjectiveTransformV2(
            images=batch, transforms=transforms, output_shape=size, interpolation=interpolation.upper()
        )
        static = tf.get_static_value(size)
        height, width = batch.shape[1:3] if output_shape is None else (static if static is not None else (None, None))
        moved.set_shape([batch.shape[0], height, width, batch.shape[3]])
        return undo(moved)


def _as_batch(images):
    rank = images.shape.ndims
    if rank == 2:
        return images[None, :, :, None], lambda x: x[0, :, :, 0]
    if rank == 3:
        return images[None], lambda x: x[0]
    if rank == 4:
        return images, lambda x: x
    raise TypeError("Images should have rank between 2 and 4.")


def _sizes(images):
    batch, _ = _as_batch(tf.convert_to_tensor(images))
    shape = tf.cast(tf.shape(batch), tf.float32)
    return shape[1], shape[2]


def angles_to_projective_transforms(
    angles: Any, image_height: int, image_width: int, name: str | None = None
) -> tf.Tensor:
    """Rotations about the images' centre: [batch, 8]."""
    with tf.name_scope(name, "angles_to_projective_transforms"):
        angles = tf.reshape(tf.convert_to_tensor(angles, tf.float32), [-1])
        cos, sin = tf.cos(angles), tf.sin(angles)
        right, down = tf.cast(image_width, tf.float32) - 1, tf.cast(image_height, tf.float32) - 1
        x = (right - (cos * right - sin * down)) / 2
        y = (down - (sin * right + cos * down)) / 2
        nothing = tf.zeros_like(cos)
        return tf.stack([cos, -sin, x, sin, cos, y, nothing, nothing], 1)


def translations_to_projective_transforms(translations: Any, name: str | None = None) -> tf.Tensor:
    """Translations by [dx, dy]: [batch, 8]."""
    with tf.name_scope(name, "translations_to_projective_transforms"):
        moves = tf.convert_to_tensor(translations, tf.float32)
        moves = moves[None] if moves.shape.ndims == 1 else moves
        one, nothing = tf.ones_like(moves[:, 0]), tf.zeros_like(moves[:, 0])
        return tf.stack([one, nothing, -moves[:, 0], nothing, one, -moves[:, 1], nothing, nothing], 1)


def flat_transforms_to_matrices(transforms: Any) -> tf.Tensor:
    """[batch, 8] -> [batch, 3, 3]."""
    transforms = tf.convert_to_tensor(transforms, tf.float32)
    transforms = transforms[None] if transforms.shape.ndims == 1 else transforms
    return tf.reshape(tf.concat([transforms, tf.ones_like(transforms[:, :1])], 1), [-1, 3, 3])


def matrices_to_flat_transforms(transform_matrices: Any) -> tf.Tensor:
    """[batch, 3, 3] -> [batch, 8]."""
    matrices = tf.convert_to_tensor(transform_matrices, tf.float32)
    flat = tf.reshape(matrices, [-1, 9])
    return (flat / flat[:, 8:])[:, :8]


def compose_transforms(*transforms: Any) -> tf.Tensor:
    """The transforms one after the other: [batch, 8]."""
    if not transforms:
        raise ValueError("compose_transforms needs at least one transform")
    composed = flat_transforms_to_matrices(transforms[0])
    for other in transforms[1:]:
        composed = tf.matmul(composed, flat_transforms_to_matrices(other))
    return matrices_to_flat_transforms(composed)


def resampler(data: Any, warp: Any, name: str = "resampler") -> tf.Tensor:
    """Samples images at points (Jaderberg et al. 2015), bilinear; 0 outside.

    Args:
        data: float [batch, height, width, channels].
        warp: float [batch, ..., 2], points (x, y).
        name: the name scope.

    Returns:
        [batch, ..., channels].
    """
    with tf.name_scope(name, "resampler"):
        data, warp = tf.convert_to_tensor(data), tf.convert_to_tensor(warp)
        floor = tf.floor(warp)
        part = warp - floor
        # a border of zeros stands for all that lies outside
        padded = tf.pad(data, [[0, 0], [1, 1], [1, 1], [0, 0]])
        size = tf.cast(tf.gather(tf.shape(data), [2, 1]), warp.dtype)
        total = 0.0
        for dx in (0, 1):
            for dy in (0, 1):
                corner = tf.clip_by_value(floor + tf.constant([dx, dy], warp.dtype), -1.0, size) + 1
                weight = tf.abs(part - tf.constant([1 - dx, 1 - dy], warp.dtype))
                value = tf.gather_nd(padded, tf.cast(tf.reverse(corner, [-1]), tf.int32), batch_dims=1)
                total += value * tf.reduce_prod(weight, -1, keepdims=True)
        return total
