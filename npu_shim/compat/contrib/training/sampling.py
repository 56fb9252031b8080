"""Batches of tf.contrib.training that leave examples out or repeat them (behaviour of TensorFlow 1.15.5).

Queues hold the examples; the session's queue runners fill them.
"""

from __future__ import annotations

from typing import Any, Callable

import tensorflow.compat.v1 as tf


def rejection_sample(
    tensors: Any,
    accept_prob_fn: Callable[[list[tf.Tensor]], Any],
    batch_size: int,
    queue_threads: int = 1,
    enqueue_many: bool = False,
    prebatch_capacity: int = 16,
    prebatch_threads: int = 1,
    runtime_checks: bool = False,
    name: str | None = None,
) -> list[tf.Tensor]:
    """Batches of examples, each of which is taken with a probability of its own.

    Args:
        tensors: list of tensors, one example, or several with `enqueue_many`.
        accept_prob_fn: function of one example, a list of tensors, that gives a scalar in [0, 1].
        batch_size: int.
        queue_threads: int, threads that fill the queue of batches.
        enqueue_many: whether the first dimension of each tensor is that of examples.
        prebatch_capacity: int, examples that wait to be chosen from, with `enqueue_many`.
        prebatch_threads: int, threads that bring them.
        runtime_checks: whether a probability outside of [0, 1] is an error.
        name: name scope, "rejection_sample" by default.

    Returns:
        list of tensors [batch_size, ...].

    Raises:
        ValueError: tensors have no dimension of examples, or different numbers of them.
    """
    with tf.name_scope(name, "rejection_sample", list(tensors)):
        example = [tf.convert_to_tensor(tensor) for tensor in tensors]
        if enqueue_many:
            example = _one_by_one(_same_number(example), prebatch_capacity, prebatch_threads)
        chance = tf.convert_to_tensor(accept_prob_fn(example))
        if runtime_checks:
            bounds = [tf.assert_non_negative(chance), tf.assert_less_equal(chance, tf.ones([], chance.dtype))]
            with tf.control_dependencies(bounds):
                chance = tf.identity(chance, name="prob_with_checks")
        return _batched(example, chance, batch_size, queue_threads)


def stratified_sample(
    tensors: Any,
    labels: Any,
    target_probs: Any,
    batch_size: int,
    init_probs: Any = None,
    enqueue_many: bool = False,
    queue_capacity: int = 16,
    threads_per_queue: int = 1,
    name: str | None = None,
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Batches in which each class has its share: of the others, examples are left out.

    Args:
        tensors: list of tensors, one example, or several with `enqueue_many`.
        labels: int, the example's class, or int [examples].
        target_probs: float [classes], the shares.
        batch_size: int.
        init_probs: float [classes], the shares in the data; estimated from what has been seen by default.
        enqueue_many: whether the first dimension of each tensor is that of examples.
        queue_capacity: int, examples that wait to be chosen from.
        threads_per_queue: int.
        name: name scope, "stratified_sample" by default.

    Returns:
        (list of tensors [batch_size, ...], labels [batch_size]).

    Raises:
        TypeError: tensors is no list.
        ValueError: shapes do not fit, or a class that the data lack has a share.
    """
    if isinstance(tensors, tf.Tensor):
        raise TypeError("tensors must be a list of tensors, got %r" % tensors)
    with tf.name_scope(name, "stratified_sample", [*tensors, labels]):
        examples = [tf.convert_to_tensor(tensor) for tensor in tensors]
        labels = tf.convert_to_tensor(labels)
        labels.shape.assert_has_rank(1 if enqueue_many else 0)
        target = _shares(target_probs, "target_probs")
        if not enqueue_many:
            examples, labels = [tensor[None] for tensor in examples], labels[None]
        *examples, labels = _same_number([*examples, labels])
        with tf.control_dependencies(_known_classes(labels, target)):
            labels = tf.identity(labels)
        data = _seen_shares(labels, int(target.shape[0])) if init_probs is None else _shares(init_probs, "init_probs")
        accepted = _acceptance(data, target)
        *example, label = _one_by_one([*examples, labels], queue_capacity, threads_per_queue)
        *batch, classes = _batched([*example, label], tf.gather(accepted, label), batch_size, threads_per_queue)
        return batch, classes


def _same_number(tensors):
    """The tensors; raises ValueError if one has no first dimension, or another one."""
    for tensor in tensors:
        tensor.shape.with_rank_at_least(1)
        tensors[0].shape[:1].assert_is_compatible_with(tensor.shape[:1])
    sizes = [tf.shape(tensor)[0] for tensor in tensors]
    with tf.control_dependencies([tf.assert_equal(sizes[0], size) for size in sizes[1:]]):
        return [tf.identity(tensor) for tensor in tensors]


def _one_by_one(examples, capacity, threads):
    """One example from a queue of them."""
    batch = tf.train.batch(examples, 1, threads, capacity, enqueue_many=True)
    return [tf.squeeze(tensor, [0]) for tensor in (batch if isinstance(batch, (list, tuple)) else [batch])]


def _batched(example, chance, batch_size, threads):
    """Batches of what is taken with a probability, a list."""
    taken = tf.random_uniform([], dtype=chance.dtype) < chance
    batch = tf.train.maybe_batch(example, taken, batch_size, num_threads=threads)
    return list(batch) if isinstance(batch, (list, tuple)) else [batch]


def _shares(shares, what):
    """Float32 [classes]; raises ValueError if their number is not known."""
    shares = tf.convert_to_tensor(shares, tf.float32)
    if shares.shape.ndims != 1 or not shares.shape.is_fully_defined():
        raise ValueError("%s must be a vector of known length, got the shape %s" % (what, shares.shape))
    return shares


def _known_classes(labels, shares):
    return [tf.assert_non_negative(labels), tf.assert_less(labels, tf.cast(shares.shape[0], labels.dtype))]


def _seen_shares(labels, classes, smoothing=10):
    """The shares of classes among the labels that have been seen, and `smoothing` of each before the first."""
    counts = tf.Variable(tf.fill([classes], tf.constant(smoothing, tf.int64)), trainable=False, name="class_count")
    seen = counts.assign_add(tf.reduce_sum(tf.one_hot(labels, classes, dtype=tf.int64), 0))
    return tf.cast(seen, tf.float32) / tf.cast(tf.reduce_sum(seen), tf.float32)


def _acceptance(data, target):
    """The probability with which an example of each class is taken, [classes].

    With p the shares of the data and t those asked for, t_i = p_i a_i / sum_j(p_j a_j) for a_i = c t_i / p_i.
    """
    if data.shape != target.shape:
        raise ValueError("init_probs has the shape %s, target_probs %s" % (data.shape, target.shape))
    missing = (data <= 0) & (target > 0)
    known = [tf.get_static_value(shares) for shares in (data, target)]
    if all(shares is not None for shares in known) and ((known[0] <= 0) & (known[1] > 0)).any():
        raise ValueError("target_probs %s asks for a class that init_probs %s lacks" % (known[1], known[0]))
    checks = [tf.assert_equal(tf.reduce_any(missing), False, message="the data lack a class of target_probs")]
    for shares in (data, target):
        checks += [tf.assert_non_negative(shares), tf.assert_near(tf.reduce_sum(shares), 1.0)]
    with tf.control_dependencies(checks):
        ratio = tf.where(data > 0, target / tf.where(data > 0, data, tf.ones_like(data)), tf.zeros_like(data))
    return ratio / tf.reduce_max(ratio)


def resample_at_rate(
    inputs: Any, rates: Any, scope: str | None = None, seed: int | None = None, back_prop: bool = False
) -> list[tf.Tensor]:
    """Repeats each example as often as a Poisson distribution says.

    Args:
        inputs: list of tensors [batch, ...].
        rates: float [batch], the mean number of repetitions.
        scope: name scope, "resample_at_rate" by default.
        seed: int, of the numbers.
        back_prop: whether gradients pass.

    Returns:
        list of tensors [examples, ...].
    """
    with tf.name_scope(scope, "resample_at_rate", list(inputs)):
        rates = tf.reshape(tf.convert_to_tensor(rates, name="rates"), [-1])
        counts = tf.cast(tf.random_poisson(rates, [], rates.dtype, seed), tf.int32)
        which = tf.repeat(tf.range(tf.size(counts)), counts)
        kept = [tf.gather(tensor, which) for tensor in inputs]
        return kept if back_prop else [tf.stop_gradient(tensor) for tensor in kept]


def weighted_resample(
    inputs: Any,
    weights: Any,
    overall_rate: Any,
    scope: str | None = None,
    mean_decay: float = 0.999,
    seed: int | None = None,
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Repeats or leaves out each example in proportion to its weight.

    Args:
        inputs: list of tensors [batch, ...].
        weights: float [batch].
        overall_rate: float, the mean number of times that an example is kept.
        scope: name scope, "weighted_resample" by default.
        mean_decay: float, of the moving average of the weights.
        seed: int, of the numbers.

    Returns:
        (list of tensors [examples, ...], float [examples], the rate at which each was kept).
    """
    with tf.name_scope(scope, "weighted_resample", list(inputs)):
        weights = tf.convert_to_tensor(weights, name="weights")
        rates = weights * overall_rate / _moving_average(tf.reduce_mean(weights), mean_decay)
        *kept, kept_rates = resample_at_rate([*inputs, rates], rates, "resample", seed)
        return kept, kept_rates


def _moving_average(value, decay):
    """The average of the values so far, the newest of which count most; its variables are named as in 1.15."""
    zeros = tf.zeros_initializer()
    with tf.variable_scope(None, "estimate_mean"), tf.variable_scope("estimate_mean/estimated_mean"):
        biased, steps = (
            tf.get_variable(name, [], value.dtype, zeros, trainable=False) for name in ("biased", "local_step")
        )
    new, number = tf.assign(biased, biased * decay + value * (1 - decay)), tf.assign_add(steps, 1)
    return new / (1 - decay**number)
