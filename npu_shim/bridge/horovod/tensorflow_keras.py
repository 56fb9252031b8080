"""horovod.tensorflow.keras: as horovod.keras, for tf.keras, which the package keras may be another Keras beside."""

from __future__ import annotations

from typing import Any, Mapping

import tensorflow.compat.v1 as tf

from npu_shim.bridge.horovod import callbacks, keras
from npu_shim.bridge.horovod import tensorflow as hvd
from npu_shim.bridge.horovod.compression import Compression
from npu_shim.bridge.horovod.job import *
from npu_shim.bridge.horovod.keras import DistributedOptimizer, allgather, allreduce, broadcast
from npu_shim.bridge.horovod.tensorflow import Adasum, Average, Sum


def __getattr__(name: str) -> Any:
    return getattr(hvd, name)


def broadcast_global_variables(root_rank: int) -> None:
    """Assigns the root rank's global variables to those of every rank, in the session of tf.keras."""
    tf.keras.backend.get_session().run(hvd.broadcast_global_variables(root_rank))


def load_model(
    filepath: str,
    custom_optimizers: Any = None,
    custom_objects: Mapping[str, Any] | None = None,
    compression: Any = Compression.none,
) -> Any:
    """Returns a model that tf.keras saved, whose optimizer reduces its gradients over the ranks.

    Args:
        filepath: as of tf.keras.models.load_model.
        custom_optimizers: classes of optimizers of the script's own.
        custom_objects: as of tf.keras.models.load_model.
        compression: one of Compression.
    """
    return keras.loaded(tf.keras.models, filepath, custom_optimizers, custom_objects, compression)
