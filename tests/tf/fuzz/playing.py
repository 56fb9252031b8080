"""Builds the graph of a program and runs its lines in sessions; writes down what every line gave.

trace = play(program, build(program), folder, config=...)
differences(trace, plain)
"""

import contextlib
import threading
from typing import Any, Dict, NamedTuple

import numpy as np
import sessions
import tensorflow.compat.v1 as tf

from fuzz import words

LIMIT = 20  # seconds for what may wait for ever
NAMES = {name: value for name, value in vars(words).items() if not name.startswith("_")}


class Built(NamedTuple):
    """The graph of a program, by names, so that another form of it can be run as well.

    Attributes:
        graph: tf.Graph.
        fetches: label -> (names of tensors, name of the operation or None).
        reads: variable's name (of a Twin with its container behind it, "v@c") -> name of a tensor with its value.
        loads: label of a variable -> (name of its initializer, name of the tensor that gives its value).
        savers: label -> SaverDef.
        labels: what the lines named.
    """

    graph: Any
    fetches: Dict[str, Any]
    reads: Dict[str, str]
    loads: Dict[str, Any]
    savers: Dict[str, Any]
    labels: Dict[str, Any]

    @property
    def kept(self):
        """Names of all that runs need."""
        wanted = [name for tensors, op in self.fetches.values() for name in (*tensors, op) if name]
        savers = [name for s in self.savers.values() for name in (s.save_tensor_name, s.restore_op_name)]
        return [*wanted, *self.reads.values(), *(op for op, _ in self.loads.values()), *savers, "init"]


def build(program, **more):
    """Builds the graph of a program; `more` are further words of its lines. Returns a Built."""
    # a line may turn on control flow of version 2
    with tf.Graph().as_default() as graph, sessions.control_flow(1):
        tf.set_random_seed(1)
        names = {**NAMES, "everything": everything, **more}
        for line in program.lines:
            exec(line, names)
        labels = {name: value for name, value in names.items() if name not in NAMES and name not in more}
        return _built(graph, labels)


def everything():
    """The variables that a Saver keeps: all of the graph, local ones too."""
    return list(dict.fromkeys([*tf.global_variables(), *tf.local_variables()]))


def _built(graph, labels):
    known = {variable.op.name: variable for variable in everything()}
    twins = {label.name: label for label in labels.values() if isinstance(label, words.Twin)}
    with tf.control_dependencies(None):
        reads = {name: tf.identity(variable.read_value()).name for name, variable in {**known, **twins}.items()}
        starts = [tf.variables_initializer(group, "start") for group in (tf.global_variables(), tf.local_variables())]
        tf.group(*starts, *[variable.initializer for variable in twins.values()], name="init")
    variables = {name: twin for name, twin in labels.items() if hasattr(twin, "initialized_value")}
    return Built(
        graph,
        {name: fetches for name, fetches in ((n, _fetches(v)) for n, v in labels.items()) if fetches},
        reads,
        {
            name: (variable.initializer.name, variable.initializer.inputs[1].name)
            for name, variable in variables.items()
        },
        {name: saver.as_saver_def() for name, saver in labels.items() if isinstance(saver, tf.train.Saver)},
        labels,
    )


def _fetches(value):
    if isinstance(value, words.Update):
        return [value.name for value in value.values], value.op.name
    if isinstance(value, tf.Operation):
        return [], value.name
    return ([value.name], None) if isinstance(value, tf.Tensor) and value.op.type != "Placeholder" else None


def feeds(number):
    """What a run is fed: dict of a placeholder's name to its value."""
    return {"x:0": words.numbers(number), "p:0": np.array(number % 2 == 0), "n:0": np.array(number % 3, np.int32)}


def as_written():
    """A ConfigProto of a session that runs its graph without TensorFlow's own optimizations, and so begins sooner."""
    config = tf.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return config


class Side:
    """One session as its lines are run.

    Args:
        built: Built.
        folder: pathlib.Path for checkpoints.
        config: tf.ConfigProto, None for `as_written`.
        graph: another form of the graph, None for the one of `built`.
        target: of the session.
    """

    def __init__(self, built, folder, config=None, graph=None, target=""):
        self._built, self._folder, self._graph = built, folder, graph or built.graph
        folder.mkdir(exist_ok=True, parents=True)
        with self._graph.as_default():
            self._savers = {name: tf.train.Saver(saver_def=saver_def) for name, saver_def in built.savers.items()}
        self.session = tf.Session(target, graph=self._graph, config=config or as_written())
        self.session.run("init")

    def close(self):
        self.session.close()

    def _wanted(self, label):
        tensors, op = self._built.fetches[label]
        return [*tensors, *([op] if op else [])]

    def run(self, label, number, **more):
        """A run; what is fed changes as soon as it has returned, as in a loop that fills its buffers again."""
        fed = feeds(number)
        try:
            return copied(self.session.run(self._wanted(label), fed, **more))
        finally:
            for buffer in fed.values():
                buffer[...] = 0

    def bare(self, label, number):
        """A run of the operation alone."""
        op = self._built.fetches[label][1]
        return copied([self.session.run(op, feeds(number))])

    def call(self, label, number):
        fed = feeds(number)
        return copied(self.session.make_callable(self._wanted(label), list(fed))(*fed.values()))

    def trace(self, label, number):
        traced = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
        return self.run(label, number, options=traced, run_metadata=tf.RunMetadata())

    def timed(self, label, number):
        return self.run(label, number, options=tf.RunOptions(timeout_in_ms=60000))

    def waits(self, label):
        """A run that can only end by its time limit."""
        return limited(lambda: self.run(label, 1, options=tf.RunOptions(timeout_in_ms=200)))

    def nested(self, label, number):
        """A run of which a Python function runs another step of the session."""
        words.CALLED.append(self)
        try:
            return limited(lambda: self.run(label, number))
        finally:
            words.CALLED.pop()

    def several(self, label, number):
        return [self.run(label, number + k) for k in range(3)]

    def threads(self, one, other, times, number):
        """Two steps again and again, at the same time; only the state afterwards is certain."""
        problems = []

        def repeat(label):
            try:
                for _ in range(times):
                    self.bare(label, number)
            except Exception as error:
                problems.append(error)

        started = [threading.Thread(target=repeat, args=[label], daemon=True) for label in (one, other)]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join(LIMIT)
        if any(thread.is_alive() for thread in started):
            raise Hang("threads")
        if problems:
            raise problems[0]
        return []

    def load(self, label, number):
        op, value = self._built.loads[label]
        return copied([self.session.run(op, {value: words.numbers(number)})])

    def start(self, label):
        """Gives a variable its initial value again."""
        return copied([self.session.run(self._built.loads[label][0])])

    def fed(self, label, number):
        """A run of the operation with the first value of the step fed in place of being computed."""
        tensors, op = self._built.fetches[label]
        return copied([self.session.run(op, {**feeds(number), tensors[0]: words.numbers(number + 1)})])

    def look(self):
        """The value of every variable by its name."""
        return arrays(self.session.run(self._built.reads))

    def save(self, saver, number):
        """What a checkpoint holds, by name."""
        with self._graph.as_default():
            path = self._savers[saver].save(self.session, self.path(saver, number), write_meta_graph=False)
        return contents(path)

    def restore(self, saver, number, path=None):
        with self._graph.as_default():
            self._savers[saver].restore(self.session, path or self.path(saver, number))
        return []

    def path(self, saver, number):
        return str(self._folder / ("%s%d" % (saver, number)))


def contents(path):
    """What a checkpoint holds, by name."""
    reader = tf.train.load_checkpoint(path)
    return {name: reader.get_tensor(name) for name in sorted(reader.get_variable_to_shape_map())}


class Hang(RuntimeError):
    """A run that did not come to its end."""


def limited(function):
    """What a function returns that may wait for ever.

    Raises:
        Hang: it does.
    """
    results = []

    def called():
        try:
            results.append((function(), None))
        except Exception as error:
            results.append((None, error))

    thread = threading.Thread(target=called, daemon=True)
    thread.start()
    thread.join(LIMIT)
    if not results:
        raise Hang
    value, error = results[0]
    if error is not None:
        raise error
    return value


def arrays(values):
    """Copies of the values of a dict."""
    return {name: np.array(value) for name, value in values.items()}


def copied(results):
    """Copies of what a run returned: the next run may change the memory of the originals."""
    return [np.array(result) for result in results if result is not None]


class Sides:
    """The sessions of a program by the names in its lines; each is opened when a line first speaks of it."""

    def __init__(self, program, built, folder, open_side, plain):
        self._program, self._built, self._folder, self._open = program, built, folder, open_side
        self._plain, self._sides = plain, {}

    def __getitem__(self, name):
        if name == "elsewhere":
            return self._elsewhere
        if name not in self._sides:
            built = build(self._program) if name == "o" else self._built
            self._sides[name] = self._open(built, self._folder / name)
        return self._sides[name]

    def _elsewhere(self, saver, number):
        """The state of a plain session of another graph that restores a checkpoint of `s`."""
        path = self["s"].path(saver, number)
        with contextlib.closing(Side(self._plain, self._folder / "elsewhere")) as side:
            side.restore(saver, number, path)
            return side.look()

    def leave(self):
        """Leaves the sessions open: one that waits for ever cannot be closed either."""
        self._sides.clear()

    def close(self):
        for side in self._sides.values():
            side.close()


def play(program, built, folder, open_side=Side, plain=None):
    """Runs the lines of a program; returns what each gave: lists or dicts of arrays, or the type of its error.

    Args:
        program: drawing.Program.
        built: its Built.
        folder: pathlib.Path for checkpoints.
        open_side: function of a Built and a folder that returns a Side.
        plain: the Built in whose plain session the last checkpoint is restored, None for `built`.
    """
    given = []
    with contextlib.closing(Sides(program, built, folder, open_side, plain or built)) as sides:
        for line in program.runs:
            try:
                given.append(eval(line, {}, sides))
            except (tf.errors.OpError, ValueError, TypeError, RuntimeError) as error:
                given.append(type(error))
                if isinstance(error, Hang):
                    sides.leave()
                    break
    return given


def differences(program, given, expected, partly=False):
    """What is not the same to the bit, in words, line by line; `partly`: what has not all variables or lines."""
    told = []
    for line, one, other in zip(program.runs, given, expected):
        if one is not None or not partly:
            told += ["%s: %s" % (line, line_of_difference) for line_of_difference in _different(one, other, partly)]
    return told


def _different(one, other, partly):
    if isinstance(one, type) or isinstance(other, type):
        return [] if one is other else ["%s, expected %s" % (_name(one), _name(other))]
    if isinstance(one, dict):
        told = ["%s, expected %s" % (sorted(one), sorted(other))] if sorted(one) != sorted(other) else []
        return ([] if partly else told) + [
            "%s is %s, expected %s" % (name, one[name].tolist(), other[name].tolist())
            for name in sorted(set(one) & set(other))
            if not _same(one[name], other[name])
        ]
    pairs = list(zip(tf.nest.flatten(one), tf.nest.flatten(other)))
    return ["result %d is %s, expected %s" % (k, a.tolist(), b.tolist()) for k, (a, b) in enumerate(pairs)
            if not _same(a, b)]  # fmt: skip


def _same(one, other):
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool(np.all((one == other) | ((one != one) & (other != other))))  # not a number is itself here


def _name(given):
    return given.__name__ if isinstance(given, type) else "a result"
