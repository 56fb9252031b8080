"""all_to_all_v: each rank sends different data to each rank; a single process is a group of one.

It gathers the data of every rank and selects this rank's parts, since TensorFlow has no such collective for CPUs. A
rank receives up to rank_size times the data that it needs. There are no `send` and `receive`: TensorFlow's sessions
synchronize only if all run the same collectives in a step, so a rank with a collective of its own would wait forever.
Source: Ascend adapter of 2023-12 (r1.15), hccl_ops.
"""

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.distributed.collectives.hccl import allgather, allreduce
from npu_shim.distributed.job import ranks


def all_to_all_v(
    send_data: Any,
    send_counts: Any,
    send_displacements: Any,
    recv_counts: Any,
    recv_displacements: Any,
    group: str = ranks.WORLD,
) -> tf.Tensor:
    """Returns the data that every rank sent to this one, a Tensor [n]; elements that no rank sent are 0.

    Args:
        send_data: Tensor, read as [n].
        send_counts: int Tensor [rank_size], how many elements go to each rank.
        send_displacements: int Tensor [rank_size], where in send_data they begin.
        recv_counts: int Tensor [rank_size], how many elements come from each rank.
        recv_displacements: int Tensor [rank_size], where in the result they begin.
        group: str.
    """
    with tf.name_scope("all_to_all_v"):
        first = _gathered(_numbers(send_displacements), group)[:, ranks.get_rank_id(group)]
        return _gather_parts(send_data, first, _numbers(recv_counts), _numbers(recv_displacements), group)


def all_to_all_v_c(
    send_data: Any, send_count_matrix: Any, rank: int, fusion: int = 0, fusion_id: int = -1, group: str = ranks.WORLD
) -> tf.Tensor:
    """Returns the data that every rank sent to this one, one part after the other.

    Args:
        send_data: Tensor, read as [n]: the parts for each rank, one after the other.
        send_count_matrix: int Tensor [rank_size, rank_size], how many elements go from each rank to each.
        rank: int, this process's rank within the group.
        fusion: int, left to TensorFlow.
        fusion_id: int, left to TensorFlow.
        group: str.
    """
    with tf.name_scope("all_to_all_v_c"):
        size = ranks.get_rank_size(group)
        counts = tf.reshape(tf.cast(send_count_matrix, tf.int32), [size, size])
        first = tf.cumsum(counts, axis=1, exclusive=True)[:, rank]
        received = counts[:, rank]
        return _gather_parts(send_data, first, received, tf.cumsum(received, exclusive=True), group)


def _gather_parts(send_data, first, counts, displacements, group):
    """Returns `counts[r]` elements of rank r's data from `first[r]` on, at `displacements[r]` in the result."""
    data = tf.reshape(send_data, [-1])
    longest = tf.size(data)
    if ranks.get_rank_size(group) > 1:
        longest = allreduce(longest, "max", group=group)
    every = _gathered(tf.pad(data, [[0, longest - tf.size(data)]]), group)
    places = tf.where(tf.sequence_mask(counts, maxlen=longest))  # [elements, 2]: rank, number within its part
    rank, number = tf.unstack(tf.cast(places, tf.int32), 2, axis=1)
    values = tf.gather_nd(every, tf.stack([rank, tf.gather(first, rank) + number], 1))
    targets = tf.gather(displacements, rank) + number
    return tf.scatter_nd(targets[:, tf.newaxis], values, [tf.reduce_max(displacements + counts)])


def _gathered(row, group):
    """Returns every rank's row: [rank_size, n]."""
    return allgather(row[tf.newaxis], ranks.get_rank_size(group), group=group)


def _numbers(given):
    return tf.reshape(tf.cast(given, tf.int32), [-1])
