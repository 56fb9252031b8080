"""Strategies of tf.contrib.distribute: tf.distribute's, with contrib's arguments."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


class MirroredStrategy(tf.distribute.MirroredStrategy):
    """tf.distribute.MirroredStrategy.

    Args:
        devices: list of str, or None.
        num_gpus: int, instead of `devices`.
        num_gpus_per_worker: int, the same.
        cross_device_ops: optional tf.distribute.CrossDeviceOps.
        auto_shard_dataset: unused; input is sharded by tf.data's own option.
        cross_tower_ops: an older name of `cross_device_ops`.

    Raises:
        ValueError: both `devices` and a number of GPUs are given.
    """

    def __init__(
        self,
        devices: Any = None,
        num_gpus: int | None = None,
        num_gpus_per_worker: int | None = None,
        cross_device_ops: Any = None,
        auto_shard_dataset: bool = False,
        cross_tower_ops: Any = None,
    ) -> None:  # fmt: skip
        count = num_gpus or num_gpus_per_worker
        if devices is not None and count is not None:
            raise ValueError("Must only specify one of `devices` and `num_gpus`.")
        devices = ["/device:GPU:%d" % index for index in range(count)] if count else devices
        super().__init__(devices, cross_device_ops or cross_tower_ops)


class OneDeviceStrategy(tf.distribute.OneDeviceStrategy):
    """tf.distribute.OneDeviceStrategy."""


class CollectiveAllReduceStrategy(tf.distribute.experimental.MultiWorkerMirroredStrategy):
    """tf.distribute.experimental.MultiWorkerMirroredStrategy; it uses the GPUs that it finds."""

    def __init__(self, num_gpus_per_worker: int = 0, communication: Any = None) -> None:
        super().__init__()


class ParameterServerStrategy(tf.distribute.experimental.ParameterServerStrategy):
    """tf.distribute.experimental.ParameterServerStrategy; it uses the GPUs that it finds."""

    def __init__(self, num_gpus_per_worker: int = 0) -> None:
        super().__init__()
