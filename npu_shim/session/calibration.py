"""Calibration: the ranges of a training step's tensors, measured where they are computed, over its first steps.

Each step also computes six numbers for a group of its float tensors and fetches them: the largest and the smallest
magnitude, and counts (`ranges.Range`). Groups take turns, so that a step of a large graph does little more; each
group's first step is planned anew. A tensor is measured as it flows: one that the rewriter lowers has been rounded.
Tensors in loops and branches cannot be fetched and are left out.

NPU_SHIM_CALIBRATE=N with NPU_SHIM_CALIBRATION=FOLDER does so in every session with NpuOptimizer, for
`npu-shim run --calibrate`; `Calibration` is the SessionRunHook for a single one.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import json
import os
import threading
from typing import Any, Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.pjrt import whole
from npu_shim.rewriter.errors import ConfigError
from npu_shim.rewriter.page.model import float32_line
from npu_shim.rewriter.tables.dtypes import INFINITE_FROM, ZERO_UP_TO
from npu_shim.session import doors, dump, ranges, training
from npu_shim.session.ranges import SUFFIX, Range

SWITCH, FOLDER = "NPU_SHIM_CALIBRATE", "NPU_SHIM_CALIBRATION"
SCOPE = "npu_shim_calibration"
GROUP = 64  # tensors that a step measures


class Recorder:
    """Measures the training steps of one graph.

    Attributes:
        most: number of steps to measure.
        steps: number of steps that were measured.
        found: tensor name -> Range.
        left_out: number of float tensors in loops and branches.
        scale: least and greatest loss scale of the measured steps, None without one.
    """

    def __init__(self, graph: tf.Graph, most: int):
        self.most, self.steps, self.left_out, self.scale = most, 0, 0, None
        self.found: dict[str, Range] = {}
        self._graph, self._lock = graph, threading.Lock()
        self._turns: dict[Any, Iterator[Group | None]] = {}  # kind of run -> its groups in turn

    def next_group(self, fetches: Any, feeds: Iterable[Any]) -> Group | None:
        """Returns what the next step measures; None for a run that trains nothing, or when all steps are measured."""
        if self.steps >= self.most:
            return None
        asked = training.run(self._graph, fetches, feeds)
        with self._lock:
            if asked.key not in self._turns:
                self._turns[asked.key] = itertools.cycle(self._make_groups(asked.fetched, feeds) or [None])
            group = next(self._turns[asked.key])
            return None if group is None else group.made(self._graph)

    def add(self, group: Group, measured: Sequence[Any]) -> None:
        """Adds what a step measured: the values of `group.fetches`."""
        magnitudes, counts, *scales = measured
        with self._lock:
            self.steps += 1
            for tensor, two, four in zip(group.tensors, magnitudes, counts):
                one = self.found.setdefault(tensor.name, _empty(tensor))
                one.add(self.steps, two, four)
            for scale in scales:
                least, most = self.scale or (np.inf, 0.0)
                self.scale = min(least, float(scale)), max(most, float(scale))

    def as_json(self) -> dict[str, Any]:
        """All that was measured, as JSON values."""
        rows = [each.as_json() for each in self.found.values()]
        return {"steps": self.steps, "left_out": self.left_out, "scale": self.scale, "tensors": rows}

    def as_text(self) -> str:
        """All that was measured, and what it suggests, as text."""
        return ranges.as_text(list(self.found.values()), self.steps, self.scale, self.left_out)

    def _make_groups(self, fetched, fed):
        operations = dump.upstream(self._graph, fetched, fed)
        if not training.updates(operations):
            return []
        tensors = [tensor for op in operations for tensor in op.outputs if _is_measured(op, tensor)]
        inside = dump.in_branches(operations)
        reachable = [each for each in tensors if _can_be_fetched(each, self._graph) and each.op not in inside]
        self.left_out = max(self.left_out, len(tensors) - len(reachable))
        scale = training.loss_scale(operations)
        return [Group(reachable[k : k + GROUP], scale) for k in range(0, len(reachable), GROUP)]


class Group:
    """Tensors that are measured together, and the tensors with their measures, made at first use."""

    def __init__(self, tensors: Sequence[tf.Tensor], scale: tf.Tensor | None):
        self.tensors, self._scale = tensors, scale
        self.fetches: list[tf.Tensor] = []

    def made(self, graph: tf.Graph) -> Group:
        """Returns itself with `fetches`: magnitudes (float32 [tensors, 2]), counts (int64 [tensors, 4]), loss scale."""
        if self.fetches:
            return self
        with training.added(graph, SCOPE):
            measures = [_measure(tensor) for tensor in self.tensors]
            self.fetches = [tf.stack([two for two, _ in measures]), tf.stack([four for _, four in measures])]
        self.fetches += [] if self._scale is None else [self._scale]
        return self


def _is_measured(operation, tensor):
    # constants and feeds are the script's own; what a variable holds counts where it is read
    own = operation.type in ("Const", "Placeholder", "PlaceholderWithDefault", "VariableV2", "Variable")
    return tensor.dtype in (tf.float16, tf.bfloat16, tf.float32) and not own and not tensor.op.name.startswith(SCOPE)


def _can_be_fetched(tensor, graph):
    return tensor.op._get_control_flow_context() is None and graph.is_fetchable(tensor)


def _measure(tensor):
    """Magnitudes (float32 [2]) and counts (int64 [4]) of a tensor, where it is computed."""
    with tf.device(tensor.op.device or None):
        size = tf.abs(tensor if tensor.dtype == tf.float32 else tf.cast(tensor, tf.float32))
        finite, positive = tf.math.is_finite(size), size > 0.0
        largest = tf.maximum(tf.reduce_max(tf.where(finite, size, tf.zeros_like(size))), 0.0)
        smallest = tf.reduce_min(tf.where(positive, size, tf.fill(tf.shape(size), np.float32(np.inf))))
        counts = [
            tf.size(size, out_type=tf.int64),
            _count(size >= INFINITE_FROM),
            _count(tf.logical_and(positive, size <= ZERO_UP_TO)),
            _count(tf.logical_not(finite)),
        ]
        return tf.stack([largest, smallest]), tf.stack(counts)


def _count(truths):
    return tf.reduce_sum(tf.cast(truths, tf.int64))


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
        return {} if self._recorder is None else self._recorder.found

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
    doors.watch(session, functools.partial(_run, recorder))
    # a process that multiprocessing forks calls nothing at its exit
    doors.at_close(session, functools.partial(_write_into, folder, recorder))


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
    known = any(each is recorder for each in _recorders.values())  # else it is written, and the folder may be gone
    if recorder.steps and known:
        _write(os.path.join(folder, "%d-%x%s" % (os.getpid(), id(recorder), SUFFIX)), recorder)


def _write(path, recorder):
    with whole.file(path) as f:
        f.write((json.dumps(recorder.as_json(), indent=1) + "\n").encode("utf-8"))
