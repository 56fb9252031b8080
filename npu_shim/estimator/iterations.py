"""iterations_per_loop: several training steps in one session run.

On the NPU a device loop runs the training step `iterations_per_loop` times before control returns to Python. Here the
session does it: a run that needs a repeated operation first runs that operation alone, with the same feeds, until
one step is left, and then the fetches as the caller wrote them. So the results are those of the last step, hooks see
one run of n steps, and the other fetches are computed once. Of all that an engine makes a loop on the device (see
`interceptors.multi_step`).

Two entry points, as in the original: NPURunConfig(iterations_per_loop=n) with NPUEstimator (SetIterationsVarHook), and
`set_iteration_per_loop` for sess.run. As there, the parameter_map key alone repeats nothing. Only the given session
instance repeats, however its runs are started; a partial run is not repeated.
Source: Ascend adapter of 2023-12 (r1.15); hooks of TensorFlow 1.15.5 to 2.15.
"""

from __future__ import annotations

import collections.abc
import logging
import time
from typing import Any, Callable, Iterable

import tensorflow.compat.v1 as tf

from npu_shim.options.entrances.argument_checks import check_positive_integer
from npu_shim.options.reports import ledger
from npu_shim.rewriter import tf_internals
from npu_shim.session.interception import interceptors
from npu_shim.session.observers import dump

LOG = logging.getLogger("npu_shim")

_LOOPS = "_npu_shim_loops"  # attribute of a session: operation name -> (operation, function () -> steps)
_NEEDED = "_npu_shim_needed"  # attribute of a session: (version of its graph, (operations, feeds) -> names)


def set_iteration_per_loop(sess: tf.Session, train_op: tf.Operation, iterations_per_loop: int = 1) -> tf.Operation:
    """Makes a session run a training operation several times in one `sess.run`.

    Args:
        sess: tf.Session or MonitoredSession of the graph of `train_op`.
        train_op: tf.Operation of one training step.
        iterations_per_loop: int >= 1, steps in one run.

    Returns:
        A tf.Operation. Running it, or what depends on it, alone or among other fetches, as an object or by its name,
        runs `train_op` `iterations_per_loop` times; running `train_op` itself still runs it once. For 1 it is
        `train_op` unchanged, and in a finalized graph (MonitoredSession) it is `train_op`, repeated from now on.

    Raises:
        TypeError: `iterations_per_loop` is not an int, or `sess` is no session.
        ValueError: it is not above 0, or `train_op` is not an Operation.
    """
    plain = _plain_session(sess)
    if not isinstance(train_op, tf.Operation):
        raise ValueError("npu_shim: set_iteration_per_loop: train_op must be a tf.Operation, got %s" % type(train_op))
    check_positive_integer(iterations_per_loop, "set_iteration_per_loop: iterations_per_loop")
    if iterations_per_loop == 1:
        return train_op
    looped = train_op
    if not train_op.graph.finalized:
        with train_op.graph.as_default():
            looped = tf.group(train_op, name="IterationOp")
    repeat(plain, looped, lambda _: iterations_per_loop)
    return looped


def _plain_session(sess):
    # a MonitoredSession runs its fetches, with those of its hooks, on the tf.Session inside
    plain = sess._tf_sess() if hasattr(sess, "_tf_sess") else sess
    if not isinstance(plain, interceptors.base_session()):
        expected = "sess must be a tf.Session or MonitoredSession, got %s" % type(sess)
        raise TypeError("npu_shim: set_iteration_per_loop: " + expected)
    return plain


def repeat(session: tf.Session, operation: tf.Operation, steps: Callable[..., int]) -> None:
    """Makes every run of a session that fetches `operation` run it several times.

    Args:
        session: a tf.Session, watched once, however many operations are repeated.
        operation: tf.Operation of its graph.
        steps: function of the session, called at each run that fetches `operation`: how often, >= 1.
    """
    if _LOOPS in vars(session):
        vars(session)[_LOOPS][operation.name] = (operation, steps)
        return
    setattr(session, _LOOPS, {operation.name: (operation, steps)})
    interceptors.watch(session, _repeated)


def _repeated(session, once, fetches, feed_dict, options, run_metadata):
    pending = [(op, steps(session)) for op, steps in _loops_of_run(session, fetches, feed_dict or {})]
    if any(length > 1 for _, length in pending):
        ledger.note(ledger.REPEATED)
    left = _Deadline(options)
    several, lengths = interceptors.multi_step(once), {length for _, length in pending}
    if several is not None and len(lengths) == 1 and lengths != {1} and not left.is_set:
        return several(max(lengths), [op for op, _ in pending], fetches, feed_dict, options, run_metadata)
    done = 1
    while any(length > done for _, length in pending):
        once([op for op, length in pending if length > done], feed_dict, left.of(None), None)
        done += 1
    return once(fetches, feed_dict, left.of(options), run_metadata)


class _Deadline:
    """The time limit that RunOptions set for a run, shared by its steps."""

    def __init__(self, options):
        milliseconds = options.timeout_in_ms if options is not None else 0
        self._end = time.monotonic() + milliseconds / 1000 if milliseconds > 0 else None

    @property
    def is_set(self):
        """Whether there is a time limit."""
        return self._end is not None

    def of(self, options):
        """Returns a copy of RunOptions (None: new ones) with the remaining time; `options` itself without a limit.

        Raises:
            tf.errors.DeadlineExceededError: no time is left.
        """
        if self._end is None:
            return options
        left = int(1000 * (self._end - time.monotonic()))
        if left <= 0:
            raise tf.errors.DeadlineExceededError(None, None, "npu_shim: timeout_in_ms passed between two iterations")
        copy = tf.RunOptions(timeout_in_ms=left)
        if options is not None:
            copy.CopyFrom(options)
            copy.timeout_in_ms = left
        return copy


def _loops_of_run(session, fetches, feeds):
    """Returns the repeated operations that a run needs, each once, in the order of registration, with their steps."""
    handler = tf_internals.fetch_handler(session.graph, fetches)
    operations = {*handler.targets(), *(tensor.op for tensor in handler.fetches())}
    # the result of an assignment to a resource variable is fetched as a read after it
    operations |= {fetch.op for fetch in _flatten(fetches) if isinstance(getattr(fetch, "op", None), tf.Operation)}
    needed = _needed(session, operations, frozenset(getattr(key, "name", key) for key in feeds))
    return [loop for name, loop in vars(session)[_LOOPS].items() if name in needed]


def _needed(session, operations, feeds):
    """Returns the names of operations and of all that a run of them needs; those of the last graph are remembered."""
    version, known = vars(session).get(_NEEDED, (None, {}))
    if version != session.graph.version:
        known = {}
        setattr(session, _NEEDED, (session.graph.version, known))
    key = frozenset(operations), feeds
    if key not in known:
        known[key] = {operation.name for operation in dump.upstream(session.graph, operations, feeds)}
    return known[key]


def _flatten(fetches):
    if isinstance(fetches, collections.abc.Mapping):
        fetches = list(fetches.values())
    if not isinstance(fetches, (list, tuple)):
        return [fetches]
    return [leaf for part in fetches for leaf in _flatten(part)]


def steps_of_run(
    step: int, per_loop: int, last: int | None = None, marks: Iterable[tuple[int, int]] = (), gain: int = 1
) -> int:
    """Returns how many steps the next session run makes: at most `per_loop`, and no step after one to stop at.

    step 395, 10 a loop: last 405 -> 10; last 400 -> 5; marks ((100, 0),) -> 5; step 400, marks ((100, 1),) -> 1

    Args:
        step: global step now, counted from the start of this training where marks are concerned.
        per_loop: steps of a full run, >= 1.
        last: global step to end at, or None.
        marks: (every, offset) pairs: a run ends at each step `k * every + offset`.
        gain: what one step adds to the global step, >= 1.
    """
    ahead = [every - (step - offset) % every for every, offset in marks]
    ahead += [] if last is None else [last - step]
    return max(1, min([per_loop, *(-(-distance // gain) for distance in ahead)]))


def gain_of_step(operations: Iterable[tf.Operation], global_step: tf.Variable) -> int:
    """Returns what a step adds to the global step at most, as far as the graph says, at least 1.

    Two optimizers that are each given the global step add 2.
    """
    operations = list(operations)
    gain = 0
    for operation in dump.upstream(global_step.graph, operations, ()) if operations else ():
        if operation.type in ("AssignAdd", "AssignAddVariableOp") and _written(operation) is global_step.op:
            added = tf.get_static_value(operation.inputs[1])
            gain += 1 if added is None else int(added)
    return max(1, gain)


def _written(operation):
    """Returns the op of the variable that an op writes, through the branches and loops that it is in."""
    while operation.inputs:
        operation = operation.inputs[0].op
    return operation


class SetIterationsVarHook(tf.train.SessionRunHook):
    """Makes each session run that fetches the training step run it `iterations_per_loop` times.

    Runs are shortened so that training ends at the requested step, and so that checkpoints and summaries fall on the
    same global steps as without the hook, also where one step adds more than 1. Lengths count steps run: where a loss
    scale skips an update the global step lags behind, and further runs make up for it. The end of the data in the
    middle of a run ends training as usual. Hooks that count session runs, as LoggingTensorHook does, count n steps as
    one.

    Args:
        iterations_per_loop: int >= 1; None counts as 1.
        train_op: the repeated Operation or Tensor; None for what optimizers put in collection TRAIN_OP.
        hooks: hooks of the same session; a StopAtStepHook among them sets where training ends.
        checkpoint_steps: a run ends at each multiple of it, counted from the first step; 0 or None for none.
        summary_steps: likewise, and the step after it is a run of its own, as summaries are written then.
    """

    def __init__(
        self,
        iterations_per_loop: Any = None,
        train_op: Any = None,
        hooks: Any = (),
        checkpoint_steps: Any = None,
        summary_steps: Any = None,
    ) -> None:
        self._per_loop = iterations_per_loop or 1
        self._train_op = train_op
        self._stops = [hook for hook in hooks if isinstance(hook, tf.train.StopAtStepHook)]
        every = [(checkpoint_steps, 0), (summary_steps, 0), (summary_steps, 1)]
        self._marks = tuple((steps, offset % steps) for steps, offset in every if steps)

    def begin(self) -> None:
        """Finds the training step and the global step."""
        given = self._train_op
        steps = tf.get_collection(tf.GraphKeys.TRAIN_OP) if given is None else [given]
        self._operations = [getattr(step, "op", step) for step in steps]
        self._global_step = tf.train.get_global_step()
        if not self._operations and self._per_loop > 1:
            LOG.warning("npu_shim: SetIterationsVarHook: no training step to repeat, collection TRAIN_OP is empty")

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Repeats the training step in this session."""
        start = session.run(self._global_step) if self._global_step is not None else None
        gain = gain_of_step(self._operations, self._global_step) if start is not None and self._per_loop > 1 else 1

        def steps(session):
            if start is None:
                return self._per_loop
            now = int(session.run(self._global_step))
            return steps_of_run(now - start, self._per_loop, self._last(start), self._marks, gain)

        if self._per_loop > 1:
            for operation in self._operations:
                repeat(session, operation, steps)

    def _last(self, start):
        # a StopAtStepHook(num_steps=...) knows its last step only after its own after_create_session
        ends = [hook._last_step for hook in self._stops if hook._last_step is not None]
        return min(ends) - start if ends else None
