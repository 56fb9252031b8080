"""What public scripts do with the loss-scale optimizers: names they fetch, classes they wrap, imports they rely on."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from npu_shim.loss_scale import (
    AccumulatingOptimizer,
    ExponentialUpdateLossScaleManager,
    FixedLossScaleManager,
    NPULossScaleOptimizer,
    NPUOptimizer,
)

pytestmark = pytest.mark.usefixtures("control_flow_of_version_1")


def managers():
    return {
        "exponential": ExponentialUpdateLossScaleManager(2**10, 1000, decr_ratio=0.5),
        "fixed": FixedLossScaleManager(8.0),
        "unchecked": FixedLossScaleManager(8.0, enable_overflow_check=False),
    }


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("manager", ["exponential", "fixed", "unchecked"])
def test_the_finite_check_has_the_vendors_name_in_the_scope_of_the_call(manager, resource):
    with tf.Graph().as_default() as graph, tf.Session() as session:
        x = tf.placeholder(tf.float32, [])
        w = tf.get_variable("w", initializer=1.0, use_resource=resource)
        steps = []
        for scope in ("apply_grads", ""):
            opt = NPULossScaleOptimizer(tf.train.AdamOptimizer(0.1), managers()[manager])
            pairs = opt.compute_gradients(tf.square(w) * x)
            with tf.name_scope(scope or None):
                steps.append(opt.apply_gradients(pairs))
        session.run(tf.global_variables_initializer())
        for step, scope in zip(steps, ("apply_grads/", "")):
            fetches = [step, scope + "overflow_status_reduce_all:0 ", scope + "All:0"]  # the blank is the scripts'
            for value in (1.0, np.inf):
                seen = session.run(fetches, {x: value})[1:]
                assert seen == [manager == "unchecked" or value == 1.0] * 2
        assert graph.get_tensor_by_name("loss_scale:0") is not None


def test_npu_optimizer_names_it_too():
    with tf.Graph().as_default():
        w = tf.get_variable("w", initializer=1.0, use_resource=False)
        opt = NPUOptimizer(tf.train.AdamOptimizer(0.1), managers()["exponential"], is_loss_scale=True)
        opt.minimize(tf.square(w))
        assert tf.get_default_graph().get_tensor_by_name("overflow_status_reduce_all:0").dtype == tf.bool


class Uninitialized(tf.train.Optimizer):
    """As tensor2tensor's ConditionalOptimizer: an Optimizer that never calls Optimizer.__init__."""

    def __init__(self, rate):
        self._opt = tf.train.AdamOptimizer(rate)

    def compute_gradients(self, loss, var_list=None, **kwargs):
        return self._opt.compute_gradients(loss, var_list, **kwargs)

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        return self._opt.apply_gradients(grads_and_vars, global_step=global_step, name=name)


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("wrap", [NPULossScaleOptimizer, None])
def test_an_optimizer_that_skips_the_base_constructor_trains(wrap, resource):
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", initializer=1.0, use_resource=resource)
        opt = wrap(Uninitialized(0.1), managers()["fixed"]) if wrap else Uninitialized(0.1)
        step = opt.minimize(tf.square(w))
        session.run(tf.global_variables_initializer())
        session.run(step)
        assert session.run(w) == pytest.approx(0.9)
        if wrap:
            assert sorted(v.op.name for v in opt.variables()) == ["beta1_power", "beta2_power", "w/Adam", "w/Adam_1"]
            assert opt.get_slot_names() == ["m", "v"]
            assert opt.get_slot(w, "m").op.name == "w/Adam"
            assert session.run(opt.learning_rate) == pytest.approx(0.1)


WRAPPED = {
    "plain": lambda opt: opt,
    "scaled": lambda opt: NPULossScaleOptimizer(opt, managers()["exponential"]),
    "accumulated": lambda opt: AccumulatingOptimizer(NPULossScaleOptimizer(opt, managers()["fixed"]), 1),
}


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("wrap", WRAPPED)
def test_gradients_may_be_arrays(wrap, resource):
    """Regression: plain TensorFlow takes them, and the wrappers read them as tensors: AttributeError."""
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", initializer=np.ones(2, np.float32), use_resource=resource)
        opt = WRAPPED[wrap](tf.train.GradientDescentOptimizer(1.0))
        step = opt.apply_gradients([(np.float32([0.5, 2.0]), w)])
        session.run(tf.global_variables_initializer())
        session.run(step)
        np.testing.assert_array_equal(session.run(w), [0.5, -1.0])
