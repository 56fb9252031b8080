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
from npu_shim.rewriter.errors import ConfigError
from npu_shim.rewriter.tf_internals import collective_ops

OLD = tf.__version__.startswith("1.")
MERGE = {"sum": "Add", "prod": "Mul"}  # merge ops that the collectives of every TensorFlow have
GATHER = ("max", "min")
OF_ROWS = {"max": tf.reduce_max, "min": tf.reduce_min, "prod": tf.reduce_prod}
# dtypes that the collectives take, on CPUs too; others travel in a wider one
GATHERED = (tf.float32, tf.float64, tf.int32, tf.int64, *(() if OLD else (tf.float16,)))
REDUCED = (*GATHERED, *(() if OLD else (tf.bfloat16,)))
# whole numbers travel in a dtype that holds each; those of uint64 keep their bits, so that sums and products are right
CARRIERS = {
    **dict.fromkeys((tf.bool, tf.int8, tf.uint8, tf.int16, tf.uint16), tf.int32),
    **dict.fromkeys((tf.uint32, tf.uint64), tf.int64),
}
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

    Raises:
        ConfigError: the tensor holds no numbers, or a maximum or minimum of complex numbers is asked for.
    """

    def moved(here):
        total = collective_ops().all_reduce(here, *_keys(group, reduction, here, key), MERGE[reduction], "Id")
        on_total(total)
        return total

    @tf.custom_gradient
    def reduced(x):
        if x.shape.num_elements() == 0:  # at which TensorFlow's collectives end the process
            result = tf.identity(x)
        elif reduction in GATHER or (reduction == "prod" and x.dtype.is_complex):
            every = allgather(x[tf.newaxis], group, key)
            result = _computed(lambda rows: OF_ROWS[reduction](rows, axis=0), every, reduction)
        else:
            result = _moved(x, REDUCED, moved)
        return result, lambda dy: _share(allreduce(dy, "sum", group), reduction, x, result, group)

    return reduced(_checked(tensor, reduction))


def _share(dy, reduction, x, result, group):
    """The gradient of this rank's x, given that of the result: equal numbers share that of a maximum or minimum."""
    if reduction == "prod":
        rows = tf.unstack(allgather(x[tf.newaxis], group), ranks.get_rank_size(group))
        del rows[ranks.get_rank_id(group)]
        return dy * tf.math.conj(functools.reduce(tf.multiply, rows))
    if reduction in GATHER:
        mine = tf.cast(tf.equal(x, result), dy.dtype)
        return dy * mine / allreduce(mine, "sum", group)
    return dy


def allgather(tensor: tf.Tensor, group: str, key: int | None = None) -> tf.Tensor:
    """Returns every rank's tensor, one after the other along the first axis; `key` and gradients as for `allreduce`."""

    def moved(here):
        return collective_ops().all_gather(here, *_keys(group, "gather", here, key))

    @tf.custom_gradient
    def gathered(x):
        gradient = lambda dy: reduce_scatter(dy, "sum", group)  # noqa: E731
        if x.shape.num_elements() == 0:
            return tf.concat([x] * ranks.get_rank_size(group), 0), gradient
        if OLD and not x.shape.is_fully_defined():
            return _gathered_by_sum(x, group, key), gradient
        return _in_rank_order(_moved(x, GATHERED, moved), group), gradient

    return gathered(_checked(tensor))


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
        parts = _exchanged(tf.reshape(x, shape), group, key)
        added = lambda rows: functools.reduce(REDUCE[reduction], tf.unstack(rows, size))  # noqa: E731
        result = _computed(added, parts, reduction)
        whole = lambda: allgather(result, group) if reduction in GATHER else None  # noqa: E731
        return result, lambda dy: _share(allgather(dy, group), reduction, x, whole(), group)

    return scattered(_checked(tensor, reduction))


def _exchanged(rows, group, key):
    """Returns what every rank has for this one of rows [ranks, ...], one for each rank."""
    members = ranks.members(group)
    # TensorFlow's order, see `_in_rank_order`
    named = [members.index(member) for member in sorted(members, key=cluster.task)]
    if named != list(range(len(members))):
        rows = tf.gather(rows, named)

    def moved(here):
        names = "group_size", "group_key", "instance_key"
        keyed = dict(zip(names, _keys(group, "exchange", here, key)))
        come = tf.raw_ops.CollectiveAllToAllV2(input=here, ordering_token=[], **keyed)
        come.set_shape(here.shape)
        return come

    return _in_rank_order(_moved(rows, REDUCED, moved), group)


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


def _moved(tensor, dtypes, collective):
    """Returns what a collective makes of a tensor, which travels in one of `dtypes`; complex ones as pairs."""
    if tensor.dtype.is_complex:
        pairs = tf.stack([tf.math.real(tensor), tf.math.imag(tensor)], -1)
        return tf.complex(*tf.unstack(_moved(pairs, dtypes, collective), 2, -1))
    with cluster.placed(_carried(tensor, dtypes)) as here:
        moved = collective(here)
    return tf.cast(moved, tensor.dtype)


def _carried(tensor, dtypes):
    """Returns a tensor in a dtype that a collective takes, wide enough for each of its values."""
    dtype = tensor.dtype.base_dtype
    if dtype in dtypes:
        return tensor
    return tf.cast(tensor, tf.float32 if dtype.is_floating else CARRIERS.get(dtype, dtype))


def _computed(compute, rows, reduction):
    """Returns compute(rows), a reduction of whole numbers in a dtype that has kernels for it and orders them alike."""
    dtype = rows.dtype.base_dtype
    if dtype not in CARRIERS:
        return compute(rows)
    here = _carried(rows, REDUCED)
    if dtype != tf.uint64 or reduction not in GATHER:
        return tf.cast(compute(here), dtype)
    sign = tf.constant(tf.int64.min, tf.int64)  # in int64, numbers from 2**63 on are the smallest
    flipped = compute(tf.bitwise.bitwise_xor(here, sign))
    return tf.cast(tf.bitwise.bitwise_xor(flipped, sign), dtype)


def _checked(tensor, reduction=""):
    """Returns a tensor of what was given; ConfigError where ranks cannot exchange or reduce it."""
    tensor = tf.convert_to_tensor(tensor)
    require_numbers(tensor)
    if tensor.dtype.is_complex and reduction in GATHER:
        text = "reduction '%s' of '%s', which is %s: complex numbers have no order, expected 'sum' or 'prod'"
        raise ConfigError(text % (reduction, tensor.name, tensor.dtype.base_dtype.name))
    return tensor


def require_numbers(tensor: tf.Tensor) -> None:
    """Raises ConfigError where a tensor is of a dtype that ranks cannot exchange: a string, a resource."""
    dtype = tensor.dtype.base_dtype
    if not (dtype in CARRIERS or dtype in REDUCED or dtype.is_floating or dtype.is_complex):
        text = "ranks cannot exchange '%s': it is %s, expected numbers or bool"
        raise ConfigError(text % (tensor.name, dtype.name))


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

    return sent(_checked(tensor))


def _keys(group, kind, tensor, key):
    """Returns (size, group key, instance key); the last is `key`, or that of the next call of its kind."""
    instance = keys.counted("%s %s" % (kind, group), tensor) if key is None else key
    return ranks.get_rank_size(group), cluster.group_key(group), instance
