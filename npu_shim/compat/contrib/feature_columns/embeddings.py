"""Dense inputs from sparse columns of tf.contrib.layers: one-hot vectors and embeddings (behaviour of 1.15.5)."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.feature_columns.base import (
    _DenseColumn,
    check_checkpoint,
    check_combiner,
    weights,
    with_rank,
)
from npu_shim.compat.contrib.feature_columns.scattered import scattered_embedding_lookup_sparse
from npu_shim.compat.contrib.feature_columns.sparse import _SparseColumn, _WeightedSparseColumn, as_sparse


@dataclasses.dataclass(frozen=True)
class _OfIds(_DenseColumn):
    """A dense column made of the ids of a sparse one."""

    sparse_id_column: Any

    @property
    def parents(self) -> tuple[Any, ...]:
        return (self.sparse_id_column,)

    @property
    def length(self) -> int:
        """The number of ids, an int."""
        return self.sparse_id_column.length

    @property
    def config(self) -> dict[str, Any]:
        return self.sparse_id_column.config

    def _transform_feature(self, inputs):
        return inputs.get(self.sparse_id_column)

    def _ids_and_weights(self, input_tensor, rank):
        """The column's ids and their weights, None for none; each a SparseTensor of `rank` dimensions."""
        given = self.sparse_id_column.weight_tensor(input_tensor)
        ids = with_rank(self.sparse_id_column.id_tensor(input_tensor), rank, self.name)
        return ids, None if given is None else with_rank(given, rank, self.name)


@dataclasses.dataclass(frozen=True)
class _OneHotColumn(_OfIds):
    """Ids as vectors with as many elements as there are ids: each element is the sum of an id's weights."""

    @property
    def name(self) -> str:
        return "%s_one_hot" % self.sparse_id_column.name

    @property
    def _variable_shape(self):
        return tf.TensorShape([self.length])

    def _to_dnn_input_layer(self, input_tensor, weight_collections=None, trainable=True, output_rank=2):
        ids, given = self._ids_and_weights(input_tensor, output_rank)
        vectors = tf.one_hot(tf.sparse.to_dense(ids, default_value=-1), self.length)
        if given is not None:
            vectors *= tf.cast(tf.sparse.to_dense(given), tf.float32)[..., None]
        return tf.reduce_sum(vectors, output_rank - 1)


@dataclasses.dataclass(frozen=True)
class _EmbeddingColumn(_OfIds):
    """The embeddings of ids, combined for each example; those of one `shared_embedding_name` have one variable."""

    dimension: int
    combiner: str = "mean"
    initializer: Any = None
    ckpt_to_load_from: Any = None
    tensor_name_in_ckpt: Any = None
    shared_embedding_name: Any = None
    shared_vocab_size: Any = None
    max_norm: Any = None
    trainable: bool = True

    HIDDEN = ("initializer",)

    @property
    def name(self) -> str:
        kind = "%s_embedding" if self.shared_embedding_name is None else "%s_shared_embedding"
        return kind % self.sparse_id_column.name

    @property
    def _variable_shape(self):
        return tf.TensorShape([self.dimension])

    def _checkpoint_path(self):
        return (self.ckpt_to_load_from, self.tensor_name_in_ckpt) if self.ckpt_to_load_from else None

    def _to_dnn_input_layer(self, input_tensor, weight_collections=None, trainable=True, output_rank=2):
        ids, given = self._ids_and_weights(input_tensor, output_rank)
        return tf.nn.safe_embedding_lookup_sparse(
            self._table(weight_collections, trainable and self.trainable), ids, given,
            combiner=self.combiner, name=self.name + "weights", partition_strategy="div", max_norm=self.max_norm,
        )  # fmt: skip

    def _table(self, weight_collections, trainable):
        """The embedding's partitions."""
        if self.shared_embedding_name is None:
            return self._new_table("weights", self.length, weight_collections, trainable)
        shared = tf.get_collection_ref("SHARED_EMBEDDING_COLLECTION_" + self.shared_embedding_name.upper())
        if not shared:
            size = self.shared_vocab_size or self.length
            shared += self._new_table(self.shared_embedding_name, size, weight_collections, trainable)
        if shared[0].shape[1] != self.dimension:
            raise ValueError(
                "The embedding variable with name %s already exists, but has %s columns instead of %s"
                % (self.shared_embedding_name, shared[0].shape[1], self.dimension)
            )
        return list(shared)

    def _new_table(self, name, size, weight_collections, trainable):
        start = self.initializer or tf.truncated_normal_initializer(0.0, 1 / math.sqrt(self.length))
        return weights(name, [size, self.dimension], start, weight_collections, trainable, self._checkpoint_path())


@dataclasses.dataclass(frozen=True)
class _ScatteredEmbeddingColumn(_DenseColumn):
    """Embeddings whose elements are looked up by hashes of the value and the position of the element."""

    column_name: str
    size: int
    dimension: int
    hash_key: Any
    combiner: str = "sqrtn"
    initializer: Any = None

    HIDDEN = ("initializer",)

    @property
    def name(self) -> str:
        return "%s_scattered_embedding" % self.column_name

    @property
    def config(self) -> dict[str, Any]:
        return {self.column_name: tf.io.VarLenFeature(tf.string)}

    @property
    def _variable_shape(self):
        return tf.TensorShape([self.dimension])

    def _transform_feature(self, inputs):
        return as_sparse(inputs.get(self.column_name), self.column_name)

    def _to_dnn_input_layer(self, input_tensor, weight_collections=None, trainable=True, output_rank=2):
        start = self.initializer or tf.truncated_normal_initializer(0.0, 0.1)
        return scattered_embedding_lookup_sparse(
            weights("weights", [self.size], start, weight_collections, trainable),
            with_rank(input_tensor, output_rank, self.name), self.dimension, self.combiner, None, "lookup",
            self.hash_key,
        )  # fmt: skip


def one_hot_column(sparse_id_column: Any) -> _OneHotColumn:
    """The ids of a sparse or crossed column as vectors."""
    return _OneHotColumn(sparse_id_column)


def embedding_column(
    sparse_id_column: Any,
    dimension: int,
    combiner: str = "mean",
    initializer: Any = None,
    ckpt_to_load_from: Any = None,
    tensor_name_in_ckpt: Any = None,
    max_norm: float | None = None,
    trainable: bool = True,
) -> _EmbeddingColumn:
    """The embeddings of the ids of a sparse or crossed column.

    Args:
        sparse_id_column: the column.
        dimension: int, elements of an embedding.
        combiner: "mean", "sqrtn" or "sum", for several ids of an example.
        initializer: of the variable; a truncated normal one, of the deviation 1 / sqrt(ids), by default.
        ckpt_to_load_from: checkpoint that it starts from, or None.
        tensor_name_in_ckpt: name of the tensor there, or None.
        max_norm: float, the greatest norm of an embedding that is looked up, or None.
        trainable: bool.

    Raises:
        ValueError: the initializer cannot be called, or one name of a checkpoint is missing.
    """
    _check_embedding(initializer, ckpt_to_load_from, tensor_name_in_ckpt)
    return _EmbeddingColumn(
        sparse_id_column, dimension, combiner, initializer, ckpt_to_load_from, tensor_name_in_ckpt, max_norm=max_norm,
        trainable=trainable,
    )  # fmt: skip


def shared_embedding_columns(
    sparse_id_columns: Any,
    dimension: int,
    combiner: str = "mean",
    shared_embedding_name: str | None = None,
    initializer: Any = None,
    ckpt_to_load_from: Any = None,
    tensor_name_in_ckpt: Any = None,
    max_norm: float | None = None,
    trainable: bool = True,
) -> list[_EmbeddingColumn]:
    """Embedding columns, one for each sparse column, with one variable.

    The arguments are those of `embedding_column`; `shared_embedding_name` is made of the columns' names by default.

    Raises:
        TypeError: sparse_id_columns is no sequence of sparse columns.
        ValueError: it is empty, or its columns do not have the same ids.
    """
    if not isinstance(sparse_id_columns, (list, tuple)) or not all(
        isinstance(column, (_SparseColumn, _WeightedSparseColumn)) for column in sparse_id_columns
    ):
        raise TypeError("Elements of sparse_id_columns must be _SparseColumn or _WeightedSparseColumn.")
    if not sparse_id_columns:
        raise ValueError("sparse_id_columns cannot be empty; found %r" % (sparse_id_columns,))
    first = sparse_id_columns[0]
    if not all(first.is_compatible(other) for other in sparse_id_columns):
        raise ValueError("The input sparse id columns are not compatible.")
    _check_embedding(initializer, ckpt_to_load_from, tensor_name_in_ckpt)
    alone = len(sparse_id_columns) == 1
    name = shared_embedding_name or (None if alone else _shared_name(sparse_id_columns))
    return [
        _EmbeddingColumn(
            column, dimension, combiner, initializer, ckpt_to_load_from, tensor_name_in_ckpt, name,
            None if alone else first.length, max_norm, trainable,
        )
        for column in sparse_id_columns
    ]  # fmt: skip


def _shared_name(columns):
    named = [column.name for column in sorted(columns)]
    others = "_plus_%d_others" % (len(named) - 3) if len(named) > 3 else ""
    return "_".join(named[:3]) + others + "_shared_embedding"


def scattered_embedding_column(
    column_name: str, size: int, dimension: int, hash_key: int, combiner: str = "mean", initializer: Any = None
) -> _ScatteredEmbeddingColumn:
    """Embeddings of a feature of strings in one variable of `size` numbers (Chen et al. 2015, "hashing trick").

    Args:
        column_name: str, the raw feature.
        size: int, numbers of the variable.
        dimension: int, elements of an embedding.
        hash_key: int, of the fingerprints.
        combiner: "mean", "sqrtn" or "sum".
        initializer: of the variable; a truncated normal one, of the deviation 0.1, by default.

    Raises:
        ValueError: size or dimension is less than 1, or the combiner is unknown.
    """
    if dimension < 1 or size < 1:
        raise ValueError("Dimension and size must be greater than 0. dimension: %s, size: %s" % (dimension, size))
    check_combiner(combiner)
    _check_embedding(initializer, None, None)
    return _ScatteredEmbeddingColumn(column_name, size, dimension, hash_key, combiner, initializer)


def _check_embedding(initializer, ckpt_to_load_from, tensor_name_in_ckpt):
    check_checkpoint(ckpt_to_load_from, tensor_name_in_ckpt)
    if initializer is not None and not callable(initializer):
        raise ValueError("initializer must be callable if specified. initializer: %r" % (initializer,))
