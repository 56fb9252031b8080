"""Random orders of calls on sessions, for what an engine must keep true between training steps.

A script is a training step (differential.py) with an input, Python functions and summaries around it, and a row of
calls on two sessions of its graph: steps, parts of them, evaluations, assignments, checkpoints, other shapes, what
fails. Each call must give what it gives with plain TensorFlow, and the Python functions must be called with the same.

    train(full) | assign(v1) | train(part) | save(0) | fails(python 1) | several(3) | restore(0) | train(full) | read
"""

import contextlib
from typing import Any, Callable, Dict, List, NamedTuple

import differential
import numpy as np
import tensorflow.compat.v1 as tf
from differential import SIZE, clip

from npu_shim.estimator import iterations

CALLS = 12
NONE_BAD = -1
UNCHANGED = tf.ConfigProto()  # TensorFlow's optimizers may run what only computes a fed tensor
UNCHANGED.graph_options.rewrite_options.disable_meta_optimizer = True


class Call(NamedTuple):
    """A call on a session.

    Attributes:
        text: the call in words.
        number: which session.
        function: of a `_Side`; returns what is compared, a structure of arrays.
    """

    text: str
    number: int
    function: Callable[[Any], Any]


class Script(NamedTuple):
    """A graph and calls on sessions of it.

    Attributes:
        graph: tf.Graph.
        calls: list of Call.
        text: what the training step does.
        heard: list that the graph's Python functions append to: (number of the function, dtype, bytes of what it got).
        start: operations that initialize a session.
        again: name of the operation that `several` repeats.
    """

    graph: Any
    calls: List[Call]
    text: List[str]
    heard: List[Any]
    start: List[Any]
    again: str


class _Side:
    """One session of a script as it is performed."""

    def __init__(self, script, config, folder):
        self._script, self._config = script, config or UNCHANGED
        self.folder, self.is_plain = folder, config is None
        self.session = None
        self.open()

    def open(self):
        """A new session; what the old one held is lost."""
        self.close()
        self.session, self._callables, self._buffers = tf.Session(graph=self._script.graph, config=self._config), {}, {}
        self.session.run(self._script.start)
        if not self.is_plain:
            again = self._script.graph.get_operation_by_name(self._script.again)
            iterations.repeat(self.session, again, lambda _: 3)

    def close(self):
        if self.session is not None:
            self.session.close()

    def run(self, fetches, feeds, **more):
        """A run whose feeds are in the same buffers as those of earlier ones."""
        fed = self._refilled(feeds)
        try:
            return copied(self.session.run(fetches, fed, **more))
        finally:
            for name in fed:
                if isinstance(fed[name], np.ndarray):
                    fed[name][...] = 0

    def call(self, fetches, names, values):
        """A call of what make_callable gives, made once for each set of fetches."""
        key = tuple(fetches), tuple(names)
        if key not in self._callables:
            self._callables[key] = self.session.make_callable(fetches, names)
        return copied(self._callables[key](*values))

    def several(self, fetches, feeds):
        """Three steps in a run: by iterations_per_loop, or one after another."""
        again = self._script.again
        for _ in range(2 if self.is_plain else 0):
            self.session.run(again, feeds)
        return copied(self.session.run([fetches, again], feeds)[0])

    def _refilled(self, feeds):
        for name, value in feeds.items():
            if isinstance(value, np.ndarray):
                key = name, value.shape, value.dtype
                self._buffers.setdefault(key, np.empty_like(value))[...] = value
        return {
            name: self._buffers[name, value.shape, value.dtype] if isinstance(value, np.ndarray) else value
            for name, value in feeds.items()
        }


def copied(results):
    """Copies of what a run returned, in a list: the next run may change the memory of the originals."""
    return [np.array(value) for value in tf.nest.flatten(results) if value is not None]


def perform(script, folder, config=None):
    """Returns what each call gave: its results and what Python functions heard, or the type of its error.

    Args:
        script: Script.
        folder: pathlib.Path for checkpoints, which is made.
        config: tf.ConfigProto of both sessions, None for TensorFlow that runs the graph as it was built.
    """
    folder.mkdir(exist_ok=True)
    outcomes = []
    with contextlib.ExitStack() as stack:
        sides = [_Side(script, config, folder) for _ in range(2)]
        for side in sides:
            stack.callback(side.close)
        for call in script.calls:
            del script.heard[:]
            try:
                outcomes.append((call.function(sides[call.number]), sorted(script.heard)))
            except (tf.errors.OpError, ValueError, TypeError, RuntimeError) as error:
                outcomes.append(type(error))  # what else ran meanwhile is chance
    return outcomes


def differences(script, actual, expected):
    """What is not the same, in words, call by call; a call of a script that ran on after an error."""
    told = []
    for call, one, other in zip(script.calls, actual, expected):
        if isinstance(one, type) or isinstance(other, type):
            same = one is other
        else:
            same = _same(one[0], other[0]) and one[1] == other[1]
        if not same:
            told.append("%s: %s, expected %s" % (call.text, _shown(one), _shown(other)))
    return told


def _same(one, other):
    return len(one) == len(other) and all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(one, other))


def _shown(given):
    if isinstance(given, type):
        return given.__name__
    values = [array.tolist() for array in given[0]]
    heard = [(number, np.frombuffer(data, dtype).tolist()) for number, dtype, data in given[1]]
    return "%s%s" % (values, " heard %s" % heard if heard else "")


def build(seed):
    """Returns the Script of a seed."""
    return _Builder(seed).script()


class _Builder(differential.Builder):
    """Adds an input, Python functions, an assertion and summaries to a training step, and calls on its sessions."""

    def __init__(self, seed):
        super().__init__(seed)
        self._heard, self._uses, self._pythons, self._saved = [], [], 0, 0

    def script(self):
        with tf.Graph().as_default() as graph:
            graph.seed = 1
            self._fetches = self._grown(2, 4)
            self._reports(self._fetches)
            self._others()
            self._saver = tf.train.Saver(tf.global_variables())
            again = tf.group(self._last, name="again")
        self._pool = [self._wanted() for _ in range(3)]
        calls = [self._call() for _ in range(CALLS)]
        calls += [Call("read of %d" % number, number, self._read_all) for number in range(2)]
        return Script(graph, calls, self._text, self._heard, ["init", *self._rewind], again.name)

    # the graph around the step

    def _input(self):
        """Rows from a feed or an iterator, however many they are."""
        self._rewind, self._is_fed = [], self._one(True, True, False)
        if self._is_fed:
            self._rows = tf.placeholder(tf.float32, [None, SIZE], "rows")
        else:
            data = tf.data.Dataset.from_tensor_slices(self._integers(7, SIZE)).repeat(4).batch(3)
            iterator = tf.data.make_initializable_iterator(data)
            self._rows, self._rewind = iterator.get_next("rows"), [iterator.initializer]
        return clip(tf.matmul(self._rows, self._rows, transpose_a=True))

    def _first(self):
        """An assertion, which comes before everything that is written."""
        self._bad = tf.placeholder_with_default(np.int32(NONE_BAD), [], "bad")
        self._ok = tf.placeholder_with_default(np.array(True), [], "ok")
        rows = self._rows if self._random.random() < 0.1 else tf.identity(self._rows)  # such a step is refused
        with tf.control_dependencies([rows]):  # an assertion behind the program is not made
            return [tf.Assert(self._ok, ["it is not"]) if self._one(True, False) else tf.group(self._ok)]

    def _leaf(self):
        tensor = super()._leaf()
        likely = 0.02 if self._values else 0.2  # a host op behind a write stays in the session
        return self._python(tensor) if self._random.random() < likely else tensor

    def _python(self, tensor):
        """A tensor upside down, by a Python function that fails if it is told to."""
        number, heard, is_noted = self._pythons, self._heard, self._one(True, True, False)
        self._pythons += 1
        self._say("python%d" % number)

        def function(value, bad):
            if is_noted:
                heard.append((number, value.dtype.name, (value + 0).tobytes()))  # of zeros only one
            if is_noted and bad == number:  # TensorFlow may leave out calls that are said to have no state
                raise ValueError("python %d" % number)
            return value[::-1]

        result = tf.py_func(function, [tensor, self._bad], tensor.dtype, stateful=is_noted)
        result.set_shape(tensor.shape)
        self._uses.append(tf.identity(result))
        return self._uses[-1]

    def _after(self, tensor, name=None):
        """Also once the Python functions have run, whose results a gradient may not need."""
        with tf.control_dependencies(self._uses):
            del self._uses[:]
            return super()._after(tensor, name)

    def _reports(self, fetches):
        """What the session makes of results: summaries, text, a Python function's result."""
        *values, end, _ = fetches
        whole = tf.cast(end, tf.int32)  # of zeros only one
        text = [tf.summary.scalar("sum", tf.reduce_sum(values[0])), tf.summary.histogram("end", whole)]
        reports = [tf.summary.merge(text), tf.as_string(whole), self._python(end)]
        fetches += [tensor for tensor in reports if self._one(True, False, False)]

    def _others(self):
        """Evaluations, a second training step, and assignments."""
        one, other, third = self._variables
        product = tf.matmul(clip(one.read_value()), clip(other.read_value()))
        self._seen = [product, tf.add(clip(third), 1.0), clip(self._x - clip(one))]
        self._steps = [
            tf.assign_add(third, clip(tf.matmul(clip(one), clip(other)))).op,
            self._optimizer.minimize(tf.reduce_sum(tf.matmul(clip(other), clip(self._x))), var_list=[other]),
        ]
        self._assigned = [
            tf.assign(one, tf.negative(clip(one))), tf.assign_sub(other, tf.ones([SIZE, SIZE])),
            tf.scatter_update(third, [1], [[1.0, -1.0, 2.0, 0.0]]),
        ]  # fmt: skip
        self._reads = [self._read_of(variable) for variable in self._variables]

    def _read_of(self, variable):
        names = {op.name for op in variable.graph.get_operations()}
        return next(variable.op.name + read + ":0" for read in differential.READS if variable.op.name + read in names)

    # the calls

    def _call(self):
        make = self._one(
            *[self._train] * 8, self._train_again, self._evaluate, self._evaluate, self._assignment, self._loaded,
            self._save, self._restore, self._callable, self._fed_between, self._fed_variable, self._failing,
            self._several, self._traced, self._partial, self._start, self._new_ops, self._reopened,
        )  # fmt: skip
        text, function = make()
        number = int(self._random.random() < 0.25)
        return Call("%d %s" % (number, text), number, function)

    def _wanted(self):
        """(words, fetches) of a training run, in one of the forms that Session.run takes."""
        count = self._one(len(self._fetches), self._random.randrange(1, len(self._fetches) + 1))
        tensors = self._random.sample(self._fetches, count)
        names = [tensor.name for tensor in tensors]
        form = self._one("list", "names", "dict", "nested", "group")
        wanted_values = {
            "list": tensors, "names": names, "dict": dict(zip(names, tensors)),
            "nested": [tensors[:1], (tensors, self._last)], "group": self._last,
        }[form]  # fmt: skip
        return "%s of %s" % (form, ", ".join(names)), wanted_values

    def _feeds(self):
        """Feeds of a run by name, now and then as lists and in other dtypes."""
        rows = self._integers(self._one(SIZE, SIZE, SIZE, 2, 5), SIZE)
        number, p = self._random.randrange(3), self._one(True, False)
        feeds: Dict[str, Any] = {"p:0": np.array(p), "n:0": np.array(number, np.int32)}
        if self._is_fed:
            feeds["rows:0"] = rows
        if self._random.random() < 0.2:
            feeds = {name: value.tolist() for name, value in feeds.items()}
        elif self._random.random() < 0.2:
            feeds = {name: value.astype(np.float64) if name == "rows:0" else value for name, value in feeds.items()}
        return feeds

    def _train(self):
        (words, fetches), feeds = self._one(*self._pool), self._feeds()
        return "train(%s)" % words, lambda side: side.run(fetches, feeds)

    def _train_again(self):
        step, feeds = self._one(*self._steps), self._feeds()
        feeds = {name: value for name, value in feeds.items() if name == "rows:0"}
        return "other step(%s)" % step.name, lambda side: side.run(step, feeds)

    def _evaluate(self):
        feeds, seen = self._feeds(), self._random.sample(self._seen, 2)
        variable = self._one(*self._variables)
        if self._one(True, False):
            return "read(%s)" % variable.op.name, lambda side: copied(side.session.run(variable))
        return "evaluate", lambda side: side.run(seen, feeds)

    def _assignment(self):
        variables = self._random.sample(self._assigned, self._one(1, 2))
        return "assign(%s)" % ", ".join(variable.op.name for variable in variables), lambda side: copied(
            side.session.run(variables)
        )

    def _loaded(self):
        variable, value = self._one(*self._variables), self._integers(SIZE, SIZE)
        return "load(%s)" % variable.op.name, lambda side: copied(variable.load(value.copy(), side.session))

    def _save(self):
        number, saver = self._saved, self._saver
        self._saved += 1

        def save(side):
            path = saver.save(side.session, str(side.folder / str(number)), write_meta_graph=False)
            reader = tf.train.load_checkpoint(path)
            return copied([reader.get_tensor(name) for name in sorted(reader.get_variable_to_shape_map())])

        return "save(%d)" % number, save

    def _restore(self):
        number, saver = self._random.randrange(self._saved or 1), self._saver
        return "restore(%d)" % number, lambda side: copied(saver.restore(side.session, str(side.folder / str(number))))

    def _callable(self):
        (words, fetches), feeds = self._pool[0], self._feeds()
        fetches, values = tf.nest.flatten(fetches), [np.array(feed) for feed in feeds.values()]
        fetches = [fetch for fetch in fetches if isinstance(fetch, (tf.Tensor, str, tf.Operation))]
        return "callable(%s)" % words, lambda side: side.call(fetches, list(feeds), values)

    def _fed_between(self):
        value, (words, fetches) = self._one(*self._values), self._one(*self._pool)
        feeds = {**self._feeds(), value.name: self._integers(SIZE, SIZE)}
        return "train(%s) with %s fed" % (words, value.name), lambda side: side.run(fetches, feeds)

    def _fed_variable(self):
        read, (words, fetches) = self._one(*self._reads), self._one(*self._pool)
        feeds = {**self._feeds(), read: self._integers(SIZE, SIZE)}
        return "train(%s) with %s fed" % (words, read), lambda side: side.run(fetches, feeds)

    def _failing(self):
        (words, fetches), number = self._one(*self._pool), self._random.randrange(-1, self._pythons)
        fails = {"ok:0": np.array(False)} if number < 0 else {"bad:0": np.array(number, np.int32)}
        feeds = {**self._feeds(), **fails}
        return "train(%s) with bad %d" % (words, number), lambda side: side.run(fetches, feeds)

    def _several(self):
        (words, fetches), feeds = self._one(*self._pool), self._feeds()
        return "several(%s)" % words, lambda side: side.several(fetches, feeds)

    def _traced(self):
        (words, fetches), feeds = self._one(*self._pool), self._feeds()
        traces = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
        return "traced(%s)" % words, lambda side: side.run(
            fetches, feeds, options=traces, run_metadata=tf.RunMetadata()
        )

    def _partial(self):
        seen = self._seen[0]

        def partial(side):
            setup = side.session.partial_run_setup([seen], [])
            return copied(side.session.partial_run(setup, [seen]))

        return "partial run", partial

    def _start(self):
        if self._rewind and self._one(True, False):
            rewind = self._rewind
            return "rewind", lambda side: copied(side.session.run(rewind))
        return "init", lambda side: copied(side.session.run("init"))

    def _new_ops(self):
        variable, other = self._random.sample(self._variables, 2)

        def run(side):
            with side.session.graph.as_default():
                return copied(side.session.run(clip(tf.identity(variable)) + clip(other)))

        return "new ops(%s, %s)" % (variable.op.name, other.op.name), run

    def _reopened(self):
        return "a new session", lambda side: copied(side.open())

    def _read_all(self, side):
        return copied(side.session.run(self._variables))
