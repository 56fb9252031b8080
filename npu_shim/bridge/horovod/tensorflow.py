"""horovod.tensorflow over our collectives; graphs only, as TensorFlow 1 scripts use it.

Source: Horovod's documentation and signatures, 0.19 to 0.28.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.bridge.horovod import job
from npu_shim.bridge.horovod.compression import Compression
from npu_shim.bridge.horovod.job import *
from npu_shim.distributed.collectives import gradients, hccl, slices
from npu_shim.distributed.job import ranks
from npu_shim.loss_scale.optimizers.accumulate import AccumulatingOptimizer
from npu_shim.rewriter.errors import ConfigError

Average, Sum, Adasum, Min, Max, Product = "mean", "sum", "adasum", "min", "max", "prod"
REFUSED = {
    "elastic": "a job here has as many workers from beginning to end",
    "join": "every rank runs as many steps: shard and repeat the data",
    "DistributedGradientTape": "it is for eager execution, and npu_shim is for graphs",
    "broadcast_object": "it is for eager execution: broadcast tensors",
    "allgather_object": "it is for eager execution: gather tensors",
    "alltoall": "use hccl_ops.all_to_all_v of npu_bridge",
    "reducescatter": "use hccl_ops.reduce_scatter of npu_bridge",
    "ProcessSet": "use create_group of hccl.manage.api",
    "add_process_set": "use create_group of hccl.manage.api",
}

# arguments of other releases that change nothing here: where a name is put, how gradients are put together to travel,
# the set of all ranks
ACCEPTED = frozenset({"groups", "ignore_name_scope", "inplace", "num_groups", "process_set", "scale_local_gradients"})


def __getattr__(name: str) -> Any:
    if name in REFUSED:
        raise AttributeError(
            "npu_shim: horovod.tensorflow.%s is not here: %s; or install Horovod" % (name, REFUSED[name])
        )
    raise AttributeError("module 'horovod.tensorflow' has no attribute '%s'" % name)


def allreduce(
    tensor: Any, average: bool | None = None, device_dense: str = "", device_sparse: str = "",
    compression: Any = Compression.none, op: Any = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
    name: str | None = None, **others: Any
) -> Any:  # fmt: skip
    """Returns the mean (or another reduction) of every rank's tensor, on every rank.

    Args:
        tensor: Tensor, Variable or IndexedSlices, of the same shape and dtype on every rank; of IndexedSlices, those of
            all ranks are gathered.
        average: bool, in place of `op`: Average or Sum.
        device_dense: accepted; the collective runs where the tensor is.
        device_sparse: accepted, likewise.
        compression: one of Compression.
        op: Average (default), Sum, Min, Max or Product.
        prescale_factor: float; what tensors are multiplied by before.
        postscale_factor: float; what the result is multiplied by.
        name: accepted.
        **others: arguments of other releases, ACCEPTED.

    Raises:
        ConfigError: Adasum, another reduction of IndexedSlices than Average and Sum, or a dtype that has none.
        TypeError: an argument that no release has.
    """
    _only_known("allreduce", others)
    reduction = _reduction(average, op)
    job.size()
    if isinstance(tensor, tf.IndexedSlices):
        return gradients.reduced([tensor], ["allreduce"], reduction)[0]
    tensor = tf.convert_to_tensor(tensor)
    if reduction == Average and tensor.dtype.is_bool:
        raise ConfigError("hvd.allreduce: the average of bool is no bool: cast it, or use op=hvd.Max or hvd.Min")
    travelling, context = compression.compress(_scaled(tensor, prescale_factor))
    if ranks.world_size() > 1:
        reduced = _whole_mean if reduction == Average and tensor.dtype.is_integer else hccl.npu_allreduce
        travelling = reduced(travelling, reduction, fusion=0)
    return _scaled(compression.decompress(travelling, context), postscale_factor)


def grouped_allreduce(tensors: Sequence[Any], *args: Any, **kwargs: Any) -> list[Any]:
    """Returns `allreduce` of each tensor."""
    return [allreduce(tensor, *args, **kwargs) for tensor in tensors]


def allgather(tensor: Any, name: str | None = None, **others: Any) -> tf.Tensor:
    """Returns every rank's tensor, one after the other along the first axis, whose length may differ between ranks.

    Args:
        tensor: Tensor [n, ...].
        name: accepted.
        **others: arguments of other releases, ACCEPTED.

    Raises:
        TypeError: an argument that no release has.
    """
    _only_known("allgather", others)
    job.size()
    tensor = tf.convert_to_tensor(tensor)
    if ranks.world_size() == 1:
        return tf.identity(tensor, name)
    # what ranks agree on must not tell of a rank's own number of rows
    open_rows = tf.placeholder_with_default(tensor, [None, *tensor.shape[1:]])
    rows = tf.IndexedSlices(open_rows, tf.range(tf.shape(open_rows)[0]))
    gathered: tf.Tensor = slices.gathered([rows], ["allgather %s" % (name or "")], ranks.WORLD)[0].values
    return gathered


def broadcast(tensor: Any, root_rank: int, name: str | None = None, **others: Any) -> tf.Tensor:
    """Returns the root rank's tensor on every rank; `others` are ACCEPTED. Raises TypeError for another argument."""
    _only_known("broadcast", others)
    job.size()
    return hccl.broadcast(tf.convert_to_tensor(tensor), root_rank)


def broadcast_variables(variables: Sequence[Any], root_rank: int, **others: Any) -> tf.Operation:
    """Returns an op that assigns the root rank's values of variables to those of every rank.

    Raises:
        TypeError: an argument that no release has; `others` are ACCEPTED.
    """
    _only_known("broadcast_variables", others)
    job.size()
    if ranks.world_size() == 1:
        return tf.no_op()
    return tf.group(*(tf.assign(v, new) for v, new in zip(variables, hccl.broadcast(list(variables), root_rank))))


def broadcast_global_variables(root_rank: int) -> tf.Operation:
    """Returns an op that assigns the root rank's global variables to those of every rank."""
    return broadcast_variables(tf.global_variables(), root_rank)


def size_op(process_set_id: Any = 0, name: str | None = None) -> tf.Tensor:
    """Returns the number of processes as an int32 scalar, before `init` too; the first argument may be its name.

    Raises:
        ConfigError: `process_set_id` names a part of the job.
    """
    if not isinstance(process_set_id, str) and process_set_id:
        raise ConfigError("hvd.size_op: process_set_id=%r is not here, expected 0, all workers" % (process_set_id,))
    return _scalar(ranks.world_size(), process_set_id or name)


def rank_op(name: str | None = None) -> tf.Tensor:
    """Returns this process's number, from 0, as an int32 scalar, before `init` too."""
    return _scalar(ranks.world_rank(), name)


def local_size_op(name: str | None = None) -> tf.Tensor:
    """Returns the number of processes on this host as an int32 scalar, before `init` too."""
    return _scalar(ranks.get_local_rank_size(), name)


def local_rank_op(name: str | None = None) -> tf.Tensor:
    """Returns this process's number among those of its host as an int32 scalar, before `init` too."""
    return _scalar(ranks.get_local_rank_id(), name)


class BroadcastGlobalVariablesHook(tf.train.SessionRunHook):
    """Broadcasts the root rank's global variables when a session has begun.

    Args:
        root_rank: int.
        device: accepted.
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        self.root_rank, self._broadcast = root_rank, None

    def begin(self) -> None:
        """Adds the broadcast to the graph."""
        self._broadcast = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Runs the broadcast."""
        session.run(self._broadcast)


def DistributedOptimizer(
    optimizer: Any, name: str | None = None, use_locking: bool = False, device_dense: str = "", device_sparse: str = "",
    compression: Any = Compression.none, sparse_as_dense: bool = False, backward_passes_per_step: int = 1,
    op: Any = Average, gradient_predivide_factor: float = 1.0, average_aggregated_gradients: bool = False,
    **others: Any
) -> Any:  # fmt: skip
    """Returns an optimizer that reduces its gradients over the ranks before it applies them.

    Args:
        optimizer: tf.train.Optimizer or Keras optimizer.
        name: str; None gives "Distributed" and the optimizer's type.
        use_locking: of the wrapper, as of tf.train.Optimizer.
        device_dense: accepted.
        device_sparse: accepted.
        compression: one of Compression.
        sparse_as_dense: whether IndexedSlices travel as dense tensors.
        backward_passes_per_step: int; that many steps gather gradients, and the last applies their sum. Gradients
            are exchanged in each, and global_step (of a Keras optimizer, its iterations) counts each.
        op: Average or Sum.
        gradient_predivide_factor: float, accepted with Average: it divides before the sum and multiplies behind it, so
            the mean is the same.
        average_aggregated_gradients: bool; several backward passes then apply the mean of their gradients.
        **others: arguments of other releases, ACCEPTED.

    Raises:
        ConfigError: Adasum, or a number of backward passes that is none.
        TypeError: an argument that no release has.
        ValueError: gradient_predivide_factor with Sum, or another optimizer.
    """
    _only_known("DistributedOptimizer", others)
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    reduced = Reduced(compression, sparse_as_dense, _reduction(None, op))
    if isinstance(optimizer, tf.train.Optimizer):
        distributed = _DistributedOptimizer(optimizer, name, use_locking, reduced)
        if backward_passes_per_step == 1:
            return distributed
        return accumulating(distributed, backward_passes_per_step, average_aggregated_gradients)
    from npu_shim.bridge.horovod import keras

    return keras.in_place(optimizer, reduced, backward_passes_per_step, average_aggregated_gradients)


def accumulating(optimizer: Any, passes: int, average: bool) -> AccumulatingOptimizer:
    """Returns an optimizer that gathers the gradients of several passes as Horovod does."""
    return AccumulatingOptimizer(optimizer, passes, average=average, counts_all=True)


class Reduced:
    """The reduction of gradients that a DistributedOptimizer makes, as a function of (gradients, variables)."""

    def __init__(self, compression: Any, sparse_as_dense: bool, reduction: str) -> None:
        self._compression, self._sparse_as_dense, self._reduction = compression, sparse_as_dense, reduction

    def __call__(self, given: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Returns the gradients reduced over the ranks; a None stays."""
        if ranks.world_size() == 1:
            return list(given)
        given = [self._as_dense(gradient) for gradient in given]
        dense = [isinstance(gradient, tf.Tensor) for gradient in given]
        sent = [self._compression.compress(g) if is_dense else (g, None) for g, is_dense in zip(given, dense)]
        names = [variable.name for variable in variables]
        done = gradients.reduced([tensor for tensor, _ in sent], names, self._reduction)
        return [
            self._compression.decompress(tensor, context) if is_dense else tensor
            for tensor, (_, context), is_dense in zip(done, sent, dense)
        ]

    def _as_dense(self, gradient):
        slices_too = self._sparse_as_dense and isinstance(gradient, tf.IndexedSlices)
        return tf.convert_to_tensor(gradient) if slices_too else gradient


class _DistributedOptimizer(hccl.NPUDistributedOptimizer):
    """A tf.train.Optimizer whose gradients are reduced over the ranks as Horovod's options say."""

    def __init__(self, optimizer: Any, name: str | None, use_locking: bool, reduced: Callable[..., list[Any]]) -> None:
        super().__init__(optimizer, name=name)
        self._use_locking, self._reduction = use_locking, reduced

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Returns the wrapped optimizer's gradients, reduced over the ranks. Raises ValueError before `init`."""
        job.size()
        return super().compute_gradients(*args, **kwargs)

    def _reduced(self, pairs):
        given, variables = zip(*pairs)
        return list(zip(self._reduction(given, variables), variables))


def _scalar(number, name):
    return tf.constant(number, tf.int32, name=name)


def _only_known(function, others):
    """A misspelt argument must not pass for one of another release: it would have no effect."""
    for name in sorted(set(others) - ACCEPTED):
        raise TypeError("hvd.%s() got an unexpected keyword argument '%s'" % (function, name))


def _reduction(average, op):
    if average is not None and op is not None:
        raise ValueError("The op parameter supersedes average. Please provide only one of them.")
    reduction = (Sum if average is False else Average) if op is None else op
    if reduction == Adasum:
        raise ConfigError("op=hvd.Adasum is not here: hvd.Average and hvd.Sum are")
    if reduction not in (Average, Sum, Min, Max, Product):
        raise ConfigError("op is %r, expected hvd.Average, Sum, Min, Max or Product" % (op,))
    return reduction


def _scaled(tensor, factor):
    """A tensor times a number; whole numbers are multiplied in float64, and cut off, as Horovod does it."""
    if factor == 1.0:
        return tensor
    if tensor.dtype.is_integer:
        return tf.cast(tf.cast(tensor, tf.float64) * factor, tensor.dtype)
    return tensor * tf.cast(factor, tensor.dtype)


def _whole_mean(tensor, reduction, fusion):
    """A mean of whole numbers is one of whole numbers, cut off, as Horovod has it; their sum has 64 bits."""
    wide = tensor if tensor.dtype == tf.uint64 else tf.cast(tensor, tf.int64)
    total = hccl.npu_allreduce(wide, Sum, fusion=fusion)
    return tf.cast(tf.truncatediv(total, tf.cast(ranks.world_size(), total.dtype)), tensor.dtype)
