"""What columns of tf.contrib.layers say of the examples that they are parsed from (behaviour of TensorFlow 1.15.5)."""

from __future__ import annotations

from typing import Any, Iterable

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.feature_columns.base import _FeatureColumn
from npu_shim.compat.contrib.feature_columns.real import real_valued_column


def create_feature_spec_for_parsing(feature_columns: Any) -> dict[str, Any]:
    """The `features` of tf.io.parse_example: dict of a raw feature's name to its kind.

    Args:
        feature_columns: iterable of columns, or a dict of them.

    Raises:
        TypeError: an item is no column of tf.contrib.layers.
    """
    columns = feature_columns.values() if isinstance(feature_columns, dict) else feature_columns
    spec: dict[str, Any] = {}
    for column in columns:
        if not isinstance(column, _FeatureColumn):
            raise TypeError("All feature_columns must be _FeatureColumn instances. found: %r" % (column,))
        spec.update(column.config)
    return spec


def make_place_holder_tensors_for_base_features(feature_columns: Any) -> dict[str, Any]:
    """Placeholders of the raw features of columns: dict of name to Tensor or SparseTensor."""
    placeholders = {}
    for name, kind in create_feature_spec_for_parsing(feature_columns).items():
        if isinstance(kind, tf.io.VarLenFeature):
            placeholders[name] = tf.sparse_placeholder(kind.dtype, name="Placeholder_" + name)
        else:
            placeholders[name] = tf.placeholder(kind.dtype, [None, *kind.shape], name="Placeholder_" + name)
    return placeholders


def sequence_spec(sequence_feature_columns: Iterable[Any]) -> dict[str, Any]:
    """The `sequence_features` of tf.io.parse_single_sequence_example."""
    spec: dict[str, Any] = {}
    for name, kind in create_feature_spec_for_parsing(sequence_feature_columns).items():
        if isinstance(kind, tf.io.FixedLenFeature):
            missing = kind.default_value is not None
            kind = tf.io.FixedLenSequenceFeature(kind.shape, kind.dtype, missing, kind.default_value)
        spec[name] = kind
    return spec


def infer_real_valued_columns(features: Any) -> list[Any]:
    """Real valued columns for tensors [batch, dimension], a tensor (then the name is "") or a dict of them.

    Raises:
        ValueError: a tensor is sparse, is not of numbers, or has no known dimension.
    """
    named = features if isinstance(features, dict) else {"": features}
    return [_column_for(name, tensor) for name, tensor in named.items()]


def _column_for(name, tensor):
    if isinstance(tensor, tf.SparseTensor):
        raise ValueError("SparseTensor is not supported for auto detection. Please define FeatureColumn for %r" % name)
    if not (tensor.dtype.is_integer or tensor.dtype.is_floating):
        raise ValueError("Non integer or non floating types are not supported: %r is %s" % (name, tensor.dtype))
    if tensor.shape.ndims != 2 or not isinstance(tf.dimension_value(tensor.shape[1]), int):
        raise ValueError("Only [batch, dimension] tensors are supported: %r is %s" % (name, tensor.shape))
    return real_valued_column(name, int(tensor.shape[1]), dtype=tensor.dtype)
