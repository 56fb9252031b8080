"""Random training steps, and every entrance through which one can be run: all must give what plain TensorFlow gives.

A step is a row of sections. Each computes a matrix of what came before, then writes a variable; control edges put the
sections in order, so that nothing is left to chance. All numbers are small integers, exact in float16 and bfloat16, so
that every precision mode must give the same bits as float32.

    section 1:  e = clip(x @ v)             v <- v + e
    section 2:  f = loop(e), after that     if p: v <- f  else: w <- w - f
"""

import os
import random
import subprocess
from typing import Any, Dict, List, NamedTuple

import numpy as np
import sessions
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim import export
from npu_shim.options.ops import scopes

SIZE, LEAST, MOST = 4, -4.0, 4.0  # what is multiplied lies between these; sums of SIZE products stay below 256
RUNS = 3
WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "differential_jax.py")
READS = ("/read", "/Read/ReadVariableOp")  # of reference and of resource variables
MODES = (
    {"precision_mode": "must_keep_origin_dtype", "profile": "gpu"},
    {"precision_mode": "allow_mix_precision"},
    {"precision_mode": "allow_mix_precision_bf16"},
    {"precision_mode": "allow_fp32_to_fp16"},
    {"precision_mode": "force_fp16"},
)


class Step(NamedTuple):
    """A step as a graph.

    Attributes:
        graph: tf.Graph.
        feeds: names of the tensors that are fed.
        fetches: names of what is fetched.
        batches: one dict of name to array a run.
        variables: names of the variables' nodes.
        text: what the sections do, in order.
    """

    graph: Any
    feeds: List[str]
    fetches: List[str]
    batches: List[Dict[str, Any]]
    variables: List[str]
    text: List[str]


def build(seed):
    """Returns the Step of a seed."""
    return Builder(seed).step()


class Builder:
    """Builds a Step; the same seed gives the same one."""

    def __init__(self, seed):
        self._random, self._numbers = random.Random(seed), np.random.RandomState(seed)
        self._text, self._values = [], []

    def step(self):
        """Returns the Step."""
        with tf.Graph().as_default() as graph:
            graph.seed = 1
            fetches = [tensor.name for tensor in self._grown(3, 7)]
            feeds = [self._x.name, self._p.name, self._n.name, *self._fed()]
            batches = [self._batch(number, feeds) for number in range(RUNS)]
            names = [variable.op.name for variable in tf.global_variables()]
        return Step(graph, feeds, fetches, batches, names, self._text)

    def _grown(self, least, most):
        """Builds a step of `least` sections or more, fewer than `most`; returns what can be fetched."""
        self._x = self._input()
        self._p = tf.placeholder(tf.bool, [], "p")
        self._n = tf.placeholder(tf.int32, [], "n")
        self._variables = [self._variable("v%d" % number) for number in range(3)]
        self._optimizer = self._one(tf.train.GradientDescentOptimizer(1.0), tf.train.MomentumOptimizer(1.0, 1.0))
        last = self._first()
        for number in range(self._random.randrange(least, most)):
            last = [self._section(number, last)]
        self._last = last[0]
        # in float32: sums of many updates grow beyond 2048, where float16 has no odd numbers
        with tf.control_dependencies(last), scopes.keep_dtype_scope():
            # by names: what is fetched of memory could be changed by the next run
            ends = [
                tf.maximum(variable.read_value(), -1000.0, "end%d" % k) for k, variable in enumerate(self._variables)
            ]
            used = tf.reduce_max(self._x) + tf.cast(self._n, tf.float32) + tf.cast(self._p, tf.float32)
        tf.global_variables_initializer()
        return [*self._values, *ends, used]

    def _input(self):
        return tf.placeholder(tf.float32, self._one([SIZE, SIZE], [None, SIZE]), "x")

    def _first(self):
        """What the first section waits for."""
        return [tf.no_op()]

    def _one(self, *ways):
        return self._random.choice(ways)

    def _integers(self, *shape):
        return self._numbers.randint(-2, 3, shape).astype(np.float32)

    def _variable(self, name):
        start = tf.constant_initializer(self._integers(SIZE, SIZE))
        return tf.get_variable(name, [SIZE, SIZE], initializer=start, use_resource=self._random.random() < 0.4)

    def _fed(self):
        """Names of intermediate tensors that are fed; a section's result now and then."""
        return [value.name for value in self._values[:-1] if self._random.random() < 0.1]

    def _batch(self, number, feeds):
        given = {"x:0": self._integers(SIZE, SIZE), "p:0": np.array(number % 2 == 0), "n:0": np.int32(number % 3)}
        return {name: given[name] if name in given else self._integers(SIZE, SIZE) for name in feeds}

    def _section(self, number, last):
        said = len(self._text)
        with tf.control_dependencies(last):
            value = self._after(clip(self._matrix(2)), "section%d" % number)
        self._values.append(value)
        with tf.control_dependencies([tf.group(value)]):
            written = self._write()
        self._text[said:] = ["%d: %s" % (number, " ".join(self._text[said:]))]
        return tf.group(written)  # TensorFlow's loops do not take waits for what has outputs

    def _say(self, word):
        self._text.append(word)

    # what is computed

    def _matrix(self, depth):
        if not depth:
            return self._leaf()
        a = clip(self._matrix(depth - 1))
        way = self._one(
            self._product, self._sum, self._elementwise, self._moved, self._cond, self._loop, self._loop, self._called,
            self._kept, self._gradient, self._array,
        )  # fmt: skip
        self._say(way.__name__[1:])
        return way(a, depth - 1)

    def _leaf(self):
        variable = self._random.choice(self._variables)
        way = self._random.randrange(6)
        if way == 0:
            return tf.reshape(self._x, [SIZE, SIZE])
        if way == 1:
            return tf.constant(self._integers(SIZE, SIZE))
        if way == 2 and self._values:
            return self._random.choice(self._values)
        self._say("read(%s)" % variable.op.name)
        if way == 3:
            return clip(variable)  # of a reference, through the Identity that was made with it
        return clip(variable.read_value() if way == 4 else tf.identity(variable))

    def _product(self, a, depth):
        return tf.matmul(a, clip(self._matrix(depth)), transpose_b=self._one(True, False))

    def _sum(self, a, depth):
        return self._one(tf.add, tf.subtract, tf.maximum, tf.multiply)(a, clip(self._matrix(depth)))

    def _elementwise(self, a, depth):
        return self._one(tf.nn.relu, tf.abs, tf.negative, tf.sign, lambda t: tf.where(t > 0.0, t, -t))(a)

    def _moved(self, a, depth):
        ways = (
            lambda t: tf.reshape(tf.reshape(t, [2, 2 * SIZE]), [SIZE, SIZE]),
            lambda t: tf.concat(tf.split(t, 2, 0)[::-1], 0),
            lambda t: tf.gather(t, [3, 1, 1, 0]),
            lambda t: tf.stack(tf.unstack(t)[::-1]),
            lambda t: t + tf.reduce_max(t, 1, keepdims=True),
            lambda t: tf.pad(t[1:, :], [[0, 1], [0, 0]]),
        )
        return self._one(*ways)(a)

    def _cond(self, a, depth):
        variable, decides = self._random.choice(self._variables), self._decision()
        other = self._one(lambda: clip(variable) - a, lambda: tf.negative(a), lambda: tf.identity(a))
        return tf.cond(decides, lambda: clip(a - 1.0), other)  # a + a there dies of TensorFlow's own optimizer

    def _decision(self):
        """A predicate that waits for what the section waits for, and so does all in the branches."""
        return tf.identity(self._one(self._p, tf.logical_not(self._p), tf.reduce_max(self._x) > 1.0))

    def _loop(self, a, depth):
        return self._repeated(a, self._random.randrange(4))

    def _repeated(self, a, kind):
        self._say(("bounded", "counted", "nested", "branching")[kind])
        x, p, most = tf.reshape(self._x, [SIZE, SIZE]), self._p, {"maximum_iterations": 3} if kind == 0 else {}
        body = lambda b: clip(x - b)  # noqa: E731
        if kind == 2:
            body = lambda b: tf.while_loop(lambda j, _: j < 2, lambda j, c: (j + 1, clip(x - c)), (0, b))[1]  # noqa: E731
        if kind == 3:
            body = lambda b: tf.cond(p, lambda: clip(b + x), lambda: -b)  # noqa: E731
        ends = (lambda i, _: i < self._n) if kind == 0 else (lambda i, _: i < 3)
        return tf.while_loop(ends, lambda i, b: (i + 1, body(b)), (0, a), **most)[1]

    def _called(self, a, depth):
        function = tf.function(lambda t: clip(tf.matmul(t, t)) - t, autograph=False)
        return function(a)

    def _kept(self, a, depth):
        with scopes.keep_dtype_scope():
            return tf.matmul(a, clip(self._matrix(depth)))

    def _gradient(self, a, depth):
        """Of a sum, so that it is 1 where it begins, and stays an integer below 256."""
        way = self._random.randrange(5)
        result = tf.matmul(a, tf.constant(self._integers(SIZE, SIZE))) if way == 4 else self._repeated(a, way)
        return tf.gradients(tf.reduce_sum(result), [a])[0]

    def _array(self, a, depth):
        array = tf.TensorArray(tf.float32, SIZE, clear_after_read=False).unstack(a)
        body = lambda i, rows: (i + 1, rows.write(i, clip(array.read(i) + array.read(SIZE - 1 - i))))  # noqa: E731
        return tf.while_loop(lambda i, _: i < SIZE, body, (0, tf.TensorArray(tf.float32, SIZE)))[1].stack()

    # what is written

    def _write(self):
        variable = self._random.choice(self._variables)
        way = self._one(self._assign, self._scatter, self._written_in_cond, self._written_in_loop, self._trained)
        self._say("-> %s(%s)" % (way.__name__[1:], variable.op.name))
        return way(variable, self._after(clip(self._matrix(1))))

    def _after(self, tensor, name=None):
        """The tensor, once all that was built for it has run."""
        return tf.identity(tensor, name)

    def _assign(self, variable, a):
        return self._one(tf.assign, tf.assign_add, tf.assign_sub)(variable, a)

    def _scatter(self, variable, a):
        rows = [self._random.randrange(SIZE), self._random.randrange(SIZE)]
        if self._one(True, False):
            return tf.scatter_add(variable, rows, a[:2])
        return tf.scatter_update(variable, rows[:1], a[:1])

    def _written_in_cond(self, variable, a):
        decides, other = self._decision(), self._random.choice(self._variables)
        ways = (
            (lambda: tf.group(self._assign(variable, a)), tf.no_op),
            (lambda: tf.group(self._assign(variable, a)), lambda: tf.group(self._assign(other, clip(variable) - a))),
            (lambda: tf.assign(variable, a), lambda: tf.assign_add(variable, a)),
            (lambda: tf.assign_sub(variable, a), lambda: tf.assign(other, -a)),
        )
        return tf.cond(decides, *self._one(*ways))

    def _written_in_loop(self, variable, a):
        def body(i, b):
            with tf.control_dependencies([self._assign(variable, b)]):
                return i + 1, clip(b - tf.sign(clip(variable)))

        return tf.while_loop(lambda i, _: i < 2, body, (0, a), parallel_iterations=1)[1]

    def _trained(self, variable, a):
        # through what `a` was computed from, gradients would be products of products, beyond what bfloat16 holds
        loss = tf.reduce_sum(tf.matmul(clip(variable), tf.stop_gradient(a)))
        return self._optimizer.minimize(loss, var_list=[variable])


def clip(tensor):
    return tf.clip_by_value(tensor, LEAST, MOST)


class Ran(NamedTuple):
    """What runs of a step gave: a list of arrays a run, and the variables' last values by name."""

    results: List[List[Any]]
    state: Dict[str, Any]


def refilled(step):
    """A step's batches, one after another in the same buffers, as input pipelines written by hand give them."""
    buffers = {name: np.array(value) for name, value in step.batches[0].items()}
    for batch in step.batches:
        for name, value in batch.items():
            buffers[name][...] = value
        yield buffers


def in_session(step, config=None, graph_def=None):
    """Runs a step in a session; `graph_def` is another form of its graph."""
    graph = step.graph
    if graph_def is not None:
        graph = tf.Graph()
        with graph.as_default():
            tf.import_graph_def(graph_def, name="")
    with tf.Session(graph=graph, config=config) as session:
        session.run("init")
        # what is fed and fetched comes back as the buffer itself
        results = [[np.array(value) for value in session.run(step.fetches, batch)] for batch in refilled(step)]
        ops = {op.name for op in graph.get_operations()}
        reads = {name: next(name + read for read in READS if name + read in ops) for name in step.variables}
        return Ran(results, session.run({name: read + ":0" for name, read in reads.items()}))


def with_optimizer(step, options, **more):
    """Runs a step in a session with an NpuOptimizer; `more` are further keys of its parameter_map."""
    return in_session(step, sessions.config(**as_parameters(options), **more))


def as_parameters(options):
    """The keys of a parameter_map for options of rewrite()."""
    return {"npu_shim_profile" if name == "profile" else name: value for name, value in options.items()}


def rewritten(step, options, path):
    """Runs what rewrite() made of a step, after it was in a file."""
    reads = [name for name in (op.name for op in step.graph.get_operations()) if name.endswith(READS)]
    kept = [*step.fetches, "init", *reads]
    graph_def, _ = npu_shim.rewrite(step.graph.as_graph_def(), kept, step.feeds, **options)
    path.write_bytes(graph_def.SerializeToString())
    return in_session(step, graph_def=tf.GraphDef.FromString(path.read_bytes()))


def compiled(step, options):
    """Runs a step by compile_step."""
    compiled_step = npu_shim.compile_step(step.graph, step.fetches, step.feeds, initializer="init", **options)
    results = [compiled_step(batch) for batch in refilled(step)]
    return Ran(results, compiled_step.state())


def exported(step, options, folder):
    """Exports a step and its batches to a folder, for `under_jax`."""
    shapes = {name: np.shape(value) for name, value in step.batches[0].items()}
    with tf.Session(graph=step.graph) as session:
        session.run("init")
        export.export(session, step.fetches, shapes, str(folder / "step"), **options)
    batches = {"%d|%s" % (k, name): value for k, batch in enumerate(step.batches) for name, value in batch.items()}
    np.savez(str(folder / "batches.npz"), **batches)


def under_jax(folders, steps, interpreter):
    """Runs exported steps, all in one process of that interpreter; returns a Ran, or an error's text, for each."""
    run_under_jax(folders, interpreter)
    return [ran_under_jax(folder, step) for folder, step in zip(folders, steps)]


def ran_under_jax(folder, step):
    """What a step of a folder gave there: a Ran, or an error's text."""
    if (folder / "error.txt").exists():
        return (folder / "error.txt").read_text()
    # numpy's files do not know bfloat16
    loaded = np.load(str(folder / "results.npz")).items()
    values = {name: a.view(tf.bfloat16.as_numpy_dtype) if a.dtype.kind == "V" else a for name, a in loaded}
    results = [[values["%d|%s" % (k, name)] for name in step.fetches] for k in range(len(step.batches))]
    state = {key[len("state|") :]: value for key, value in values.items() if key.startswith("state|")}
    return Ran(results, state)


def run_under_jax(folders, interpreter, **more):
    """Runs the steps of folders, see differential_jax.py; `more` goes to its environment."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    subprocess.run([interpreter, WORKER, *map(str, folders)], check=True, env=dict(clean, **more))


def differences(actual, expected):
    """What is not the same to the bit, in words."""
    told = []
    for number, (one, other) in enumerate(zip(actual.results, expected.results)):
        told += [
            "run %d, fetch %d: %s, expected %s" % (number, k, np.ravel(a).tolist(), np.ravel(b).tolist())
            for k, (a, b) in enumerate(zip(one, other))
            if not np.array_equal(np.asarray(a, np.float32), b)
        ]
    told += [
        "variable %s: %s, expected %s" % (name, np.ravel(value).tolist(), np.ravel(expected.state[name]).tolist())
        for name, value in sorted(actual.state.items())
        if name in expected.state and not np.array_equal(np.asarray(value, np.float32), expected.state[name])
    ]
    return told
