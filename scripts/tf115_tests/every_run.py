"""Has the engine take each run of a session that computes anything, not only training steps.

What a test computes of constants is computed of data: each constant of several floating-point numbers is fed. What a
run without writes and random numbers gives is computed by the session too.

`--option TF115_EVERY_RUN=FILE` switches it on. FILE gets a line of JSON for each run that the engine took ("taken"),
left to the session ("left"), or gave other results than the session, beyond rounding ("differs").
"""

import json
from dataclasses import replace

import methods
import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.engine import sessions
from npu_shim.engine.partition import facts, step_detection
from npu_shim.engine.partition import nodes as walks
from npu_shim.engine.runtime import loading, requests, runs
from npu_shim.options.reports import ledger
from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.session.interception import interceptors

COMPUTE_NOTHING = ("Const", "Identity", "NoOp", "Placeholder", "ReadVariableOp", "Variable", "VariableV2")
COARSE = {"float16": 2e-2, "bfloat16": 1e-1, "float64": 1e-9}  # dtype -> tolerance, relative to the largest number
FINE = 1e-4  # of other dtypes
ENOUGH = 200  # runs of a method that the engine takes: to differentiate numerically takes thousands
MOST = 2  # runs of a kind that are compared


class Log:
    """The file that says what became of runs."""

    def __init__(self, path):
        self._path, self._method, self.taken = path, "", 0
        self._compared = {}  # id of a `runs.Known` -> (it, how many of its runs were compared)

    def begin(self, method):
        """The following runs are of a method."""
        self._method, self.taken = method, 0

    def is_early(self, known):
        """Whether a run is among the first of its kind, which are compared."""
        count = self._compared.get(id(known), (known, 0))[1]
        self._compared[id(known)] = known, count + 1
        return count < MOST

    def note(self, kind, text=""):
        """Adds a line."""
        self.taken += kind == "taken"
        with open(self._path, "a") as f:
            f.write(json.dumps({"method": self._method, "kind": kind, "text": text}) + "\n")


def install(path):
    """Replaces how the engine of this process tells steps from other runs; the log goes to `path`."""
    log = Log(path)
    say, note, of, results = methods.Reporter.say, ledger.note, requests.of, sessions.Engine.results
    is_for_session = requests.is_for_session

    def saying(self, event, **details):
        if event == "begin":
            log.begin(details["name"])
        say(self, event, **details)

    def noting(kind, text="", *others):
        if kind in (ledger.TAKEN, ledger.LEFT):
            log.note("taken" if kind == ledger.TAKEN else "left", text)
        note(kind, *([text] if text else []), *others)

    def with_constants(graph, fetches, feed_dict):
        request = of(graph, fetches, feed_dict)
        return request and replace(request, feeds={**_constants(graph, request), **request.feeds})

    def compared(self, run, values):
        fetched = results(self, run, values)
        if log.is_early(run.known) and all(node.shared for node in run.step.nodes.values()):
            _compare(self, run, values, log)
        return fetched

    requests.is_for_session = lambda options: log.taken >= ENOUGH or is_for_session(options)
    methods.Reporter.say, ledger.note = saying, noting
    requests.of, sessions.Engine.results = with_constants, compared
    runs.Runs._step, loading.AT_FIRST_SIGHT = _step, 1000


def _step(self, known, request, meeting=None):
    """As `Runs._step`, of any run but initializers that computes something."""
    graph = self._session.graph
    nodes, bodies, taken = self._touched(known, request)
    described = facts.of(nodes, bodies, taken, request.feeds, meeting is not None)
    writers = {node.name for node in described.values() if node.writes}
    computing = [n for n in described.values() if not (n.host or n.handle or n.op in COMPUTE_NOTHING)]
    if not computing or (writers and writers.issubset(facts.initializers(graph))):
        known.reason = step_detection.LITTLE + ": 0 floating-point ops"
        return None
    fetched = {source_of(name) for name in request.tensors if name not in request.feeds}
    asserted = walks.upstream(described, [node.name for node in described.values() if node.asserts])
    for node in [described[name] for name in fetched - asserted]:  # as if a variable were written with it
        described[node.name] = node if node.host or node.handle else replace(node, product=True)
    return self._make_step(known, request, described, taken, meeting)


def _constants(graph, request):
    """Name -> value of the constants of several floating-point numbers that a run needs."""
    operations = facts.needed_by(lambda name: graph.get_operation_by_name(name).node_def, request.nodes, request.feeds)
    constants = {}
    for name, node in operations.items():
        if node.op != "Const" or name + ":0" in request.tensors:
            continue
        tensor = graph.get_tensor_by_name(name + ":0")
        several = tensor.dtype.is_floating and tensor.shape.num_elements() > 1
        if several and tensor.op._get_control_flow_context() is None and graph.is_feedable(tensor):
            constants[tensor.name] = tf.make_ndarray(node.attr["value"].tensor)
    return constants


def _compare(engine, run, values, log):
    """Notes what the session computes otherwise."""
    names = [name for name in run.request.tensors if name in values and name not in run.request.feeds]
    with engine._session_run(run.known.access):
        expected = interceptors.plain_run(engine.session, names, run.request.feeds)
    for name, value in zip(names, expected):
        why = _why_other(np.asarray(value), np.asarray(values[name]))
        if why:
            log.note(
                "differs", "%s, '%s' (%s): %s" % (run.known.text, name, run.step.nodes[name.split(":")[0]].op, why)
            )


def _why_other(expected, got):
    if expected.dtype != got.dtype or expected.shape != got.shape:
        return "%s %s in the place of %s %s" % (got.dtype, got.shape, expected.dtype, expected.shape)
    if expected.dtype.kind not in "fcV" and expected.dtype.name != "bfloat16":
        return "" if np.array_equal(expected, got) else "%r in the place of %r" % (got, expected)
    wide = complex if expected.dtype.kind == "c" else float
    coarse = COARSE.get(expected.dtype.name, FINE)
    expected, got = expected.astype(wide), got.astype(wide)
    finite = np.abs(expected[np.isfinite(expected)])
    largest = finite.max() if finite.size else 0
    if np.allclose(got, expected, rtol=coarse, atol=coarse * largest, equal_nan=True):
        return ""
    return "%r in the place of %r" % (got, expected)
