"""Functions of tf.contrib.layers that tf-slim lacks (behaviour of TensorFlow 1.15.5)."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


def embed_sequence(
    ids: Any,
    vocab_size: int | None = None,
    embed_dim: int | None = None,
    unique: bool = False,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    scope: Any = None,
    reuse: bool | None = None,
) -> tf.Tensor:  # fmt: skip
    """Embeds ids [batch, time] by the variable "embeddings": [batch, time, embed_dim].

    Args:
        ids: int [batch, time].
        vocab_size: int; with `reuse` it may be None.
        embed_dim: int; with `reuse` it may be None.
        unique: whether equal ids are looked up once.
        initializer: of the table.
        regularizer: of the table.
        trainable: bool.
        scope: variable scope, "EmbedSequence" by default.
        reuse: whether the table exists.

    Raises:
        ValueError: a size is missing, and the table is not reused.
    """
    if not (reuse or (vocab_size and embed_dim)):
        raise ValueError(
            "Must specify vocab size and embedding dimension when not reusing. Got %s, %s" % (vocab_size, embed_dim)
        )
    with tf.variable_scope(scope, "EmbedSequence", [ids], reuse=reuse):
        shape = None if reuse and (vocab_size is None or embed_dim is None) else [vocab_size, embed_dim]
        table = _table(shape, initializer, regularizer, trainable)
        return embedding_lookup_unique(table, ids) if unique else tf.nn.embedding_lookup(table, ids)


def bow_encoder(
    ids: Any,
    vocab_size: int,
    embed_dim: int,
    sparse_lookup: bool = True,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    scope: Any = None,
    reuse: bool | None = None,
) -> tf.Tensor:  # fmt: skip
    """The mean of the embeddings of ids [batch, time]: [batch, embed_dim].

    Args:
        ids: int Tensor or SparseTensor [batch, time].
        vocab_size: int.
        embed_dim: int.
        sparse_lookup: whether to skip the zeros of dense `ids`.
        initializer: of the variable "embeddings".
        regularizer: of it.
        trainable: bool.
        scope: variable scope, "bow_encoder" by default.
        reuse: whether the table exists.
    """
    with tf.variable_scope(scope, "bow_encoder", [ids], reuse=reuse):
        table = _table([vocab_size, embed_dim], initializer, regularizer, trainable)
        if sparse_lookup:
            sparse = ids if isinstance(ids, tf.SparseTensor) else tf.sparse.from_dense(ids)
            # a row of zeros only has the embedding of 0
            return tf.nn.safe_embedding_lookup_sparse(table, sparse, combiner="mean", default_id=0)
        if isinstance(ids, tf.SparseTensor):
            raise TypeError("ids are expected to be dense Tensor, got: %s" % ids)
        return tf.reduce_mean(tf.nn.embedding_lookup(table, ids), axis=1)


def _table(shape: Any, initializer: Any, regularizer: Any, trainable: bool) -> tf.Variable:
    kinds = [tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.MODEL_VARIABLES]
    return tf.get_variable("embeddings", shape, None, initializer, regularizer, trainable, kinds)


def embedding_lookup_unique(
    params: Any, ids: Any, partition_strategy: str = "mod", name: str | None = None
) -> tf.Tensor:
    """tf.nn.embedding_lookup that looks equal ids up once."""
    with tf.name_scope(name, "EmbeddingLookupUnique", [params, ids]):
        ids = tf.convert_to_tensor(ids)
        unique, where = tf.unique(tf.reshape(ids, [-1]))
        embedded = tf.gather(tf.nn.embedding_lookup(params, unique, partition_strategy), where)
        embedded = tf.reshape(embedded, tf.concat([tf.shape(ids), tf.shape(embedded)[1:]], 0))
        depth = (params[0] if isinstance(params, list) else params).shape[1:]
        embedded.set_shape(ids.shape.concatenate(depth))
        return embedded
