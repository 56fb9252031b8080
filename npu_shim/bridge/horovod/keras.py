"""horovod.keras: Keras in graph mode. Source: as horovod.tensorflow."""

from __future__ import annotations

import sys
from typing import Any, Callable, Mapping

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.bridge.horovod import callbacks
from npu_shim.bridge.horovod import tensorflow as hvd
from npu_shim.bridge.horovod.compression import Compression
from npu_shim.bridge.horovod.job import *
from npu_shim.bridge.horovod.tensorflow import Adasum, Average, Sum
from npu_shim.compat.keras import real_keras
from npu_shim.estimator.keras import reduce_in_place


def __getattr__(name: str) -> Any:
    return getattr(hvd, name)


def DistributedOptimizer(
    optimizer: Any, name: str | None = None, device_dense: str = "", device_sparse: str = "",
    compression: Any = Compression.none, sparse_as_dense: bool = False, **others: Any
) -> Any:  # fmt: skip
    """Returns the Keras optimizer, whose gradients are reduced over the ranks from now on.

    Args:
        optimizer: Keras optimizer.
        name: accepted; a Keras optimizer keeps its name, under which a model is saved.
        device_dense: accepted.
        device_sparse: accepted.
        compression: one of Compression.
        sparse_as_dense: whether IndexedSlices travel as dense tensors.
        **others: as of horovod.tensorflow.DistributedOptimizer.
    """
    return hvd.DistributedOptimizer(optimizer, name, compression=compression, sparse_as_dense=sparse_as_dense, **others)


def in_place(optimizer: Any, reduced: Callable[..., list[Any]], passes: int = 1, average: bool = False) -> Any:
    """Makes a Keras optimizer reduce its gradients, and returns it.

    Args:
        optimizer: Keras 2 optimizer.
        reduced: takes gradients and their variables, and returns the reduced gradients.
        passes: int, how many steps gather gradients for each that is applied.
        average: bool; the mean of theirs is applied then, else the sum.

    Raises:
        ValueError: it is no Keras 2 optimizer.
        ConfigError: passes is no whole number of at least 1.
    """
    if not reduce_in_place(optimizer, reduced, "DistributedOptimizer_Allreduce"):
        raise ValueError(
            "Provided optimizer doesn't inherit from either legacy TensorFlow or Keras optimizer: %s" % optimizer
        )
    if passes != 1:
        _accumulate_in_place(optimizer, passes, average)
    return optimizer


def _accumulate_in_place(optimizer, passes, average):
    applied = _Applied(optimizer)
    gathering = hvd.accumulating(applied, passes, average)

    def apply_gradients(grads_and_vars: Any, name: str | None = None, **options: Any) -> Any:
        with tf.name_scope(optimizer._name), tf.init_scope():  # where Keras itself makes it
            iterations = optimizer.iterations
        applied.options = options
        done = gathering.apply_gradients(grads_and_vars, iterations, name or optimizer._name)
        for variable in gathering.variables():
            _keras_of(optimizer).track_variable(variable)  # Keras initializes no others
        return done

    optimizer.apply_gradients = apply_gradients


class _Applied:
    """A Keras optimizer as AccumulatingOptimizer calls one; it counts its iterations itself where it applies.

    Attributes:
        options: dict, further arguments of apply_gradients.
    """

    def __init__(self, optimizer: Any) -> None:
        self._keras = optimizer
        self.options: dict[str, Any] = {}

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None) -> Any:
        """Returns the op of the optimizer's class, which the automatic loss scale may have replaced by now."""
        return type(self._keras).apply_gradients(self._keras, grads_and_vars, **self.options)

    def variables(self) -> list[Any]:
        """Returns none: Keras knows its own."""
        return []


def _keras_of(optimizer):
    """The backend of the Keras that an optimizer is of: there are several."""
    base = next(cls for cls in type(optimizer).__mro__ if cls.__name__ == "OptimizerV2")
    return sys.modules[base.__module__].backend


def broadcast_global_variables(root_rank: int) -> None:
    """Assigns the root rank's global variables to those of every rank, in Keras' session."""
    real_keras.backend().get_session().run(hvd.broadcast_global_variables(root_rank))


def allreduce(
    value: Any, name: str | None = None, average: bool | None = None, prescale_factor: float = 1.0,
    postscale_factor: float = 1.0, op: Any = None, compression: Any = Compression.none,
) -> np.ndarray:  # fmt: skip
    """Returns the mean (or another reduction) of every rank's value (a number or array), from Keras' session.

    Args:
        value: number or array, of the same shape on every rank.
        name: of the constant that holds it.
        average: as of horovod.tensorflow.allreduce, and so are the others.
        prescale_factor: float.
        postscale_factor: float.
        op: Average (default), Sum, Min, Max or Product.
        compression: one of Compression.
    """
    return _computed(
        hvd.allreduce(
            tf.constant(value, name=name), average=average, compression=compression, op=op,
            prescale_factor=prescale_factor, postscale_factor=postscale_factor,
        )
    )  # fmt: skip


def allgather(value: Any, name: str | None = None) -> np.ndarray:
    """Returns every rank's array, one after the other along the first axis."""
    return _computed(hvd.allgather(tf.constant(value, name=name)))


def broadcast(value: Any, root_rank: int, name: str | None = None) -> np.ndarray:
    """Returns the root rank's value."""
    return _computed(hvd.broadcast(tf.constant(value, name=name), root_rank))


def _computed(tensor):
    return real_keras.backend().get_session().run(tensor)


def loading(models: Callable[[], Any]) -> Callable[..., Any]:
    """Returns load_model of the Keras whose module `models` a function gives."""

    def load_model(
        filepath: str,
        custom_optimizers: Any = None,
        custom_objects: Mapping[str, Any] | None = None,
        compression: Any = Compression.none,
    ) -> Any:
        """Returns a saved Keras model whose optimizer reduces its gradients over the ranks.

        Args:
            filepath: as of load_model of Keras.
            custom_optimizers: classes of optimizers of the script's own.
            custom_objects: as of load_model of Keras.
            compression: one of Compression.
        """
        known = {cls.__name__: cls for cls in custom_optimizers or ()}
        model = models().load_model(filepath, custom_objects={**known, **(custom_objects or {})})
        if model.optimizer is not None:  # a model that was never compiled has none
            DistributedOptimizer(model.optimizer, compression=compression)
        return model

    return load_model


load_model = loading(real_keras.models)
