"""Loss scaling in eager code, and in functions that it calls: the same steps as in a graph."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.loss_scale.managers import contrib, managers
from npu_shim.loss_scale.optimizers.accumulate import AccumulatingOptimizer
from npu_shim.loss_scale.optimizers.optimizer import LossScaleOptimizer, NPULossScaleOptimizer
from npu_shim.rewriter import tf_internals

STEPS = [0.5, np.inf, 0.25, np.nan, -np.inf, 0.125, 1.0, 2.0, np.inf, 0.5]
MANAGERS = {
    "fixed": lambda: managers.FixedLossScaleManager(2.0**10),
    "unchecked": lambda: managers.FixedLossScaleManager(2.0**10, enable_overflow_check=False),
    "ascend": lambda: managers.ExponentialUpdateLossScaleManager(2.0**10, 2, 2, 2.0, 0.5),
    "contrib": lambda: contrib.ExponentialUpdateLossScaleManager(2.0**10, 2, 1),
}
OPTIMIZERS = {"plain": LossScaleOptimizer, "npu": NPULossScaleOptimizer}


def in_a_graph(make, wrapper, steps):
    """Returns the history of (variable, scale, attempted, skipped) of a session."""
    with tf.Graph().as_default(), tf.Session() as session:
        w, slope = tf.Variable([3.0], use_resource=True), tf.placeholder(tf.float32, [])
        manager = make()
        optimizer = wrapper(tf.train.MomentumOptimizer(0.5, 0.5), manager)
        pairs = optimizer.compute_gradients(tf.reduce_sum(w) * slope, [w])
        train = optimizer.apply_gradients(pairs)
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        scale, history = tf.identity(manager.get_loss_scale()), []
        for value in steps:
            session.run(train, {slope: value})
            history.append(session.run([w, scale, optimizer.attempted_steps, optimizer.skipped_steps]))
        return history


def eagerly(make, wrapper, steps, in_function):
    """Returns the same of eager code."""
    with tf_internals.eager_mode():
        w, manager = tf.Variable([3.0]), make()
        optimizer = wrapper(tf.train.MomentumOptimizer(0.5, 0.5), manager)

        def step(slope):
            optimizer.apply_gradients(optimizer.compute_gradients(lambda: tf.reduce_sum(w) * slope, [w]))

        step, history = tf.function(step) if in_function else step, []
        for value in steps:
            step(tf.constant(value, tf.float32))
            now = w, manager.get_loss_scale(), optimizer.attempted_steps, optimizer.skipped_steps
            history.append([tf.identity(value).numpy() for value in now])
        return history


@pytest.mark.by_day("ascend-npu-function", "contrib-plain-eager", "unchecked-npu-eager", "fixed-plain-function")
@pytest.mark.parametrize("in_function", [False, True], ids=["eager", "function"])
@pytest.mark.parametrize("wrapper", sorted(OPTIMIZERS))
@pytest.mark.parametrize("manager", sorted(MANAGERS))
def test_steps_are_those_of_a_graph(manager, wrapper, in_function):
    expected = in_a_graph(MANAGERS[manager], OPTIMIZERS[wrapper], STEPS)
    history = eagerly(MANAGERS[manager], OPTIMIZERS[wrapper], STEPS, in_function)
    for ours, theirs in zip(history, expected):
        np.testing.assert_array_equal(
            np.concatenate([np.ravel(a) for a in ours]), [float(np.ravel(a)[0]) for a in theirs]
        )


def test_what_scripts_ask_of_a_step_is_there():
    with tf_internals.eager_mode():
        w, average, step = tf.Variable([3.0]), tf.Variable([0.0]), tf.train.get_or_create_global_step()
        optimizer = LossScaleOptimizer(tf.train.AdamOptimizer(0.5), MANAGERS["ascend"](), protect_update_ops=True)
        seen = []
        for slope in (1.0, np.inf, 1.0):
            optimizer.minimize(lambda slope=slope: tf.reduce_sum(w) * slope, global_step=step)
            optimizer.when_finite(lambda: average.assign_add([1.0]))
            seen.append((bool(optimizer.grads_finite), int(step), float(average[0])))
        assert seen == [(True, 1, 1.0), (False, 1, 1.0), (True, 2, 2.0)]
        assert optimizer.get_slot(w, "m").shape == [1]
        assert {variable.name.split(":")[0] for variable in optimizer.variables()} > {"loss_scale", "good_steps"}


def test_a_stuck_scale_raises():
    with tf_internals.eager_mode():
        w = tf.Variable([3.0])
        manager = managers.FixedLossScaleManager(1.0)
        optimizer = LossScaleOptimizer(tf.train.GradientDescentOptimizer(1.0), manager, on_stuck="raise", stuck_after=2)
        optimizer.minimize(lambda: tf.reduce_sum(w) * np.inf)
        with pytest.raises(tf.errors.InvalidArgumentError, match="smallest loss scale"):
            optimizer.minimize(lambda: tf.reduce_sum(w) * np.inf)


def test_eager_steps_leave_nothing_behind():
    with tf_internals.eager_mode():
        w = tf.Variable([3.0])
        optimizer = LossScaleOptimizer(tf.train.GradientDescentOptimizer(0.0), MANAGERS["ascend"]())
        optimizer.minimize(lambda: tf.reduce_sum(w))
        graph = tf.get_default_graph()
        before = {key: len(graph.get_collection(key)) for key in graph.get_all_collection_keys()}
        optimizer.minimize(lambda: tf.reduce_sum(w))
        assert {key: len(graph.get_collection(key)) for key in graph.get_all_collection_keys()} == before


def test_gathered_gradients_need_a_graph():
    with tf_internals.eager_mode():
        w = tf.Variable([3.0])
        optimizer = AccumulatingOptimizer(tf.train.GradientDescentOptimizer(1.0), 2)
        with pytest.raises(npu_shim.ConfigError, match="AccumulatingOptimizer works in graphs"):
            optimizer.minimize(lambda: tf.reduce_sum(w))
