"""horovod.keras and horovod.tensorflow.keras: Keras in graph mode. Source: as horovod.tensorflow."""

from __future__ import annotations

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


def in_place(optimizer: Any, reduced: Callable[..., list[Any]]) -> Any:
    """Makes a Keras optimizer reduce its gradients, and returns it.

    Raises:
        ValueError: it is no Keras 2 optimizer.
    """
    if not reduce_in_place(optimizer, reduced, "DistributedOptimizer_Allreduce"):
        raise ValueError(
            "Provided optimizer doesn't inherit from either legacy TensorFlow or Keras optimizer: %s" % optimizer
        )
    return optimizer


def broadcast_global_variables(root_rank: int) -> None:
    """Assigns the root rank's global variables to those of every rank, in Keras' session."""
    real_keras.backend().get_session().run(hvd.broadcast_global_variables(root_rank))


def allreduce(value: Any, name: str | None = None, average: bool = True, **others: Any) -> np.ndarray:
    """Returns the mean, or the sum, of every rank's value (a number or array), computed in Keras' session."""
    return _computed(hvd.allreduce(tf.constant(value, name=name), average=average))


def allgather(value: Any, name: str | None = None) -> np.ndarray:
    """Returns every rank's array, one after the other along the first axis."""
    return _computed(hvd.allgather(tf.constant(value, name=name)))


def broadcast(value: Any, root_rank: int, name: str | None = None) -> np.ndarray:
    """Returns the root rank's value."""
    return _computed(hvd.broadcast(tf.constant(value, name=name), root_rank))


def _computed(tensor):
    return real_keras.backend().get_session().run(tensor)


def load_model(
    filepath: str,
    custom_optimizers: Any = None,
    custom_objects: Mapping[str, Any] | None = None,
    compression: Any = Compression.none,
) -> Any:
    """Returns a saved Keras model whose optimizer reduces its gradients over the ranks.

    Args:
        filepath: as of tf.keras.models.load_model.
        custom_optimizers: classes of optimizers of the script's own.
        custom_objects: as of tf.keras.models.load_model.
        compression: one of Compression.
    """
    known = {cls.__name__: cls for cls in custom_optimizers or ()}
    model = tf.keras.models.load_model(filepath, custom_objects={**known, **(custom_objects or {})})
    DistributedOptimizer(model.optimizer, compression=compression)
    return model
