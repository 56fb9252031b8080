"""Warps of tf.contrib.image: by a flow for each pixel, or by the moves of a few points (behaviour of 1.15.5)."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

TINY = 1e-10  # the least squared distance, where its logarithm or its root's gradient is taken


def dense_image_warp(image: Any, flow: Any, name: str = "dense_image_warp") -> tf.Tensor:
    """Moves each pixel: output[b, y, x] = image[b, y - flow[..., 0], x - flow[..., 1]], bilinear, clipped at the edges.

    Args:
        image: float [batch, height, width, channels].
        flow: float [batch, height, width, 2].
        name: the name scope.

    Raises:
        InvalidArgumentError: height or width is 1.
    """
    with tf.name_scope(name):
        image, flow = tf.convert_to_tensor(image), tf.convert_to_tensor(flow)
        large = tf.assert_greater_equal(tf.shape(image)[1:3], 2, message="height and width must be at least 2")
        with tf.control_dependencies([large] if large is not None else []):  # eagerly there is none
            shape = tf.shape(image)
        y, x = tf.meshgrid(tf.range(shape[1]), tf.range(shape[2]), indexing="ij")
        grid = tf.cast(tf.stack([y, x], 2), flow.dtype)
        warped = _bilinear(image, grid - flow)
        warped.set_shape(image.shape)
        return warped


def _bilinear(image, points):
    """Values [batch, height, width, channels] at points [batch, height, width, 2] (y, x)."""
    last = tf.cast(tf.shape(image)[1:3] - 2, points.dtype)
    corner = tf.clip_by_value(tf.floor(points), 0.0, tf.maximum(last, 0.0))
    weight = tf.cast(tf.clip_by_value(points - corner, 0.0, 1.0), image.dtype)
    low = tf.cast(corner, tf.int32)

    def at(dy, dx):
        return tf.gather_nd(image, low + tf.constant([dy, dx]), batch_dims=1)

    wy, wx = weight[..., :1], weight[..., 1:]
    top = at(0, 0) + wx * (at(0, 1) - at(0, 0))
    bottom = at(1, 0) + wx * (at(1, 1) - at(1, 0))
    return top + wy * (bottom - top)


def interpolate_spline(
    train_points: Any,
    train_values: Any,
    query_points: Any,
    order: int,
    regularization_weight: float = 0.0,
    name: str = "interpolate_spline",
) -> tf.Tensor:
    """Polyharmonic splines through points: f(x) = sum_i w_i phi(|x - c_i|) + v x + b.

    phi(r) is r^order for odd orders, r^order log(r) for even ones; order 2 is the thin-plate spline.

    Args:
        train_points: float [batch, points, d], the centers c.
        train_values: float [batch, points, k], the values there.
        query_points: float [batch, queries, d].
        order: int.
        regularization_weight: float; above 0, the spline is smoother and meets the values approximately.
        name: the name scope.

    Returns:
        [batch, queries, k].
    """
    with tf.name_scope(name):
        points, values, queries = map(tf.convert_to_tensor, (train_points, train_values, query_points))
        near = _phi(_squared_distances(points, points), order)
        near += regularization_weight * tf.eye(tf.shape(points)[1], dtype=points.dtype)
        linear = _with_one(points)
        across = tf.matrix_transpose(linear)  # [batch, d + 1, points]
        top = tf.concat([near, linear], 2)
        bottom = tf.concat([across, tf.matmul(across, tf.zeros_like(linear))], 2)
        wanted = tf.concat([values, tf.matmul(across, tf.zeros_like(values))], 1)
        solved = tf.linalg.solve(tf.concat([top, bottom], 1), wanted)
        w, v = solved[:, : tf.shape(points)[1]], solved[:, tf.shape(points)[1] :]
        return tf.matmul(_phi(_squared_distances(queries, points), order), w) + tf.matmul(_with_one(queries), v)


def _with_one(points):
    return tf.concat([points, tf.ones_like(points[..., :1])], 2)


def _squared_distances(x, y):
    """[batch, n, d], [batch, m, d] -> [batch, n, m]."""
    xx, yy = tf.reduce_sum(tf.square(x), 2)[:, :, None], tf.reduce_sum(tf.square(y), 2)[:, None, :]
    return xx - 2.0 * tf.matmul(x, y, transpose_b=True) + yy


def _phi(squared, order):
    """The spline's function of a distance, from its square."""
    positive = tf.maximum(squared, TINY)
    if order % 2:
        return tf.pow(positive, 0.5 * order)
    return 0.5 * tf.pow(squared, order // 2) * tf.log(positive)


def sparse_image_warp(
    image: Any,
    source_control_point_locations: Any,
    dest_control_point_locations: Any,
    interpolation_order: int = 2,
    regularization_weight: float = 0.0,
    num_boundary_points: int = 0,
    name: str = "sparse_image_warp",
) -> tuple[tf.Tensor, tf.Tensor]:
    """Moves some points of images, and all others between them.

    Args:
        image: float [batch, height, width, channels]; all but the last must be known.
        source_control_point_locations: float [batch, points, 2] (y, x).
        dest_control_point_locations: float [batch, points, 2], where they move to.
        interpolation_order: int, of the spline.
        regularization_weight: float, of the spline.
        num_boundary_points: int, points that stay: with n > 0 the corners, and n - 1 on each edge.
        name: the name scope.

    Returns:
        (images like `image`, flow [batch, height, width, 2]).
    """
    with tf.name_scope(name):
        image = tf.convert_to_tensor(image)
        source = tf.convert_to_tensor(source_control_point_locations)
        moved = tf.convert_to_tensor(dest_control_point_locations)
        flows = moved - source
        batch, height, width = image.shape.as_list()[:3]
        if num_boundary_points > 0:
            edge = _on_all(_boundary(height, width, num_boundary_points - 1), batch, moved.dtype)
            moved, flows = tf.concat([moved, edge], 1), tf.concat([flows, tf.zeros_like(edge)], 1)
        grid = np.stack(np.meshgrid(range(height), range(width), indexing="ij"), 2)
        flow = interpolate_spline(
            moved, flows, _on_all(grid.reshape([-1, 2]), batch, moved.dtype), interpolation_order,
            regularization_weight,
        )  # fmt: skip
        flow = tf.reshape(flow, [batch, height, width, 2])
        return dense_image_warp(image, flow), flow


def _boundary(height, width, inside):
    """The corners and `inside` points on each edge between them: [4 + 4 * inside, 2]."""
    y, x = (np.linspace(0, size - 1, inside + 2) for size in (height, width))
    ys, xs = (axis.ravel() for axis in np.meshgrid(y, x, indexing="ij"))
    outside = (ys == 0) | (ys == height - 1) | (xs == 0) | (xs == width - 1)
    return np.stack([ys[outside], xs[outside]], 1)


def _on_all(points, batch, dtype):
    return tf.cast(np.tile(points[None], [batch, 1, 1]), dtype)
