"""State that two sides write, the session and the engine's programs: every update counts, as in TensorFlow."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.engine import sessions as engine
from npu_shim.options import engine as options

pytestmark = [
    pytest.mark.skipif(not (options.has_jax() or options.interpreter()), reason="no JAX, and NPU_SHIM_JAX names none"),
    pytest.mark.skipif(tf.__version__.startswith("1."), reason="the engine needs TensorFlow 2.15 or later"),
]
ONES = np.ones([8, 4], np.float32)


@pytest.fixture(autouse=True)
def own_graph():
    import npu_shim

    npu_shim.patch()
    with tf.Graph().as_default():
        tf.set_random_seed(3)
        yield
    npu_shim.unpatch()


def opened(kind="pjrt"):
    """A session whose variables have their initial values, the same ones each time."""
    parameters = {"precision_mode": "must_keep_origin_dtype", "npu_shim_profile": "gpu", "npu_shim_engine": kind}
    session = tf.Session(config=sessions.config(**parameters))
    session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
    return session


def known_of(session):
    """The runs that the session's engine has seen."""
    return vars(session)[engine.ENGINE].known.values()


def taken(session):
    """How many runs are steps on the device."""
    return sum(known.step is not None for known in known_of(session))


@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
def test_variables_of_one_initial_tensor_keep_values_of_their_own(resource):  # V5
    x = tf.placeholder(tf.float32, [8, 4])
    start = tf.random_uniform([4, 2], seed=1)
    a, b = (tf.Variable(start, use_resource=resource) for _ in range(2))
    loss = tf.reduce_mean(tf.square(tf.matmul(x, a))) + tf.reduce_mean(tf.square(tf.matmul(x, 3 * b) - 1))
    train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)

    def trained(kind):
        with opened(kind) as session:
            session.run(train, {x: ONES})
            return session.run([a, b]), kind == "session" or taken(session)

    (wanted, _), (found, count) = trained("session"), trained("pjrt")
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert count == 1
    assert np.abs(found[0] - found[1]).max() > 1e-3
