"""Collectives of the hccl group and the optimizers that average gradients over it.

A single process is a group of one, for which no collective runs. Several processes use TensorFlow's own collectives,
see `cluster`. Source: Ascend adapter of 2023-12 (r1.15), hccl_ops and npu_optimizer.
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.distributed import cluster, ranks
from npu_shim.rewriter.errors import ConfigError, nearest

REDUCTIONS = ("sum", "prod", "max", "min")


def allreduce(tensor: Any, reduction: str, fusion: int = 1, fusion_id: int = -1, group: str = ranks.WORLD) -> tf.Tensor:
    """Returns the elementwise sum, product, maximum or minimum of every rank's tensor, on every rank.

    Args:
        tensor: Tensor of the same shape and dtype on every rank.
        reduction: "sum", "prod", "max" or "min".
        fusion: int, how collectives may be fused; TensorFlow decides that itself.
        fusion_id: int, likewise.
        group: str.

    Raises:
        ConfigError: an unknown reduction or group.
    """
    _check_reduction("allreduce", reduction)
    if ranks.get_rank_size(group) > 1:
        return cluster.allreduce(tensor, reduction, group)
    return tf.identity(tensor)


def allgather(tensor: Any, rank_size: int, fusion: int = 0, fusion_id: int = -1, group: str = ranks.WORLD) -> tf.Tensor:
    """Returns every rank's tensor, one after the other along the first axis.

    Args:
        tensor: Tensor [n, ...], of the same shape on every rank.
        rank_size: int, the group's size.
        fusion: int, left to TensorFlow.
        fusion_id: int, left to TensorFlow.
        group: str.

    Raises:
        ConfigError: rank_size is not the group's size.
    """
    _check_size("allgather", rank_size, group)
    return cluster.allgather(tensor, group) if rank_size > 1 else tf.identity(tensor)


def broadcast(tensor: Any, root_rank: int, fusion: int = 2, fusion_id: int = 0, group: str = ranks.WORLD) -> Any:
    """Returns the root rank's tensors on every rank: a list for a list, a tensor for a tensor.

    Raises:
        ConfigError: the group has no such rank.
    """
    ranks.get_world_rank_from_group_rank(group, root_rank)
    if isinstance(tensor, (list, tuple)):
        return [broadcast(each, root_rank, fusion, fusion_id, group) for each in tensor]
    return cluster.broadcast(tensor, root_rank, group) if ranks.get_rank_size(group) > 1 else tf.identity(tensor)


def reduce(
    tensor: Any, reduction: str, root_rank: int, fusion: int = 0, fusion_id: int = -1, group: str = ranks.WORLD
) -> tf.Tensor:
    """Returns the result of `allreduce` on the root rank; on the others the result is meaningless."""
    ranks.get_world_rank_from_group_rank(group, root_rank)
    return allreduce(tensor, reduction, fusion, fusion_id, group)


def reduce_scatter(
    tensor: Any, reduction: str, rank_size: int, fusion: int = 0, fusion_id: int = -1, group: str = ranks.WORLD
) -> tf.Tensor:
    """Returns this rank's equal part, along the first axis, of the result of `allreduce`."""
    _check_size("reduce_scatter", rank_size, group)
    parts = tf.split(allreduce(tensor, reduction, fusion, fusion_id, group), rank_size)
    return parts[ranks.get_rank_id(group)]


def npu_allreduce(
    values: Any, reduction: str = "mean", fusion: int = 1, fusion_id: int = -1, group: str = ranks.WORLD
) -> Any:
    """Returns tensors reduced over the group: a list for a list or tuple, a single tensor for a tensor.

    Args:
        values: Tensor, IndexedSlices or None, or a list or tuple of them, as tf.gradients returns.
        reduction: "mean" or one of allreduce's.
        fusion: int, left to TensorFlow.
        fusion_id: int, left to TensorFlow.
        group: str.
    """
    if isinstance(values, (list, tuple)):
        return [npu_allreduce(value, reduction, fusion, fusion_id, group) for value in values]
    if values is None or ranks.get_rank_size(group) == 1:
        _check_reduction("npu_allreduce", reduction, ("mean", *REDUCTIONS))
        return values
    if isinstance(values, tf.IndexedSlices) or reduction == "mean":
        return average(values, reduction == "mean", group)
    return allreduce(values, reduction, fusion, fusion_id, group)


def average(tensor: Any, average: bool = True, group: str = ranks.WORLD) -> Any:
    """Returns a gradient's mean over the group, or its sum where `average` is False.

    Args:
        tensor: Tensor or IndexedSlices; of the latter the slices of all ranks are gathered.
        average: bool.
        group: str.
    """
    size = ranks.get_rank_size(group)
    if isinstance(tensor, tf.IndexedSlices):
        values, indices = allgather(tensor.values, size, group=group), allgather(tensor.indices, size, group=group)
        values = values / tf.cast(size, values.dtype) if average else values
        return tf.IndexedSlices(values, indices, tensor.dense_shape)
    total = allreduce(tensor, "sum", group=group)
    return total / tf.cast(size, total.dtype) if average else total


def reduce_gradient(
    tensor: Any, var: Any, root_rank: int, average: bool = True, fusion: int = 0, fusion_id: int = -1
) -> Any:
    """Returns a gradient's mean over the ranks, or its sum; every rank gets it, not the root rank only."""
    return _average(tensor, average)


_average = average  # the vendor gives the function and an argument of the others one name


class NPUDistributedOptimizer(tf.train.Optimizer):
    """Averages gradients over the ranks before the wrapped optimizer applies them; with one rank it delegates.

    Args:
        optimizer: tf.train.Optimizer.
        is_weight_update_sharding: bool; each rank then updates a share of the variables on the NPU. Here every rank
            updates all, with the same result.
        name: str; None gives "Distributed" and the wrapped optimizer's type.

    Raises:
        ValueError: sharding over more ranks than there are gradients.
    """

    def __init__(self, optimizer: Any, is_weight_update_sharding: bool = False, name: str | None = None) -> None:
        self._optimizer = optimizer
        self._is_weight_update_sharding = is_weight_update_sharding
        super().__init__(use_locking=False, name=name or "Distributed" + type(optimizer).__name__)

    def __getattr__(self, name):
        if name == "_optimizer":  # not there yet while a copy or a pickle is being made
            raise AttributeError(name)
        return getattr(self._optimizer, name)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Returns the wrapped optimizer's gradients, averaged over the ranks, see tf.train.Optimizer."""
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        size = ranks.world_size()
        if size == 1:
            return pairs
        if self._is_weight_update_sharding and size > len(pairs):
            raise ConfigError("is_weight_update_sharding: %d gradients for RANK_SIZE=%d ranks" % (len(pairs), size))
        with tf.name_scope(self.get_name() + "_Allreduce"):
            return [(None if gradient is None else average(gradient), variable) for gradient, variable in pairs]

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """Returns the wrapped optimizer's op."""
        return self._optimizer.apply_gradients(grads_and_vars, global_step, name)

    def _distributed_apply(self, *args, **kwargs):
        return self._optimizer._distributed_apply(*args, **kwargs)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the wrapped optimizer's slot."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> list[str]:
        """Returns the wrapped optimizer's slot names."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Returns the wrapped optimizer's variables."""
        return self._optimizer.variables(*args, **kwargs)


def npu_tf_optimizer(opt: Any) -> NPUDistributedOptimizer:
    """Returns the optimizer inside an NPUDistributedOptimizer."""
    return NPUDistributedOptimizer(opt)


def _check_reduction(name, reduction, known=REDUCTIONS):
    if reduction not in known:
        words = (name, reduction, ", ".join(known), nearest(reduction, known))
        raise ConfigError("%s: reduction %r is unknown, expected one of %s%s" % words)


def _check_size(name, rank_size, group):
    size = ranks.get_rank_size(group)
    if rank_size != size:
        raise ConfigError("%s: rank_size is %r, but group %s has %d ranks" % (name, rank_size, group, size))
