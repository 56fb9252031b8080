"""Keras under the vendor's names: regressions."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.estimator import keras
from npu_shim.loss_scale import AccumulatingOptimizer, ExponentialUpdateLossScaleManager, NPULossScaleOptimizer

pytestmark = pytest.mark.skipif(keras._OPTIMIZER is object, reason="this TensorFlow comes without Keras")


@pytest.mark.parametrize("ending", [".h5", ""])
def test_a_saved_model_with_its_distribute_optimizer_loads(tmp_path, ending):
    path = str(tmp_path / ("model" + ending))
    data = np.ones([4, 3], np.float32), np.zeros([4, 1], np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        tf.keras.backend.set_session(session)
        model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(3,))])
        inner = getattr(tf.keras.optimizers, "legacy", tf.keras.optimizers).Adam(0.25)
        model.compile(keras.npu_keras_optimizer(inner), "mse")
        model.fit(*data, epochs=2, verbose=0)
        model.save(path, **({} if ending else {"save_format": "tf"}))
        weights = model.get_weights()
    with tf.Graph().as_default(), tf.Session() as session:
        tf.keras.backend.set_session(session)
        loaded = tf.keras.models.load_model(path)
        sessions.assert_close(loaded.get_weights(), weights)
        assert isinstance(loaded.optimizer, keras.KerasDistributeOptimizer)
        assert type(loaded.optimizer._optimizer).__name__ == "Adam"
        assert tf.keras.backend.get_value(loaded.optimizer.lr) == 0.25
        if ending or not tf.__version__.startswith("1."):  # 1.15 cannot train a SavedModel in a graph
            loaded.fit(*data, verbose=0)


def fitted(wrap):
    """The weights of a model after a few steps of an optimizer of tf.train, in a session of Keras's own."""
    rows = np.random.RandomState(0).rand(8, 3).astype(np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        tf.keras.backend.set_session(session)
        model = tf.keras.Sequential([tf.keras.layers.Dense(1, kernel_initializer="ones", input_shape=(3,))])
        model.compile(wrap(tf.train.AdamOptimizer(0.25)), "mse")
        model.fit(rows, rows.sum(axis=1, keepdims=True) + 1, batch_size=4, epochs=2, shuffle=False, verbose=0)
        return model.get_weights()


def dynamic(optimizer):
    return NPULossScaleOptimizer(optimizer, ExponentialUpdateLossScaleManager(2.0**10, 2, decr_every_n_nan_or_inf=1))


@pytest.mark.parametrize(
    "wrap",
    [dynamic, lambda base: AccumulatingOptimizer(base, 1), lambda base: AccumulatingOptimizer(dynamic(base), 1)],
    ids=["dynamic scale", "accumulating", "both"],
)
def test_keras_initializes_the_variables_of_an_optimizer_that_wraps_one(wrap):
    sessions.assert_close(fitted(wrap), fitted(lambda optimizer: optimizer), rtol=1e-5)
