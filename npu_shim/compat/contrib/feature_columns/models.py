"""Models over columns of tf.contrib.layers: dense inputs, weighted sums, parsing (behaviour of TensorFlow 1.15.5).

Features are a dict of a raw feature's name, or of a column that the input pipeline has transformed, to a Tensor or
SparseTensor. Columns are taken in the order of their keys.
"""

from __future__ import annotations

from typing import Any, Iterable

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.feature_columns import base, crossed, embeddings, real, specs
from npu_shim.rewriter.errors import nearest

SEQUENCES = (
    embeddings._OneHotColumn, embeddings._EmbeddingColumn, real._RealValuedColumn, real._RealValuedVarLenColumn,
)  # fmt: skip
NO_SEQUENCES = (embeddings._ScatteredEmbeddingColumn, real._BucketizedColumn, crossed._CrossedColumn)


class _Transformer:
    """Features, raw by their names and transformed by their columns: each is transformed once.

    Args:
        columns_to_tensors: dict, to which transformed features are added.
    """

    def __init__(self, columns_to_tensors: dict[Any, Any]) -> None:
        self._tensors = columns_to_tensors

    def transform(self, feature_column: Any) -> Any:
        """What a column makes of the features.

        Raises:
            KeyError: a raw feature is missing.
        """
        return self.get(feature_column)

    def get(self, key: Any) -> Any:
        """A raw feature by its name, or a transformed one by its column."""
        if key not in self._tensors:
            if isinstance(key, str):
                known = [name for name in self._tensors if isinstance(name, str)]
                raise KeyError("Feature '%s' is not in the features%s" % (key, nearest(key, known)))
            self._tensors[key] = key._transform_feature(self)
        return self._tensors[key]


def check_feature_columns(feature_columns: Any) -> None:
    """Raises ValueError if columns are a dict, or two of them have one key."""
    if isinstance(feature_columns, dict):
        raise ValueError("Expected feature_columns to be iterable, found dict.")
    seen = set()
    for column in feature_columns:
        if column.key in seen:
            raise ValueError(
                "Duplicate feature column key found for column: %s. This usually means that the column is almost "
                "identical to another column, and one must be discarded." % column.name
            )
        seen.add(column.key)


def transform_features(features: dict[Any, Any], feature_columns: Any) -> dict[Any, Any]:
    """What columns make of features: dict of column to Tensor, SparseTensor or pair of them.

    Raises:
        ValueError: the columns are a dict, or two have one key.
        KeyError: a raw feature is missing.
    """
    check_feature_columns(feature_columns)
    transformer = _Transformer(dict(features))
    return {column: transformer.transform(column) for column in _in_order(feature_columns)}


def _in_order(feature_columns):
    return sorted(set(feature_columns), key=lambda column: column.key)


def input_from_feature_columns(
    columns_to_tensors: dict[Any, Any],
    feature_columns: Any,
    weight_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
    cols_to_outs: dict[Any, Any] | None = None,
) -> tf.Tensor:
    """The dense input of a model: the outputs of columns side by side, [batch, width].

    Args:
        columns_to_tensors: features.
        feature_columns: iterable of real valued, bucketized, one-hot and embedding columns.
        weight_collections: list of str, collections for variables, or None.
        trainable: bool, whether variables are trained.
        scope: variable scope, "input_from_feature_columns" by default.
        cols_to_outs: dict that gets the output of each column, or None.

    Raises:
        ValueError: a column gives no dense input, or two have one key.
        KeyError: a raw feature is missing.
    """
    check_feature_columns(feature_columns)
    return _dense_input(
        columns_to_tensors, feature_columns, weight_collections, trainable, scope, 2, "input_from_feature_columns",
        cols_to_outs,
    )  # fmt: skip


def sequence_input_from_feature_columns(
    columns_to_tensors: dict[Any, Any],
    feature_columns: Any,
    weight_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> tf.Tensor:
    """The dense input of a model of sequences, [batch, time, width].

    Arguments and errors are those of `input_from_feature_columns`; features have one more dimension, time.

    Raises:
        ValueError: also for a column, or one that it is made of, that is not for sequences.
    """
    check_feature_columns(feature_columns)
    for column in feature_columns:
        if not isinstance(column, SEQUENCES):
            raise ValueError("FeatureColumn type %s is not currently supported for sequences." % type(column).__name__)
    for column in _with_parents(feature_columns):
        if isinstance(column, NO_SEQUENCES):
            raise ValueError("Column %s is of type %s: not for sequences." % (column.name, type(column).__name__))
    return _dense_input(
        columns_to_tensors, feature_columns, weight_collections, trainable, scope, 3,
        "sequence_input_from_feature_columns", None,
    )  # fmt: skip


def _with_parents(columns: Iterable[Any]) -> Iterable[Any]:
    for column in columns:
        yield column
        yield from _with_parents(column.parents)


def _dense_input(features, columns, weight_collections, trainable, scope, rank, default_name, cols_to_outs):
    features, outputs = dict(features), []
    values = list(features.values())
    transformer = _Transformer(features)
    with tf.variable_scope(scope, default_name, values):
        for column in _in_order(columns):
            with tf.variable_scope(None, column.name, values):
                outputs.append(_dense(column, transformer, weight_collections, trainable, rank))
            if cols_to_outs is not None:
                cols_to_outs[column] = outputs[-1]
        return tf.concat(outputs, rank - 1)


def _dense(column, transformer, weight_collections, trainable, rank):
    try:
        layer = getattr(column, "_to_dnn_input_layer", None)
        if layer is None:
            raise ValueError("a %s gives ids: wrap it with embedding_column or one_hot_column" % type(column).__name__)
        return layer(transformer.transform(column), weight_collections, trainable, rank)
    except ValueError as reason:
        raise ValueError("Error creating input layer for column: %s.\n%s" % (column.name, reason)) from reason


def weighted_sum_from_feature_columns(
    columns_to_tensors: dict[Any, Any],
    feature_columns: Any,
    num_outputs: int,
    weight_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> tuple[tf.Tensor, dict[Any, list[Any]], Any]:
    """A linear model of columns.

    Args:
        columns_to_tensors: features.
        feature_columns: iterable of sparse, weighted, crossed, bucketized and real valued columns.
        num_outputs: int.
        weight_collections: list of str, collections for variables, or None.
        trainable: bool, whether variables are trained.
        scope: variable scope, "weighted_sum_from_feature_columns" by default.

    Returns:
        (sums [batch, num_outputs], dict of column to the list of its weights' partitions, the bias variable).

    Raises:
        ValueError: a column has no weighted sum, or two have one key.
        KeyError: a raw feature is missing.
    """
    check_feature_columns(feature_columns)
    features, sums, variables = dict(columns_to_tensors), [], {}
    values = list(features.values())
    with tf.variable_scope(scope, "weighted_sum_from_feature_columns", values):
        transformer = _Transformer(features)
        for column in _in_order(feature_columns):
            transformed = transformer.transform(column)
            with tf.variable_scope(None, column.name, values):
                variables[column], total = _weighted(column, transformed, num_outputs, weight_collections, trainable)
            sums.append(tf.reshape(total, [-1, num_outputs]))
        output, bias = _with_bias(tf.add_n(sums), num_outputs, weight_collections, trainable)
    return output, variables, bias


def _weighted(column, transformed, num_outputs, weight_collections, trainable):
    """(Partitions of a column's weights, its sum [batch, num_outputs])."""

    def new(name, rows):
        zeros = tf.zeros_initializer()
        shape, start = [rows, num_outputs], column._checkpoint_path()
        return base.weights(name, shape, zeros, weight_collections, trainable, start)

    if isinstance(column, base._CategoricalColumn):
        ids, given = column.id_tensor(transformed), column.weight_tensor(transformed)
        parts = new("weights", column._num_buckets)
        lookup = _looked_up(parts, ids, given, column.combiner, column.name)
        return parts, lookup
    if not hasattr(column, "_to_dense_tensor"):
        raise ValueError(
            "Error creating weighted sum for column: %s.\na %s has no weighted sum: use the column that it is made of"
            % (column.name, type(column).__name__)
        )
    numbers = base.with_rank(column._to_dense_tensor(transformed), 2, column.name)
    parts = new("weight", int(numbers.shape[1]))
    return parts, tf.matmul(numbers, tf.concat(parts, 0), name="matmul")


def _looked_up(parts, ids, given, combiner, name):
    flat = base.with_rank(ids, 2, name)
    given = None if given is None else base.with_rank(given, 2, name)
    return tf.nn.safe_embedding_lookup_sparse(
        parts, flat, given, combiner=combiner, name=name + "_weights", partition_strategy="div"
    )


def _with_bias(total, num_outputs, weight_collections, trainable):
    (bias,) = base.weights("bias_weight", [num_outputs], tf.zeros_initializer(), weight_collections, trainable)
    return tf.nn.bias_add(total, bias), bias


def joint_weighted_sum_from_feature_columns(
    columns_to_tensors: dict[Any, Any],
    feature_columns: Any,
    num_outputs: int,
    weight_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> tuple[tf.Tensor, list[Any], Any]:
    """A linear model of sparse columns without weights, in one variable; arguments as of its sister.

    Returns:
        (sums [batch, num_outputs], list of the variable's partitions, the bias variable).

    Raises:
        NotImplementedError: a column has no ids.
        AssertionError: a column has weights, or another combiner than "sum".
        ValueError: two columns have one key.
    """
    check_feature_columns(feature_columns)
    features = dict(columns_to_tensors)
    with tf.variable_scope(scope, "joint_weighted_sum_from_feature_columns", list(features.values())):
        transformer = _Transformer(features)
        ids, size = [], 0
        for column in _in_order(feature_columns):
            if not isinstance(column, base._CategoricalColumn):
                raise NotImplementedError("joint weighted sum: %s has no ids" % column.name)
            transformed = transformer.transform(column)
            if column.weight_tensor(transformed) is not None or column.combiner != "sum":
                raise AssertionError("joint weighted sum: %s has weights, or another combiner than sum" % column.name)
            own = base.with_rank(column.id_tensor(transformed), 2, column.name)
            known = tf.sparse.retain(own, own.values >= 0)
            ids.append(known.with_values(tf.cast(known.values, tf.int64) + size))
            size += column._num_buckets
        with tf.variable_scope(None, "linear_weights"):
            zeros = tf.zeros_initializer()
            parts = base.weights("weights", [size, num_outputs], zeros, weight_collections, trainable)
        joint = tf.sparse.concat(1, ids)
        total = tf.nn.safe_embedding_lookup_sparse(parts, joint, combiner="sum", partition_strategy="div")
        output, bias = _with_bias(total, num_outputs, weight_collections, trainable)
    return output, parts, bias


def parse_feature_columns_from_examples(
    serialized: Any, feature_columns: Any, name: str | None = None, example_names: Any = None
) -> dict[Any, Any]:
    """Parses serialized tf.Examples [batch], and transforms their features: as `transform_features`."""
    check_feature_columns(feature_columns)
    spec = specs.create_feature_spec_for_parsing(feature_columns)
    parsed = tf.io.parse_example(serialized, spec, name=name, example_names=example_names)
    return transform_features(parsed, feature_columns)


def parse_feature_columns_from_sequence_examples(
    serialized: Any,
    context_feature_columns: Any,
    sequence_feature_columns: Any,
    name: str | None = None,
    example_name: Any = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parses one serialized tf.SequenceExample.

    Args:
        serialized: string scalar.
        context_feature_columns: columns of the context, or None.
        sequence_feature_columns: columns of the sequences, or None.
        name: of the operation.
        example_name: string scalar, or None.

    Returns:
        (dict of raw features of the context, dict of raw features of the sequences).
    """
    for columns in (context_feature_columns, sequence_feature_columns):
        check_feature_columns(columns or ())
    return tf.io.parse_single_sequence_example(
        serialized, specs.create_feature_spec_for_parsing(context_feature_columns or ()),
        specs.sequence_spec(sequence_feature_columns or ()), example_name=example_name, name=name,
    )  # fmt: skip
