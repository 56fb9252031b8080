"""CropAndResize and its gradients: boxes [n, 4] of images, (y1, x1, y2, x2), where 1 is the last pixel.

Source: TensorFlow 2.15.1, core/kernels/image/crop_and_resize_op.cc. Points are interpolated between four pixels:

    value = (1 - u) ((1 - v) top_left + v top_right) + u ((1 - v) bottom_left + v bottom_right)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from npu_shim.xla.passes.legalize.ops import sums
from npu_shim.xla.passes.legalize.site import Site

ROUNDINGS = 4 * 2.0**-23  # XLA multiplies by a reciprocal where the kernel divides: keep the last pixel inside


class _Axis(NamedTuple):
    """The sampling points of crops along one axis, [n, points] each.

    Attributes:
        low, high: the pixels on both sides, int32.
        share: weight of the upper pixel.
        inside: whether the point is in the image.
        by_first, by_second: derivatives of the point's position by the box's first and second side.
    """

    low: Any
    high: Any
    share: Any
    inside: Any
    by_first: Any
    by_second: Any


def crop(site: Site) -> Any:
    """Crops [n, height, width, channels] of images, float32."""
    images, boxes, owners, _ = site.inputs
    y, x, inside = _axes(site, boxes, tf.shape(images), site.constant(3))
    pixels = tf.cast(images, tf.float32)
    at = lambda rows, columns: _gathered(pixels, owners, rows, columns)  # noqa: E731
    if site.attr("method") == b"nearest":
        picked = at(_rounded(y), _rounded(x))
    else:
        u, v = y.share[:, :, tf.newaxis, tf.newaxis], x.share[:, tf.newaxis, :, tf.newaxis]
        top = at(y.low, x.low) + (at(y.low, x.high) - at(y.low, x.low)) * v
        bottom = at(y.high, x.low) + (at(y.high, x.high) - at(y.high, x.low)) * v
        picked = top + (bottom - top) * u
    return tf.where_v2(inside[..., tf.newaxis], picked, site.attr("extrapolation_value"))


def image_gradient(site: Site) -> Any:
    """Gradients of the images: each pixel sums those of the points it contributed to."""
    given, boxes, owners, _ = site.inputs
    size = [int(size_of_axis) for size_of_axis in site.constant(3)]
    y, x, inside = _axes(site, boxes, size, given.shape[1:3])
    u, v = y.share[:, :, tf.newaxis, tf.newaxis], x.share[:, tf.newaxis, :, tf.newaxis]
    if site.attr("method") == b"nearest":
        corners = [(_rounded(y), _rounded(x), given)]
    else:
        top, bottom = (1 - u) * given, u * given
        corners = [(y.low, x.low, (1 - v) * top), (y.low, x.high, v * top),
                   (y.high, x.low, (1 - v) * bottom), (y.high, x.high, v * bottom)]  # fmt: skip
    places = [_places(owners, rows, columns, size) for rows, columns, _ in corners]
    places = tf.stack([tf.where_v2(inside, place, -1) for place in places], 3)  # the kernel's order of summation
    rows = tf.reshape(tf.stack([corner for _, _, corner in corners], 3), [-1, size[3]])
    summed = sums.by_segment(rows, tf.reshape(places, [-1]), size[0] * size[1] * size[2])
    return tf.cast(tf.reshape(summed, size), site.attr("T"))


def box_gradient(site: Site) -> Any:
    """Gradients of the boxes [n, 4], from the image's slope at the points."""
    given, images, boxes, owners = site.inputs
    y, x, inside = _axes(site, boxes, tf.shape(images), given.shape[1:3])
    pixels = tf.cast(images, tf.float32)
    corners = [_gathered(pixels, owners, rows, columns) for rows in (y.low, y.high) for columns in (x.low, x.high)]
    top_left, top_right, bottom_left, bottom_right = corners
    u, v = y.share[:, :, tf.newaxis, tf.newaxis], x.share[:, tf.newaxis, :, tf.newaxis]
    along_y = (bottom_left - top_left) * (1 - v) + (bottom_right - top_right) * v
    along_x = (top_right - top_left) * (1 - u) + (bottom_right - bottom_left) * u
    weights = tf.where_v2(inside[..., tf.newaxis], given, 0)
    along_y, along_x = (tf.reduce_sum(along * weights, 3) for along in (along_y, along_x))
    sides = [(along_y, y.by_first[:, :, tf.newaxis]), (along_x, x.by_first[:, tf.newaxis]),
             (along_y, y.by_second[:, :, tf.newaxis]), (along_x, x.by_second[:, tf.newaxis])]  # fmt: skip
    return tf.stack([tf.reduce_sum(change * by, [1, 2]) for change, by in sides], 1)


def _axes(site, boxes, size, crop_size):
    """The _Axis of y and of x, and whether each point [n, height, width] is in the image."""
    counts = [int(size) if size is not None else None for size in tuple(crop_size)]
    if None in counts:
        raise site.refused("the size of its crops must be known when XLA compiles, it is %s" % counts)
    y, x = (_axis(boxes[:, k], boxes[:, k + 2], size[k + 1], counts[k]) for k in range(2))
    return y, x, tf.logical_and(y.inside[:, :, tf.newaxis], x.inside[:, tf.newaxis])


def _axis(first, second, size, count):
    last = tf.cast(size - 1, tf.float32)
    if count > 1:
        by_second = tf.range(count, dtype=tf.float32) * (last / (count - 1))
        at = first[:, tf.newaxis] * last + tf.range(count, dtype=tf.float32) * (
            (second - first)[:, tf.newaxis] * last / (count - 1)
        )
        by_first = last - by_second
    else:
        at = 0.5 * (first + second)[:, tf.newaxis] * last
        by_first = by_second = tf.fill([1], 0.5 * last)
    inside = tf.logical_and(at >= 0, at <= last * (1 + ROUNDINGS))
    at = tf.clip_by_value(at, 0, last)
    low, zero = tf.floor(at), tf.zeros_like(at)
    return _Axis(
        tf.cast(low, tf.int32), tf.cast(tf.ceil(at), tf.int32), at - low, inside, by_first + zero, by_second + zero
    )


def _rounded(axis):
    """The nearest pixel, the upper one if two are equally near."""
    return tf.where_v2(axis.share < 0.5, axis.low, axis.high)


def _gathered(images, owners, rows, columns):
    flat = tf.reshape(images, tf.concat([[-1], tf.shape(images)[3:]], 0))
    return tf.gather(flat, _places(owners, rows, columns, tf.shape(images)))


def _places(owners, rows, columns, size):
    """Flat indices [n, height, width] of pixels among those of all images."""
    lines = owners[:, tf.newaxis] * size[1] + rows
    return lines[:, :, tf.newaxis] * size[2] + columns[:, tf.newaxis]
