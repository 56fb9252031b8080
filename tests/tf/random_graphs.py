"""Random small programs with control flow and functions, as hypothesis draws them, and the graphs that they are.

A program is a list of steps on one [4, 4] matrix. Every step keeps its entries within [-1, 1] and changes distances by
a factor of at most one, so that errors only add up: an op adds at most what it rounds.
"""

from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf
from hypothesis import strategies as st

SIZE = 4
LEAVES = ("matmul", "product", "tanh", "bias", "exp", "softmax", "transpose", "reshape", "split", "keep")
ROTATION = np.linalg.qr(np.random.RandomState(0).randn(SIZE, SIZE))[0].astype(np.float32) / 2


def steps(inner):
    """Steps that contain others; `inner` draws one step."""
    body = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        st.tuples(st.just("while"), st.integers(0, 3), body),
        st.tuples(st.just("cond"), st.booleans(), body, body),
        st.tuples(st.just("case"), st.integers(0, 2), body, body),
        st.tuples(st.just("call"), st.integers(1, 3), body),
        st.tuples(st.just("array"), st.integers(1, 3), body),
    )


STEP = st.recursive(st.sampled_from(LEAVES), steps, max_leaves=6)


class Program(NamedTuple):
    """Steps, version of control flow; whether gradients are fetched, the weight is a variable, shapes are dynamic."""

    steps: tuple
    version: int
    gradient: bool
    variable: bool
    dynamic: bool = False


PROGRAMS = st.builds(
    Program,
    st.lists(STEP, min_size=1, max_size=4).map(tuple),
    st.sampled_from([1, 2]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)


class Built(NamedTuple):
    """A program's graph: fetches are tensor names, `ops` how many ops in a row an entry goes through at most."""

    graph_def: object
    fetches: list
    init: str
    ops: int


def build(program):
    """Builds the graph of a program."""
    was = tf.control_flow_v2_enabled()
    (tf.enable_control_flow_v2 if program.version == 2 else tf.disable_control_flow_v2)()
    try:
        with tf.Graph().as_default() as graph:
            x = tf.constant(np.random.RandomState(1).uniform(-1, 1, [SIZE, SIZE]).astype(np.float32))
            x = tf.placeholder_with_default(x, [None, None] if program.dynamic else [SIZE, SIZE], "x")
            weight = _weight(program.variable)
            # TensorFlow's own gradients of calls in branches in loops of version 1 do not run
            builder = _Builder(weight, program.version == 2 or not program.gradient, program.dynamic)
            y = builder.run(x, program.steps)
            fetches = [y]
            if program.gradient:
                fetches += [g for g in tf.gradients(tf.reduce_sum(y), [x, weight]) if g is not None]
            init = tf.global_variables_initializer().name
            fetches = [tf.identity(fetch).name for fetch in fetches]
            return Built(graph.as_graph_def(), fetches, init, builder.ops(program.steps))
    finally:
        (tf.enable_control_flow_v2 if was else tf.disable_control_flow_v2)()


def _weight(variable):
    if variable:
        return tf.get_variable("w", initializer=ROTATION, use_resource=True)
    return tf.placeholder_with_default(ROTATION, [SIZE, SIZE], "w")


class _Builder:
    def __init__(self, weight, functions, dynamic):
        self.weight, self.functions, self.dynamic = weight, functions, dynamic

    def run(self, h, body):
        for step in body:
            h = getattr(self, "_" + step)(h) if isinstance(step, str) else getattr(self, "_" + step[0])(h, *step[1:])
        return h

    def ops(self, body):
        """Ops in a row that run at most; each leaf is at most four."""
        return sum(4 if isinstance(step, str) else self._ops(*step) for step in body)

    def _ops(self, kind, number, *bodies):
        ops = max(self.ops(body) for body in bodies)
        return 2 + (number if kind in ("while", "array", "call") else 1) * (ops + 2)

    def _matmul(self, h):
        return tf.matmul(h, self.weight)

    def _product(self, h):
        return tf.matmul(h, h, transpose_b=True) / SIZE / 2

    def _tanh(self, h):
        return tf.tanh(h)

    def _bias(self, h):
        return h * 0.5 + tf.constant(0.25, shape=[SIZE])

    def _exp(self, h):
        return tf.exp(-tf.square(h)) * 0.5

    def _softmax(self, h):
        return tf.nn.softmax(h)

    def _transpose(self, h):
        return tf.transpose(h)

    def _reshape(self, h):
        return tf.reshape(tf.reshape(h, [2, -1]), [SIZE, SIZE])

    def _split(self, h):
        left, right = tf.split(h, 2)
        return tf.concat([right, left], 0)

    def _keep(self, h):
        with tf.get_default_graph()._attr_scope({"_keep_dtype": tf.AttrValue(i=1)}):
            return tf.tanh(h)

    def _while(self, h, times, body):
        def once(i, g):
            return i + 1, self._same(self.run(g, body))

        return tf.while_loop(lambda i, _: i < times, once, [0, h], self._invariants())[1]

    def _invariants(self, *more):
        """Shapes of a counter, a matrix and what else goes round a loop, in which they may change."""
        return [tf.TensorShape([]), tf.TensorShape([None, None] if self.dynamic else [SIZE, SIZE]), *more]

    def _same(self, h):
        if not self.dynamic:
            h.set_shape([SIZE, SIZE])
        return h

    def _cond(self, h, which, then, other):
        which = tf.placeholder_with_default(which, [])
        return self._same(tf.cond(which, lambda: self.run(h, then), lambda: self.run(h, other)))

    def _case(self, h, which, first, second):
        branches = [lambda: self.run(h, first), lambda: self.run(h, second), lambda: h]
        return self._same(tf.switch_case(tf.placeholder_with_default(which, []), [*branches]))

    def _call(self, h, times, body):
        if not self.functions:
            return self._same(self.run(h, body * times))
        called = tf.function(lambda g: self.run(g, body), autograph=False)
        for _ in range(times):
            h = self._same(called(h))
        return h

    def _array(self, h, times, body):
        """Writes the values of a loop into a list and takes the mean."""
        def once(i, g, array):
            g = self._same(self.run(g, body))
            return i + 1, g, array.write(i, g)

        array = tf.TensorArray(tf.float32, times, element_shape=[SIZE, SIZE])
        shapes = self._invariants(tf.TensorShape(None))
        _, _, array = tf.while_loop(lambda i, *_: i < times, once, [0, h, array], shapes)
        return tf.reduce_mean(array.stack(), 0)
