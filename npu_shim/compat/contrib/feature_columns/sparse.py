"""Sparse columns of tf.contrib.layers: strings or integers as ids (behaviour of TensorFlow 1.15.5).

A raw feature is a SparseTensor [batch, ...] of `dtype`, or a Tensor, in which "" and -1 stand for no value.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.feature_columns.base import _CategoricalColumn, with_rank
from npu_shim.compat.contrib.layers import sparse_ops
from npu_shim.compat.names import names

_tables = names.load("tensorflow.python.ops.lookup_ops")


class _SparseIdLookupConfig(NamedTuple):
    """A vocabulary: a file with a word a line, or keys; `vocab_size` words and `num_oov_buckets` ids for others."""

    vocabulary_file: Any = None
    keys: Any = None
    num_oov_buckets: int = 0
    vocab_size: Any = None
    default_value: Any = -1


@dataclasses.dataclass(frozen=True)
class _SparseColumn(_CategoricalColumn):
    """A raw feature whose values are looked up or hashed to ids [batch, ...], a SparseTensor."""

    column_name: str
    is_integerized: bool = False
    bucket_size: Any = None
    lookup_config: Any = None
    combiner: str = "sum"
    dtype: Any = tf.string

    @property
    def name(self) -> str:
        return self.column_name

    @property
    def length(self) -> int:
        if self.lookup_config is None:
            return self.bucket_size
        return self.lookup_config.vocab_size + self.lookup_config.num_oov_buckets

    @property
    def config(self) -> dict[str, Any]:
        return {self.column_name: tf.io.VarLenFeature(self.dtype)}

    def is_compatible(self, other_column: Any) -> bool:
        """Whether both have the same ids: an embedding may be shared by them."""
        if not isinstance(other_column, (_SparseColumn, _WeightedSparseColumn)):
            return False
        other = getattr(other_column, "sparse_id_column", other_column)
        mine, theirs = (
            (column.is_integerized, column.bucket_size, column.lookup_config, column.dtype) for column in (self, other)
        )
        return mine == theirs

    def _transform_feature(self, inputs):
        return self._ids(as_sparse(inputs.get(self.column_name), self.column_name))

    def _ids(self, values):
        """The ids of a SparseTensor of raw values."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class _SparseColumnIntegerized(_SparseColumn):
    """Ids are the values themselves, modulo the number of buckets."""

    def _ids(self, values):
        return values.with_values(tf.floormod(values.values, tf.cast(self.bucket_size, values.dtype), name="mod"))


@dataclasses.dataclass(frozen=True)
class _SparseColumnHashed(_SparseColumn):
    """Ids are hashes of the values as strings; with `hash_keys` there are as many ids for each value."""

    hash_keys: Any = dataclasses.field(default=None, repr=False)

    def _ids(self, values):
        words = values.values if values.dtype == tf.string else tf.as_string(values.values)
        if not self.hash_keys:
            return values.with_values(tf.strings.to_hash_bucket_fast(words, self.bucket_size, name="lookup"))
        hashes = [tf.strings.to_hash_bucket_strong(words, self.bucket_size, list(key)) for key in self.hash_keys]
        return tf.sparse.concat(1, [values.with_values(ids) for ids in hashes], name="multi_hash")


@dataclasses.dataclass(frozen=True)
class _SparseColumnKeys(_SparseColumn):
    """Ids are positions in a list of keys."""

    def _ids(self, values):
        if values.dtype.is_integer:  # as the keys of the table are
            values = values.with_values(tf.cast(values.values, tf.int64))
        config = self.lookup_config
        table = _tables.index_table_from_tensor(
            list(config.keys), config.num_oov_buckets, config.default_value, dtype=self.dtype, name="lookup"
        )
        return table.lookup(values)


@dataclasses.dataclass(frozen=True)
class _SparseColumnVocabulary(_SparseColumn):
    """Ids are lines of a file."""

    def _ids(self, values):
        if values.dtype != tf.string:
            values = values.with_values(tf.as_string(values.values))
        config = self.lookup_config
        table = _tables.index_table_from_file(
            config.vocabulary_file, config.num_oov_buckets, config.vocab_size, config.default_value,
            name=self.column_name + "_lookup",
        )  # fmt: skip
        return table.lookup(values)


@dataclasses.dataclass(frozen=True)
class _WeightedSparseColumn(_CategoricalColumn):
    """Ids with the weights of another raw feature: (ids, weights), SparseTensors with the same indices."""

    sparse_id_column: Any
    weight_column_name: str
    dtype: Any

    @property
    def name(self) -> str:
        return "%s_weighted_by_%s" % (self.sparse_id_column.name, self.weight_column_name)

    @property
    def parents(self) -> tuple[Any, ...]:
        return (self.sparse_id_column,)

    @property
    def combiner(self) -> str:
        return self.sparse_id_column.combiner

    @property
    def lookup_config(self) -> Any:
        return self.sparse_id_column.lookup_config

    @property
    def length(self) -> int:
        return self.sparse_id_column.length

    @property
    def config(self) -> dict[str, Any]:
        return {**self.sparse_id_column.config, self.weight_column_name: tf.io.VarLenFeature(self.dtype)}

    def is_compatible(self, other_column: Any) -> bool:
        """Whether both have the same ids."""
        return self.sparse_id_column.is_compatible(other_column)

    def id_tensor(self, input_tensor: Any) -> tf.SparseTensor:
        """The ids."""
        return self.sparse_id_column.id_tensor(input_tensor[0])

    def weight_tensor(self, input_tensor: Any) -> tf.SparseTensor:
        """The weights, float32."""
        return input_tensor[1]

    def _transform_feature(self, inputs):
        ids, given = inputs.get(self.sparse_id_column), inputs.get(self.weight_column_name)
        if not isinstance(given, tf.SparseTensor):
            given = ids.with_values(tf.gather_nd(with_rank(given, 2, self.name), ids.indices))
        return ids, given.with_values(tf.cast(given.values, tf.float32))


def as_sparse(feature: Any, name: str) -> tf.SparseTensor:
    """A raw feature of a sparse column as a SparseTensor: "" and -1 of a Tensor are no value."""
    if isinstance(feature, tf.SparseTensor):
        return feature
    feature = tf.convert_to_tensor(feature)
    nothing = "" if feature.dtype == tf.string else -1
    return sparse_ops.dense_to_sparse_tensor(with_rank(feature, 2, name), nothing)


def sparse_column_with_integerized_feature(
    column_name: str, bucket_size: int, combiner: str = "sum", dtype: Any = tf.int64
) -> _SparseColumn:
    """A sparse column whose values are ids already, taken modulo `bucket_size`.

    Raises:
        ValueError: bucket_size is less than 1, or dtype is not an integer's.
    """
    if not tf.as_dtype(dtype).is_integer:
        raise ValueError("dtype must be an integer. dtype: %s, column_name: %s" % (dtype, column_name))
    _check(column_name, dtype, bucket_size)
    return _SparseColumnIntegerized(column_name, True, bucket_size, None, combiner, dtype)


def sparse_column_with_hash_bucket(
    column_name: str, hash_bucket_size: int, combiner: str = "sum", dtype: Any = tf.string, hash_keys: Any = None
) -> _SparseColumn:
    """A sparse column whose values are hashed to ids below `hash_bucket_size`.

    Args:
        column_name: str, the raw feature.
        hash_bucket_size: int.
        combiner: "sum", "mean" or "sqrtn".
        dtype: of the raw feature, string or an integer's.
        hash_keys: list of pairs of int, one for each of several strong hashes; None for one fast hash.

    Raises:
        ValueError: hash_bucket_size is less than 1, the dtype is another, or hash_keys is no list of pairs.
    """
    _check(column_name, dtype, hash_bucket_size)
    keys = None if hash_keys is None else _checked_hash_keys(hash_keys)
    return _SparseColumnHashed(column_name, False, hash_bucket_size, None, combiner, dtype, keys)


def sparse_column_with_keys(
    column_name: str, keys: Any, default_value: int = -1, combiner: str = "sum", dtype: Any = tf.string
) -> _SparseColumn:
    """A sparse column whose ids are positions in `keys`; other values have the id `default_value`, -1 for none.

    Raises:
        ValueError: the dtype is neither a string's nor an integer's.
    """
    _check(column_name, dtype)
    keys = tuple(keys)
    config = _SparseIdLookupConfig(keys=keys, vocab_size=len(keys), default_value=default_value)
    return _SparseColumnKeys(column_name, lookup_config=config, combiner=combiner, dtype=dtype)


def sparse_column_with_vocabulary_file(
    column_name: str,
    vocabulary_file: str,
    num_oov_buckets: int = 0,
    vocab_size: int | None = None,
    default_value: int = -1,
    combiner: str = "sum",
    dtype: Any = tf.string,
) -> _SparseColumn:
    """A sparse column whose ids are lines of a file.

    Args:
        column_name: str, the raw feature.
        vocabulary_file: str, a path.
        num_oov_buckets: int, ids after those of the file, for other values.
        vocab_size: int, how many of its lines count.
        default_value: int, the id of other values where there are no such buckets, -1 for none.
        combiner: "sum", "mean" or "sqrtn".
        dtype: of the raw feature, string or an integer's.

    Raises:
        ValueError: vocab_size is missing, or the dtype is neither a string's nor an integer's.
    """
    _check(column_name, dtype)
    if vocab_size is None:
        raise ValueError("vocab_size should be defined. column_name: %s" % column_name)
    config = _SparseIdLookupConfig(vocabulary_file, None, num_oov_buckets, vocab_size, default_value)
    return _SparseColumnVocabulary(column_name, lookup_config=config, combiner=combiner, dtype=dtype)


def weighted_sparse_column(
    sparse_id_column: Any, weight_column_name: str, dtype: Any = tf.float32
) -> _WeightedSparseColumn:
    """A sparse column with weights, a raw feature of a number's dtype with the same indices.

    Raises:
        ValueError: dtype cannot become float32.
    """
    kind = tf.as_dtype(dtype)
    if not (kind.is_integer or kind.is_floating):
        raise ValueError("dtype is not convertible to float. Given %r" % (dtype,))
    return _WeightedSparseColumn(sparse_id_column, weight_column_name, dtype)


def _checked_hash_keys(hash_keys):
    """The pairs as tuples."""
    if not isinstance(hash_keys, list) or not hash_keys:
        raise ValueError("hash_keys must be a non-empty list.")
    for pair in hash_keys:
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(key, int) for key in pair):
            raise ValueError("Each element of hash_keys must be a pair of integers.")
    return tuple(tuple(pair) for pair in hash_keys)


def _check(column_name, dtype, buckets=1):
    kind = tf.as_dtype(dtype)
    if kind != tf.string and not kind.is_integer:
        raise ValueError("dtype must be string or integer. dtype: %s, column_name: %s" % (dtype, column_name))
    if buckets is None or buckets < 1:
        raise ValueError("bucket_size must be at least 1. bucket_size: %s, column_name: %s" % (buckets, column_name))
