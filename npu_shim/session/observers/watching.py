"""npu_shim_watch: scalars of a training step in the summaries that a script writes already.

Where a run fetches merged summaries (tf.summary.merge_all, SummarySaverHook, Estimator's own), it also computes the
loss scale, the skipped steps, the norm of the gradients and their share that is not finite by scope, and these are
appended to the summaries that it returns. So they are written when and where the script writes its own. Nothing that
the step computes reads them.
"""

from __future__ import annotations

import functools
import threading
from typing import Any, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.options.collected import LOSS_SCALE, SKIPPED_STEPS
from npu_shim.options.reports import ledger
from npu_shim.session.interception import interceptors, training
from npu_shim.session.observers import dump

KEY = "npu_shim_watch"
SCOPE = "npu_shim_watch"
SCALE, SKIPPED, NORM, SHARE = (
    "npu_shim/loss_scale",
    "npu_shim/skipped_steps",
    "npu_shim/gradient_norm",
    "npu_shim/overflow_share/",  # and the outermost scope of the variables
)


def attach(session: tf.Session) -> None:
    """Adds the scalars to the summaries of a session's runs from now on."""
    interceptors.watch(session, functools.partial(_run, _Watched(session.graph)))


class _Watched:
    """The scalars of one graph: what each kind of run computes, made at its first."""

    def __init__(self, graph: tf.Graph) -> None:
        self._graph, self._lock = graph, threading.Lock()
        self._measures: dict[Any, dict[str, tf.Tensor]] = {}

    def scalars(self, fetches: Any, feeds: Any) -> dict[str, tf.Tensor]:
        """Tag -> scalar tensor, for a run of these fetches and feeds; empty for one without merged summaries."""
        asked = training.run(self._graph, fetches, feeds)
        if not any(map(_is_summary, asked.tensors)):
            return {}
        with self._lock:
            if asked.key not in self._measures:
                self._measures[asked.key] = self._make(dump.upstream(self._graph, asked.fetched, feeds))
            return self._measures[asked.key]

    def _make(self, operations: Sequence[tf.Operation]) -> dict[str, tf.Tensor]:
        with training.added(self._graph, SCOPE):
            return {**_of_optimizers(self._graph, operations), **_of_gradients(operations)}


def _of_optimizers(graph, operations):
    """The loss scale and the skipped steps of each loss-scale optimizer; a second one's tags end in _1."""
    numbers = {}
    for tag, collection in ((SCALE, LOSS_SCALE), (SKIPPED, SKIPPED_STEPS)):
        for number, tensor in enumerate(graph.get_collection(collection)):
            numbers[tag + ("_%d" % number if number else "")] = tf.identity(tensor)
    if SCALE not in numbers:
        own = training.loss_scale(operations)  # of a script's own
        numbers.update({} if own is None else {SCALE: tf.identity(own)})
    return numbers


def _of_gradients(operations):
    """The norm of a step's gradients as the optimizer takes them, and the share of each scope that is not finite."""
    scopes: dict[str, list[tf.Tensor]] = {}
    for update, gradient in training.updates(operations):
        outside, variable = training.outside(gradient), training.outside(update.inputs[0])
        if outside.op._get_control_flow_context() is None and outside.dtype.is_floating:
            scopes.setdefault(variable.op.name.split("/")[0], []).append(outside)
    if not scopes:
        return {}
    squares = [tf.nn.l2_loss(_wide(gradient)) for group in scopes.values() for gradient in group]
    numbers = {NORM: tf.sqrt(2.0 * tf.add_n(squares))}
    for scope, gradients in sorted(scopes.items()):
        lost = tf.add_n([_count(tf.logical_not(tf.math.is_finite(_wide(gradient)))) for gradient in gradients])
        every = tf.add_n([tf.size(gradient, out_type=tf.int64) for gradient in gradients])
        numbers[SHARE + scope] = tf.cast(lost, tf.float32) / tf.cast(tf.maximum(every, 1), tf.float32)
    return numbers


def _wide(tensor):
    return tensor if tensor.dtype == tf.float32 else tf.cast(tensor, tf.float32)


def _count(truths):
    return tf.reduce_sum(tf.cast(truths, tf.int64))


def _run(watched, session, once, fetches, feed_dict, options, run_metadata):
    scalars = watched.scalars(fetches, feed_dict or {})
    if not scalars:
        return once(fetches, feed_dict, options, run_metadata)
    ledger.note(ledger.WATCHED)
    result, values = once([fetches, list(scalars.values())], feed_dict, options, run_metadata)
    rows = [tf.Summary.Value(tag=tag, simple_value=float(value)) for tag, value in zip(scalars, values)]
    return _appended(session.graph, fetches, result, tf.Summary(value=rows).SerializeToString())


def _is_summary(tensor):
    return tensor.op.type == "MergeSummary"


def _appended(graph, fetches, result, more):
    """The result of a run with bytes appended to each of its summaries: messages are joined by joining their bytes."""
    if isinstance(fetches, dict):
        return type(result)((key, _appended(graph, fetches[key], result[key], more)) for key in result)
    if isinstance(fetches, (list, tuple)):
        parts = [_appended(graph, *pair, more) for pair in zip(fetches, result)]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    element = graph.as_graph_element(fetches) if isinstance(fetches, str) else fetches
    is_tensor = isinstance(element, tf.Tensor) and _is_summary(element)
    return result + more if is_tensor and isinstance(result, bytes) else result
