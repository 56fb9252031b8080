"""Session hooks and summaries that take skipped steps into account."""

from __future__ import annotations

import logging
import math
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.loss_scale.optimizers.update_ops import upstream
from npu_shim.options.collected import GRADS_FINITE, LOSS_SCALE, SKIPPED_STEPS


class NanLossHook(tf.train.SessionRunHook):
    """Replaces tf.train.NanTensorHook: a skipped step may have a loss of NaN.

    It fails if a step with such a loss is applied, or after `patience` such losses in a row. Of several optimizers it
    asks those whose step a run executes.

    Args:
        loss_tensor: float scalar tensor.
        fail_on_nan_loss: bool; True raises NanLossDuringTrainingError, False asks the session to stop.
        patience: int >= 1; a loss scale of 2**32 takes 34 skipped steps to come down, so keep it above that.
    """

    def __init__(self, loss_tensor: tf.Tensor, fail_on_nan_loss: bool = True, patience: int = 200) -> None:
        self._loss = loss_tensor
        self._fail = fail_on_nan_loss
        self._patience = patience
        self._in_a_row = 0
        self._flags = {}  # the fetches of a run -> the finite flags that it computes

    def before_run(self, run_context: Any) -> Any:
        """Asks for the loss and for the finite flags of the optimizers that the run steps."""
        return tf.train.SessionRunArgs([self._loss, self._flags_of(run_context)])

    def _flags_of(self, run_context):
        graph = run_context.session.graph
        fetched = frozenset(_ops_of(graph, run_context.original_args.fetches))
        if fetched not in self._flags:
            flags = graph.get_collection(GRADS_FINITE)
            needed = upstream(fetched) if flags else ()
            self._flags[fetched] = [flag for flag in flags if flag.op in needed]
        return self._flags[fetched]

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Judges the step."""
        loss, applied = run_values.results
        if not math.isnan(loss):
            self._in_a_row = 0
            return
        self._in_a_row += 1
        # without a flag in the graph there is no optimizer of ours to skip a step; without one in the run, no step
        optimizers = run_context.session.graph.get_collection(GRADS_FINITE)
        skipped = bool(optimizers) and not (applied and all(applied))
        if skipped and self._in_a_row < self._patience:
            return
        why = "the step was applied" if not skipped else "%d steps in a row" % self._in_a_row
        if self._fail:
            tf.logging.error("npu_shim: the loss is NaN: %s", why)
            raise tf.train.NanLossDuringTrainingError
        tf.logging.warning("npu_shim: the loss is NaN: %s; training stops", why)
        run_context.request_stop()


class SkippedStepsHook(tf.train.SessionRunHook):
    """Logs how many steps were skipped, in place of TensorFlow's warning that global_step has not been increased.

    Steps that are skipped in a row, as after a start at 2**32, share one line. It is logged when an applied step or the
    end of the session ends the row.

    Args:
        every: int >= 1, steps between two lines; a line is only written when steps were skipped meanwhile.
    """

    def __init__(self, every: int = 100) -> None:
        self._every, self._steps, self._seen, self._reported, self._scales = every, 0, 0, 0, ()

    def begin(self) -> None:
        """Hides TensorFlow's warning until the session ends."""
        logging.getLogger("tensorflow").addFilter(_not_about_global_step)

    def before_run(self, run_context: Any) -> Any:
        """Asks for the counts."""
        graph = run_context.session.graph
        return tf.train.SessionRunArgs([graph.get_collection(SKIPPED_STEPS), graph.get_collection(LOSS_SCALE)])

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Writes the line when it is due."""
        del run_context
        skipped, self._scales = run_values.results
        self._steps += 1
        in_a_row, self._seen = sum(skipped) > self._seen, sum(skipped)
        if self._steps >= self._every and not in_a_row:
            self._report()

    def _report(self):
        if self._seen > self._reported:
            shown = ", ".join("%g" % scale for scale in self._scales)
            tf.logging.info("npu_shim: %d steps skipped so far, loss scale %s", self._seen, shown)
            self._steps, self._reported = 0, self._seen

    def end(self, session: Any) -> None:
        """Writes the remaining line, and lets TensorFlow's warning through again."""
        del session
        self._report()
        logging.getLogger("tensorflow").removeFilter(_not_about_global_step)


def _ops_of(graph, fetches):
    """Yields the ops of what a run fetches, nested as Session.run takes it."""
    if isinstance(fetches, dict):
        fetches = list(fetches.values())
    if isinstance(fetches, (list, tuple)):
        for part in fetches:
            yield from _ops_of(graph, part)
    elif isinstance(fetches, str):
        element = graph.as_graph_element(fetches)
        yield getattr(element, "op", element)
    elif fetches is not None:
        yield getattr(fetches, "op", fetches)


def _not_about_global_step(record):
    said = record.getMessage()
    return "global step" not in said or "has not been increased" not in said


def tolerant_hooks(hooks: Any) -> list[Any]:
    """Returns the hooks with each tf.train.NanTensorHook replaced by a NanLossHook on the same tensor."""
    return [
        NanLossHook(hook._loss_tensor, hook._fail_on_nan_loss) if type(hook) is tf.train.NanTensorHook else hook
        for hook in hooks
    ]


def summaries() -> list[tf.Tensor]:
    """Adds the summaries `loss_scale` and `skipped_steps` of the current graph's optimizers; returns them.

    A second optimizer's are called `loss_scale_1` and `skipped_steps_1`.
    """
    summaries = []
    for collection in (LOSS_SCALE, SKIPPED_STEPS):
        for i, value in enumerate(tf.get_collection(collection)):
            tag = collection.split("/")[-1] + ("_%d" % i if i else "")
            summary = tf.raw_ops.ScalarSummary(tags=tag, values=tf.cast(value, tf.float32))
            tf.add_to_collection(tf.GraphKeys.SUMMARIES, summary)
            summaries.append(summary)
    return summaries
