"""The automatic loss scale in Keras, Estimator, MonitoredSession and tf.contrib, in float16 and in the engine."""

import sys

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim import loss_scale
from npu_shim.compat.names import faces, names
from npu_shim.loss_scale import automatic
from npu_shim.loss_scale.automatic import state as automatic_state
from npu_shim.loss_scale.steps import stuck
from npu_shim.options import collected
from npu_shim.options import engine as engine_options

pytestmark = pytest.mark.usefixtures("control_flow_of_version_1", "without_automatic_scale")
START = 2.0**15
LOW = {"precision_mode": "allow_mix_precision", "npu_shim_profile": "gpu"}
GOOD = np.linspace(-1.0, 1.0, 12).reshape(3, 4).astype(np.float32)
BAD = np.full([3, 4], np.inf, np.float32)
ONES = np.ones([3, 2], np.float32)


def state(session):
    values = {variable.op.name.split("/")[-1]: session.run(variable) for variable in automatic.variables(session.graph)}
    return values.get("loss_scale"), values["loss_scale_steps"].tolist()[:3]


def keras_optimizer(name):
    return getattr(getattr(tf.keras.optimizers, "legacy", tf.keras.optimizers), name)


KERAS = {
    "Adam": lambda: keras_optimizer("Adam")(0.1, clipvalue=0.5),
    "SGD": lambda: keras_optimizer("SGD")(0.1, momentum=0.9),
    "RMSprop": lambda: keras_optimizer("RMSprop")(0.1),
}
needs_keras = pytest.mark.skipif(not hasattr(tf.keras.optimizers, "SGD"), reason="no Keras 2 here")


@needs_keras
@pytest.mark.parametrize("name", sorted(KERAS))
def test_keras_models_train_as_in_plain_tensorflow(name):
    def trained(inputs):
        tf.keras.backend.clear_session()
        with tf.Graph().as_default(), tf.Session() as session:
            tf.keras.backend.set_session(session)
            start = tf.constant_initializer(GOOD.T[:, :2])
            dense = tf.keras.layers.Dense(2, activation="tanh", input_shape=(4,), kernel_initializer=start)
            model = tf.keras.Sequential([dense])
            model.compile(optimizer=KERAS[name](), loss="mse")
            for batch in inputs:
                model.train_on_batch(batch, ONES)
            known = [variable.name for variable in model.optimizer.weights]
            scale_state = state(session) if automatic.is_installed() else None
            return [*model.get_weights(), *model.optimizer.get_weights()], known, scale_state

    plain, known, _ = trained([GOOD] * 4)
    automatic.install()
    scaled, scaled_known, scale_state = trained([GOOD, GOOD, BAD, GOOD, GOOD])
    sessions.assert_close(scaled, plain)
    assert scaled_known == known
    assert scale_state == (START / 2, [5, 1, 0])


@needs_keras
@pytest.mark.parametrize("way", ["get_updates", "minimize", "apply_gradients"])
def test_keras_optimizers_in_a_script_of_its_own(way):
    def trained(inputs):
        with tf.Graph().as_default(), tf.Session() as session:
            x = tf.placeholder(tf.float32, [None, 4])
            w = tf.get_variable("w", initializer=GOOD.T[:, :2], use_resource=True)
            loss = lambda: tf.reduce_mean(tf.square(tf.tanh(tf.matmul(x, w)) - 1.0))  # noqa: E731
            optimizer = KERAS["Adam"]()
            if way == "get_updates":
                train = optimizer.get_updates(loss(), [w])
            elif way == "minimize":
                train = optimizer.minimize(loss, [w])
            else:
                train = optimizer.apply_gradients(zip(tf.gradients(loss(), [w]), [w]))
            session.run(tf.global_variables_initializer())
            for batch in inputs:
                session.run(train, {x: batch})
            return session.run(tf.global_variables()), state(session) if automatic.is_installed() else None

    plain, _ = trained([GOOD] * 3)
    automatic.install()
    scaled, scale_state = trained([GOOD, BAD, GOOD, GOOD])
    sessions.assert_close(scaled, plain)
    assert scale_state == (START / 2, [4, 1, 0])


def regression(features, labels, mode):
    start = tf.constant_initializer(GOOD.T[:, :2])
    loss = tf.losses.mean_squared_error(labels, tf.layers.dense(features, 2, kernel_initializer=start))
    step = tf.train.get_global_step()
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=tf.train.AdamOptimizer(0.1).minimize(loss, step))


def sized(factor):
    return tf.data.Dataset.from_tensors((GOOD * factor, ONES)).repeat()


@pytest.mark.skipif(not hasattr(tf, "estimator") or not hasattr(tf.estimator, "Estimator"), reason="no Estimator here")
def test_an_estimator_trains_and_its_checkpoints_have_the_same_keys(tmp_path):
    def trained(name, steps=4):
        config = tf.estimator.RunConfig(model_dir=str(tmp_path / name), tf_random_seed=1)
        estimator = tf.estimator.Estimator(regression, config=config)
        estimator.train(lambda: sized(1.0), steps=steps)
        return {key: estimator.get_variable_value(key) for key in estimator.get_variable_names()}

    trained("plain")
    plain = trained("plain")
    automatic.install()
    trained("scaled")
    automatic.uninstall()
    across = trained("scaled")  # a checkpoint that was written with the scale goes on without it
    assert sorted(across) == sorted(plain)
    for key in plain:
        np.testing.assert_array_equal(across[key], plain[key])


@pytest.mark.skipif(not hasattr(tf, "estimator") or not hasattr(tf.estimator, "Estimator"), reason="no Estimator here")
def test_an_estimator_goes_on_after_skipped_steps(tmp_path):
    """A loss of 1e36 is finite in float32, as its gradients are; times 2**15 it is not."""
    automatic.install()
    config = tf.estimator.RunConfig(model_dir=str(tmp_path), log_step_count_steps=1)
    hooks = [Stop(3)]
    tf.estimator.Estimator(regression, config=config).train(lambda: sized(1e18), hooks=hooks)
    scales, skipped, step = hooks[0].seen[-1]
    assert (scales, skipped, step) == ([START / 8], [3], 0)


class Stop(tf.train.SessionRunHook):
    """Ends training after some runs."""

    def __init__(self, runs):
        self.runs, self.seen = runs, []

    def after_run(self, run_context, run_values):
        graph = run_context.session.graph
        collections = ("npu_shim/loss_scale", "npu_shim/skipped_steps")
        fetches = [graph.get_collection(name) for name in collections]
        self.seen.append(run_context.session.run([*fetches, tf.train.get_global_step(graph)]))
        if len(self.seen) == self.runs:
            run_context.request_stop()


def test_a_monitored_session_is_ready_and_resumes(tmp_path):
    def trained(steps):
        with tf.Graph().as_default() as graph:
            step = tf.train.get_or_create_global_step()
            w = tf.get_variable("w", initializer=GOOD, use_resource=False)
            train = tf.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(tf.square(w)), step)
            with tf.train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), log_step_count_steps=None) as session:
                for _ in range(steps):
                    session.run(train)
                scales = graph.get_collection("npu_shim/loss_scale")
                return session.run([w, step]), session.run(scales)

    trained(2)
    automatic.install()
    (_, step), scales = trained(2)
    automatic.uninstall()
    (w, last), _ = trained(1)
    assert (step, last, scales) == (4, 5, [START])
    keys = [name for name, _ in tf.train.list_variables(str(tmp_path))]
    assert keys == ["beta1_power", "beta2_power", "global_step", "w", "w/Adam", "w/Adam_1"]
    assert np.isfinite(w).all()


def test_a_monitored_session_keeps_the_scale_where_its_saver_is_given_it(tmp_path):
    """Its hook saves before the first step."""
    automatic.install()
    scales = []
    for x in (np.inf, np.inf):
        with tf.Graph().as_default():
            step = tf.train.get_or_create_global_step()
            w = tf.get_variable("w", initializer=GOOD, use_resource=False)
            fed = tf.placeholder(tf.float32, [])
            train = tf.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(tf.square(w)) * fed, step)
            saver = tf.train.Saver(tf.global_variables() + automatic.variables())
            arguments = {"scaffold": tf.train.Scaffold(saver=saver), "log_step_count_steps": None}
            with tf.train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), **arguments) as session:
                session.run(train, {fed: x})
                session.run(train, {fed: 1.0})
                scales += session.run(tf.get_collection("npu_shim/loss_scale"))
    assert scales == [START / 2, START / 4]


@pytest.mark.skipif(not tf.__version__.startswith("1."), reason="needs TensorFlow 1.15's own tf.contrib")
@pytest.mark.parametrize("name", ["MomentumOptimizer", "AdamOptimizer"])
def test_contrib_s_second_kind_of_optimizer(name):
    """Their `_prepare` takes the state that they keep for each graph."""
    from tensorflow.contrib import optimizer_v2

    def trained(batches):
        with tf.Graph().as_default(), tf.Session() as session:
            w = tf.get_variable("w", initializer=GOOD.T[:, :2])
            x = tf.placeholder(tf.float32, [3, 4])
            settings = [0.9] if name == "MomentumOptimizer" else []
            step = getattr(optimizer_v2, name)(0.1, *settings).minimize(tf.reduce_mean(tf.square(tf.matmul(x, w))))
            session.run(tf.global_variables_initializer())
            for batch in batches:
                session.run(step, {x: batch})
            return session.run(tf.global_variables())

    plain = trained([GOOD, GOOD])
    automatic.install()
    sessions.assert_close(trained([GOOD, BAD, GOOD]), plain)


def by_create_train_op(contrib, loss):
    optimizer = tf.train.MomentumOptimizer(0.1, 0.9)
    return contrib.slim.learning.create_train_op(loss, optimizer, clip_gradient_norm=0.5, summarize_gradients=True)


def by_optimize_loss(contrib, loss):
    step, optimizer = tf.train.get_global_step(), tf.train.AdamOptimizer
    return contrib.layers.optimize_loss(loss, step, 0.1, optimizer, clip_gradients=0.5, gradient_noise_scale=None)


def by_moving_averages(contrib, loss):
    optimizer = contrib.opt.MovingAverageOptimizer(tf.train.AdamOptimizer(0.1), 0.9)
    train = optimizer.minimize(loss, tf.train.get_global_step())
    optimizer.swapping_saver()
    return train


@pytest.mark.parametrize("train", [by_create_train_op, by_optimize_loss, by_moving_averages], ids=lambda f: f.__name__)
def test_contrib_s_ways_to_train(train, monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))  # contrib brings removed names back, for the process
    if names.tensorflow_1():
        import tensorflow.contrib as contrib
    else:
        pytest.importorskip("tf_slim")
        contrib = faces.Face("")

    def trained(inputs):
        with tf.Graph().as_default(), tf.Session() as session:
            step = tf.train.get_or_create_global_step()
            x = tf.placeholder(tf.float32, [None, 4])
            w = tf.get_variable("w", initializer=GOOD.T[:, :2], use_resource=True)
            step_op = train(contrib, tf.reduce_mean(tf.matmul(x, w)))
            session.run(tf.global_variables_initializer())
            for batch in inputs:
                session.run(step_op, {x: batch})
            known = sorted(variable.name for variable in tf.global_variables())
            return session.run([*tf.global_variables(), step]), known, automatic.variables() and state(session)

    plain, known, _ = trained([GOOD] * 3)
    automatic.install()
    scaled, scaled_known, scale_state = trained([GOOD, GOOD + 1e35, GOOD, GOOD])
    sessions.assert_close(scaled, plain)
    assert (scaled_known, scale_state) == (known, (START / 2, [4, 1, 0]))


def small(x):
    """A network whose gradients are about 1e-9: 0 in float16."""
    w = tf.get_variable("w", initializer=GOOD.T[:, :2], use_resource=True)
    v = tf.get_variable("v", initializer=np.ones([2, 2], np.float32), use_resource=True)
    return tf.reduce_mean(tf.matmul(tf.nn.relu(tf.matmul(x, w)), v)) * 1e-8


@pytest.mark.usefixtures("activated")
@pytest.mark.parametrize("installed", [False, True])
def test_a_session_that_lowers_to_float16_trains_on_gradients_of_1e_9(installed):
    def moved(config):
        with tf.Graph().as_default(), tf.Session(config=config) as session:
            x = tf.placeholder(tf.float32, [None, 4])
            train = tf.train.GradientDescentOptimizer(1e7).minimize(small(x))
            session.run(tf.global_variables_initializer())
            before = session.run(tf.trainable_variables())
            session.run(train, {x: GOOD})
            return [now - was for now, was in zip(session.run(tf.trainable_variables()), before)]

    wanted = moved(None)
    if installed:
        automatic.install()
    actual = moved(sessions.config(precision_mode="allow_mix_precision", npu_shim_profile="gpu"))
    assert all(np.abs(change).max() > 1e-3 for change in wanted)
    if installed:
        sessions.assert_close(actual, wanted, rtol=1e-2, atol=1e-5)
    else:
        assert not all(np.allclose(change, other, rtol=1e-2, atol=1e-5) for change, other in zip(actual, wanted))


def a_large_sum(wrap, steps):
    """Trains on gradients of 3e5, which no float16 holds; returns (w, w of float32, counts of the steps)."""
    with tf.Graph().as_default(), tf.Session(config=sessions.config(**LOW)) as session:
        x = tf.placeholder(tf.float32, [8, 4])
        w = tf.get_variable("w", [4, 2], initializer=tf.ones_initializer())
        optimizer = wrap(tf.train.GradientDescentOptimizer(1e-7))
        train = optimizer.minimize(3e5 * tf.reduce_sum(tf.matmul(x, w)), tf.train.get_or_create_global_step())
        session.run(tf.global_variables_initializer())
        for _ in range(steps):
            session.run(train, {x: np.full([8, 4], 0.1)})
        (counts,) = session.run(tf.get_collection(collected.STEP_COUNTS))
        applied = counts[0] - counts[1]
        assert applied == session.run(tf.train.get_global_step())
        return session.run(w), 1.0 - applied * 1e-7 * 2.4e5, counts.tolist()


@pytest.mark.usefixtures("activated")
@pytest.mark.parametrize(("scale", "skipped"), [("auto", 18), (0.125, 0), (1.0, 22)])
def test_a_scale_may_be_below_1(scale, skipped):
    automatic.install(scale)
    w, wanted, counts = a_large_sum(lambda optimizer: optimizer, 22)
    assert counts == [22, skipped, 22 if skipped == 22 else 0, min(skipped, 1), skipped]
    np.testing.assert_allclose(w, wanted, rtol=1e-4)


@pytest.mark.usefixtures("activated")
@pytest.mark.skipif(not hasattr(tf.train.experimental, "DynamicLossScale"), reason="no such scale here")
def test_tensorflows_own_scale_is_told_of_at_its_end(capfd):
    """It stops at 1, and skipped all steps without a word."""
    automatic.install()

    def wrap(optimizer):
        dynamic = tf.train.experimental.DynamicLossScale(initial_loss_scale=8.0, increment_period=1000)
        return tf.train.experimental.enable_mixed_precision_graph_rewrite(optimizer, dynamic)

    try:
        w, _, counts = a_large_sum(wrap, 104)
    finally:
        tf.train.experimental.disable_mixed_precision_graph_rewrite()
    assert (w == 1.0).all()
    assert counts == [104, 104, 101, 1, 104]
    said = capfd.readouterr().err
    assert said.count("npu_shim: steps skipped in a row at the smallest loss scale: 100 loss scale: 1") == 1
    assert stuck.ABOVE in said
    assert "Scaling cannot help" not in said


def test_what_scaling_can_help_is_told_by_the_smallest_scale():
    assert stuck.hint(1.0) == stuck.hint(0.125) == stuck.ABOVE
    assert stuck.hint(automatic_state.RULE.min_scale) == stuck.HINT


@pytest.mark.usefixtures("activated")
@pytest.mark.skipif(tf.__version__.startswith("1."), reason="the engine needs TensorFlow 2.15 or later")
@pytest.mark.skipif(
    not (engine_options.has_jax() or engine_options.interpreter()), reason="no JAX, and NPU_SHIM_JAX names none"
)
def test_the_engine_takes_the_step(counts):
    def trained(kind):
        config = sessions.config(precision_mode="must_keep_origin_dtype", npu_shim_profile="gpu", npu_shim_engine=kind)
        with tf.Graph().as_default(), tf.Session(config=config) as session:
            step = tf.train.get_or_create_global_step()
            x = tf.placeholder(tf.float32, [None, 4])
            train = tf.train.AdamOptimizer(0.1).minimize(small(x) * 1e8, step)
            session.run(tf.global_variables_initializer())
            for batch in (GOOD, GOOD, BAD, GOOD):
                session.run(train, {x: batch})
            return session.run(tf.global_variables()), state(session)

    automatic.install()
    wanted, actual = trained("session"), trained("pjrt")
    sessions.assert_close(actual[0], wanted[0], rtol=2e-4, atol=1e-5)
    assert actual[1] == wanted[1] == (START / 2, [4, 1, 0])
    assert counts[0]  # a program was loaded


def test_hooks_find_the_scale_and_what_was_skipped(tmp_path, caplog):
    automatic.install()
    with tf.Graph().as_default(), caplog.at_level("INFO", "tensorflow"):
        step = tf.train.get_or_create_global_step()
        x = tf.placeholder(tf.float32, [None, 4])
        train = tf.train.AdamOptimizer(0.1).minimize(small(x), step)
        merged = tf.summary.merge(loss_scale.summaries())
        hook = loss_scale.SkippedStepsHook(every=1)
        with tf.train.MonitoredTrainingSession(hooks=[hook]) as session:
            for batch in (GOOD, BAD, GOOD):
                session.run([train, merged], {x: batch})
    assert any("1 steps skipped so far" in record.getMessage() for record in caplog.records)
