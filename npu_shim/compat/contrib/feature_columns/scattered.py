"""Embeddings that are looked up by hashes (Chen et al. 2015, "hashing trick"), as tf.contrib.layers has them.

Element i of the embedding of a value v is the parameter whose index is a fingerprint of the pair (i, v). Parameters
are a vector, a list of its parts, or a partitioned variable.
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.feature_columns.base import check_combiner
from npu_shim.compat.contrib.layers import sparse_ops

# what stands for the value of an empty row: the words of TensorFlow 1.15, whose embeddings are in checkpoints
EMPTY_STRING, EMPTY_NUMBER = "6ZxWzWOHxZ", 1288896567


def scattered_embedding_lookup(
    params: Any, values: Any, dimension: int, name: str | None = None, hash_key: int | None = None
) -> tf.Tensor:
    """The embeddings of values [...]: [..., dimension].

    Args:
        params: float vector, its parts, or a partitioned variable.
        values: Tensor of strings or integers.
        dimension: int.
        name: name scope, "scattered_embedding_lookup" by default.
        hash_key: int, of the fingerprints; see `sparse_ops.sparse_feature_cross` for None.

    Raises:
        ValueError: dimension is not positive, or a part has no known length.
    """
    if dimension is None or dimension < 1:
        raise ValueError("You must specify dimension > 0. Got %s" % dimension)
    params = _parts(params)
    with tf.name_scope(name, "scattered_embedding_lookup", [*params, values]):
        values = tf.convert_to_tensor(values)
        flat = tf.reshape(values, [-1])
        places = tf.tile(tf.range(dimension), tf.shape(flat))[:, None]
        repeated = tf.reshape(tf.tile(flat[:, None], [1, dimension]), [-1, 1])
        size = sum(int(part.shape[0]) for part in params)
        crossed = sparse_ops.sparse_feature_cross([places, repeated], True, size, hash_key=hash_key)
        embedded = tf.nn.embedding_lookup(params, crossed.values, partition_strategy="div")
        embedded = tf.reshape(embedded, tf.concat([tf.shape(values), [dimension]], 0))
        embedded.set_shape(values.shape.concatenate([dimension]))
        return embedded


def scattered_embedding_lookup_sparse(
    params: Any,
    sparse_values: tf.SparseTensor,
    dimension: int,
    combiner: str | None = None,
    default_value: Any = None,
    name: str | None = None,
    hash_key: int | None = None,
) -> tf.Tensor:
    """The combined embeddings of each row of a SparseTensor [rows, columns]: [rows, dimension].

    Args:
        params: float vector, its parts, or a partitioned variable.
        sparse_values: SparseTensor of strings or integers.
        dimension: int.
        combiner: "mean" (by default), "sqrtn" or "sum".
        default_value: what an empty row has for its value.
        name: name scope, "scattered_embedding_lookup_sparse" by default.
        hash_key: int, of the fingerprints.

    Raises:
        TypeError: sparse_values is no SparseTensor.
        ValueError: the combiner is unknown.
    """
    if not isinstance(sparse_values, tf.SparseTensor):
        raise TypeError("sparse_values must be SparseTensor")
    combiner = combiner or "mean"
    check_combiner(combiner)
    params = _parts(params)
    if default_value is None:
        default_value = EMPTY_STRING if sparse_values.dtype == tf.string else EMPTY_NUMBER
    with tf.name_scope(name, "scattered_embedding_lookup_sparse", [*params, sparse_values]):
        filled, _ = tf.sparse.fill_empty_rows(sparse_values, tf.constant(default_value, sparse_values.dtype))
        unique, where = tf.unique(filled.values)
        embeddings = scattered_embedding_lookup(params, unique, dimension, hash_key=hash_key)
        reduce = {"sum": tf.sparse.segment_sum, "mean": tf.sparse.segment_mean, "sqrtn": tf.sparse.segment_sqrt_n}
        return reduce[combiner](embeddings, where, tf.cast(filled.indices[:, 0], tf.int32))


def _parts(params):
    parts = list(params) if isinstance(params, (list, tuple)) or hasattr(params, "_get_partitions") else [params]
    for part in parts:
        if part.shape.ndims != 1 or not part.shape.is_fully_defined():
            raise ValueError("params must have rank 1 and a known length, got the shape %s" % part.shape)
    return parts
