"""Deformable convolution by its formula: bilinear samples at moved places, then a convolution of the samples.

Source: Ascend adapter of 2023-12 (r1.15), npu_cube_ops; CANN operator documentation (DeformableOffsets).
"""

from __future__ import annotations

from typing import Optional, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.options.ops.scopes import keep_dtype_scope
from npu_shim.rewriter.errors import ConfigError, nearest

FORMATS = ("NHWC", "NCHW")


def deformable_conv2d(
    x: tf.Tensor,
    filter: tf.Tensor,
    offsets: tf.Tensor,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    data_format: str = "NHWC",
    dilations: Sequence[int] = (1, 1, 1, 1),
    groups: int = 1,
    deformable_groups: int = 1,
    modulated: bool = True,
    name: str | None = None,
) -> tf.Tensor:
    """Returns the convolution of x, whose samples are moved by `offsets` and weighted by their masks.

    Args:
        x: float Tensor [batch, height, width, channels].
        filter: float Tensor [filter height, filter width, channels, outputs].
        offsets: float Tensor [batch, out height, out width, 3 deformable_groups filter height filter width]: moves
            along x, moves along y, masks; each by deformable group, row and column of the filter.
        strides: four ints, in the order of data_format; None for 1.
        pads: ints (top, bottom, left, right); None for 0. A sample from outside is 0.
        data_format: "NHWC", or "NCHW" for x, offsets and the result.
        dilations: four ints, in the order of data_format.
        groups: 1.
        deformable_groups: int, equal parts of the channels, each with its own offsets.
        modulated: True.
        name: str or None.

    Raises:
        RuntimeError: groups other than 1, or modulated other than True, which the original refuses as well.
        ConfigError: another data_format.
    """
    if groups != 1 or modulated is not True:
        raise RuntimeError(
            "npu_shim: deformable_conv2d: expected groups=1, modulated=True, got %r, %r" % (groups, modulated)
        )
    if data_format not in FORMATS:
        words = (" or ".join(FORMATS), data_format, nearest(data_format, FORMATS))
        raise ConfigError("deformable_conv2d: data_format must be %s, got %r%s" % words)
    with tf.name_scope(name, "deformable_conv2d", [x, filter, offsets]):
        x, offsets = tf.convert_to_tensor(x), tf.convert_to_tensor(offsets)
        if data_format == "NCHW":
            x, offsets = [tf.transpose(image, [0, 2, 3, 1]) for image in (x, offsets)]
        at = data_format.index("H")
        step, dilation = [sizes[at : at + 2] for sizes in (strides or (1, 1, 1, 1), dilations)]
        size, (top, _, left, _) = tf.convert_to_tensor(filter).shape.as_list()[:2], pads or (0, 0, 0, 0)
        samples = _samples(x, offsets, size, step, (top, left), dilation, deformable_groups)
        result = tf.nn.conv2d(samples, filter, strides=[1, *size, 1], padding="VALID")
        return tf.transpose(result, [0, 3, 1, 2]) if data_format == "NCHW" else result


def _samples(x, offsets, size, step, pads, dilation, groups):
    """Returns [batch, out height filter height, out width filter width, channels]: what each filter position sees."""
    batch, height, width = tf.unstack(tf.shape(offsets)[:3])
    channels = x.shape.as_list()[-1]
    with keep_dtype_scope(gradients=True):  # places of large images do not fit float16
        parts = tf.split(tf.cast(offsets, tf.float64 if x.dtype == tf.float64 else tf.float32), 3, axis=-1)
        move_x, move_y, mask = [tf.reshape(part, [batch, height, width, groups, *size]) for part in parts]
        y = move_y + tf.reshape(_places(height, size[0], step[0], pads[0], dilation[0], move_y), [-1, 1, 1, size[0], 1])
        x_at = move_x + tf.reshape(_places(width, size[1], step[1], pads[1], dilation[1], move_x), [-1, 1, 1, size[1]])
        corners = _corners(tf.shape(x), y, x_at)
    image = tf.reshape(x, tf.concat([tf.shape(x)[:3], [groups, channels // groups]], 0))
    seen = [tf.cast(weight * mask, x.dtype)[..., tf.newaxis] * tf.gather_nd(image, at) for at, weight in corners]
    # batch, out rows, out columns, groups, filter rows, filter columns, channels of a group
    ordered = tf.transpose(tf.add_n(seen), [0, 1, 4, 2, 5, 3, 6])
    return tf.reshape(ordered, [batch, height * size[0], width * size[1], channels])


def _places(count, size, step, pad, dilation, like):
    """Returns where the filter's rows (or columns) lie before they are moved: [count, size]."""
    places = tf.range(count)[:, tf.newaxis] * step - pad + tf.range(size) * dilation
    return tf.cast(places, like.dtype)


def _corners(shape, y, x):
    """Returns the four pixels around each place: list of (indices [..., 4] into the image, weight, 0 outside)."""
    grids = [tf.broadcast_to(tf.reshape(tf.range(tf.shape(y)[axis]), one), tf.shape(y)) for axis, one in _AXES]
    corners = []
    for down in (0, 1):
        for right in (0, 1):
            row, column = tf.floor(y) + down, tf.floor(x) + right
            weight = (1.0 - tf.abs(y - row)) * (1.0 - tf.abs(x - column))
            last_row, last_column = [tf.cast(shape[axis] - 1, y.dtype) for axis in (1, 2)]
            inside = (row >= 0) & (row <= last_row) & (column >= 0) & (column <= last_column)
            rows, columns = [
                tf.cast(tf.clip_by_value(place, 0.0, last), tf.int32)
                for place, last in ((row, last_row), (column, last_column))
            ]
            at = tf.stack([grids[0], rows, columns, grids[1]], -1)
            corners.append((at, tf.where_v2(inside, weight, tf.zeros_like(weight))))
    return corners


# the axes of batch and of deformable group in [batch, out rows, out columns, groups, filter rows, filter columns]
_AXES = ((0, [-1, 1, 1, 1, 1, 1]), (3, [-1, 1, 1]))
