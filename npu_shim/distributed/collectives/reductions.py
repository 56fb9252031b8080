"""TensorFlow's collectives between the ranks of a group, with gradients.

A gradient is that of the sum of all ranks' results: each rank differentiates its own, and the gradients that ranks send
each other are added. Ranks that differentiate one collective must all do it.
"""

from __future__ import annotations

import functools
from typing import Callable

import tensorflow.compat.v1 as tf

from npu_shim.distributed.collectives import keys
from npu_shim.distributed.job import cluster, ranks
from npu_shim.rewriter.tf_internals import collective_ops

OLD = tf.__version__.startswith("1.")
MERGE = {"sum": "Add", "prod": "Mul"}  # merge ops that the collectives of every TensorFlow have
GATHER = {"max": tf.reduce_max, "min": tf.reduce_min}
# dtypes that the collectives take, on CPUs too; others travel in a wider one
GATHERED = (tf.float32, tf.float64, tf.int32, tf.int64, *(() if OLD else (tf.float16,)))
REDUCED = (*GATHERED, *(() if OLD else (tf.bfloat16,)))
REDUCE = {"sum": tf.add, "prod": tf.multiply, "max": tf.maximum, "min": tf.minimum}


def allreduce(
    tensor: tf.Tensor,
    reduction: str,
    group: str,
    key: int | None = None,
    on_total: Callable[[tf.Tensor], None] = lambda total: None,
) -> tf.Tensor:
    """Returns the reduced tensor; its gradient is the sum of the ranks' gradients, times this rank's `_share`.

    Args:
        tensor: Tensor of the same shape and dtype on every rank.
        reduction: "sum", "prod", "max" or "min".
        group: str.
        key: int, the instance key of `keys`; None counts calls.
        on_total: called with what the collective of a sum or a product makes.
    """

    @tf.custom_gradient
    def reduced(x):
        if x.shape.num_elements() == 0:  # at which TensorFlow's collectives end the process
            result = tf.identity(x)
        elif reduction in GATHER:
            result = GATHER[reduction](allgather(x[tf.newaxis], group, key), axis=0)
        else:
            with cluster.placed(_carried(x, REDUCED)) as here:
                total = collective_ops().all_reduce(here, *_keys(group, reduction, here, key), MERGE[reduction], "Id")
            on_total(total)
            result = tf.cast(total, x.dtype)
        return result, lambda dy: _share(allreduce(dy, "sum", group), reduction, x, result, group)

    return reduced(tf.convert_to_tensor(tensor))


def _share(dy, reduction, x, result, group):
    """The gradient of this rank's x, given that of the result: equal numbers share that of a maximum or minimum."""
    if reduction == "prod":
        rows = tf.unstack(allgather(x[tf.newaxis], group), ranks.get_rank_size(group))
        del rows[ranks.get_rank_id(group)]
        return dy * functools.reduce(tf.multiply, rows)
    if reduction in GATHER:
        mine = tf.cast(tf.equal(x, result), dy.dtype)
        return dy * mine / allreduce(mine, "sum", group)
    return dy


def allgather(tensor: tf.Tensor, group: str, key: int | None = None) -> tf.Tensor:
    """Returns every rank's tensor, one after the other along the first axis; `key` and gradients as for `allreduce`."""

    @tf.custom_gradient
    def gathered(x):
        gradient = lambda dy: reduce_scatter(dy, "sum", group)  # noqa: E731
        if x.shape.num_elements() == 0:
            return tf.concat([x] * ranks.get_rank_size(group), 0), gradient
        if OLD and not x.shape.is_fully_defined():
            return _gathered_by_sum(x, group, key), gradient
        with cluster.placed(_carried(x, GATHERED)) as here:
            rows = collective_ops().all_gather(here, *_keys(group, "gather", here, key))
        return tf.cast(_in_rank_order(rows, group), x.dtype), gradient

    return gathered(tf.convert_to_tensor(tensor))


def reduce_scatter(tensor: tf.Tensor, reduction: str, group: str, key: int | None = None) -> tf.Tensor:
    """Returns this rank's equal part, along the first axis, of what `allreduce` returns; arguments as there.

    The ranks exchange their parts, and each reduces those that come to it, in the order of ranks: half of what an
    allreduce moves. TensorFlow 1.15 exchanges nothing: there it is a part of an allreduce.
    """
    size, rank = ranks.get_rank_size(group), ranks.get_rank_id(group)
    if OLD:
        return tf.split(allreduce(tensor, reduction, group, key), size)[rank]

    @tf.custom_gradient
    def scattered(x):
        if x.shape.num_elements() == 0:
            return tf.split(x, size)[rank], lambda dy: allgather(dy, group)
        rest = x.shape.as_list()[1:]
        shape = tf.concat([[size, -1], tf.shape(x)[1:]], 0) if None in rest else [size, -1, *rest]
        parts = tf.unstack(_exchanged(tf.reshape(x, shape), group, key), size)
        result = functools.reduce(REDUCE[reduction], parts)
        whole = lambda: allgather(result, group) if reduction in GATHER else None  # noqa: E731
        return result, lambda dy: _share(allgather(dy, group), reduction, x, whole(), group)

    return scattered(tf.convert_to_tensor(tensor))


def _exchanged(rows, group, key):
    """Returns what every rank has for this one of rows [ranks, ...], one for each rank."""
    members = ranks.members(group)
    # TensorFlow's order, see `_in_rank_order`
    named = [members.index(member) for member in sorted(members, key=cluster.task)]
    if named != list(range(len(members))):
        rows = tf.gather(rows, named)
    with cluster.placed(_carried(rows, REDUCED)) as here:
        names = "group_size", "group_key", "instance_key"
        keyed = dict(zip(names, _keys(group, "exchange", here, key)))
        come = tf.raw_ops.CollectiveAllToAllV2(input=here, ordering_token=[], **keyed)
    come.set_shape(rows.shape)
    return tf.cast(_in_rank_order(come, group), rows.dtype)


def _in_rank_order(rows, group):
    """Returns gathered rows in the order of the group's ranks; TensorFlow's is that of their names: 0, 1, 10, 2."""
    members = ranks.members(group)
    named = sorted(members, key=cluster.task)
    if named == list(members):
        return rows
    parts = tf.split(rows, len(members))
    return tf.concat([parts[named.index(member)] for member in members], 0)


def _gathered_by_sum(tensor, group, key):
    """TensorFlow 1.15 gathers the shape of the first run only, so other shapes are summed with zeros around them."""
    rank, size = ranks.get_rank_id(group), ranks.get_rank_size(group)
    length = tf.shape(tensor)[0]
    around = [[rank * length, (size - 1 - rank) * length]] + [[0, 0]] * (tensor.shape.ndims - 1)
    return tf.cast(allreduce(tf.pad(_carried(tensor, GATHERED), around), "sum", group, key), tensor.dtype)


def _carried(tensor, dtypes):
    """Returns a tensor in a dtype that a collective takes, wide enough for each of its values."""
    if tensor.dtype.base_dtype in dtypes:
        return tensor
    return tf.cast(tensor, tf.float32 if tensor.dtype.is_floating else tf.int32)


def broadcast(tensor: tf.Tensor, root_rank: int, group: str, key: int | None = None) -> tf.Tensor:
    """Returns the root rank's tensor: the sum of it and everyone else's zeros, which needs no shape beforehand.

    TensorFlow 1.15's own broadcast loses its sender in groups other than the first. `key` is as for `allreduce`. Its
    gradient is the sum of the ranks' gradients on the root rank, and zero on the others.
    """

    def own(x):  # every rank takes part in the gradient's sum
        return x if ranks.get_rank_id(group) == root_rank else tf.zeros_like(x)

    @tf.custom_gradient
    def sent(x):
        def gradient(dy):
            total = allreduce(dy, "sum", group)
            with tf.control_dependencies([total]):
                return own(total)

        return allreduce(own(x), "sum", group, key), gradient

    return sent(tf.convert_to_tensor(tensor))


def _keys(group, kind, tensor, key):
    """Returns (size, group key, instance key); the last is `key`, or that of the next call of its kind."""
    instance = keys.counted("%s %s" % (kind, group), tensor) if key is None else key
    return ranks.get_rank_size(group), cluster.group_key(group), instance
