"""horovod.tensorflow.keras: as horovod.keras, for tf.keras, which the package keras may be another Keras beside."""

from __future__ import annotations

from typing import Any

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


load_model = keras.loading(lambda: tf.keras.models)
