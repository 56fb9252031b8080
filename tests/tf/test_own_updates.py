"""A variable that a step sets from its own value more than once: compiled, no update is lost."""

import functools
from itertools import permutations

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim

pytestmark = sessions.COMPILED


@pytest.fixture(autouse=True)
def control_flow_v1():
    was = tf.control_flow_v2_enabled()
    tf.disable_control_flow_v2()
    yield
    if was:
        tf.enable_control_flow_v2()


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("losses", [2, 3])
def test_one_adam_that_minimizes_several_losses_in_a_step(resource, losses):
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4], "x")
        optimizer = tf.train.AdamOptimizer(0.1)
        train = []
        for number in range(losses):
            w = tf.get_variable("w%d" % number, initializer=np.ones(4, np.float32), use_resource=resource)
            train.append(optimizer.minimize(tf.reduce_sum(tf.square(w * x)), var_list=[w]))
        step = npu_shim.compile_step(graph, train, [x], initializer=tf.global_variables_initializer())
        powers = [variable.op.name for variable in optimizer._get_beta_accumulators()]
        for _ in range(3):
            step({x: np.arange(4, dtype=np.float32)})
    turns = 1 + 3 * losses  # a session may lose one where its threads meet, TensorFlow's own too
    np.testing.assert_allclose([step.state()[name] for name in powers], [0.9**turns, 0.999**turns], rtol=1e-6)


def ran(build):
    """A variable of 2.0 after a compiled step that runs what `build` makes of it."""
    with tf.Graph().as_default() as graph:
        v = tf.get_variable("v", initializer=2.0)
        step = npu_shim.compile_step(graph, build(v), initializer=v.initializer)
        step()
        return step.state()["v"]


def test_what_the_script_orders_stays_so():
    def build(v):
        first = tf.assign(v, v * 3.0)
        with tf.control_dependencies([first]):
            return [tf.assign(v, v + 1.0), first]

    assert ran(build) == 7


def test_two_sides_of_a_conditional_exclude_each_other():
    assert ran(lambda v: tf.cond(v > 1.0, lambda: tf.assign(v, v * 3.0), lambda: tf.assign(v, v * 5.0))) == 6


def thrice(v, x):
    return tf.group([tf.assign(v, v + float(2**number)) for number in range(3)])


def passed_on(v, x):
    return thrice(v, x, lambda v, amount: tf.identity(tf.stop_gradient(v + amount)))


def differences(v, x):
    return tf.group([tf.assign_sub(v, 1.0 - v * 2.0), tf.assign(v, v + 4.0), tf.assign_sub(v, v - 2.0)])


def of_what_one_returns(v, x):
    return tf.group(tf.assign(v, tf.assign_add(v, 1.0) * 2.0))


def behind_products(v, x):
    updates = []
    for number in range(3):
        with tf.control_dependencies([tf.matmul(x, x + float(number))]):
            updates.append(tf.assign(v, v + 2.0**number))
    return tf.group(updates)


def in_cond(updates):
    return lambda v, x: tf.cond(x[0, 0] > 0, lambda: updates(v, x), tf.no_op)


def in_conds(v, x):
    inner = lambda: tf.cond(x[0, 1] > 0, lambda: thrice(v, x), tf.no_op)  # noqa: E731
    return tf.cond(x[0, 0] > 0, lambda: tf.group(inner(), tf.assign(v, v + 8.0)), tf.no_op)


def around_a_cond(v, x):
    return tf.group(in_cond(thrice)(v, x), tf.assign(v, v + 8.0))


def in_loop(v, x):
    def body(i):
        with tf.control_dependencies([thrice(v, x)]):
            return i + 1

    return tf.while_loop(lambda i: i < 2, body, [0])


def serial(*updates):
    """What a variable of 0 may be after some updates, one after the other in any order."""
    return {functools.reduce(lambda value, update: update(value), order, 0.0) for order in permutations(updates)}


SUBTRACTED = serial(lambda v: v - (1 - v * 2), lambda v: v + 4, lambda v: v - (v - 2))
# what makes the updates of a variable of 0 -> its values after a step: all updates count, as in a session that has time
UPDATES = {thrice: {7}, passed_on: {7}, behind_products: {7}, in_cond(thrice): {7}, in_cond(passed_on): {7},
           in_conds: {15}, around_a_cond: {15}, in_loop: {14}, differences: SUBTRACTED, of_what_one_returns: {2},
           in_cond(of_what_one_returns): {2}}  # fmt: skip


@pytest.mark.parametrize("resource", [False, True], ids=["references", "resources"])
def test_no_update_is_lost_wherever_it_is(resource):
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [2, 2], "x")
        variables = [tf.get_variable("v%d" % n, initializer=0.0, use_resource=resource) for n in range(len(UPDATES))]
        ops = [build(v, x) for build, v in zip(UPDATES, variables)]
        step = npu_shim.compile_step(graph, ops, [x], initializer=tf.global_variables_initializer())
        step({x: np.ones([2, 2], np.float32)})
    values = [float(step.state()[v.op.name]) for v in variables]
    wrong = [(build, value) for (build, may_be), value in zip(UPDATES.items(), values) if value not in may_be]
    assert not wrong


def test_updates_of_one_kind_that_the_script_orders_all_count():
    """TensorFlow puts the order on the constant of the second `v + 1`, and none on its Add."""

    def build(v):
        first = tf.assign(v, v + 1.0)
        with tf.control_dependencies([first]):
            return tf.assign(v, v + 1.0)

    with tf.Graph().as_default() as graph:
        variables = [tf.get_variable("v%d" % n, initializer=1.0, use_resource=bool(n)) for n in range(2)]
        ops = [build(v) for v in variables]
        step = npu_shim.compile_step(graph, ops, [], initializer=tf.global_variables_initializer())
        step()
    assert [float(step.state()[v.op.name]) for v in variables] == [3.0, 3.0]
