"""Tensors moved in buckets: laid end to end, one collective for each bucket, cut apart again."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.distributed.collectives import buckets, keys
from npu_shim.distributed.job import ranks, settings

ALONE, BY_STRATEGY, BY_ID = 0, 1, 2  # the vendor's values of `fusion`


def moved(
    tensors: Sequence[Any],
    names: Sequence[str],
    collective: Callable[[tf.Tensor, int], tf.Tensor],
    kind: str,
    group: str,
    fusion: int = BY_STRATEGY,
) -> list[tf.Tensor]:
    """Returns what an elementwise collective makes of each tensor.

    Args:
        tensors: list of Tensor of any shapes and dtypes; shapes may be unknown until the graph runs.
        names: their variables' names: what the ranks agree on.
        collective: function (tensor, instance key) -> tensor of the same shape and dtype.
        kind: what the collective does; part of its key.
        group: str, the hccl group.
        fusion: 0 moves each alone, 1 in buckets by the group's strategy or by bytes, 2 all of a dtype together.
    """
    dtypes = (tensor.dtype.base_dtype.name for tensor in tensors)
    members = [buckets.Member(*member) for member in zip(names, dtypes, map(_bytes, tensors))]
    planned = _buckets(members, group, fusion)
    shown = [[(names[at], keys.described(tensors[at])) for at in bucket] for bucket in planned]
    label = keys.new("\n".join([kind, group, *map(str, shown)]))
    done: list[Any] = [None] * len(tensors)
    for number, bucket in enumerate(planned):
        key = keys.instance(label, number)
        keys.note(key, shown[number])
        with tf.name_scope("bucket_%d" % number):
            parts = _together([tensors[at] for at in bucket], collective, key)
        for at, part in zip(bucket, parts):
            done[at] = part
    return done


def _buckets(members, group, fusion):
    strategy = ranks.split_strategy(group) if fusion == BY_STRATEGY else None
    if strategy is not None:
        by, numbers = strategy
        choose = buckets.by_index if by == "idx" else buckets.by_share
        return choose(members, numbers)
    limits = {ALONE: 0, BY_STRATEGY: settings.bucket_bytes(ranks.get_rank_size(group)), BY_ID: float("inf")}
    return buckets.by_bytes(members, limits[fusion])


def _together(tensors, collective, key):
    if len(tensors) == 1:
        return [collective(tensors[0], key)]
    flat = collective(tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], 0), key)
    sizes = [_elements(tensor) for tensor in tensors]
    parts = tf.split(flat, sizes if all(isinstance(size, int) for size in sizes) else tf.stack(sizes), num=len(sizes))
    return [tf.reshape(part, _shape(tensor)) for part, tensor in zip(parts, tensors)]


def _bytes(tensor):
    size = tensor.shape.num_elements()
    return None if size is None else int(size) * tensor.dtype.size


def _elements(tensor):
    known = tensor.shape.num_elements()
    return tf.size(tensor) if known is None else int(known)


def _shape(tensor):
    return tensor.shape if tensor.shape.is_fully_defined() else tf.shape(tensor)
