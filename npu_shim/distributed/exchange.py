"""all_to_all_v: each rank has something else for each rank; one process is a group of one.

It gathers what every rank sends and takes this rank's parts, as TensorFlow has no such collective for CPUs; a rank gets
up to rank_size times the data that it needs. `send` and `receive` are not there: TensorFlow's sessions meet
in a step only if they run the same collectives in it, so ranks with one of their own would wait for the others forever.
Source: Ascend adapter of 2023-12 (r1.15), hccl_ops.
"""

import tensorflow.compat.v1 as tf

from npu_shim.distributed import ranks
from npu_shim.distributed.collectives import allgather, allreduce


def all_to_all_v(send_data, send_counts, send_displacements, recv_counts, recv_displacements, group=ranks.WORLD):
    """Returns what every rank sent to this one, a Tensor [n]; places that nobody sent anything for are 0.

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


def all_to_all_v_c(send_data, send_count_matrix, rank, fusion=0, fusion_id=-1, group=ranks.WORLD):
    """Returns what every rank sent to this one, one part after the other.

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
