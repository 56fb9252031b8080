"""What the feature columns of tf.contrib.layers share (behaviour of TensorFlow 1.15.5, from its documentation).

A column turns features into a tensor (`_transform_feature`), which a model takes as a dense input or as ids with
weights. `inputs.get(key)` gives a raw feature by its name, or what another column made of it. Models of
tf.feature_column take these columns too. The names of classes and the order of their fields make up a column's `key`,
by which 1.15 orders the columns of a model: they are those of 1.15.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.names import names

core = names.load("tensorflow.python.feature_column.feature_column")
COMBINERS = ("mean", "sqrtn", "sum")


class _FeatureColumn(core._FeatureColumn):
    """A feature of a model's input.

    Attributes:
        name: str, of the variable scope.
        config: dict of a raw feature's name to its tf.io.FixedLenFeature or tf.io.VarLenFeature.
        key: str, by which columns are ordered; columns of one key are one column.
        parents: tuple of the columns that it is made of.
    """

    HIDDEN: tuple[str, ...] = ()  # fields that the key leaves out

    @property
    def config(self) -> dict[str, Any]:
        raise NotImplementedError

    @property
    def parents(self) -> tuple[Any, ...]:
        return ()

    @property
    def key(self) -> str:
        return self._shown(str if self.HIDDEN else repr)

    def _shown(self, show):
        """The column in words, each field as a function shows it."""
        fields = [field.name for field in dataclasses.fields(self) if field.repr and field.name not in self.HIDDEN]
        return "%s(%s)" % (
            type(self).__name__, ", ".join("%s=%s" % (name, show(getattr(self, name))) for name in fields),
        )  # fmt: skip

    @property
    def _parse_example_spec(self):
        return self.config

    def insert_transformed_feature(self, columns_to_tensors: dict[Any, Any]) -> None:
        """Adds what the column makes of the features, raw by their names or transformed by their columns, to them."""
        from npu_shim.compat.contrib.feature_columns import models  # which takes columns of every kind

        columns_to_tensors.update(models.transform_features(columns_to_tensors, [self]))

    def _checkpoint_path(self):
        """(Checkpoint, tensor's name) that its weights start from, or None."""
        return None


class _CategoricalColumn(_FeatureColumn, core._CategoricalColumn):
    """A column of ids; subclasses have a `combiner`, "sum", "mean" or "sqrtn", for several ids of an example."""

    @property
    def length(self) -> int:
        """The number of ids, an int."""
        raise NotImplementedError

    @property
    def _num_buckets(self):
        return self.length

    def id_tensor(self, input_tensor: Any) -> tf.SparseTensor:
        """The ids of what the column made of its features."""
        return input_tensor

    def weight_tensor(self, input_tensor: Any) -> tf.SparseTensor | None:
        """Their weights, or None where each counts as 1."""
        return None

    def _get_sparse_tensors(self, inputs, weight_collections=None, trainable=None):
        tensor = inputs.get(self)
        return self.IdWeightPair(self.id_tensor(tensor), self.weight_tensor(tensor))


class _DenseColumn(_FeatureColumn, core._DenseColumn):
    """A column of numbers."""

    def _to_dnn_input_layer(self, input_tensor, weight_collections=None, trainable=True, output_rank=2):
        """Float32 of `output_rank`, 2 (examples) or 3 (sequences), from what the column made of its features."""
        raise NotImplementedError

    def _get_dense_tensor(self, inputs, weight_collections=None, trainable=None):
        return self._to_dnn_input_layer(inputs.get(self), weight_collections, trainable is not False)


def with_rank(tensor: Any, rank: int, name: str) -> Any:
    """A Tensor or SparseTensor as one of `rank`: its inner dimensions become one, or it gets one more.

    Args:
        tensor: Tensor or SparseTensor.
        rank: int, 2 or 3.
        name: of the column, for the error.

    Raises:
        ValueError: it lacks more than one dimension.
    """
    known = tensor.shape.ndims
    if known == rank:
        return tensor
    if known is not None and known + 1 < rank:
        raise ValueError("column %s: a tensor of %d dimensions cannot become one of %d" % (name, known, rank))
    if isinstance(tensor, tf.SparseTensor):
        return tf.sparse.reshape(tensor, tf.concat([tensor.dense_shape[: rank - 1], [-1]], 0))
    flat = tf.reshape(tensor, tf.concat([tf.shape(tensor)[: rank - 1], [-1]], 0))
    if known is not None:
        flat.set_shape(tensor.shape[: rank - 1].concatenate([tensor.shape[rank - 1 :].num_elements()]))
    return flat


def weights(
    name: str, shape: Any, initializer: Any, weight_collections: Any, trainable: bool, checkpoint: Any = None
) -> list[Any]:
    """A model variable as the list of its partitions.

    Args:
        name: str, in the current variable scope.
        shape: list of int.
        initializer: of the variable.
        weight_collections: list of str, further collections, or None.
        trainable: bool.
        checkpoint: (path, tensor's name) that it starts from, or None.
    """
    kinds = {*(weight_collections or ()), tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.MODEL_VARIABLES}
    variable = tf.get_variable(name, shape, tf.float32, initializer, trainable=trainable, collections=sorted(kinds))
    parts = list(variable) if hasattr(variable, "_get_partitions") else [variable]
    if checkpoint is not None:
        path, tensor = checkpoint
        tf.train.init_from_checkpoint(path, {tensor: parts if len(parts) > 1 else parts[0]})
    return parts


def check_combiner(combiner: str) -> None:
    """Raises ValueError unless a combiner is one of COMBINERS."""
    if combiner not in COMBINERS:
        raise ValueError("combiner must be one of %s, got %r" % (", ".join(COMBINERS), combiner))


def check_checkpoint(ckpt_to_load_from: Any, tensor_name_in_ckpt: Any) -> None:
    """Raises ValueError if only one of both is given."""
    if (ckpt_to_load_from is None) != (tensor_name_in_ckpt is None):
        raise ValueError("Must specify both `ckpt_to_load_from` and `tensor_name_in_ckpt` or none of them.")
