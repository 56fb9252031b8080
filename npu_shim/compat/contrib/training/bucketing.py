"""tf.contrib.training's batches of elements of like size: bucket and bucket_by_sequence_length.

Each element waits in the queue of its bucket until a batch is full there; the batches of all buckets leave by one
queue. Source: the behaviour of TensorFlow 1.15's functions; the queues are run by the session's queue runners.
"""

from __future__ import annotations

from typing import Any, Sequence

import tensorflow.compat.v1 as tf

ENDS = (tf.errors.OutOfRangeError, tf.errors.CancelledError)


def bucket_by_sequence_length(
    input_length: Any, tensors: Any, batch_size: Any, bucket_boundaries: Sequence[int], num_threads: int = 1,
    capacity: int = 32, bucket_capacities: Sequence[int] | None = None, shapes: Any = None, dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False, keep_input: Any = True, shared_name: str | None = None,
    name: str | None = None,
) -> tuple[Any, Any]:  # fmt: skip
    """Batches elements with others whose length lies between the same boundaries.

    Args:
        input_length: int32 scalar tensor, the length of one element.
        tensors: list or dict of tensors, one element.
        batch_size: int, or one for each of the len(bucket_boundaries) + 1 buckets.
        bucket_boundaries: ints, increasing: the length at which each bucket but the first begins.
        num_threads: int, threads that read elements.
        capacity: int, batches that wait at the end, and elements in each bucket.
        bucket_capacities: ints, elements in each bucket, or None: `capacity`.
        shapes: shapes of the tensors, or None: those that they have.
        dynamic_pad: pad what differs in a batch with zeros.
        allow_smaller_final_batch: when the input ends, each bucket gives what it has.
        keep_input: bool tensor, whether the element is taken.
        shared_name: of the queue at the end, for several sessions.
        name: name scope.

    Returns:
        (lengths of a batch [batch], the tensors as they were given, batched).

    Raises:
        ValueError: no boundaries, or boundaries that do not increase.
        TypeError: a boundary that is no int.
    """
    boundaries = list(bucket_boundaries)
    if not boundaries:
        raise ValueError("bucket_boundaries must not be empty")
    for low, high in zip(boundaries, [*boundaries[1:], None]):
        if not isinstance(low, int):
            raise TypeError("bucket_boundaries must be ints, found %r" % (low,))
        if isinstance(high, int) and low >= high:
            raise ValueError("bucket_boundaries must increase, found %s before %s" % (low, high))
    length = tf.convert_to_tensor(input_length, tf.int32)
    which = tf.reduce_sum(tf.cast(tf.less_equal(boundaries, length), tf.int32))
    flat = _flat(tensors)
    shapes = None if shapes is None else [tf.TensorShape([]), *shapes]
    _, batch = bucket(
        [length, *flat], which, batch_size, len(boundaries) + 1, num_threads, capacity, bucket_capacities, shapes,
        dynamic_pad, allow_smaller_final_batch, keep_input, shared_name, name or "bucket_by_sequence_length",
    )  # fmt: skip
    return batch[0], _like(tensors, batch[1:])


def bucket(
    tensors: Any, which_bucket: Any, batch_size: Any, num_buckets: int, num_threads: int = 1, capacity: int = 32,
    bucket_capacities: Sequence[int] | None = None, shapes: Any = None, dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False, keep_input: Any = True, shared_name: str | None = None,
    name: str | None = None,
) -> tuple[Any, Any]:  # fmt: skip
    """Batches elements with others of the same bucket.

    Args:
        tensors: list or dict of tensors, one element; a SparseTensor's batch has a dimension in front.
        which_bucket: int32 scalar tensor, the bucket of the element, below num_buckets.
        batch_size: int, or one for each bucket.
        num_buckets: int, at least 2.
        num_threads: int, threads that read elements.
        capacity: int, batches that wait at the end, and elements in each bucket.
        bucket_capacities: ints, elements in each bucket, or None: `capacity`.
        shapes: shapes of the tensors, or None: those that they have.
        dynamic_pad: pad what differs in a batch with zeros.
        allow_smaller_final_batch: when the input ends, each bucket gives what it has.
        keep_input: bool tensor, whether the element is taken.
        shared_name: of the queue at the end, for several sessions.
        name: name scope.

    Returns:
        (int32 scalar, the batch's bucket; the tensors as they were given, batched: the tensor itself of a list of one).

    Raises:
        ValueError: fewer than two buckets, or lists that do not have one entry for each.
    """
    if num_buckets < 2:
        raise ValueError("num_buckets must be >= 2, found %d" % num_buckets)
    sizes = _for_each("batch_size", batch_size, num_buckets)
    capacities = _for_each(
        "bucket_capacities", capacity if bucket_capacities is None else bucket_capacities, num_buckets
    )
    with tf.name_scope(name, "bucket", _flat(tensors)):
        given = _flat(tensors)
        flat = [_queued(tensor) for tensor in given]
        shapes = (
            [tensor.shape for tensor in flat]
            if shapes is None
            else [
                tensor.shape if isinstance(element, tf.SparseTensor) else tf.TensorShape(shape)
                for element, tensor, shape in zip(given, flat, shapes)
            ]
        )
        types = [tensor.dtype for tensor in flat]
        kind = tf.PaddingFIFOQueue if dynamic_pad else tf.FIFOQueue
        queues = [kind(waiting, types, shapes, name="bucket_queue_%d" % n) for n, waiting in enumerate(capacities)]
        same = len(set(sizes)) == 1 and not allow_smaller_final_batch
        batched = [tf.TensorShape([sizes[0] if same else None]).concatenate(shape) for shape in shapes]
        last = tf.PaddingFIFOQueue(
            capacity, [tf.int32, *types], [tf.TensorShape([]), *batched], shared_name=shared_name, name="top_queue"
        )
        _fill(queues, flat, tf.convert_to_tensor(which_bucket), keep_input, num_threads)
        _join(last, queues, sizes, allow_smaller_final_batch)
        tf.summary.scalar("top_queue/fraction_of_%d_full" % capacity, tf.cast(last.size(), tf.float32) / capacity)
        number, *batch = last.dequeue(name="dequeue_top")
        batch = [_unqueued(element, several) for element, several in zip(given, batch)]
    alone = len(batch) == 1 and not isinstance(tensors, dict)
    return number, batch[0] if alone else _like(tensors, batch)


def _queued(element: Any) -> Any:
    """What waits in a queue for an element: a tensor itself, a SparseTensor as string [3]."""
    return tf.io.serialize_sparse(element) if isinstance(element, tf.SparseTensor) else tf.convert_to_tensor(element)


def _unqueued(element: Any, batch: Any) -> Any:
    """A batch of elements like one, as it left its queue."""
    if not isinstance(element, tf.SparseTensor):
        return batch
    rank = None if element.shape.ndims is None else element.shape.ndims + 1
    return tf.io.deserialize_many_sparse(batch, element.dtype, rank=rank)


def _fill(queues: Sequence[Any], flat: Sequence[Any], which: Any, keep: Any, threads: int) -> None:
    """A runner that puts each element that is kept into the queue of its bucket."""

    def kept() -> Any:
        return tf.group(
            *(tf.cond(tf.equal(which, n), _entering(queue, flat), tf.no_op) for n, queue in enumerate(queues))
        )

    put = kept() if keep is True else tf.cond(tf.convert_to_tensor(keep), kept, tf.no_op)
    close = tf.group(*(queue.close() for queue in queues))
    cancel = tf.group(*(queue.close(cancel_pending_enqueues=True) for queue in queues))
    tf.train.add_queue_runner(tf.train.QueueRunner(queues[0], [put] * threads, close, cancel, ENDS))


def _entering(queue: Any, flat: Sequence[Any]) -> Any:
    return lambda: tf.group(queue.enqueue(list(flat)))


def _join(last: Any, queues: Sequence[Any], sizes: Sequence[int], smaller: bool) -> None:
    """A runner that puts each bucket's batches into the queue at the end."""
    takes = [queue.dequeue_up_to if smaller else queue.dequeue_many for queue in queues]
    batches = [take(size) for take, size in zip(takes, sizes)]
    listed = [batch if isinstance(batch, list) else [batch] for batch in batches]
    enters = [last.enqueue([tf.constant(n), *batch]) for n, batch in enumerate(listed)]
    close, cancel = last.close(), last.close(cancel_pending_enqueues=True)
    tf.train.add_queue_runner(tf.train.QueueRunner(last, enters, close, cancel, ENDS))


def _for_each(name: str, given: Any, count: int) -> list[int]:
    """One int for each bucket."""
    if isinstance(given, int):
        return [given] * count
    if len(given) != count:
        raise ValueError("%s needs one entry for each of the %d buckets, found %d" % (name, count, len(given)))
    return list(given)


def _flat(tensors: Any) -> list[Any]:
    return [tensors[key] for key in sorted(tensors)] if isinstance(tensors, dict) else list(tensors)


def _like(tensors: Any, flat: Sequence[Any]) -> Any:
    return dict(zip(sorted(tensors), flat)) if isinstance(tensors, dict) else list(flat)
