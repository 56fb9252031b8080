"""Replays recorded training steps in other precisions, in sessions of their own, and compares losses and gradients.

A step is recorded with all that it depends on: what is fed, what readers and other stateful ops give it, and its
variables. Random numbers come from the same seeds in every session. So two replays differ by their dtypes alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import tempfile
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.checkpoint import assignments
from npu_shim.options import precision, rewriting
from npu_shim.options.entrances import forced
from npu_shim.options.ops import customize
from npu_shim.options.reports import kept_pages
from npu_shim.rewriter.errors import ConfigError, PlanError, VerifyError
from npu_shim.rewriter.page import model
from npu_shim.rewriter.tables.dtypes import FLOAT32, LOW
from npu_shim.session.interception import training
from npu_shim.session.observers import calibration, dump
from npu_shim.session.trial import ranking as ranked
from npu_shim.session.trial.protocol import Asked

FLOAT32_RUN = {"use_off_line": False}  # the graph is not for the device: it runs as it is written
UNCHANGED = re.compile("the dtypes of '([^']+)'")  # in the error of a line for a node that the mode decides alone
PLAIN = {"npu_shim_engine": "session", "npu_shim_xla": "off"}  # what takes long to compile runs only once here
SMALL = 1e-6  # gradients this much smaller than the largest one are rounding errors themselves
# stateful ops that a replay computes itself
_VARIABLES = ("VarHandleOp", "VariableV2", "Variable", "ReadVariableOp", "VarIsInitializedOp", "IsVariableInitialized")
_COMPUTED = (*_VARIABLES, "ResourceGather", "ResourceGatherNd", "VariableShape", "Print", "PrintV2", "Assert", "NoOp")
# what may keep a step from being replayed: what it needs is beyond a second session, in memory too
PROBLEMS = (tf.errors.OpError, ConfigError, PlanError, VerifyError, ValueError, RuntimeError, TypeError, KeyError)
_own: set[int] = set()  # ids of the graphs whose sessions are replays


class Step(NamedTuple):
    """A recorded step.

    Attributes:
        fed: feed_dict with which it is computed again.
        variables: (variable, its value before the step).
        losses: its losses.
        gradients: the tensors that variables are updated by.
        before: name of a gradient -> the value of the variable that it is assigned to, where it is no difference.
    """

    fed: Mapping[Any, Any]
    variables: list[tuple[Any, Any]]
    losses: list[Any]
    gradients: list[Any]
    before: Mapping[str, Any]


def is_own(session: tf.Session) -> bool:
    """Whether a session is a replay's."""
    return id(session.graph) in _own


def record(session: tf.Session, once: Any, kind: Any, feed_dict: Any, options: Any) -> Step:
    """Records the step that a session is about to run, without running it.

    Args:
        session: tf.Session.
        once: runs it, as `interceptors.watch` says.
        kind: its `recording.Kind`.
        feed_dict: of the step.
        options: tf.RunOptions of the step or None.
    """
    fed = dict(feed_dict or {})
    pairs = [(op, _outside(tensor)) for op, tensor in training.updates(kind.operations)]
    pairs = [(op, tensor) for op, tensor in pairs if tensor is not None and tensor.dtype.is_floating]
    gradients = list(dict.fromkeys(tensor for _, tensor in pairs))
    operations = dump.upstream(session.graph, [tensor.op for tensor in (*kind.losses, *gradients)], fed)
    frozen = _frozen(operations, fed)
    needed = {op.name for op in operations}
    known = {*session.graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES),
             *session.graph.get_collection(tf.GraphKeys.LOCAL_VARIABLES)}  # fmt: skip
    variables = [
        variable for variable in sorted(known, key=lambda variable: variable.name) if _op_name(variable) in needed
    ]
    values = once(variables, None, None, None)
    frozen_values = once(frozen, feed_dict, options, None)
    held = dict(zip(map(_op_name, variables), values))
    assigned = [(tensor.name, op.inputs[0].op.name) for op, tensor in pairs if op.type in training.ASSIGNS]
    before = {tensor: held[name] for tensor, name in assigned if name in held}
    fed.update(zip(frozen, frozen_values))
    return Step(fed, list(zip(variables, values)), kind.losses, gradients, before)


def _op_name(variable):
    name: str = assignments.variable_op(variable).name
    return name


def _frozen(operations, fed):
    """The tensors of readers, queues, tables and the like: what cannot be computed again."""
    names = {getattr(key, "name", key) for key in fed}
    frozen = []
    for op in operations:
        if _is_computed(op) or op._get_control_flow_context() is not None:
            continue
        values = [t for t in op.outputs if t.dtype not in (tf.resource, tf.variant) and not t.dtype._is_ref_dtype]
        frozen += [tensor for tensor in values if tensor.name not in names and op.graph.is_fetchable(tensor)]
    return frozen


def _is_computed(operation):
    """Whether an op gives the same values again from the same variables, feeds and seeds."""
    if operation.type in _COMPUTED or operation.type.startswith(("Assign", "Apply", "Resource")):
        return True
    if "seed" in operation.node_def.attr or operation.type.startswith(("TensorArray", "Stack", "PartitionedCall")):
        return True
    reads = [tensor.op.type for tensor in operation.inputs if tensor.dtype == tf.resource]
    foreign = [kind for kind in reads if kind not in _COMPUTED]
    return not operation.op_def.is_stateful and not foreign


def _outside(tensor):
    """A tensor that can be fetched in place of one that a branch passes on; None where there is none."""
    while tensor.op._get_control_flow_context() is not None:
        if tensor.op.type not in ("Switch", "Identity", "Enter"):
            return None
        tensor = tensor.op.inputs[0]
    return tensor if tensor.graph.is_fetchable(tensor) else None


def ranking(session: tf.Session, options: Any, steps: Sequence[Step], asked: Asked) -> dict[str, Any]:
    """Ranks the nodes that a session lowers by the error that they bring into recorded steps.

    Args:
        session: tf.Session, in which they were recorded; its config is asked for the replays.
        options: its `session_options.SessionOptions`, with the script's own config.
        steps: the recorded ones.
        asked: `hints`, `scale` and `most`.

    Returns:
        JSON values: `groups`, the likeliest first, each with `lines` of customize_dtypes (op name -> line), and its
        `error`; `first`, how many of them make up for the fault; `errors`, of all that is lowered and of what `first`
        leaves; `replays`, how many there were; `problem`, why there were none, or None.
    """
    own = dict(forced.of_environment())
    own.pop(next(iter(FLOAT32_RUN)), None)
    try:
        with _replayed(session.graph):
            replays = _Replays(session.graph, options.config, own, steps, asked.scale)
            hints = _with_readers(session.graph, asked.hints)
            return ranked.rank(replays.lines, hints, replays.error, asked.most, replays.noise)
    except PROBLEMS as error:
        return unranked(error)


def unranked(error: BaseException) -> dict[str, Any]:
    """The ranking where an error, one of PROBLEMS, leaves none."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" :") not in ("", "Graph execution error")]
    return {"problem": "%s: %s" % (type(error).__name__, lines[0] if lines else "")}


def _with_readers(graph, hints):
    """Hints and the ops that read them: where a value leaves float16, its readers would cast it."""
    readers = dict.fromkeys(hints)
    by_name = {op.name: op for op in graph.get_operations()}
    for name in hints:
        for tensor in by_name[name].outputs if name in by_name else ():
            readers.update(dict.fromkeys(op.name for op in tensor.consumers()))
    return tuple(readers)


@contextlib.contextmanager
def _replayed(graph) -> Iterator[None]:
    """Sessions of a graph are replays; they measure nothing, and keep no page."""
    kept = {name: os.environ.pop(name) for name in (kept_pages.SWITCH, calibration.SWITCH) if name in os.environ}
    was = os.environ.get(forced.VARIABLE)
    _own.add(id(graph))
    try:
        yield
    finally:
        _own.discard(id(graph))
        os.environ.update(kept)
        os.environ.pop(forced.VARIABLE, None)
        if was is not None:
            os.environ[forced.VARIABLE] = was


class _Replays:
    """The steps of a session, to be run again with some nodes low and the others in float32.

    Attributes:
        lines: name of each node that the session lowers -> the line of customize_dtypes that keeps it in float32.
    """

    def __init__(self, graph, config, own, steps, scale):
        self._graph, self._config, self._own, self._steps, self._scale = graph, config, own, steps, scale
        values = forced.merged(options_of(config), own)
        self._customized = values.get(customize.OPTION)
        self.lines, self._low = _lines(graph, steps, values)
        self._reference = [self._run(step, FLOAT32_RUN) for step in steps]
        again = [self._run(step, FLOAT32_RUN) for step in steps]
        if not all(np.isfinite(value).all() for values in self._reference for value in values):
            raise ConfigError("the recorded steps are not finite in float32")
        self.noise = self._distance(again)

    def error(self, float32: Any, low: Any = None) -> float:
        """Returns the error of the steps with some nodes in float32.

        Args:
            float32: names of the nodes in float32.
            low: names of the nodes that are low whatever feeds them; None leaves that to the mode.
        """
        lines = [self.lines[name] for name in sorted(float32)] + [self._low[name] for name in sorted(low or ())]
        with tempfile.TemporaryDirectory(prefix="npu_shim_replay_") as folder:
            path = os.path.join(folder, "customize_dtypes")
            with open(path, "w", encoding="utf-8") as f:
                f.write("\n".join([*lines, _text(self._customized)]) + "\n")
            return self._distance([self._run(step, {customize.OPTION: path}) for step in self._steps])

    def _run(self, step, options):
        os.environ[forced.VARIABLE] = json.dumps({**self._own, **PLAIN, **options})
        with tf.Session(graph=self._graph, config=self._config) as session:
            load(session.run, [(variable, self._with_scale(variable, value)) for variable, value in step.variables])
            return [np.asarray(array, np.float64) for array in session.run([*step.losses, *step.gradients], step.fed)]

    def _with_scale(self, variable, value):
        is_scale = self._scale is not None and training.LOSS_SCALE.match(variable.op.name)
        return np.asarray(self._scale, np.asarray(value).dtype) if is_scale else value

    def _distance(self, runs):
        with np.errstate(all="ignore"):
            return max(_distance(step, *pair) for step, *pair in zip(self._steps, self._reference, runs))


def options_of(config: Any) -> Any:
    """Returns the option values of a script's own config."""
    from npu_shim.options.entrances import config_proto, plugin

    return plugin.with_defaults(config_proto.read(config))


def _text(path):
    if not path:
        return ""
    with open(path, encoding="utf-8-sig") as f:
        return f.read()


def _lines(graph, steps, values):
    """The lines of customize_dtypes that keep each lowered node in float32, and that keep it low, by its name."""
    wanted = list(dict.fromkeys(tensor.name for step in steps for tensor in (*step.losses, *step.gradients)))
    fed = list(dict.fromkeys(getattr(key, "name", key) for step in steps for key in step.fed))
    needed = tf.graph_util.extract_sub_graph(graph.as_graph_def(), [name.partition(":")[0] for name in wanted])
    device = "GPU" if tf.test.is_built_with_cuda() and tf.config.experimental.list_physical_devices("GPU") else "CPU"
    names = {node.name for node in needed.node}
    fed = [name for name in fed if name.partition(":")[0] in names]
    chosen = precision.resolve(values)
    plan = rewriting.rewrite_graph(needed, fed, wanted, chosen, device).plan
    float32, low = {}, {}
    for position, node in enumerate(plan.view.nodes):
        first = plan.first[position]
        becomes = plan.becomes[first : first + len(node.dtypes)]
        lowered = any(was == FLOAT32 and now in LOW for was, now in zip(node.dtypes, becomes))
        if lowered and not node.op.startswith(ranked.FIXED):
            float32[node.name] = model.customize_line(node)
            low[node.name] = model.customize_line(node, becomes)
    for lines in (float32, low):
        for name in _refused(lines, lambda asked: rewriting.rewrite_graph(needed, fed, wanted, asked, device), chosen):
            del float32[name], low[name]
    return float32, low


def _refused(lines, rewrite, chosen):
    """Names of the nodes that no line can change, whose dtypes follow from others."""
    left = dict(lines)
    while True:
        customized = customize.parse("\n".join(left.values()), "", chosen.table)
        try:
            rewrite(dataclasses.replace(chosen, customized=customized))
            return [name for name in lines if name not in left]
        except PlanError as error:
            named = UNCHANGED.search(str(error))
            if named is None or left.pop(named.group(1), None) is None:
                raise


def load(run: Any, pairs: Sequence[tuple[Any, Any]]) -> None:
    """Gives variables values.

    Args:
        run: as Session.run, of (fetches, feed_dict).
        pairs: (variable, its value).
    """
    pairs_of_ops = [(assignments.assignment_of(assignments.variable_op(variable)), value) for variable, value in pairs]
    assignments.assign(run, pairs_of_ops)


def _distance(step, reference, results):
    """How far losses and gradients are from float32's: 0 is equal, 1 a gradient that is lost, infinity not finite."""
    if not all(np.isfinite(array).all() for array in results):
        return np.inf
    count = len(step.losses)
    of_losses = [float(np.abs(a - b).max() / max(np.abs(a).max(), SMALL)) for a, b in zip(reference, results[:count])]
    changes = [step.before.get(tensor.name, 0.0) for tensor in step.gradients]
    sizes = [float(np.linalg.norm(array - before)) for array, before in zip(reference[count:], changes)]
    largest = max(sizes, default=0.0)
    shares = [
        min(1.0, float(np.linalg.norm(a - b)) / size)
        for a, b, size in zip(reference[count:], results[count:], sizes) if size > SMALL * largest
    ]  # fmt: skip
    of_gradients = float(np.sqrt(np.mean(np.square(shares)))) if shares else 0.0
    return max(of_gradients, *of_losses, 0.0)
