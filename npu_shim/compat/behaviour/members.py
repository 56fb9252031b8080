"""Restores methods and fields that TensorFlow 2 has taken from TensorFlow 1.15's classes; Keras's are in keras_classes.

`scripts/compare_versions` lists the methods of all public classes that are gone.
"""

from __future__ import annotations

import functools
import logging
import types
from typing import Any, Callable, Mapping

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.compat import callers
from npu_shim.compat.names import names
from npu_shim.rewriter import tf_internals

LOG = logging.getLogger("npu_shim")
KERAS_SHAPE = "_keras_shape"  # attribute of the tensors of Keras until 2.3, where it is no part of TensorFlow


def _nothing() -> None:
    return None


def _vectorization() -> types.SimpleNamespace:
    return types.SimpleNamespace(enabled=None, use_choose_fastest=None)


def _stats() -> types.SimpleNamespace:
    return types.SimpleNamespace(aggregator=None, prefix="", counter_prefix="", latency_all_edges=None)


# fields of options that tf.data has dropped, and what makes their first value; what a script sets changes nothing
DATA_FIELDS: dict[str, dict[str, Callable[[], Any]]] = {
    "tf.data.Options": {
        "experimental_stateful_whitelist": _nothing,
        "experimental_stats": _stats,
    },
    "tf.data.experimental.DistributeOptions": {"auto_shard": _nothing},
    "tf.data.experimental.OptimizationOptions": {
        **dict.fromkeys(("autotune", "autotune_algorithm", "autotune_buffers", "autotune_cpu_budget"), _nothing),
        **dict.fromkeys(("filter_with_random_uniform_fusion", "hoist_random_uniform"), _nothing),
        "map_vectorization": _vectorization,
    },
}


def install() -> None:
    """Restores them; a second call does nothing."""
    if not hasattr(tf.Operation, "_outputs"):  # recomputation uses the private name
        tf.Operation._outputs = property(lambda self: list(self.outputs))
    # to TensorFlow 2 they are no tf.Variable of version 1; scripts ask isinstance(variable, tf.Variable)
    tf.Variable.register(tf_internals.python_module("ops.resource_variable_ops").BaseResourceVariable)
    for strategy in (tf.distribute.Strategy, tf.compat.v2.distribute.Strategy):
        if not hasattr(strategy, "experimental_run_v2"):
            strategy.experimental_run_v2 = experimental_run_v2
    tf.compat.v2.Variable.initialized_value = initialized_value  # tf.Variable, for reference variables, has its own
    if not hasattr(tf.config, "experimental_list_devices"):
        tf.config.experimental_list_devices = experimental_list_devices
    if not hasattr(tf.Tensor, KERAS_SHAPE):
        setattr(tf.Tensor, KERAS_SHAPE, property(_keras_shape, _set_keras_shape))
    if not hasattr(tf.DType, "dtype"):  # NumPy takes what has one for a dtype, as it took the names of Keras's dtypes
        tf.DType.dtype = property(lambda self: np.dtype(self.as_numpy_dtype))
    for path, fields in DATA_FIELDS.items():
        _keep_fields(path, fields)


def _keras_shape(self: Any) -> tuple[int | None, ...] | None:
    """The static shape of a tensor of Keras, as a tuple; other tensors have none (Keras 2.2)."""
    if KERAS_SHAPE in vars(self):
        shape: tuple[int | None, ...] = vars(self)[KERAS_SHAPE]
        return shape
    if not hasattr(self, "_keras_history"):
        raise AttributeError("'Tensor' object has no attribute '%s'" % KERAS_SHAPE)
    return None if self.shape.rank is None else tuple(self.shape.as_list())


def _set_keras_shape(self: Any, shape: Any) -> None:
    vars(self)[KERAS_SHAPE] = shape


def experimental_run_v2(self: Any, fn: Any, args: Any = (), kwargs: Any = None) -> Any:
    """Runs a function on each replica; today's `run`."""
    return self.run(fn, args=args, kwargs=kwargs)


def initialized_value(self: Any) -> tf.Tensor:
    """The value of a resource variable, or its initial value where it has none yet, for initializers of others."""
    with tf.init_scope():
        return tf.cond(tf.is_variable_initialized(self), self.read_value, lambda: self.initial_value)


def experimental_list_devices() -> list[str]:
    """The names of the devices that this process computes on."""
    return [device.name for device in tf.config.list_logical_devices()]


def _keep_fields(path: str, fields: Mapping[str, Callable[[], Any]]) -> None:
    owner = names.load(path)
    for field, default in fields.items():
        if not hasattr(owner, field):
            setattr(owner, field, _kept(path, field, default))


def _kept(path: str, field: str, default: Callable[[], Any]) -> property:
    """A field in the place where tf.data keeps its own, so that merged options have it too."""

    def get(options: Any) -> Any:
        _tell(path, field)
        return options._options.setdefault(field, default())

    def put(options: Any, value: Any) -> None:
        _tell(path, field)
        options._options[field] = value

    return property(get, put, doc="Has no effect: tf.data has no such option any more.")


@functools.lru_cache(maxsize=None)
def _tell(path: str, field: str) -> None:
    LOG.info("%s", callers.message("%s.%s, which TensorFlow 2 dropped, has no effect here" % (path, field)))
