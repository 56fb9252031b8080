"""tf.contrib.image's components of images and greedy matches (results of TensorFlow 1.15.5)."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


def connected_components(images: Any) -> tf.Tensor:
    """Numbers the components of images: equal neighbours above, below, left and right that are not zero.

    Args:
        images: [height, width] or [batch, height, width] of any type; zero is False, 0 or "".

    Returns:
        int32 like `images`: 0 for zeros, then 1, 2, ... by the first pixel of each component, over all images.

    Raises:
        TypeError: the rank is another.
    """
    with tf.name_scope("connected_components"):
        images = tf.convert_to_tensor(images, name="images")
        if images.shape.ndims not in (None, 2, 3):
            raise TypeError("images should have rank 2 (HW) or 3 (NHW). Static shape is %s" % images.shape)
        shape = tf.shape(images)
        batch = tf.reshape(images, tf.concat([[-1], shape[-2:]], 0))
        solid = tf.not_equal(batch, tf.zeros([], images.dtype))
        own = tf.reshape(tf.range(tf.size(batch, out_type=tf.int64), dtype=tf.int64) + 1, tf.shape(batch))
        own = tf.where(solid, own, tf.zeros_like(own))
        steps = [(axis, same_as_before(batch, axis)) for axis in (1, 2)]

        def spread(names: Any, _: Any) -> Any:
            new = names
            for axis, same in steps:
                new = smallest_of_neighbours(new, same, axis)
            # the name of the pixel that a name is of: paths halve
            roots = tf.gather(tf.concat([[0], tf.reshape(new, [-1])], 0), new)
            return roots, tf.reduce_any(tf.not_equal(roots, names))

        named, _ = tf.while_loop(lambda _, changed: changed, spread, [own, tf.size(batch) > 0], back_prop=False)
        first = tf.reshape(tf.logical_and(solid, tf.equal(named, own)), [-1])
        numbers = tf.concat([[0], tf.cumsum(tf.cast(first, tf.int32))], 0)
        labels = tf.reshape(tf.gather(numbers, named), shape)
        labels.set_shape(images.shape)
        return labels


def same_as_before(batch: tf.Tensor, axis: int) -> tf.Tensor:
    """Whether a pixel equals the one before it on an axis, without the first: bool [..., size - 1, ...]."""
    return tf.equal(batch[:, 1:] if axis == 1 else batch[:, :, 1:], batch[:, :-1] if axis == 1 else batch[:, :, :-1])


def smallest_of_neighbours(names: tf.Tensor, same: tf.Tensor, axis: int) -> tf.Tensor:
    """Each name, or that of a neighbour of the same value if it is smaller."""
    before, after = (names[:, :-1], names[:, 1:]) if axis == 1 else (names[:, :, :-1], names[:, :, 1:])
    least = tf.minimum(before, after)
    pads = [[[0, 0], [0, 0], [0, 0]] for _ in range(2)]
    pads[0][axis], pads[1][axis] = [0, 1], [1, 0]
    changed = [tf.pad(tf.where(same, least, kept), pad) for kept, pad in zip((before, after), pads)]
    ends = [tf.pad(tf.ones_like(same), pad) for pad in pads]
    return tf.minimum(tf.where(ends[0], changed[0], names), tf.where(ends[1], changed[1], names))


def bipartite_match(
    distance_mat: Any, num_valid_rows: Any, top_k: int = -1, name: str = "bipartite_match"
) -> tuple[tf.Tensor, tf.Tensor]:
    """Pairs rows and columns greedily: the nearest pair first, among those that are left.

    Args:
        distance_mat: float [rows, columns].
        num_valid_rows: scalar or [1], how many rows count, all if negative.
        top_k: int, how many pairs, as many as there can be if not positive.
        name: of the scope.

    Returns:
        (int32 [rows], the column of each row or -1; int32 [columns], the row of each column or -1).
    """
    with tf.name_scope(name):
        distances = tf.convert_to_tensor(distance_mat, name="distance_mat")
        distances.shape.assert_has_rank(2)
        rows, columns = tf.unstack(tf.shape(distances))
        valid = tf.cast(tf.reshape(num_valid_rows, []), tf.int32)
        valid = tf.where(valid < 0, rows, tf.minimum(valid, rows))
        pairs = tf.minimum(valid, columns)
        pairs = tf.minimum(pairs, top_k) if top_k > 0 else pairs
        far = distances.dtype.max
        rest = tf.where(
            tf.tile(tf.range(rows)[:, None] < valid, [1, columns]), distances, tf.fill(tf.shape(distances), far)
        )

        def pair(number: Any, rest: Any, column_of: Any, row_of: Any) -> Any:
            place = tf.argmin(tf.reshape(rest, [-1]), output_type=tf.int32)
            row, column = place // columns, place % columns
            in_row, in_column = tf.equal(tf.range(rows), row), tf.equal(tf.range(columns), column)
            used = tf.logical_or(in_row[:, None], in_column[None])
            return (
                number + 1, tf.where(used, tf.fill(tf.shape(rest), far), rest),
                tf.where(in_row, tf.fill([rows], column), column_of),
                tf.where(in_column, tf.fill([columns], row), row_of),
            )  # fmt: skip

        start = [0, rest, tf.fill([rows], -1), tf.fill([columns], -1)]
        shapes = [tf.TensorShape([]), rest.shape, *(tf.TensorShape([size]) for size in distances.shape)]
        _, _, column_of, row_of = tf.while_loop(lambda number, *_: number < pairs, pair, start, shapes, back_prop=False)
        return column_of, row_of
