"""Columns of numbers of tf.contrib.layers, and their buckets (behaviour of TensorFlow 1.15.5)."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.feature_columns.base import _CategoricalColumn, _DenseColumn, _FeatureColumn, with_rank


class _Numbers(_FeatureColumn):
    """What columns of numbers have in common; they are dense."""

    column_name: str
    normalizer: Any

    HIDDEN = ("normalizer",)

    @property
    def name(self) -> str:
        return self.column_name

    @property
    def normalizer_fn(self) -> Any:
        """The function that normalizes the raw feature, or None."""
        return self.normalizer

    def _transform_feature(self, inputs):
        tensor = inputs.get(self.column_name)
        if self.normalizer is None:
            return tensor
        if isinstance(tensor, tf.SparseTensor):
            return tensor.with_values(self.normalizer(tensor.values))
        return self.normalizer(tensor)

    def _to_dnn_input_layer(self, input_tensor, weight_collections=None, trainable=True, output_rank=2):
        return with_rank(self._to_dense_tensor(input_tensor), output_rank, self.name)


@dataclasses.dataclass(frozen=True)
class _RealValuedColumn(_Numbers, _DenseColumn):
    """Numbers [batch, dimension], normalized by a function of the script's."""

    column_name: str
    dimension: Any
    default_value: Any
    dtype: Any
    normalizer: Any

    @property
    def config(self) -> dict[str, Any]:
        default = None if self.default_value is None else list(self.default_value)
        return {self.column_name: tf.io.FixedLenFeature([self.dimension], self.dtype, default)}

    @property
    def _variable_shape(self):
        return tf.TensorShape([self.dimension])

    def _transform_feature(self, inputs):
        return tf.cast(super()._transform_feature(inputs), tf.float32)

    def _to_dense_tensor(self, input_tensor):
        return input_tensor


@dataclasses.dataclass(frozen=True)
class _RealValuedVarLenColumn(_Numbers):
    """As many numbers as an example has: [batch, most] with a default value behind the last, or a SparseTensor."""

    column_name: str
    default_value: Any
    dtype: Any
    normalizer: Any
    is_sparse: bool

    @property
    def config(self) -> dict[str, Any]:
        if self.is_sparse:
            return {self.column_name: tf.io.VarLenFeature(self.dtype)}
        kind = tf.io.FixedLenSequenceFeature([], self.dtype, allow_missing=True, default_value=self.default_value)
        return {self.column_name: kind}

    def _to_dense_tensor(self, input_tensor):
        if self.is_sparse:
            raise ValueError("%s is sparse: it cannot be added to a dense input (is_sparse=False can)" % self.name)
        return tf.cast(input_tensor, tf.float32)


@dataclasses.dataclass(frozen=True)
class _BucketizedColumn(_CategoricalColumn, _DenseColumn):
    """The buckets of a real valued column: int32 [batch, dimension], boundary i begins bucket i + 1."""

    source_column: Any
    boundaries: Any

    combiner = "sum"

    @property
    def name(self) -> str:
        return "%s_bucketized" % self.source_column.name

    @property
    def parents(self) -> tuple[Any, ...]:
        return (self.source_column,)

    @property
    def length(self) -> int:
        return len(self.boundaries) + 1

    @property
    def config(self) -> dict[str, Any]:
        return self.source_column.config

    @property
    def key(self) -> str:
        source = self.source_column._shown(repr)  # without the address of its normalizer
        return "%s(source_column=%s, boundaries=%r)" % (type(self).__name__, source, self.boundaries)

    @property
    def _num_buckets(self):
        return self.length * self.source_column.dimension

    @property
    def _variable_shape(self):
        return tf.TensorShape([self._num_buckets])

    def id_tensor(self, input_tensor: Any) -> tf.SparseTensor:
        """The buckets as ids: those of each dimension are after those of the one before."""
        return self.to_sparse_tensor(input_tensor)

    def to_sparse_tensor(self, input_tensor: Any) -> tf.SparseTensor:
        """int32 buckets [batch, dimension] -> int64 SparseTensor [batch, dimension]."""
        dimension = self.source_column.dimension
        shape = tf.stack([tf.shape(input_tensor, out_type=tf.int64)[0], dimension])
        indices = tf.where(tf.ones(shape, tf.bool))
        ids = tf.cast(tf.reshape(input_tensor, [-1]), tf.int64) + indices[:, 1] * self.length
        return tf.SparseTensor(indices, ids, shape)

    def _transform_feature(self, inputs):
        numbers = with_rank(tf.convert_to_tensor(inputs.get(self.source_column)), 2, self.name)
        return tf.raw_ops.Bucketize(input=numbers, boundaries=list(self.boundaries), name="bucketize")

    def _to_dnn_input_layer(self, input_tensor, weight_collections=None, trainable=True, output_rank=2):
        if output_rank != 2:
            raise ValueError("column %s: buckets are not for sequences" % self.name)
        return tf.reshape(tf.one_hot(tf.cast(input_tensor, tf.int64), self.length), [-1, self._num_buckets])


def real_valued_column(
    column_name: str, dimension: int = 1, default_value: Any = None, dtype: Any = tf.float32, normalizer: Any = None
) -> _RealValuedColumn:
    """A column of numbers.

    Args:
        column_name: str, the raw feature.
        dimension: int, how many numbers an example has.
        default_value: a number for all of them or a list, where an example lacks the feature; None makes it an error.
        dtype: of the raw feature.
        normalizer: function of a tensor, or None.

    Raises:
        TypeError: dimension is no int, default_value does not fit dtype, or the normalizer cannot be called.
        ValueError: dimension is less than 1, there is another number of default values, or dtype is no number's.
    """
    if not isinstance(dimension, int):
        raise TypeError("dimension must be an integer. dimension: %r, column_name: %s" % (dimension, column_name))
    if dimension < 1:
        raise ValueError("dimension must be greater than 0. dimension: %d, column_name: %s" % (dimension, column_name))
    _check_real(column_name, dtype, normalizer)
    default = None if default_value is None else _defaults(column_name, dimension, default_value, dtype)
    return _RealValuedColumn(column_name, dimension, default, dtype, normalizer)


def _real_valued_var_len_column(
    column_name: str,
    default_value: Any = None,
    dtype: Any = tf.float32,
    normalizer: Any = None,
    is_sparse: bool = False,
) -> _RealValuedVarLenColumn:  # fmt: skip
    """A column of any number of numbers; where it is not sparse, it has a default value.

    Raises:
        TypeError: default_value does not fit dtype, dtype is no number's, or the normalizer cannot be called.
        ValueError: the default value is missing.
    """
    _check_real(column_name, dtype, normalizer, TypeError)
    if default_value is None:
        if not is_sparse:
            raise ValueError("default_value must be provided when is_sparse=False. column_name: %s" % column_name)
    else:
        (default_value,) = _defaults(column_name, 1, default_value, dtype)
    return _RealValuedVarLenColumn(column_name, default_value, dtype, normalizer, is_sparse)


def bucketized_column(source_column: Any, boundaries: Any) -> _BucketizedColumn:
    """The buckets (-inf, a), [a, b), ... of a real valued column; equal boundaries count once.

    Raises:
        TypeError: source_column is no real valued column.
        ValueError: there are no boundaries, or they are not sorted.
    """
    if not isinstance(source_column, _RealValuedColumn):
        raise TypeError("source_column must be an instance of _RealValuedColumn. source_column: %r" % (source_column,))
    if not isinstance(boundaries, (list, tuple)) or not boundaries:
        raise ValueError("boundaries must be a non-empty list or tuple. boundaries: %r" % (boundaries,))
    if any(after < before for before, after in zip(boundaries, boundaries[1:])):
        raise ValueError("boundaries must be a sorted list. boundaries: %r" % (boundaries,))
    return _BucketizedColumn(source_column, tuple(dict.fromkeys(float(boundary) for boundary in boundaries)))


def _check_real(column_name, dtype, normalizer, error=ValueError):
    kind = tf.as_dtype(dtype)
    if not (kind.is_integer or kind.is_floating):
        raise error("dtype must be convertible to float. dtype: %s, column_name: %s" % (dtype, column_name))
    if normalizer is not None and not callable(normalizer):
        raise TypeError("normalizer must be callable. normalizer: %r, column_name: %s" % (normalizer, column_name))


def _defaults(column_name, dimension, default_value, dtype):
    """The default values as a tuple of `dimension` numbers of a dtype."""
    numbers = list(default_value) if isinstance(default_value, (list, tuple)) else [default_value] * dimension
    if len(numbers) != dimension:
        raise ValueError(
            "The length of default_value must be equal to dimension. default_value: %r, dimension: %d, column_name: %s"
            % (default_value, dimension, column_name)
        )
    floats = tf.as_dtype(dtype).is_floating
    if not all(isinstance(number, int) or (floats and isinstance(number, float)) for number in numbers):
        raise TypeError(
            "default_value must be compatible with dtype. default_value: %r, dtype: %s, column_name: %s"
            % (default_value, dtype, column_name)
        )
    return tuple(map(float, numbers)) if floats else tuple(numbers)
