"""Steps on reference variables, compiled: what a session sees of their memory, and which write came first."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf
from compiled_steps import assert_as_in_a_session

import npu_shim

pytestmark = [*sessions.COMPILED, pytest.mark.usefixtures("control_flow_of_version_1")]
STEPS = 3


def variable(name="v", shape=(3,), start=1.0):
    return tf.get_variable(name, shape, initializer=tf.constant_initializer(start), use_resource=False)


def after(target, make):
    with tf.control_dependencies([target]):
        return make()


def cond_of_assigns(x, p):  # nothing was written
    v = variable()
    return [tf.cond(p, lambda: tf.assign(v, x), lambda: tf.assign_add(v, x)) * 2.0]


def cond_of_two_variables(x, p):
    v, w = variable("v"), variable("w")
    return [tf.cond(p, lambda: tf.assign(v, x), lambda: tf.assign_add(w, x)) * 2.0]


def cond_in_cond(x, p):
    v = variable()
    inner = lambda: tf.cond(x[0] > 2.0, lambda: tf.assign(v, x), lambda: tf.assign_sub(v, x))  # noqa: E731
    u = tf.cond(p, inner, lambda: tf.assign_add(v, x))
    return [u, after(u, lambda: v * 2.0)]


def cond_that_writes_or_not(x, p):
    v = variable()
    u = tf.cond(p, lambda: tf.assign_sub(v, x), lambda: v)
    used = u * 1.0  # a session does not order it before a later write, so this test does
    return [used, after(used, lambda: tf.assign_add(v, x)) * 2.0]


def assigned_value_used(x, p):
    v = variable()
    return [x * tf.assign_add(v, x)]


def names_that_are_taken(x, p):  # the read of an assignment's result is called u/value
    u = tf.assign_add(variable(), x, name="u")
    with tf.name_scope(u.op.name + "/"):
        taken = tf.identity(x, name="value")
    return [x * u + taken]


def chain_of_assigns(x, p):
    v = variable()
    u = tf.assign_add(v, x)
    w = after(u, lambda: tf.assign_sub(v, x * 0.5))
    return [x * w, w + u]


def memory_after_a_write(x, p):  # what waits sees the new value through an old Identity
    v = variable()
    waited = after(tf.assign_add(v, x), lambda: tf.identity(x))
    chosen = tf.cond(waited[0] > 1.0, lambda: waited * v, lambda: waited - v)
    return [waited + v, tf.reshape(v, [1, 3]) + waited, chosen]


def averages_after_the_optimizer(x, p):
    v, average = variable(), tf.train.ExponentialMovingAverage(0.5)
    trained = tf.train.GradientDescentOptimizer(0.125).minimize(tf.reduce_sum(v * v * x), var_list=[v])
    averaged = after(trained, lambda: average.apply([v]))
    return [after(averaged, lambda: tf.identity(average.average(v)))]


def loop_that_writes(x, p):
    v = variable()
    body = lambda i, a: after(tf.assign_add(v, x), lambda: (i + 1, a + v))  # noqa: E731
    ran = tf.while_loop(lambda i, a: i < 3, body, [0, tf.zeros([3])], parallel_iterations=1)
    return [after(ran[1], lambda: v * 1.0)]


def metrics_of_a_placeholder(x, p):  # they wait for it
    return [tf.metrics.mean(x)[1]]


def scatters(x, p):
    v = variable()
    first = tf.scatter_add(v, [0, 0], [1.0, 2.0])
    return [after(first, lambda: tf.scatter_nd_update(v, [[1]], [5.0])) + x]


def slots(make):
    def build(x, p):
        v = variable()
        trained = make().minimize(tf.reduce_sum(tf.square(v * x)), var_list=[v])
        return [after(trained, lambda: tf.identity(v))]

    return build


OPTIMIZERS = {
    "Adam": lambda: tf.train.AdamOptimizer(0.1),
    "Nesterov": lambda: tf.train.MomentumOptimizer(0.01, 0.9, use_nesterov=True),
    "CenteredRMSProp": lambda: tf.train.RMSPropOptimizer(0.1, centered=True),
    "Adagrad": lambda: tf.train.AdagradOptimizer(0.1),
    "Adadelta": lambda: tf.train.AdadeltaOptimizer(0.1),
    "Ftrl": lambda: tf.train.FtrlOptimizer(0.1),
    "ProximalAdagrad": lambda: tf.train.ProximalAdagradOptimizer(0.1),
}
STEPS_OF = [
    cond_of_assigns, cond_of_two_variables, cond_in_cond, cond_that_writes_or_not, assigned_value_used,
    names_that_are_taken, chain_of_assigns, memory_after_a_write, averages_after_the_optimizer, loop_that_writes,
    metrics_of_a_placeholder, scatters,
]  # fmt: skip


@pytest.mark.parametrize("builds", [STEPS_OF, list(map(slots, OPTIMIZERS.values()))], ids=["writes", "optimizers"])
def test_a_compiled_step_on_reference_variables_is_the_sessions(builds):
    with tf.Graph().as_default() as graph:
        x, p = tf.placeholder(tf.float32, [3], "x"), tf.placeholder(tf.bool, [], "p")
        fetches = []
        for number, build in enumerate(builds):
            with tf.variable_scope("step%d" % number):
                fetches += build(x, p)
        init = [tf.global_variables_initializer(), tf.local_variables_initializer()]
    fed = [{x: np.arange(3.0) + number, p: number % 2 == 0} for number in range(STEPS)]
    assert_as_in_a_session(graph, fetches, fed, init)


def test_a_write_to_one_of_two_variables_is_refused_with_the_way_out():
    with tf.Graph().as_default() as graph:
        p = tf.placeholder(tf.bool, [], "p")
        v, w = variable("v"), variable("w")
        either = tf.cond(p, lambda: v._ref(), lambda: w._ref())
        written = tf.identity(tf.assign_add(either, tf.ones([3])))
        init = tf.global_variables_initializer()
    step = npu_shim.compile_step(graph, [written], [p], initializer=init)
    with pytest.raises(npu_shim.PlanError, match="in the place of a variable; run the step in a session"):
        step({p: True})
