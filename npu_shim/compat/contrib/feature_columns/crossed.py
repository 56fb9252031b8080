"""Crosses of columns of tf.contrib.layers (behaviour of TensorFlow 1.15.5)."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.feature_columns.base import _CategoricalColumn, check_checkpoint
from npu_shim.compat.contrib.feature_columns.real import _BucketizedColumn
from npu_shim.compat.contrib.feature_columns.sparse import _SparseColumn
from npu_shim.compat.contrib.layers import sparse_ops


@dataclasses.dataclass(frozen=True)
class _CrossedColumn(_CategoricalColumn):
    """Hashes of all combinations of the values of other columns, int64 SparseTensor [batch, most combinations]."""

    columns: Any
    hash_bucket_size: int
    hash_key: Any
    combiner: str = "sum"
    ckpt_to_load_from: Any = None
    tensor_name_in_ckpt: Any = None

    @property
    def name(self) -> str:
        return "_X_".join(sorted(column.name for column in self.columns))

    @property
    def parents(self) -> tuple[Any, ...]:
        return self.columns

    @property
    def length(self) -> int:
        return self.hash_bucket_size

    @property
    def config(self) -> dict[str, Any]:
        return {name: kind for column in self.columns for name, kind in column.config.items()}

    def _checkpoint_path(self):
        return (self.ckpt_to_load_from, self.tensor_name_in_ckpt) if self.ckpt_to_load_from else None

    def _transform_feature(self, inputs):
        return sparse_ops.sparse_feature_cross(
            [_crossable(column, inputs) for column in _leaves(self)], True, self.hash_bucket_size, "cross",
            self.hash_key,
        )  # fmt: skip


def _leaves(cross):
    """The columns that a cross, and the crosses in it, are made of."""
    for column in cross.columns:
        if isinstance(column, _CrossedColumn):
            yield from _leaves(column)
        else:
            yield column


def _crossable(column, inputs):
    """What a column gives to a cross: a sparse one its raw feature."""
    if isinstance(column, _BucketizedColumn):
        return column.to_sparse_tensor(inputs.get(column))
    feature = inputs.get(column.column_name)
    return feature if isinstance(feature, tf.SparseTensor) else tf.convert_to_tensor(feature)


def crossed_column(
    columns: Any,
    hash_bucket_size: int,
    combiner: str = "sum",
    ckpt_to_load_from: Any = None,
    tensor_name_in_ckpt: Any = None,
    hash_key: Any = None,
) -> _CrossedColumn:
    """The combinations of sparse, bucketized and crossed columns, hashed.

    Args:
        columns: iterable of columns.
        hash_bucket_size: int, the number of ids.
        combiner: "sum", "mean" or "sqrtn".
        ckpt_to_load_from: checkpoint that the weights of a linear model start from, or None.
        tensor_name_in_ckpt: name of the tensor there, or None.
        hash_key: int; where it is None, 1.15 had another hash (see `sparse_ops.sparse_feature_cross`).

    Raises:
        TypeError: a column cannot be crossed.
        ValueError: there are fewer than two columns or buckets, or one name is missing.
    """
    for column in columns:
        if not isinstance(column, (_SparseColumn, _CrossedColumn, _BucketizedColumn)):
            raise TypeError(
                "columns must be a set of _SparseColumn, _CrossedColumn, or _BucketizedColumn instances. column: %r"
                % (column,)
            )
    if len(columns) < 2:
        raise ValueError("columns must contain at least 2 elements. columns: %r" % (columns,))
    if hash_bucket_size < 2:
        raise ValueError("hash_bucket_size must be at least 2. hash_bucket_size: %d" % hash_bucket_size)
    check_checkpoint(ckpt_to_load_from, tensor_name_in_ckpt)
    ordered = tuple(sorted(columns, key=lambda column: column.name))
    return _CrossedColumn(ordered, hash_bucket_size, hash_key, combiner, ckpt_to_load_from, tensor_name_in_ckpt)
