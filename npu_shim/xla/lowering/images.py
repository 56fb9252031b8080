"""Images: the gradient of resizing."""

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.xla.lowering import sums


def nearest_neighbor_gradient(site):
    """Each pixel of the small image takes the gradients of those that it gave its value to."""
    given, _ = site.inputs
    _, height, width, channels = given.shape.as_list()
    size = [int(each) for each in site.constant(1)]
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
    """The pixel of the small side that each of the large side is nearest to."""
    aligned = site.attr("align_corners") and large > 1
    scale = np.float32(small - 1) / np.float32(large - 1) if aligned else np.float32(small) / np.float32(large)
    at = np.arange(large, dtype=np.float32)
    at = (at + np.float32(0.5)) * scale if site.attr("half_pixel_centers") else at * scale
    at = np.floor(at + np.float32(0.5)) if site.attr("align_corners") else np.floor(at)
    return np.clip(at, 0, small - 1).astype(np.int32)
