"""What a line of a random program can say beside TensorFlow itself.

All numbers are integers (a moving average has halves), small enough that every precision mode gives them exactly. What
a step reads, it reads before it writes, so that nothing is left to chance.
"""

import random
import time
from typing import Any, List, NamedTuple

import differential
import numpy as np
import tensorflow.compat.v1 as tf
from differential import SIZE, clip

CALLED: List[Any] = []  # the playing.Side whose step a Python function may run, see `calling`


class Update(NamedTuple):
    """A step: what it computes, those of the steps before it first, and the operation that runs it."""

    values: List[Any]
    op: Any


def inputs():
    """The placeholders x (a matrix), p (bool) and n (int)."""
    return tf.placeholder(tf.float32, [SIZE, SIZE], "x"), tf.placeholder(tf.bool, [], "p"), tf.placeholder(
        tf.int32, [], "n"
    )  # fmt: skip


def numbers(seed):
    """A matrix of small integers."""
    return np.random.RandomState(seed).randint(-2, 3, [SIZE, SIZE]).astype(np.float32)


def integers(seed):
    """A constant matrix."""
    return tf.constant(numbers(seed))


def chance(seed):
    """A random matrix, the same in every session's first run of it."""
    return tf.cast(tf.random_uniform([SIZE, SIZE], -2, 3, tf.int32, seed=seed), tf.float32)


def unknown(seed):
    """A matrix whose shape the graph does not know."""
    return tf.placeholder_with_default(numbers(seed), None)


class Twin:
    """A variable that has the name of another one, in a container of its own.

    Args:
        of: resource variable.
        container: str.
        seed: of its initial value.
    """

    def __init__(self, of, container, seed):
        shared = of.handle.op.get_attr("shared_name").decode() or of.op.name
        self.handle = tf.raw_ops.VarHandleOp(
            dtype=tf.float32, shape=[SIZE, SIZE], shared_name=shared, container=container
        )
        self.name = "%s@%s" % (shared, container)
        self.initializer = tf.raw_ops.AssignVariableOp(resource=self.handle, value=integers(seed))

    def read_value(self):
        return tf.raw_ops.ReadVariableOp(resource=self.handle, dtype=tf.float32)

    def assign_add(self, delta):
        return tf.raw_ops.AssignAddVariableOp(resource=self.handle, value=delta)


def within(container, build):
    """What `build()` makes, in a container."""
    with tf.container(container):
        return build()


def read(variable):
    """A variable as a matrix of small numbers, read here."""
    parts = variable if hasattr(variable, "as_tensor") else [variable]
    return clip(tf.reshape(tf.cast(tf.concat([part.read_value() for part in parts], 0), tf.float32), [SIZE, SIZE]))


def product(*variables):
    """The product of x and variables."""
    value = tf.get_default_graph().get_tensor_by_name("x:0")
    for variable in variables:
        value = clip(tf.matmul(value, read(variable)))
    return value


class _Parts(differential.Builder):
    """The expressions and writes of differential.py over given variables."""

    def __init__(self, seed, variables):
        super().__init__(seed)
        graph = tf.get_default_graph()
        self._x, self._p, self._n = (graph.get_tensor_by_name(name) for name in ("x:0", "p:0", "n:0"))
        self._variables = list(variables)
        self._optimizer = tf.train.GradientDescentOptimizer(1.0)


def matrix(seed, *variables):
    """An expression of x and variables, with control flow and gradients."""
    return _Parts(seed, variables)._matrix(2)


def written(seed, value, *variables):
    """A write in a conditional, in a loop, or of rows."""
    parts = _Parts(seed, variables)
    way = random.Random(seed).choice((parts._written_in_cond, parts._written_in_loop, parts._scatter))
    return way(variables[0], value)


def update(before, compute, write):
    """An Update: runs `before` (another one, or None), computes a value, then writes.

    Args:
        before: Update or None.
        compute: function that returns a matrix.
        write: function of it that returns what writes: operations or tensors.
    """
    with tf.control_dependencies([] if before is None else [before.op]):
        value = tf.identity(clip(compute()))
    with tf.control_dependencies([tf.group(value)]):
        op = tf.group(write(value))
    return Update([*(before.values if before else ()), value], op)


def counter():
    """The global step: a resource, which two optimizers can count at the same time (those of a reference get lost)."""
    with tf.variable_scope(tf.get_variable_scope(), use_resource=True):
        return tf.train.get_or_create_global_step()


def minimize(optimizer, value, variables, counted=False):
    """A step of an optimizer on the product of one or two variables, times a matrix that is no longer learned."""
    flat = [part for variable in variables for part in (variable if hasattr(variable, "as_tensor") else [variable])]
    whole = read(variables[0])
    for factor in variables[1:]:
        whole = clip(tf.matmul(whole, read(factor)))
    loss = tf.reduce_sum(whole * tf.stop_gradient(value))
    step = tf.train.get_or_create_global_step() if counted else None
    return optimizer.minimize(loss, step, flat, gate_gradients=tf.train.Optimizer.GATE_GRAPH)


def minimize_rows(optimizer, value, variable):
    """A step of an optimizer on rows of a resource variable, one of them twice: its gradient is sparse."""
    loss = tf.reduce_sum(clip(tf.gather(variable, [0, 2, 2])) * tf.stop_gradient(value[:3]))
    return optimizer.minimize(loss, None, [variable], gate_gradients=tf.train.Optimizer.GATE_GRAPH)


def rate():
    """A learning rate that follows the global step, read where an optimizer asks for it."""
    return tf.train.piecewise_constant(counter(), [1, 3], [1.0, 2.0, 0.0])


def sometimes(write):
    """Writes if p."""
    decides = tf.identity(tf.get_default_graph().get_tensor_by_name("p:0"))  # waits for what the step waits for
    return tf.cond(decides, lambda: tf.group(write()), tf.no_op)


def repeatedly(write):
    """Writes n times, in a loop."""
    times = tf.identity(tf.get_default_graph().get_tensor_by_name("n:0"))

    def body(k):
        with tf.control_dependencies([tf.group(write())]):
            return k + 1

    return tf.while_loop(lambda k: k < times, body, [0], parallel_iterations=1)


def in_function(write, value):
    """Writes in a function."""
    return tf.function(write, autograph=False)(value)


def asserting(tensor):
    """A matrix if p; otherwise the step ends here, with an error."""
    with tf.control_dependencies([tf.Assert(tf.get_default_graph().get_tensor_by_name("p:0"), [tensor])]):
        return tf.identity(tensor)


def assign_parts(variable, value):
    """Adds to a partitioned variable, part by part."""
    return [part.assign_add(piece) for part, piece in zip(variable, tf.split(value, len(list(variable))))]


def through_alias(variable, value):
    """Adds to a variable through an Identity of its reference or handle."""
    if hasattr(variable, "handle"):
        return tf.raw_ops.AssignAddVariableOp(resource=tf.identity(variable.handle), value=value)
    return tf.raw_ops.AssignAdd(ref=tf.raw_ops.RefIdentity(input=variable._ref()), value=value)


def python(tensor):
    """A matrix upside down, by a Python function."""
    result = tf.py_func(lambda value: value[::-1].copy(), [tensor], tf.float32)
    result.set_shape([SIZE, SIZE])
    return result


def slow(tensor, seconds=0.01):
    """A matrix after a while, by a Python function."""

    def function(value):
        time.sleep(seconds)
        return value.copy()

    result = tf.py_func(function, [tensor], tf.float32)
    result.set_shape([SIZE, SIZE])
    return result


def calling(tensor, label):
    """A matrix, once another step of the same session has run inside of this one."""

    def function(value):
        CALLED[-1].run(label, 1)
        return value.copy()

    result = tf.py_func(function, [tensor], tf.float32)
    result.set_shape([SIZE, SIZE])
    return result


def waiting(variable):
    """A product with what a queue never gives."""
    queue = tf.FIFOQueue(1, tf.float32, shapes=[[SIZE, SIZE]])
    return clip(tf.matmul(read(variable), queue.dequeue()))


def adding(variable, still):
    """Adds to a variable, locked, a product of x and one that nothing writes meanwhile."""
    return tf.group(tf.assign_add(variable, product(still), use_locking=True))


def counting(variable):
    """Adds one to a variable, locked, after a while and before a while."""
    with tf.control_dependencies([slow(tf.zeros([SIZE, SIZE]))]):
        added = tf.assign_add(variable, tf.ones([SIZE, SIZE]), use_locking=True)
    with tf.control_dependencies([added]):
        return tf.group(slow(tf.zeros([SIZE, SIZE])))
