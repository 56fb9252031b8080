"""Scripts on the package keras of TensorFlow 1's time; one test needs it, and so a Python of its own."""

import os
import subprocess
import sys
import types

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from npu_shim.loss_scale.automatic import calls, keras_updates, patches
from npu_shim.options import collected

PYTHON = os.environ.get("NPU_SHIM_KERAS")
SCRIPT = """
import numpy as np, keras
from keras import backend as K
from keras.layers import Dense, Input
from keras.models import Model, load_model

np.random.seed(0)
base = np.random.rand(4, 64) > .5
x = (base[np.random.randint(0, 4, 1024)] ^ (np.random.rand(1024, 64) > .95)).astype("float32")
image = Input(shape=(64,))
model = Model(image, Dense(64, activation="sigmoid")(Dense(16, activation="relu")(image)))
model.compile(optimizer="adadelta", loss="binary_crossentropy")
losses = model.fit(x, x, epochs=10, batch_size=64, verbose=0).history["loss"]
print("RATE", K.get_value(model.optimizer.lr), "LOSSES", losses[0], losses[-1])
model.save("model.h5")
print("SAME", np.abs(load_model("model.h5").predict(x) - model.predict(x)).max())
import horovod.keras as hvd
hvd.init()
print("LOADED", type(hvd.load_model("model.h5").optimizer).__module__)
large = keras.models.Sequential([Dense(16, activation="relu", input_dim=64), Dense(1)])
large.compile("adam", "mse")
before, target = large.get_weights()[0], 1000 * np.random.randn(1024, 1)
large.train_on_batch(x, target)
print("KEPT", (large.get_weights()[0] == before).all(), K.get_value(large.optimizer.iterations))
for _ in range(30):
    large.train_on_batch(x, target)
print("STEPS", K.get_value(large.optimizer.iterations), np.isfinite(large.get_weights()[0]).all())
"""


@pytest.mark.skipif(not PYTHON, reason="NPU_SHIM_KERAS names no Python with keras 2.2.4 or 2.3.1, and tf_keras")
@pytest.mark.parametrize(
    "options", [[], ["--precision-mode", "allow_mix_precision", "--report", "page.html"]], ids=["float32", "float16"]
)
def test_keras_trains_with_its_own_numbers(tmp_path, options):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [PYTHON, "-m", "npu_shim", "run", *options, "script.py"], cwd=str(tmp_path), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "page.html").exists() == bool(options)
    words = done.stdout.split()
    assert words[words.index("RATE") + 1] == "1.0"
    first, last = map(float, words[words.index("LOSSES") + 1 :][:2])
    # TensorFlow 1.15.5: .6814 and .2262 with keras 2.2.4, .6815 and .2270 with 2.3.1; tf.keras: .711 and .711
    assert first == pytest.approx(0.6815, abs=0.002)
    assert last == pytest.approx(0.2266, abs=0.003)  # in float16 too: its 1 / (1 - p) is float32, as p's bound is
    assert words[words.index("SAME") + 1] == "0.0"
    assert words[words.index("LOADED") + 1] == "keras.optimizers"
    kept, steps = words[words.index("KEPT") + 1 :][:2], words[words.index("STEPS") + 1 :][:2]
    # in float16 the loss overflows at the first scale: the step is left out
    assert kept == (["True", "0"] if options else ["False", "1"])
    assert 0 < int(steps[0]) < 31 if options else steps[0] == "31"
    assert steps[1] == "True"


class Momentum:
    """An optimizer as Keras 2.3's are written."""

    def __init__(self, backend):
        self.backend, self.iterations = backend, tf.Variable(0, dtype=tf.int64)

    def get_gradients(self, loss, params):
        return tf.gradients(loss, params)

    def get_updates(self, loss, params):
        gradients = self.get_gradients(loss, params)
        updates = [self.backend.update_add(self.iterations, 1)]
        for variable, gradient in zip(params, gradients):
            moment = tf.Variable(tf.zeros(variable.shape))
            value = 0.5 * moment - 0.25 * gradient
            updates += [self.backend.update(moment, value), self.backend.update_add(variable, value)]
        return updates


class Heir(Momentum):
    def get_updates(self, loss, params):
        return super().get_updates(loss, params)


@pytest.fixture
def backend(monkeypatch):
    """A backend of Keras, as far as its optimizers assign by it."""
    module = types.ModuleType(keras_updates.BACKEND)
    module.update, module.update_add, module.update_sub = tf.assign, tf.assign_add, tf.assign_sub
    monkeypatch.setitem(sys.modules, keras_updates.BACKEND, module)
    originals = dict(vars(module))
    yield module
    assert vars(module) == originals


@pytest.mark.parametrize("kind", [Momentum, Heir])
def test_a_step_that_overflows_changes_nothing_and_moves_the_scale(monkeypatch, backend, kind):
    patches.install("auto", lambda: True)
    try:
        for cls in (Momentum, Heir):
            monkeypatch.setattr(cls, "get_updates", keras_updates.selecting(cls.get_updates, patches.settings))
        with tf.Graph().as_default() as graph, tf.Session() as session:
            weight, factor = tf.Variable([1.0, 2.0]), tf.placeholder(tf.float32, [])
            optimizer = kind(backend)
            updates = optimizer.get_updates(tf.reduce_sum(weight * factor), [weight])
            assert "get_gradients" not in vars(optimizer)
            session.run(tf.global_variables_initializer())
            (manager,) = set(calls.registry_of(graph).scales.values())
            scale = manager.get_loss_scale()
            steps = []
            for value in (1.0, np.inf, 1.0):
                session.run(updates, {factor: value})
                steps.append([*session.run(weight), session.run(optimizer.iterations), session.run(scale)])
        assert graph.get_collection(collected.GRADS_FINITE)
    finally:
        patches.uninstall()
    first = steps[0][-1]
    assert steps == [[0.75, 1.75, 1, first], [0.75, 1.75, 1, first / 2], [0.375, 1.375, 2, first / 2]]
