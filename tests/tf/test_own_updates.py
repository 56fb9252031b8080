"""A variable that a step sets from its own value more than once: compiled, no update is lost."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.rewriter.errors import PlanError

pytestmark = pytest.mark.skipif(tf.__version__.startswith("1."), reason="compile_step needs TensorFlow 2.15")


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


def test_updates_in_conditionals_without_an_order_are_refused():
    def build(v):
        twice = [tf.cond(v > limit, lambda: tf.assign(v, v * 3.0), lambda: tf.identity(v)) for limit in (0.0, 1.0)]
        return tf.group(*twice)

    with pytest.raises(PlanError, match=r"'v' is set from its own value by 'cond/Assign' and by 'cond_1/Assign', in"):
        ran(build)
