"""Calibration: the ranges of a training step's tensors, measured where they are computed, over its first steps.

Each step also computes six numbers for a group of its float tensors and fetches them (measures.py). Groups take turns,
so that a step of a large graph does little more; each group's first step is planned anew. A tensor is measured as it
flows: one that the rewriter lowers has been rounded. Tensors in loops and branches cannot be fetched and are left out.

NPU_SHIM_CALIBRATE=N with NPU_SHIM_CALIBRATION=FOLDER does so in every session with NpuOptimizer, for
`npu-shim run --calibrate`; `Calibration` is the SessionRunHook for a single one.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import json
import os
import sys
import threading
from typing import Any, Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.pjrt import atomic_write
from npu_shim.rewriter.errors import ConfigError
from npu_shim.rewriter.page.model import float32_line
from npu_shim.session.interception import interceptors, training
from npu_shim.session.observers import dump, measures, ranges
from npu_shim.session.observers.ranges import SUFFIX, Range

SWITCH, FOLDER = "NPU_SHIM_CALIBRATE", "NPU_SHIM_CALIBRATION"
OURS = "npu_shim_"  # how the names of our own ops begin, of loss scales too: they are float32, whatever the mode
SCOPE = OURS + "calibration"
GROUP = 256  # tensors that a step measures, at most
STEPS = 10  # that `calibrate` runs with one feed_dict
MOST_WAITING = 1000  # steps whose measures are kept as they came, for it costs a step less than to add them up


class Recorder:
    """Measures the training steps of one graph.

    Attributes:
        most: number of steps to measure.
        steps: number of steps that were measured.
        left_out: number of float tensors in loops and branches.
        scale: least and greatest loss scale of the measured steps, None without one.
    """

    def __init__(self, graph: tf.Graph, most: int):
        self.most, self.steps, self.left_out, self.scale = most, 0, 0, None
        self._graph, self._lock = graph, threading.Lock()
        self._turns: dict[Any, Iterator[Group | None]] = {}  # kind of run -> its groups in turn
        self._ranges: dict[str, Range] = {}
        self._waiting: list[tuple[int, Group, Any]] = []  # steps that no range has yet, with what they measured

    def next_group(self, fetches: Any, feeds: Iterable[Any]) -> Group | None:
        """Returns what the next step measures; None for a run that trains nothing, or when all steps are measured."""
        if self.steps >= self.most:
            return None
        asked = training.run(self._graph, fetches, feeds)
        with self._lock:
            if asked.key not in self._turns:
                self._turns[asked.key] = itertools.cycle(self._make_groups(asked.fetched, feeds) or [None])
            group = next(self._turns[asked.key])
            return None if group is None else group.with_fetches(self._graph)

    def add(self, group: Group, measured: Sequence[Any]) -> None:
        """Adds what a step measured: the values of `group.fetches`."""
        with self._lock:
            self.steps += 1
            self._waiting.append((self.steps, group, measured[0]))
            if len(self._waiting) == MOST_WAITING:
                self._sum_up()
            for scale in measured[1:]:
                least, most = self.scale or (np.inf, 0.0)
                self.scale = min(least, float(scale)), max(most, float(scale))

    @property
    def measured(self) -> dict[str, Range]:
        """Tensor name -> Range."""
        with self._lock:
            self._sum_up()
            return self._ranges

    def _sum_up(self):
        for step, group, rows in self._waiting:
            for tensor, row in zip(group.tensors, rows):
                one = self._ranges.setdefault(tensor.name, _empty(tensor))
                one.add(step, row[:2], row[2:])
        del self._waiting[:]

    def as_json(self) -> dict[str, Any]:
        """All that was measured, as JSON values."""
        rows = [tensor_range.as_json() for tensor_range in self.measured.values()]
        return {"steps": self.steps, "left_out": self.left_out, "scale": self.scale, "tensors": rows}

    def as_text(self) -> str:
        """All that was measured, and what it suggests, as text."""
        return ranges.as_text(list(self.measured.values()), self.steps, self.scale, self.left_out)

    def _make_groups(self, fetched, fed):
        operations = dump.upstream(self._graph, fetched, fed)
        if not training.updates(operations):
            return []
        tensors = [tensor for op in operations for tensor in op.outputs if _is_measured(op, tensor)]
        inside = dump.in_branches(operations)
        reachable = [tensor for tensor in tensors if _can_be_fetched(tensor, self._graph) and tensor.op not in inside]
        self.left_out = max(self.left_out, len(tensors) - len(reachable))
        scale = training.loss_scale(operations)
        size = -(-len(reachable) // -(-len(reachable) // GROUP)) if reachable else 1  # groups of one size cost the same
        return [Group(reachable[k : k + size], scale) for k in range(0, len(reachable), size)]


class Group:
    """Tensors that are measured together, and the tensors with their measures, made at first use."""

    def __init__(self, tensors: Sequence[tf.Tensor], scale: tf.Tensor | None):
        self.tensors, self._scale = tensors, scale
        self.fetches: list[tf.Tensor] = []

    def with_fetches(self, graph: tf.Graph) -> Group:
        """Returns itself with `fetches`: the measures (float64 [tensors, 6]), and the loss scale if there is one."""
        if self.fetches:
            return self
        with training.added(graph, SCOPE):
            given = measures.limits()
            self.fetches = [tf.stack([measures.of(tensor, given) for tensor in self.tensors])]
        self.fetches += [] if self._scale is None else [self._scale]
        return self


def _is_measured(operation, tensor):
    # constants and feeds are the script's own; what a variable holds counts where it is read
    own = operation.type in ("Const", "Placeholder", "PlaceholderWithDefault", "VariableV2", "Variable")
    return tensor.dtype in (tf.float16, tf.bfloat16, tf.float32) and not own and not tensor.op.name.startswith(OURS)


def _can_be_fetched(tensor, graph):
    return tensor.op._get_control_flow_context() is None and graph.is_fetchable(tensor)


def _empty(tensor):
    return Range(tensor.name, tensor.op.type, tensor.dtype.name, _line(tensor.op))


def _line(operation):
    def floats(tensors):
        return [tensor.dtype.base_dtype.is_floating for tensor in tensors]

    return float32_line(operation.name, floats(operation.inputs), floats(operation.outputs))


class Calibration(tf.train.SessionRunHook):
    """Measures the training steps of a MonitoredSession or an Estimator: a hook.

    Args:
        steps: how many of them.
        path: a JSON file that the ranges are written to at the end, None for none.

    Raises:
        ConfigError: `steps` is no positive number.

    Example:
        >>> hook = npu_shim.Calibration(steps=20)
        >>> estimator.train(input_fn, steps=20, hooks=[hook])
        >>> print(hook.as_text())
    """

    def __init__(self, steps: int, path: str | None = None):
        self._most, self._path, self._recorder, self._group = checked(steps, "steps"), path, None, None

    @property
    def ranges(self) -> Mapping[str, Range]:
        """Tensor name -> `ranges.Range`, of what was measured so far."""
        return {} if self._recorder is None else self._recorder.measured

    def as_text(self) -> str:
        """What was measured, and what it suggests."""
        return "no training step was measured\n" if self._recorder is None else self._recorder.as_text()

    def before_run(self, run_context: Any) -> Any:
        """Adds the measures of the next group to a training step."""
        arguments = run_context.original_args
        graph = run_context.session.graph
        if self._recorder is None:
            self._recorder = Recorder(graph, self._most)
        self._group = self._recorder.next_group(arguments.fetches, arguments.feed_dict or {})
        return None if self._group is None else tf.train.SessionRunArgs(self._group.fetches)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Records them."""
        if self._group is not None:
            self._recorder.add(self._group, run_values.results)

    def end(self, session: tf.Session) -> None:
        """Writes the file."""
        if self._path and self._recorder is not None:
            _write(self._path, self._recorder)

    def _step(self, session, fetches, feed_dict):
        """Runs and measures a training step of a session."""
        if self._recorder is None:
            self._recorder = Recorder(session.graph, self._most)
        group = self._recorder.next_group(fetches, feed_dict)
        if group is None:
            raise ConfigError("fetches is %r, which trains nothing: expected what a training step runs" % (fetches,))
        self._recorder.add(group, session.run([fetches, group.fetches], feed_dict)[1])


def calibrate(session: tf.Session, fetches: Any, feeds: Any = None, steps: int | None = None) -> Calibration:
    """Runs training steps of a session and measures the ranges of their tensors.

    Args:
        session: a tf.Session or MonitoredSession with initialized variables.
        fetches: what a training step runs, as for session.run.
        feeds: the feed_dict of every step, or an iterable of them, one for each step.
        steps: how many of them: 10, or as many as the iterable has.

    Returns:
        A Calibration with `ranges` and `as_text`.

    Raises:
        ConfigError: no session, `steps` is no positive number, the fetches train nothing, or there are no feeds.

    Example:
        >>> print(npu_shim.calibrate(sess, train_op, ({x: batch} for batch in batches), steps=20).as_text())
    """
    if not (hasattr(session, "run") and hasattr(session, "graph")):
        raise ConfigError("session is %r, expected a tf.Session or MonitoredSession" % (session,))
    repeated = feeds is None or isinstance(feeds, Mapping)
    most = STEPS if steps is None and repeated else None if steps is None else checked(steps, "steps")
    calibration = Calibration(sys.maxsize if most is None else most)
    runs = itertools.repeat(feeds or {}) if repeated else feeds
    if not isinstance(runs, Iterable):
        raise ConfigError("feeds is %r, expected a feed_dict or an iterable of them" % (feeds,))
    for number, feed in enumerate(itertools.islice(runs, most)):
        if not isinstance(feed, Mapping):
            raise ConfigError("feeds has %r for step %d, expected a feed_dict" % (feed, number + 1))
        calibration._step(session, fetches, feed)
    if not calibration.ranges:
        raise ConfigError("feeds is empty, expected a feed_dict for each step")
    return calibration


def checked(steps: Any, what: str) -> int:
    """Returns a number of steps; raises ConfigError for anything that is no positive whole number."""
    try:
        number = int(steps)
    except (TypeError, ValueError):
        number = 0
    if number < 1 or str(number) != str(steps):
        raise ConfigError("%s is %r, expected a number of steps, 1 or more" % (what, steps))
    return number


_recorders: dict[int, Recorder] = {}  # by the id of the graph, which the recorder keeps alive


def attach(session: tf.Session) -> None:
    """Measures the training steps of a session, where NPU_SHIM_CALIBRATE says so."""
    steps, folder = os.environ.get(SWITCH), os.environ.get(FOLDER)
    if not steps or not folder:
        return
    if not _recorders:
        atexit.register(write_all, folder)
    recorder = _recorders.setdefault(id(session.graph), Recorder(session.graph, checked(steps, SWITCH)))
    interceptors.watch(session, functools.partial(_run, recorder))
    # a process that multiprocessing forks calls nothing at its exit
    interceptors.at_close(session, functools.partial(_write_into, folder, recorder))


def _run(recorder, session, once, fetches, feed_dict, options, run_metadata):
    group = recorder.next_group(fetches, feed_dict or {})
    if group is None:
        return once(fetches, feed_dict, options, run_metadata)
    result, measured = once([fetches, group.fetches], feed_dict, options, run_metadata)
    recorder.add(group, measured)
    return result


def write_all(folder: str) -> None:
    """Writes what this process has measured into a folder, a file for each graph, and forgets it."""
    for recorder in list(_recorders.values()):
        _write_into(folder, recorder)
    _recorders.clear()


def _write_into(folder, recorder):
    known = any(other is recorder for other in _recorders.values())  # else it is written, and the folder may be gone
    if recorder.steps and known:
        _write(os.path.join(folder, "%d-%x%s" % (os.getpid(), id(recorder), SUFFIX)), recorder)


def _write(path, recorder):
    with atomic_write.file(path) as f:
        f.write((json.dumps(recorder.as_json(), indent=1) + "\n").encode("utf-8"))
