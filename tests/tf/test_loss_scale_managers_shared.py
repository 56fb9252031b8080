"""A manager that two optimizers share: each step of each of them moves it, as the guide says."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from npu_shim.loss_scale import ExponentialUpdateLossScaleManager, NPULossScaleOptimizer, next_state

OVERFLOWS = [(False, False), (False, True), (True, False), (False, False), (True, True), (False, True)] * 3


@pytest.fixture
def resource(resource, control_flow_of_version_1):
    return resource


@pytest.mark.parametrize("together", [False, True], ids=["in a run each", "one after the other in a run"])
def test_no_step_of_two_optimizers_is_lost(together, resource):
    with tf.Graph().as_default(), tf.Session() as session:
        manager = ExponentialUpdateLossScaleManager(1024.0, 3, decr_every_n_nan_or_inf=2, decr_ratio=0.5)
        fed = [tf.placeholder(tf.float32, []) for _ in range(2)]
        trained, steps = [], []
        for index, x in enumerate(fed):
            w = tf.get_variable("w%d" % index, initializer=1.0)
            trained.append(w)
            with tf.control_dependencies(steps if together else []):
                optimizer = NPULossScaleOptimizer(tf.train.GradientDescentOptimizer(0.01), manager)
                steps.append(optimizer.minimize(w * x, var_list=[w]))
        session.run(tf.global_variables_initializer())
        state = manager.initial_state
        for overflows in OVERFLOWS:
            feeds = {x: np.inf if overflow else 1.0 for x, overflow in zip(fed, overflows)}
            for step in steps[1:] if together else steps:
                session.run(step, feeds)
            for overflow in overflows:
                state = next_state(state, not overflow)
            kept = session.run(manager.variables())
            assert kept == {key: getattr(state, key) for key in kept}
        assert np.isfinite(session.run(trained)).all()
