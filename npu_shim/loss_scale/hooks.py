"""Session hooks and summaries that know that a step can be skipped."""

import logging
import math

import tensorflow.compat.v1 as tf

from npu_shim.loss_scale.counters import GRADS_FINITE, LOSS_SCALE, SKIPPED_STEPS


class NanLossHook(tf.train.SessionRunHook):
    """Takes the place of tf.train.NanTensorHook: a loss that is not a number is fine in a step that is skipped.

    It complains when a step with such a loss is applied, or after `patience` such losses in a row.

    Args:
        loss_tensor: float scalar tensor.
        fail_on_nan_loss: bool; True raises NanLossDuringTrainingError, False asks the session to stop.
        patience: int >= 1; a loss scale of 2**32 takes 34 skipped steps to come down, so keep it above that.
    """

    def __init__(self, loss_tensor, fail_on_nan_loss=True, patience=200):
        self._loss = loss_tensor
        self._fail = fail_on_nan_loss
        self._patience = patience
        self._in_a_row = 0

    def before_run(self, run_context):
        """Asks for the loss and for every finite flag of the graph."""
        return tf.train.SessionRunArgs([self._loss, run_context.session.graph.get_collection(GRADS_FINITE)])

    def after_run(self, run_context, run_values):
        """Judges the step."""
        loss, applied = run_values.results
        if not math.isnan(loss):
            self._in_a_row = 0
            return
        self._in_a_row += 1
        skipped = bool(applied) and not all(applied)
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

    Args:
        every: int >= 1, steps between two lines; a line is only written when steps were skipped meanwhile.
    """

    def __init__(self, every=100):
        self._every, self._steps, self._reported = every, 0, 0

    def begin(self):
        """Hides TensorFlow's warning until the session ends."""
        logging.getLogger("tensorflow").addFilter(_not_about_global_step)

    def before_run(self, run_context):
        """Asks for the counts."""
        graph = run_context.session.graph
        return tf.train.SessionRunArgs([graph.get_collection(SKIPPED_STEPS), graph.get_collection(LOSS_SCALE)])

    def after_run(self, run_context, run_values):
        """Writes the line when it is due."""
        del run_context
        skipped, scales = run_values.results
        self._steps += 1
        if self._steps % self._every == 0 and sum(skipped) > self._reported:
            shown = ", ".join("%g" % scale for scale in scales)
            tf.logging.info("npu_shim: %d steps skipped so far, loss scale %s", sum(skipped), shown)
            self._reported = sum(skipped)

    def end(self, session):
        """Lets TensorFlow's warning through again."""
        del session
        logging.getLogger("tensorflow").removeFilter(_not_about_global_step)


def _not_about_global_step(record):
    said = record.getMessage()
    return "global step" not in said or "has not been increased" not in said


def tolerant_hooks(hooks):
    """Returns the hooks with each tf.train.NanTensorHook replaced by a NanLossHook on the same tensor."""
    return [
        NanLossHook(hook._loss_tensor, hook._fail_on_nan_loss) if type(hook) is tf.train.NanTensorHook else hook
        for hook in hooks
    ]


def summaries():
    """Adds the summaries `loss_scale` and `skipped_steps` of the current graph's optimizers; returns them.

    A second optimizer's are called `loss_scale_1` and `skipped_steps_1`.
    """
    made = []
    for collection in (LOSS_SCALE, SKIPPED_STEPS):
        for i, value in enumerate(tf.get_collection(collection)):
            tag = collection.split("/")[-1] + ("_%d" % i if i else "")
            summary = tf.raw_ops.ScalarSummary(tags=tag, values=tf.cast(value, tf.float32))
            tf.add_to_collection(tf.GraphKeys.SUMMARIES, summary)
            made.append(summary)
    return made

