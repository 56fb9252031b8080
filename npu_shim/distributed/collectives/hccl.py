"""Collectives of the hccl group and the optimizers that average gradients over it.

A single process is a group of one, for which no collective runs. Several processes use TensorFlow's own collectives,
see `reductions`. Source: Ascend adapter of 2023-12 (r1.15), hccl_ops and npu_optimizer.
"""

from __future__ import annotations

from typing import Any, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.distributed.collectives import call_fusion, fused, gradients, reductions
from npu_shim.distributed.job import ranks
from npu_shim.distributed.sharding import updates
from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.errors import ConfigError, nearest

REDUCTIONS = ("sum", "prod", "max", "min")


def allreduce(tensor: Any, reduction: str, fusion: int = 1, fusion_id: int = -1, group: str = ranks.WORLD) -> tf.Tensor:
    """Returns the elementwise sum, product, maximum or minimum of every rank's tensor, on every rank.

    Args:
        tensor: Tensor of the same shape and dtype on every rank.
        reduction: "sum", "prod", "max" or "min".
        fusion: int; 1 lets a session that NpuOptimizer rewrites fuse the call with others in buckets by bytes, 2 with
            those of its fusion_id, 0 with none, see `call_fusion`.
        fusion_id: int, for fusion=2.
        group: str.

    Raises:
        ConfigError: an unknown reduction, fusion or group.
    """
    _check_reduction("allreduce", reduction)
    _check_fusion("allreduce", fusion)
    if ranks.get_rank_size(group) == 1:
        return tf.identity(tensor)
    mark = lambda total: call_fusion.mark(total, fusion, fusion_id)  # noqa: E731
    return reductions.allreduce(tensor, reduction, group, on_total=mark)


def allgather(tensor: Any, rank_size: int, fusion: int = 0, fusion_id: int = -1, group: str = ranks.WORLD) -> tf.Tensor:
    """Returns every rank's tensor, one after the other along the first axis.

    Args:
        tensor: Tensor [n, ...], of the same shape on every rank.
        rank_size: int, the group's size.
        fusion: int, accepted.
        fusion_id: int, accepted.
        group: str.

    Raises:
        ConfigError: rank_size is not the group's size.
    """
    _check_size("allgather", rank_size, group)
    return reductions.allgather(tensor, group) if rank_size > 1 else tf.identity(tensor)


def broadcast(tensor: Any, root_rank: int, fusion: int = 2, fusion_id: int = 0, group: str = ranks.WORLD) -> Any:
    """Returns the root rank's tensors on every rank: a list for a list, a tensor for a tensor.

    Raises:
        ConfigError: the group has no such rank, or a tensor holds no numbers.
    """
    ranks.get_world_rank_from_group_rank(group, root_rank)
    many = isinstance(tensor, (list, tuple))
    given = [tf.convert_to_tensor(part) for part in (tensor if many else [tensor])]
    names = [_name(part, at) for at, part in enumerate(tensor if many else [tensor])]
    sent = [tf.identity(part) for part in given]
    if ranks.get_rank_size(group) > 1:
        for part in given:
            reductions.require_numbers(part)
        kind = "broadcast from %d" % root_rank
        move = lambda flat, key: reductions.broadcast(flat, root_rank, group, key)  # noqa: E731
        sent = fused.moved(given, names, move, kind, group)
    return sent if many else sent[0]


def reduce(
    tensor: Any, reduction: str, root_rank: int, fusion: int = 0, fusion_id: int = -1, group: str = ranks.WORLD
) -> tf.Tensor:
    """Returns the result of `allreduce` on the root rank; on the others the result is meaningless."""
    ranks.get_world_rank_from_group_rank(group, root_rank)
    return allreduce(tensor, reduction, fusion, fusion_id, group)


def reduce_scatter(
    tensor: Any, reduction: str, rank_size: int, fusion: int = 0, fusion_id: int = -1, group: str = ranks.WORLD
) -> tf.Tensor:
    """Returns this rank's equal part, along the first axis, of the result of `allreduce`; each call moves alone.

    Raises:
        ConfigError: an unknown reduction, fusion or group, or a tensor that has no equal parts.
    """
    _check_reduction("reduce_scatter", reduction)
    _check_fusion("reduce_scatter", fusion)
    _check_size("reduce_scatter", rank_size, group)
    shape = tf.convert_to_tensor(tensor).shape
    rows = tf.dimension_value(shape[0]) if shape.ndims else None
    if shape.ndims == 0 or (rows or 0) % rank_size:
        raise ConfigError("reduce_scatter: %d ranks cannot share the rows of %r" % (rank_size, tensor))
    return reductions.reduce_scatter(tensor, reduction, group) if rank_size > 1 else tf.identity(tensor)


def npu_allreduce(
    values: Any, reduction: str = "mean", fusion: int = 1, fusion_id: int = -1, group: str = ranks.WORLD
) -> Any:
    """Returns tensors reduced over the group: a list for a list or tuple, a single tensor for a tensor.

    Args:
        values: Tensor, IndexedSlices or None, or a list or tuple of them, as tf.gradients returns.
        reduction: "mean" or one of allreduce's; "mean" or "sum" for IndexedSlices.
        fusion: int; 0 reduces each tensor alone, 1 in buckets (`set_split_strategy_by_idx` and its like, else by bytes,
            see `settings`), 2 all tensors of a dtype together.
        fusion_id: int, accepted: with fusion=2 the list is what is fused.
        group: str.

    Raises:
        ConfigError: an unknown reduction, fusion or group.
    """
    _check_reduction("npu_allreduce", reduction, ("mean", *REDUCTIONS))
    _check_fusion("npu_allreduce", fusion)
    many = isinstance(values, (list, tuple))
    given = list(values) if many else [values]
    if any(isinstance(tensor, (list, tuple)) for tensor in given):
        return [npu_allreduce(tensor, reduction, fusion, fusion_id, group) for tensor in given]
    if ranks.get_rank_size(group) > 1:
        given = gradients.reduced(given, ["%d" % at for at in range(len(given))], reduction, group, fusion)
    return given if many else given[0]


def average(tensor: Any, average: bool = True, group: str = ranks.WORLD) -> Any:
    """Returns a gradient's mean over the group, or its sum where `average` is False.

    Args:
        tensor: Tensor or IndexedSlices; of the latter the slices of all ranks are gathered.
        average: bool.
        group: str.
    """
    return gradients.reduced([tensor], ["gradient"], "mean" if average else "sum", group)[0]


def reduce_gradient(
    tensor: Any, var: Any, root_rank: int, average: bool = True, fusion: int = 0, fusion_id: int = -1
) -> Any:
    """Returns a gradient's mean over the ranks, or its sum; every rank gets it, not the root rank only."""
    return gradients.reduced([tensor], [_name(var, 0)], "mean" if average else "sum")[0]


class NPUDistributedOptimizer(tf.train.Optimizer):
    """Averages gradients over the ranks before the wrapped optimizer applies them; with one rank it delegates.

    Args:
        optimizer: tf.train.Optimizer.
        is_weight_update_sharding: bool; each rank then updates a share of the variables, see `sharding`. In one process
            on several devices each of these has a share of the optimizer's state (npu_shim_shard_state=optimizer).
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
        if ranks.world_size() == 1:
            return pairs
        with tf.name_scope(self.get_name() + "_Allreduce"):
            return self._reduced(pairs)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """Returns the wrapped optimizer's op; sharded, one that also brings the other ranks' variables up to date."""
        if self._is_weight_update_sharding and ranks.world_size() > 1:
            return updates.applied(self._optimizer, list(grads_and_vars), global_step, name)
        if self._is_weight_update_sharding:
            setattr(tf.get_default_graph(), updates.ON_DEVICES, True)
        return self._optimizer.apply_gradients(grads_and_vars, global_step, name)

    def _reduced(self, pairs):
        """The pairs with gradients that are reduced over the ranks."""
        if self._is_weight_update_sharding:
            return updates.reduced(pairs)
        done = gradients.reduced([gradient for gradient, _ in pairs], [_name(variable, 0) for _, variable in pairs])
        return [(gradient, variable) for gradient, (_, variable) in zip(done, pairs)]

    def own_pairs(self, grads_and_vars: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]] | None:
        """Returns the pairs that this rank updates, None where every rank updates all."""
        sharded = self._is_weight_update_sharding and ranks.world_size() > 1
        return updates.own(grads_and_vars) if sharded else None

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


def _check_fusion(name, fusion):
    if fusion not in (fused.ALONE, fused.BY_STRATEGY, fused.BY_ID):
        raise ConfigError(
            "%s: fusion is %r, expected 0 (alone), 1 (by the strategy) or 2 (by fusion_id)" % (name, fusion)
        )


def _name(given, at):
    """Returns a variable's name, or the number of what has none that ranks could agree on."""
    return given.name if tf_internals.is_variable(given) else "%d" % at


def _check_size(name, rank_size, group):
    size = ranks.get_rank_size(group)
    if rank_size != size:
        raise ConfigError("%s: rank_size is %r, but group %s has %d ranks" % (name, rank_size, group, size))
