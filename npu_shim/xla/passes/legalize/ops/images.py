"""Image ops: the gradient of resizing, and pooling with argmax."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.xla.passes.legalize.ops import sums
from npu_shim.xla.passes.legalize.site import Site


def nearest_neighbor_gradient(site: Site) -> Any:
    """Each pixel of the small image sums the gradients of the pixels that copied it."""
    given, _ = site.inputs
    _, height, width, channels = given.shape.as_list()
    size = [int(size_of_axis) for size_of_axis in site.constant(1)]
    if None in (height, width):
        raise site.refused("its input has shape %s, expected height and width" % given.shape)
    if height % size[0] == width % size[1] == 0 and not site.attr("align_corners"):
        parts = [-1, size[0], height // size[0], size[1], width // size[1], channels]
        return tf.reduce_sum(tf.reshape(given, parts), [2, 4])
    rows, columns = (_nearest(site, *sizes) for sizes in zip(size, (height, width)))
    pixels = (rows[:, np.newaxis] * size[1] + columns).reshape(-1)
    pixel_rows = tf.reshape(tf.transpose(given, [1, 2, 0, 3]), [height * width, -1, channels])
    summed = tf.reshape(sums.by_segment(pixel_rows, pixels, size[0] * size[1]), [*size, -1, channels])
    return tf.transpose(summed, [2, 0, 1, 3])


def _nearest(site, small, large):
    """The small image's index that each index of the large image copies, along one side."""
    aligned = site.attr("align_corners") and large > 1
    scale = np.float32(small - 1) / np.float32(large - 1) if aligned else np.float32(small) / np.float32(large)
    at = np.arange(large, dtype=np.float32)
    at = (at + np.float32(0.5)) * scale if site.attr("half_pixel_centers") else at * scale
    at = np.floor(at + np.float32(0.5)) if site.attr("align_corners") else np.floor(at)
    return np.clip(at, 0, small - 1).astype(np.int32)


def pool_with_places(site: Site) -> Any:
    """The maximum of each window and its index, the first one if several are equal."""
    (image,) = site.inputs
    _, height, width, channels = image.shape.as_list()
    if None in (height, width, channels):
        raise site.refused("its input has shape %s, expected height, width and channels" % image.shape)
    window, strides = ([int(size_of_axis) for size_of_axis in site.attr(name)][1:3] for name in ("ksize", "strides"))
    padding = site.attr("padding").decode()
    largest = tf.nn.max_pool2d(image, window, strides, padding)
    counts = largest.shape.as_list()[1:3]
    before = [_padding(*axis) if padding == "SAME" else 0 for axis in zip((height, width), window, strides, counts)]
    places = tf.zeros_like(largest, tf.int32)
    for row, column in reversed([(row, column) for row in range(window[0]) for column in range(window[1])]):
        rows, columns = (
            np.arange(count) * stride + offset - skipped
            for count, stride, offset, skipped in zip(counts, strides, (row, column), before)
        )
        inside = ((rows >= 0) & (rows < height))[:, np.newaxis] & ((columns >= 0) & (columns < width))
        there = tf.gather(tf.gather(image, rows.clip(0, height - 1), axis=1), columns.clip(0, width - 1), axis=2)
        is_place = tf.logical_and(tf.equal(there, largest), inside[:, :, np.newaxis])
        place = (rows[:, np.newaxis] * width + columns)[:, :, np.newaxis] * channels + np.arange(channels)
        places = tf.where_v2(is_place, place.astype(np.int32), places)
    if site.attr("include_batch_in_index"):
        places += _batch(image) * (height * width * channels)
    return [largest, tf.cast(places, site.attr("Targmax"))]


def _padding(size, window, stride, count):
    return max((count - 1) * stride + window - size, 0) // 2


def pool_gradient_at_places(site: Site) -> Any:
    """Each gradient goes back to the index of its maximum."""
    image, given, places = site.inputs
    if not site.attr("include_batch_in_index"):
        places += tf.cast(_batch(image) * tf.reduce_prod(tf.shape(image)[1:]), places.dtype)
    flat = tf.reshape(given, [-1, 1])
    summed = sums.by_segment(flat, tf.reshape(places, [-1]), tf.size(image))
    return tf.reshape(summed, tf.shape(image))


def _batch(image):
    """Indices of the images in the batch, [batch, 1, 1, 1]."""
    return tf.reshape(tf.range(tf.shape(image)[0]), [-1, 1, 1, 1])
