"""Runs a script as `npu-shim run` does and writes a JSON line for each run of a session that trains.

    NPU_SHIM_TRACE=FILE [ZOO_STEPS=N] [ZOO_FLOAT32=1] [ZOO_SEED=N] python observe.py [OPTIONS] SCRIPT ...

The lines go behind those that the rewriter writes for graphs: {"step": 3, "fetched": 1, "seconds": 0.02, "scalars":
{"loss:0": 2.3}}; `fetched` numbers the sets of things that are fetched together. After ZOO_STEPS steps the process
ends, or a minute after the first one. ZOO_FLOAT32 makes every mode one that keeps float32, to compare with.
ZOO_RECORD names a folder to which the engine's first step is written, for scripts/gpu_check.
ZOO_SEED seeds Python, NumPy and every graph of a script that does not do so, so that losses of several runs can be
compared. A step of a session that has an engine also says what the engine made of it: {"taken": true, "host_ops": 3,
"programs": 1}, with "shared": true where it runs another one's program, or {"taken": false, "why": "..."}; it is
watched where a session is entered, since the engine's programs run in front of what TensorFlow runs.
"""

import json
import os
import random
import sys
import threading
import time

import numpy as np

from npu_shim import cli
from npu_shim.compat.tensorflow_v1 import import_tensorflow
from npu_shim.options import engine as options_of_engine
from npu_shim.options import precision

TRACE = os.environ["NPU_SHIM_TRACE"]
STEPS = int(os.environ.get("ZOO_STEPS") or 0)
SECONDS = 60  # of training, in a run that is stopped
LEAST = 4  # steps before the time counts
_UPDATES = ("Apply", "ResourceApply", "SparseApply", "ResourceSparseApply")  # how the types of updating ops begin
# ops that call functions: type -> the attributes that name them
_BRANCHES = ("then_branch", "else_branch")
_CALLS = {
    **dict.fromkeys(("PartitionedCall", "StatefulPartitionedCall"), ("f",)),
    **dict.fromkeys(("If", "StatelessIf"), _BRANCHES),
    **dict.fromkeys(("While", "StatelessWhile"), ("body",)),
}


class Watch:
    """Counts the training steps of a process and writes them."""

    def __init__(self):
        self.steps = 0
        self.begin = 0.0
        self.known = {}  # (graph, names fetched) -> number, or None where such a run trains nothing

    def number(self, graph, names):
        """The number of a set of fetches, or None if running it trains nothing."""
        key = (id(graph), tuple(sorted(names)))
        if key not in self.known:
            trains = _trains(graph, names)
            self.known[key] = sum(n is not None for n in self.known.values()) if trains else None
        return self.known[key]

    def ran(self, number, names, values, seconds, **more):
        """Writes one training step."""
        self.steps += 1
        self.begin = self.begin or time.time()
        pairs = [(name, value) for name, value in zip(names, values or ()) if _is_scalar(value)]
        scalars = {name: float(np.asarray(value).reshape(())) for name, value in pairs}
        _write({"step": self.steps, "fetched": number, "seconds": seconds, "scalars": scalars, **more})
        if STEPS and (self.steps >= STEPS or (self.steps >= LEAST and time.time() - self.begin > SECONDS)):
            _write({"enough": self.steps})
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)


def _write(line):
    with open(TRACE, "a", encoding="utf-8") as f:
        f.write(json.dumps(line) + "\n")


def _is_scalar(value):
    return isinstance(value, (np.ndarray, np.generic)) and value.size == 1 and value.dtype.kind in "fV"


def _trains(graph, names):
    """Whether an op upstream of the fetches updates a variable by a gradient, or belongs to a gradient.

    A function that is called counts as its ops do.
    """
    functions = None
    waiting = [graph.get_operation_by_name(name.split(":")[0]) for name in names]
    seen = set(waiting)
    while waiting:
        op = waiting.pop()
        if op.type.startswith(_UPDATES) or "gradients" in op.name.lower():  # not labels_stop_gradient, of every loss
            return True
        if op.type in _CALLS:
            functions = functions or {f.signature.name: f for f in graph.as_graph_def().library.function}
            if any(_updates(functions, op.get_attr(name).name) for name in _CALLS[op.type]):
                return True
        for before in [*(tensor.op for tensor in op.inputs), *op.control_inputs]:
            if before not in seen:
                seen.add(before)
                waiting.append(before)
    return False


def _updates(functions, name):
    """Whether a function, or one that it calls, updates a variable by a gradient."""
    nodes = functions[name].node_def if name in functions else ()
    if any(node.op.startswith(_UPDATES) or "gradients" in node.name.lower() for node in nodes):
        return True
    called = [node.attr[which].func.name for node in nodes if node.op in _CALLS for which in _CALLS[node.op]]
    return any(_updates(functions, inner) for inner in called)


def watch(base):
    """Puts a watch on BaseSession: on what `run` ends in, and on the callables that Keras makes."""
    see = Watch()
    do_run = base._do_run

    def watched_run(self, handle, target_list, fetch_list, feed_dict, *others):
        names = [fetch.name for fetch in fetch_list]
        number = see.number(self.graph, names + [op.name for op in target_list])
        begin = time.perf_counter()
        values = do_run(self, handle, target_list, fetch_list, feed_dict, *others)
        if number is not None:
            see.ran(number, names, values, time.perf_counter() - begin)
        return values

    base._do_run = watched_run
    init, call = base._Callable.__init__, base._Callable.__call__

    def watched_init(self, session, options):
        init(self, session, options)
        self.suite_names = list(options.fetch)
        self.suite_number = see.number(session.graph, [*options.fetch, *options.target])

    def watched_call(self, *args, **kwargs):
        begin = time.perf_counter()
        values = call(self, *args, **kwargs)
        if self.suite_number is not None:
            see.ran(self.suite_number, self.suite_names, values, time.perf_counter() - begin)
        return values

    base._Callable.__init__, base._Callable.__call__ = watched_init, watched_call


def watch_entrances():
    """Puts a watch on the runs of sessions, in front of the engine, and on those that TensorFlow makes by itself."""
    from npu_shim.engine import sessions
    from npu_shim.engine.partition.cut import Place
    from npu_shim.engine.runtime import requests
    from npu_shim.session.interception import interceptors

    see, inner, thread = Watch(), interceptors._run_watched, threading.local()

    def seen(session, once, fetches, feed_dict, options, run_metadata):
        request = requests.of(session.graph, fetches, feed_dict)
        if request is None or getattr(thread, "inside", False):
            return inner(session, once, fetches, feed_dict, options, run_metadata)
        names = [*request.tensors, *request.targets]
        number, flat = see.number(session.graph, names), []
        build = request.handler.build_results
        begin, thread.inside = time.perf_counter(), True
        try:
            # asked for as a flat list, so that each value has its name
            flat = inner(session, once, list(request.tensors) + _operations(session.graph, request), feed_dict, options,
                         run_metadata)[: len(request.tensors)]  # fmt: skip
        finally:
            thread.inside = False
        if number is not None:
            told = _told(getattr(session, sessions.ENGINE, None), request, Place)
            see.ran(number, request.tensors, flat, time.perf_counter() - begin, **told)
        return build(session, flat)

    interceptors._run_watched = seen


def _operations(graph, request):
    return [graph.get_operation_by_name(name) for name in request.targets]


def _told(engine, request, place):
    """What an engine made of a run; {} for a session without one."""
    known = None if engine is None else engine.known.get(request.key)
    if known is None:
        return {}
    if not known.programs:
        return {"taken": False, "why": known.reason or "its program did not run"}
    places = list(known.step.cut.places.values())
    hosts = sum(places.count(where) for where in (place.FEED, place.MIDDLE, place.READ))
    told = {"taken": True, "host_ops": hosts, "programs": len(known.programs)}
    return told if known.step.earlier is None else {**told, "shared": True}


def keep_float32():
    """Every precision option from now on means: as the script wrote it; whoever has `resolve` by name as well."""
    from npu_shim.session.interception import session_options

    resolve = precision.resolve
    kept = lambda values: resolve({"precision_mode": "must_keep_origin_dtype", "npu_shim_profile": "gpu"})  # noqa: E731
    precision.resolve = session_options.resolve = kept


def sow(number):
    """Seeds Python and NumPy, and every graph when it is made; what the script itself seeds later goes before that.

    A graph whose seed is taken away has this one again: an Estimator sets its graph's to None if it is given none.
    """
    random.seed(number)
    np.random.seed(number)
    graph = import_tensorflow().Graph
    init, seed = graph.__init__, graph.seed

    def seeded(self, *args, **kwargs):
        init(self, *args, **kwargs)
        self.seed = number

    graph.__init__ = seeded
    graph.seed = property(seed.fget, lambda self, value: seed.fset(self, number if value is None else value))


def record(folder):
    """Has the first step on the engine written to a file of the folder, see scripts/gpu_recording.py."""
    sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
    import gpu_recording

    gpu_recording.begin(folder, os.path.basename(os.path.dirname(TRACE)))


def engine_of(words):
    """What runs the steps, as the command line or the environment has it."""
    asked = [after for word, after in zip(words, words[1:]) if word == "--engine"]
    return (asked or [os.environ.get(options_of_engine.VARIABLE)])[0]


if __name__ == "__main__":
    base = import_tensorflow().compat.v1.Session.__mro__[1]
    if os.environ.get("ZOO_SEED"):
        sow(int(os.environ["ZOO_SEED"]))
    if engine_of(sys.argv[1:]) == "pjrt":
        watch_entrances()
    else:
        watch(base)
    if os.environ.get("ZOO_FLOAT32"):
        keep_float32()
    if os.environ.get("ZOO_RECORD"):
        record(os.environ["ZOO_RECORD"])
    sys.exit(cli.main(["run", *sys.argv[1:]]))
