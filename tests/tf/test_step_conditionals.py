"""Conditionals of TensorFlow 1 in steps of `npu_shim.step`, and lookups in its loops, beside sessions."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

jax = pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")
from step_runs import compared, fed, program_of  # noqa: E402

from npu_shim.step import interpreter, platforms  # noqa: E402


@pytest.fixture(autouse=True)
def version_1():
    was = tf.control_flow_v2_enabled()
    tf.disable_control_flow_v2()
    with tf.Graph().as_default():
        yield
    if was:
        tf.enable_control_flow_v2()


def program(fetches, feeds, known=()):
    """The StableHLO of a step without variables."""
    step = interpreter.function(program_of(tf.get_default_graph(), fetches, [*feeds, *dict(known)]))
    known = {fed.name: value for fed, value in dict(known).items()}
    with interpreter.traced_as_tensorflow():
        shapes = {fed.name: value for fed, value in feeds.items()}
        return jax.jit(lambda fed: step({}, {**fed, **known})).lower(shapes).as_text()


def conditionals(text):
    """How many there are, and how many products stand outside of them."""
    outside, depth, count = 0, 0, 0
    for line in text.split("\n"):
        if '"stablehlo.case"' in line:
            count += 1
            depth = depth or len(line) - len(line.lstrip()) + 1
        elif depth and line.strip().startswith("})") and len(line) - len(line.lstrip()) < depth:
            depth = 0
        elif "stablehlo.dot_general" in line and not depth:
            outside += 1
    return count, outside


def square(value=0.3, size=4):
    return fed(np.linspace(-value, value, size * size).astype(np.float32).reshape(size, size))


@pytest.mark.parametrize("use_resource", [False, True])
def test_a_side_that_assigns_to_the_predicate(use_resource):
    """Of a reference variable one side gives the memory, and the other one a value."""
    flag = tf.get_variable("flag", dtype=tf.bool, initializer=True, use_resource=use_resource)
    given = tf.cond(flag, lambda: tf.assign(flag, False), lambda: True)
    compared([given], runs=3)


def test_what_only_one_side_computes():
    """Forward, gradient through the loss, nested, and a side that hands on what is outside."""
    x, given = square()
    p, yes = fed(np.bool_(True))
    w = tf.constant(np.eye(4, dtype=np.float32) * 0.5)
    inner = lambda: tf.cond(x[0, 0] > 0, lambda: tf.matmul(x, w), lambda: tf.matmul(w, tf.matmul(x, x)))  # noqa: E731
    fetches = []
    for other in (lambda: x * 2.0, inner):
        y = tf.cond(p, lambda: tf.tanh(tf.matmul(x, x)), other)
        loss = tf.reduce_sum(tf.square(y - 1.0))
        fetches += [loss, tf.gradients(loss, x)[0]]
    count, outside = conditionals(program(fetches, {x: given, p: yes}))
    assert count >= 4
    assert outside == 0
    for sign in (1, -1):
        compared(fetches, {x: sign * given, p: yes})
        compared(fetches, {x: sign * given, p: ~yes})
    assert conditionals(program(fetches[:2], {x: given}, {p: yes})) == (0, 3)  # a product, and two of its gradient
    assert conditionals(program(fetches[:2], {x: given}, {p: ~yes})) == (0, 0)


def test_cheap_sides_are_selected():
    x, given = square()
    p, yes = fed(np.bool_(True))
    y = tf.reduce_sum(tf.cond(p, lambda: x * x + 1.0, lambda: tf.exp(x)))
    fetches = [y, tf.gradients(y, x)[0]]
    assert conditionals(program(fetches, {x: given, p: yes})) == (0, 0)
    compared(fetches, {x: given, p: yes})


def test_variables_that_a_side_sets():
    """Also where what is outside reads them before and after, or both sides wait for a product of the other one."""
    x, given = square()
    p, yes = fed(np.bool_(True))
    fetches = []
    for number, resource in enumerate((False, True)):
        v = tf.get_variable("v%d" % number, initializer=np.float32(0.5 * np.eye(4)), use_resource=resource)
        n = tf.get_variable("n%d" % number, initializer=np.int32(0), use_resource=resource)
        before = tf.reduce_sum(v.read_value() + 0.0)
        with tf.control_dependencies([before]):
            later = tf.identity(x)

        def side(v=v, n=n, later=later):
            with tf.control_dependencies([tf.assign_add(n, tf.cast(later[0, 0] * 0.0, tf.int32) + 1)]):
                return tf.assign(v, tf.matmul(v, later) + tf.cast(n.read_value(), tf.float32)) + tf.matmul(x, x)

        y = tf.cond(p, side, lambda v=v: tf.matmul(v, v.read_value()))
        with tf.control_dependencies([y]):
            after = tf.matmul(v.read_value(), tf.stop_gradient(x))
        both = tf.cond(p, lambda y=y: tf.matmul(y, y), lambda after=after: tf.matmul(after, after))
        fetches += [before, y, after, both, *tf.gradients(tf.reduce_sum(after * y), [x])]
    compared(fetches, {x: given, p: yes}, runs=2)
    compared(fetches, {x: given, p: ~yes}, runs=2)


def test_two_conditionals_that_wait_for_each_other():
    """Neither can be one unit with its gradient, nor with the part of it that waits for the other one."""
    x, given = square()
    p, yes = fed(np.bool_(True))
    q, also = fed(np.bool_(False))
    _, p_side = tf.cond(p, lambda: (x, tf.matmul(x, x)), lambda: (x, tf.matmul(x, x + 1.0)))
    q_side = tf.cond(q, lambda: tf.matmul(p_side, x), lambda: tf.matmul(p_side, p_side))
    y = tf.cond(p, lambda: tf.matmul(q_side, p_side), lambda: tf.matmul(q_side, q_side))
    fetches = [y, *tf.gradients(y, x)]
    for one in (yes, ~yes):
        for other in (also, ~also):
            compared(fetches, {x: given, p: one, q: other}, tolerance=2e-6)


def test_in_a_loop_with_gradients():
    x, given = square(0.8)

    def body(i, y):
        odd = tf.equal(i % 2, 1)
        deep = lambda: tf.while_loop(lambda j, z: j < 2, lambda j, z: (j + 1, tf.tanh(tf.matmul(z, x))), [0, y])[1]  # noqa: E731
        side = lambda: tf.cond(y[0, 0] > 0, deep, lambda: tf.matmul(y, y) + x)  # noqa: E731
        return i + 1, tf.cond(odd, side, lambda: tf.sin(y))

    y = tf.while_loop(lambda i, y: i < 5, body, [0, x])[1]
    fetches = [y, tf.gradients(tf.reduce_sum(tf.square(y)), x)[0]]
    for sign in (1, -1):
        compared(fetches, {x: sign * given}, tolerance=1e-5)
    count, outside = conditionals(program(fetches, {x: given}))
    assert count >= 4
    assert outside == 0


def test_arrays_to_which_a_side_writes():
    """In a loop, and of an array that is read for the gradient."""
    x, given = square(0.8)
    kept = tf.TensorArray(tf.float32, 5, element_shape=[4, 4], clear_after_read=False).unstack(tf.stack([x] * 5))
    other = tf.TensorArray(tf.float32, 5, element_shape=[4, 4])

    def body(i, array):
        read = lambda: tf.matmul(kept.read(i), x)  # noqa: E731
        value = tf.cond(tf.equal(i % 2, 1), read, lambda: x * 2.0)
        return i + 1, tf.cond(i > 2, lambda: array.write(i, value), lambda: array.write(i, tf.matmul(value, x)))

    y = tf.while_loop(lambda i, array: i < 5, body, [0, other])[1].stack()
    compared([y, tf.gradients(tf.reduce_sum(tf.square(y)), x)[0]], {x: given}, tolerance=1e-5)


def lookups(table, ids, limit):
    """A loop that looks rows up, one that data may end before, and one on a side of a conditional."""
    looked_up = lambda i, h: (i + 1, tf.tanh(h * tf.nn.embedding_lookup(table, (ids + i) % 6)))  # noqa: E731
    times = lambda count, h: tf.while_loop(lambda i, h: i < count, looked_up, [0, h])[1]  # noqa: E731
    h = times(3, tf.ones([5, 2]))
    h = times(tf.minimum(4, limit), h)
    return tf.cond(limit > 1, lambda: times(2, h), lambda: h * 2.0)


def test_lookups_in_loops_are_trained():
    """Rows and ids of each iteration stand one behind the other in the gradient, which a loop makes.

    The gradient that the optimizer makes waits for another one, which waits for the loop.
    """
    ids, given = fed(np.int32([3, 1, 3, 0, 5]))
    limit, count = fed(np.int32(2))
    table = tf.get_variable("t", initializer=np.linspace(-1, 1, 12).astype(np.float32).reshape(6, 2))
    loss = tf.reduce_sum(tf.square(lookups(table, ids, limit) - 0.5))
    gradient = tf.convert_to_tensor(tf.gradients(loss, table)[0])
    with tf.control_dependencies([gradient]):
        train = tf.train.AdamOptimizer(0.1).minimize(loss)
    compared([loss, gradient, train], {ids: given, limit: count}, tolerance=1e-5, runs=2)


def seldom_skipped(test, rows):
    """(fetches, feed): Adam of a matrix under a test of its gradient, and rows of tables that are updated with it."""
    x = tf.placeholder(tf.float32, [4, 4])
    weights = [tf.get_variable("w%d" % n, initializer=np.float32(0.5 * np.eye(4) + n)) for n in range(8)]
    tables = [tf.get_variable("t%d" % n, initializer=np.ones((rows, 2), "f"), use_resource=True) for n in range(3)]
    loss = tf.add_n([tf.reduce_sum(tf.square(tf.matmul(x, w))) for w in weights])
    gradients = tf.gradients(loss, weights)
    optimizer = tf.train.AdamOptimizer(0.1)

    def apply():
        at = tf.IndexedSlices(tf.ones([3, 2]), tf.constant([0, 1, 0]), tf.constant([rows, 2]))
        sparse = tf.train.AdagradOptimizer(0.5).apply_gradients([(at, tables[1])])
        added = tables[2].scatter_nd_add([[1, 0], [1, 0], [3, 1]], [1.0, 2.0, 3.0])
        dense = optimizer.apply_gradients(zip(gradients, weights))
        return tf.group(dense, tables[0].scatter_sub(at), sparse, added)

    return [loss, tf.cond(test(gradients), apply, tf.no_op)], x


def every_value(gradients):
    return tf.reduce_all(tf.stack([tf.reduce_all(tf.is_finite(gradient)) for gradient in gradients]))


@pytest.mark.parametrize(("test", "rows", "count"), [
    (every_value, 4, 0), (every_value, 1000, 0), (lambda gradients: gradients[0][0, 0] < 1e9, 4, 1),
])  # fmt: skip
def test_updates_that_are_seldom_skipped_are_computed_always_on_gpus(test, rows, count):
    """Of tables of which they set a few rows, they set no row then: a choice would read and write them all."""
    fetches, x = seldom_skipped(test, rows)
    traced = program_of(tf.get_default_graph(), fetches, [x])
    state = {v.op.name: np.zeros(v.shape, v.dtype.base_dtype.as_numpy_dtype) for v in tf.global_variables()}
    for platform in ("cuda", "cpu"):
        with platforms.traced_for(platform), interpreter.traced_as_tensorflow():
            step = interpreter.function(traced)
            text = jax.jit(step).lower(state, {x.name: np.zeros((4, 4), np.float32)}).as_text()
            assert conditionals(text)[0] == (count if platform == "cuda" else 1)
            assert "tensor<%dx2xi1>" % rows not in text
    for value in (np.eye(4, dtype=np.float32), np.full((4, 4), np.inf, np.float32)):
        with platforms.traced_for("cuda"):
            compared(fetches, {x: value}, runs=2)
