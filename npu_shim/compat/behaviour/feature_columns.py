"""Restores a check of TensorFlow 1.15's feature columns: identities that are no bucket are an error."""

from __future__ import annotations

import functools
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from npu_shim.compat.names import missing

_FOLDER = "tensorflow.python.feature_column."
# module -> the class of its identity columns, and its method that gives the identities
IDENTITIES = {
    _FOLDER + "feature_column_v2": ("IdentityCategoricalColumn", "_transform_input_tensor"),
    _FOLDER + "feature_column": ("_IdentityCategoricalColumn", "_transform_feature"),
}


def install() -> None:
    """Restores it, once the modules are loaded."""
    missing.when_loaded(dict.fromkeys(IDENTITIES, _patch_module))


def _patch_module(module: Any) -> None:
    name, method = IDENTITIES[module.__name__]
    column = getattr(module, name)
    setattr(column, method, _checked(getattr(column, method)))


def _checked(transform: Callable[..., Any]) -> Callable[..., Any]:
    """Raises InvalidArgumentError for identities outside of the buckets, unless they have a default."""

    @functools.wraps(transform)
    def with_check(self: Any, *args: Any) -> Any:
        sparse = transform(self, *args)
        if self.default_value is not None:
            return sparse
        buckets = tf.cast(self.num_buckets, tf.int64, name="num_buckets")
        checks = [
            tf.debugging.assert_less(sparse.values, buckets, data=(sparse.values, buckets)),
            tf.debugging.assert_non_negative(sparse.values, data=(sparse.values,)),
        ]
        with tf.control_dependencies([check for check in checks if check is not None]):  # eagerly there are none
            return tf.SparseTensor(sparse.indices, tf.identity(sparse.values), sparse.dense_shape)

    return with_check
