"""`keep_dtype_scope(gradients=True)`: gradient ops are kept wherever they are made, and those of other ops are not."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.options.ops.scopes import keep_dtype_scope

LOST = np.float32(1 + 2.0**-12)  # float16 rounds it to 1
X = np.full([2, 2], LOST, np.float32)
ONES = np.float32([[1, 0], [0, 1]])


def product(x):
    return tf.matmul(x, tf.constant(ONES), name="product")


def defun(body):
    from tensorflow.python.framework import function  # noqa: TID251

    return function.Defun(tf.float32)(body)


def scoped(build):
    """`build` with its ops in a scope that keeps their gradients too."""

    def built(*arguments):
        with keep_dtype_scope(gradients=True):
            return build(*arguments)

    return built


def branches(side):
    return lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: side(x), lambda: x)


def loop(body):
    return lambda x: tf.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, body(y)), [0, x])[1]


def function(body):
    return lambda x: tf.function(body, autograph=False)(x)


def check(kept, lowered):
    """The kept product has what float16 loses, the other one has lost it."""
    np.testing.assert_array_equal(kept, X)
    np.testing.assert_array_equal(lowered, np.ones([2, 2]))


PLACES = {
    "in a Defun": lambda x: defun(scoped(product))(x),
    "around a Defun": lambda x: scoped(defun(product))(x),
    "around a Defun in a Defun": lambda x: defun(scoped(defun(product)))(x),
    "in a loop": loop(scoped(product)),
    "in a branch": branches(scoped(product)),
    "around a loop in a function": function(scoped(loop(product))),
    "in a loop in a function": function(loop(scoped(product))),
    "in a branch in a loop in a function": function(loop(branches(scoped(product)))),
    "around a function with a loop": scoped(function(loop(product))),
}


@pytest.mark.parametrize("place", PLACES)
def test_gradients_that_are_made_outside_of_where_the_scope_stands(patched, place):
    """Regression: those of Defuns, and those whose op has another name in a function, were lowered without a word."""
    with tf.Graph().as_default() as graph, sessions.control_flow(2):
        x = tf.placeholder(tf.float32, [2, 2], "x")
        dx = tf.gradients(PLACES[place](x), [x], [x])[0]
        low = tf.matmul(x, tf.constant(ONES))
    with tf.Session(graph=graph, config=sessions.config(precision_mode="allow_mix_precision")) as session:
        check(*session.run([dx, low], {x: X}))


def test_a_defun_whose_gradient_is_kept_whole_has_a_line(patched, caplog):
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [2, 2], "x")
        dx = tf.gradients(defun(scoped(lambda x: tf.matmul(product(x), x)))(x), [x])[0]
    with tf.Session(graph=graph, config=sessions.config(precision_mode="allow_mix_precision")) as session:
        session.run(dx, {x: X})
    assert "makes the gradient of the Defun" in caplog.text
    assert "keep_dtype_scope(gradients=True) inside" in caplog.text


def test_gradients_of_an_op_outside_with_the_same_last_name_are_lowered(patched):
    """Regression: product in the scope kept the gradient of layer/product too."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [2, 2], "x")
        y = scoped(product)(x)
        with tf.name_scope("layer"):
            z = product(x)
        gradients = [tf.gradients(y, [x], [x])[0], tf.gradients(z, [x], [x])[0]]
    with tf.Session(graph=graph, config=sessions.config(precision_mode="allow_mix_precision")) as session:
        check(*session.run(gradients, {x: X}))


def test_a_tape_does_not_tell_whose_gradient_it_makes(caplog):
    def body(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            with tf.name_scope("exact"):
                y = scoped(product)(x)
        return tape.gradient(y, x)

    with tf.Graph().as_default():
        function(body)(tf.placeholder(tf.float32, [2, 2]))
        assert "keep_dtype_scope(gradients=True) in 'exact' is recorded by a tf.GradientTape" in caplog.text
        caplog.clear()
        scoped(product)(tf.placeholder(tf.float32, [2, 2]))
    assert "GradientTape" not in caplog.text
