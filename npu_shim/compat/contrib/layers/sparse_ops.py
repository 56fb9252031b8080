"""Sparse tensors of tf.contrib.layers: from dense ones, their rows, their crosses (behaviour of TensorFlow 1.15.5)."""

from __future__ import annotations

import logging
from typing import Any

import tensorflow.compat.v1 as tf

LOG = logging.getLogger("npu_shim")
SPARSE_FEATURE_CROSS_DEFAULT_HASH_KEY = 0xDECAFCAFFE


def dense_to_sparse_tensor(dense_tensor: Any, ignore_value: Any = None) -> tf.SparseTensor:
    """The elements of a tensor that are not `ignore_value` ("", False or 0 by default)."""
    with tf.name_scope("DenseToSparseTensor"):
        dense = tf.convert_to_tensor(dense_tensor)
        indices = tf.where(tf.not_equal(dense, _ignored(dense.dtype, ignore_value)), name="indices")
        shape = tf.shape(dense, name="dense_shape", out_type=tf.int64)
        return tf.SparseTensor(indices, tf.gather_nd(dense, indices, name="values"), shape)


def indicators_to_sparse_ids(indicators: Any, ignore_value: Any = None, dtype: Any = tf.int64) -> tf.SparseTensor:
    """The positions along the last dimension of all elements that are not `ignore_value`.

    Args:
        indicators: [..., classes].
        ignore_value: "", False or 0 by default.
        dtype: of the result.

    Returns:
        SparseTensor [..., most positions of a row]: they stand side by side, from 0 on.
    """
    with tf.name_scope("indicators_to_sparse_ids"):
        indicators = tf.convert_to_tensor(indicators, name="indicators")
        marked = tf.not_equal(indicators, _ignored(indicators.dtype, ignore_value))
        indices = tf.where(marked)
        place = tf.cumsum(tf.cast(marked, tf.int64), axis=-1, exclusive=True)
        side_by_side = tf.concat([indices[:, :-1], tf.gather_nd(place, indices)[:, None]], 1)
        most = tf.reduce_max(tf.reduce_sum(tf.cast(marked, tf.int64), -1))
        shape = tf.concat([tf.shape(indicators, out_type=tf.int64)[:-1], [tf.maximum(most, 0)]], 0)
        return tf.SparseTensor(side_by_side, tf.cast(indices[:, -1], dtype), shape)


def sparse_row_envelope(sparse_input: Any, row_axis: int = 0, col_axis: int = 1, name: str | None = None) -> tf.Tensor:
    """The length of each row: one more than its last column; [rows].

    Raises:
        ValueError: the axes are one.
    """
    if row_axis == col_axis:
        raise ValueError("Row and column can not be the same axis.")
    with tf.name_scope(name, "sparse_row_envelope", [sparse_input]):
        ends = tf.cast(sparse_input.indices[:, col_axis] + 1, tf.int32)
        rows = tf.cast(sparse_input.indices[:, row_axis], tf.int32)
        lengths = tf.unsorted_segment_max(ends, rows, tf.cast(sparse_input.dense_shape[row_axis], tf.int32))
        return tf.maximum(lengths, 0)  # of rows without elements


def sparse_feature_cross(
    inputs: Any, hashed_output: bool = False, num_buckets: int = 0, name: str | None = None, hash_key: Any = None
) -> tf.SparseTensor:
    """All combinations of the features of each row.

    Args:
        inputs: list of Tensor or SparseTensor [batch, ...], of integers or strings.
        hashed_output: whether the result is a hash; else "a_X_b".
        num_buckets: int, what a hash is taken modulo; 0 for not at all.
        name: of the operation.
        hash_key: int; where it is None, 1.15 had another hash, and this has that of the default key.

    Returns:
        SparseTensor [batch, most combinations] of int64 or string.

    Raises:
        TypeError: an input is neither a Tensor nor a SparseTensor.
    """
    if not isinstance(inputs, (list, tuple)):
        raise TypeError("Inputs should be a list")
    if not all(isinstance(value, (tf.SparseTensor, tf.Tensor)) for value in inputs):
        raise TypeError("All inputs must be SparseTensors or Tensors")
    if hashed_output and hash_key is None:
        LOG.warning(
            "npu_shim: sparse_feature_cross without a hash_key gives other hashes than TensorFlow 1.15, whose hash had "
            "collisions: embeddings of checkpoints from there do not fit"
        )
    out_type = tf.int64 if hashed_output else tf.string
    sparse = [value for value in inputs if isinstance(value, tf.SparseTensor)]
    indices, values, shape = tf.raw_ops.SparseCross(
        indices=[value.indices for value in sparse],
        values=[_part(value.values, hashed_output) for value in sparse],
        shapes=[value.dense_shape for value in sparse],
        dense_inputs=[_part(value, hashed_output) for value in inputs if isinstance(value, tf.Tensor)],
        hashed_output=hashed_output, num_buckets=num_buckets,
        hash_key=SPARSE_FEATURE_CROSS_DEFAULT_HASH_KEY if hash_key is None else hash_key,
        out_type=out_type, internal_type=out_type, name=name,
    )  # fmt: skip
    return tf.SparseTensor(indices, values, shape)


def _part(values, hashed):
    """A feature as the op takes it: one of integers is a string in a string."""
    if values.dtype == tf.string:
        return values
    return tf.cast(values, tf.int64) if hashed else tf.as_string(values)


def _ignored(dtype, ignore_value):
    """What counts as no element of a dtype."""
    if ignore_value is None:
        ignore_value = "" if dtype == tf.string else dtype.as_numpy_dtype()
    return tf.cast(ignore_value, dtype, name="ignore_value")
