"""CTC loss with its gradient, by the lattice of Graves et al. (2006), equations 5 to 16, in log space.

A label sequence of n labels is a path of 2n + 1 states, blanks between labels. alpha[t, s] is the log probability of
all paths to state s at time t, beta[t, s] of all paths on from there. Both are loops over time on the whole batch;
every sequence is padded to the states of the longest.

    loss = -log p = -logsumexp over s of (alpha + beta)[0]
    gradient[t, c] = y[t, c] - sum over the states s of class c of exp(alpha + beta - log p)[t, s]

Source: TensorFlow 2.15.1, core/util/ctc/ctc_loss_calculator.h. Where its kernel ends with an error (a sequence that has
fewer steps than labels), the loss is infinite here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.xla.passes.legalize.ops import lists
from npu_shim.xla.passes.legalize.site import Site

NEVER = float("-inf")  # log of 0


class _States(NamedTuple):
    """The states of a batch, [batch, states] each.

    Attributes:
        classes: the label or blank that a state emits.
        stays: whether a path may stay in it.
        skips: whether a path may skip the state before.
        ends: whether a path may end in it.
        lengths: number of labels of each sequence, [batch].
    """

    classes: Any
    stays: Any
    skips: Any
    ends: Any
    lengths: Any


def loss(site: Site) -> Any:
    """Returns (loss [batch], gradient [time, batch, classes])."""
    inputs, indices, labels, steps = site.inputs
    count = labels.shape.as_list()[0]
    if None in (*inputs.shape.as_list(), count):
        known = "inputs %s and labels %s" % (inputs.shape, labels.shape)
        raise site.refused("its shapes must be known when XLA compiles, they are %s" % known)
    times, batch, classes = inputs.shape.as_list()
    merges = site.attr("ctc_merge_repeated")
    rows, ordered, lengths = _in_rows(indices, labels, batch, site.attr("preprocess_collapse_repeated"))
    states = _states(rows, ordered, lengths, (batch, min(count, times)), classes - 1, merges)
    log_y = tf.nn.log_softmax(inputs)
    emitted = tf.gather(tf.transpose(log_y, [1, 0, 2]), states.classes, axis=2, batch_dims=1)
    both = _forward_and_backward(tf.transpose(emitted, [1, 0, 2]), states, steps)
    log_p = _log_sum(*tf.unstack(both[0], axis=1))
    possible = log_p > NEVER
    shares = tf.exp(both - tf.where_v2(possible, log_p, 0)[:, tf.newaxis])
    gradient = tf.exp(log_y) - _by_class(shares, states.classes, classes)
    taken = steps > 0
    if site.attr("ignore_longer_outputs_than_inputs"):
        taken = tf.logical_and(taken, states.lengths <= steps)
    used = tf.logical_and(tf.range(times)[:, tf.newaxis] < steps, taken)
    return [tf.where_v2(taken, -log_p, 0), tf.where_v2(used[:, :, tf.newaxis], gradient, 0)]


def _in_rows(indices, labels, batch, collapses):
    """(row of each label, its number within the row, labels of each row); row -1 for a dropped label."""
    rows = tf.cast(indices[:, 0], tf.int32)
    kept = tf.ones_like(rows)
    if collapses:
        same = tf.logical_and(tf.equal(rows[1:], rows[:-1]), tf.equal(labels[1:], labels[:-1]))
        kept = tf.concat([kept[:1], 1 - tf.cast(same, tf.int32)], 0)
    lengths = tf.math.unsorted_segment_sum(kept, rows, batch)
    starts = tf.cumsum(lengths, exclusive=True)
    numbers = tf.cumsum(kept, exclusive=True) - tf.gather(starts, rows)
    return tf.where_v2(kept > 0, rows, -1), tf.stack([numbers, labels], 1), lengths


def _states(rows, numbered, lengths, shape, blank, merges):
    places = tf.stack([rows, numbered[:, 0]], 1)  # dropped labels, and those past the last state, go nowhere
    labels = tf.tensor_scatter_nd_update(tf.fill(shape, -1), places, numbered[:, 1])
    blanks = tf.fill(shape, blank)
    classes = tf.concat([tf.reshape(tf.stack([blanks, labels], 2), [shape[0], -1]), blanks[:, :1]], 1)
    two_before = tf.concat([tf.fill([shape[0], 2], blank), classes[:, :-2]], 1)
    is_label = tf.not_equal(classes, blank)
    skips = tf.logical_and(is_label, tf.range(2 * shape[1] + 1) > 1)
    if merges:
        skips = tf.logical_and(skips, tf.not_equal(classes, two_before))
    stays = tf.ones_like(is_label) if merges else tf.logical_not(is_label)
    behind = 2 * lengths[:, tf.newaxis] - tf.range(2 * shape[1] + 1)
    ends = tf.logical_or(tf.equal(behind, 0), tf.equal(behind, 1))
    return _States(tf.maximum(classes, 0), stays, skips, ends, lengths)


def _forward_and_backward(emitted, states, steps):
    """Returns alpha + beta, [time, batch, states]; `emitted` are the log probabilities of each state's emission."""
    times, batch, count = emitted.shape.as_list()
    never = tf.fill([batch, count], tf.constant(NEVER, emitted.dtype))
    first = tf.where_v2(tf.range(count) < 2, emitted[0], never)
    given, sums = lists.of(emitted), lists.empty(emitted)

    def forward(time, alpha, table):
        ways = _log_sum(_if(states.stays, alpha), _moved(alpha, 1), _if(states.skips, _moved(alpha, 2)))
        after = tf.where_v2((time < steps)[:, tf.newaxis], ways + lists.get(given, time, alpha), alpha)
        return [time + 1, after, lists.put(table, time, after)]

    start = [tf.constant(1), first, lists.put(sums, 0, first)]
    _, _, sums = tf_internals.functional_loop(lambda time, *_: time < times, forward, start)
    last = tf.where_v2(states.ends, tf.zeros_like(never), never)

    def backward(time, beta, table):
        onward = beta + lists.get(given, time + 1, beta)
        skips = _moved(tf.cast(states.skips, tf.int32), -2, 0) > 0
        ways = _log_sum(_if(states.stays, onward), _moved(onward, -1), _if(skips, _moved(onward, -2)))
        before = tf.where_v2((time >= steps - 1)[:, tf.newaxis], last, ways)
        return [time - 1, before, lists.put(table, time, lists.get(table, time, beta) + before)]

    end = lists.put(sums, times - 1, lists.get(sums, times - 1, last) + last)
    _, _, sums = tf_internals.functional_loop(lambda time, *_: time >= 0, backward, [tf.constant(times - 2), last, end])
    return lists.stacked(sums, emitted)


def _by_class(shares, classes, count):
    """Sums [time, batch, count] of shares [time, batch, states] by the class of their states."""
    times, batch, states = shares.shape.as_list()
    places = tf.reshape(classes + tf.range(batch)[:, tf.newaxis] * count, [-1])
    rows = tf.reshape(tf.transpose(shares, [1, 2, 0]), [batch * states, times])
    summed = tf.math.unsorted_segment_sum(rows, places, batch * count)
    return tf.transpose(tf.reshape(summed, [batch, count, times]), [2, 0, 1])


def _log_sum(*values):
    """log(sum(exp)) over tensors, elementwise; NEVER where all are NEVER."""
    largest = values[0]
    for value in values[1:]:
        largest = tf.maximum(largest, value)
    largest = tf.where_v2(largest > NEVER, largest, 0)
    return largest + tf.log(tf.add_n([tf.exp(value - largest) for value in values]))


def _if(chosen, value):
    return tf.where_v2(chosen, value, tf.cast(NEVER, value.dtype))


def _moved(value, by, filled=NEVER):
    """Shifts values [batch, states] along the states, forward or back."""
    padding = tf.fill([value.shape[0], abs(by)], tf.cast(filled, value.dtype))
    parts = [padding, value[:, : value.shape[1] - by]] if by > 0 else [value[:, -by:], padding]
    return tf.concat(parts, 1)[:, : value.shape[1]]
