"""NPUStrategy: the distribution strategy of one process. Source: Ascend adapter of 2023-12 (r1.15), npu_strategy."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.distributed.job import ranks


class NPUStrategy(tf.distribute.OneDeviceStrategy):
    """One device for one process; each process reads its own share of a dataset.

    Args:
        device: str; "/cpu:0", which on the NPU means the NPU, means the first GPU here where there is one.
    """

    def __init__(self, device: str = "/cpu:0") -> None:
        if device == "/cpu:0" and tf.config.experimental.list_physical_devices("GPU"):
            device = "/gpu:0"
        super().__init__(device)

    def experimental_distribute_dataset(self, dataset: Any) -> Any:
        """Returns this process's share of the dataset."""
        size = ranks.world_size()
        share = dataset if size == 1 else dataset.shard(size, ranks.world_rank())
        return super().experimental_distribute_dataset(share)
