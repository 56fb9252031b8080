"""Sparse gradients between ranks: gathered, or laid out densely where that moves fewer bytes.

Ranks have different numbers of slices, and TensorFlow gathers equal shapes only: each rank pads its slices to the
longest rank's, and the padding is cut off again. Both ways give the same gradient, the sum of the ranks' slices at the
rows that any rank has, so an optimizer that leaves other rows alone still does.
"""

from __future__ import annotations

from typing import Any, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.distributed.collectives import buckets, keys, reductions
from npu_shim.distributed.job import ranks


def is_dense_cheaper(gradient: tf.IndexedSlices, size: int) -> bool:
    """Whether the whole table moves fewer bytes than the slices of `size` ranks; False where a shape is unknown.

    A ring sends 2 * (size - 1) / size tables, and a row more of each to say which rows there are; a gathering sends
    size - 1 times the slices and their indices.
    """
    slices, rows = gradient.values.shape.num_elements(), _rows(gradient)
    if not slices or not rows or not gradient.indices.shape.num_elements():
        return False
    numbers = gradient.indices.shape.num_elements()
    width = slices // numbers
    dense = 2 * rows * (width + 1) * gradient.values.dtype.size
    return dense < size * (slices * gradient.values.dtype.size + numbers * gradient.indices.dtype.size)


def laid_out(gradient: tf.IndexedSlices) -> list[tf.Tensor]:
    """Returns [the dense gradient, how many slices each of its rows has in the gradient's dtype: [rows]]."""
    rows = _rows(gradient)
    counts = tf.ones(tf.shape(gradient.indices), gradient.values.dtype)
    return [tf.math.unsorted_segment_sum(part, gradient.indices, rows) for part in (gradient.values, counts)]


def picked(dense: tf.Tensor, counts: tf.Tensor, gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """Returns the slices of a dense gradient at the rows with a count, in the dtypes and the shape of `gradient`."""
    rows = tf.cast(tf.where(counts > 0)[:, 0], gradient.indices.dtype)
    return tf.IndexedSlices(tf.gather(dense, rows), rows, gradient.dense_shape)


def gathered(gradients: Sequence[Any], names: Sequence[str], group: str) -> list[Any]:
    """Returns each IndexedSlices with the slices of all ranks, in the order of ranks.

    There is one collective for all counts, and one for each dtype of values and of indices.

    Args:
        gradients: list of IndexedSlices.
        names: their variables' names.
        group: str.
    """
    members = [buckets.Member(name, gradient.values.dtype.name, None) for name, gradient in zip(names, gradients)]
    order = buckets.ordered(members)
    given = [gradients[at] for at in order]
    if not given:
        return []
    shown = ["%s %s" % (names[at], keys.described(gradients[at].values)) for at in order]
    label = keys.new("\n".join(["slices", group, *shown]))
    counts = tf.stack([tf.shape(gradient.indices)[0] for gradient in given])
    every = reductions.allgather(counts[tf.newaxis], group, keys.instance(label, 0))  # [ranks, gradients]
    longest = tf.maximum(tf.reduce_max(every, 0), 1)  # TensorFlow ends the process where nothing is gathered
    values, indices = [
        _gathered(tensors, every, longest, group, label, first)
        for first, tensors in (
            (1, [gradient.values for gradient in given]),
            (100, [gradient.indices for gradient in given]),
        )
    ]
    done: list[Any] = [None] * len(given)
    for at, value, index in zip(order, values, indices):
        done[at] = tf.IndexedSlices(value, index, gradients[at].dense_shape)
    return done


def _gathered(tensors, every, longest, group, label, first):
    """Returns the rows that all ranks have of each tensor; keys are the label's from number `first` on."""
    done = [None] * len(tensors)
    for number, dtype in enumerate(sorted({tensor.dtype for tensor in tensors}, key=lambda dtype: dtype.name)):
        chosen = [at for at, tensor in enumerate(tensors) if tensor.dtype == dtype]
        padded = [_padded(tensors[at], longest[at]) for at in chosen]
        row = tf.concat([tf.reshape(tensor, [-1]) for tensor in padded], 0)[tf.newaxis]
        rows = reductions.allgather(row, group, keys.instance(label, first + number))
        parts = tf.split(rows, tf.stack([tf.size(tensor) for tensor in padded]), axis=1, num=len(chosen))
        for at, part in zip(chosen, parts):
            tail = tensors[at].shape[1:]
            shape = tail if tail.is_fully_defined() else tf.shape(tensors[at])[1:]
            by_rank = tf.reshape(part, tf.concat([[ranks.get_rank_size(group), longest[at]], shape], 0))
            done[at] = tf.boolean_mask(by_rank, tf.sequence_mask(every[:, at], longest[at]))
    return done


def _padded(tensor, length):
    behind = [[0, length - tf.shape(tensor)[0]]] + [[0, 0]] * (tensor.shape.ndims - 1)
    return tf.pad(tensor, behind)


def _rows(gradient):
    """Returns the rows of the variable, or None where they are not known beforehand."""
    shape = None if gradient.dense_shape is None else tf.get_static_value(gradient.dense_shape)
    return None if shape is None else int(shape[0])
