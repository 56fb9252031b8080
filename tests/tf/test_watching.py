"""npu_shim_watch: scalars in the summaries that a script writes, and the same numbers with and without them."""

import collections

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.engine import sessions as engine
from npu_shim.estimator.estimator import NPUEstimator
from npu_shim.loss_scale import ExponentialUpdateLossScaleManager, LossScaleOptimizer
from npu_shim.options import engine as options_of_engine
from npu_shim.options.entrances.run_config import NPURunConfig

has_no_jax = not (options_of_engine.has_jax() or options_of_engine.interpreter()) or tf.__version__.startswith("1.")
Fetched = collections.namedtuple("Fetched", "train merged")
X = np.random.RandomState(0).uniform(-1, 1, (6, 4)).astype(np.float32)


def model(scale=2.0**10):
    return model_of(tf.placeholder(tf.float32, [None, 4], "x"), scale)


def model_of(x, scale=2.0**10):
    hidden = x
    for scope in ("first", "second"):
        with tf.variable_scope(scope):
            w = tf.get_variable("w", [4, 4], initializer=tf.constant_initializer(np.eye(4) * 0.5))
            hidden = tf.matmul(hidden, w)
    loss = tf.reduce_mean(tf.square(hidden - 1.0))
    manager = ExponentialUpdateLossScaleManager(scale, 100, 1, 2, 0.5)
    optimizer = LossScaleOptimizer(tf.train.GradientDescentOptimizer(0.1), manager)
    gradients = optimizer.compute_gradients(loss)
    train = optimizer.apply_gradients(gradients, tf.train.get_or_create_global_step())
    tf.summary.scalar("loss", loss)
    norm = tf.global_norm([gradient for gradient, _ in gradients])
    return train, loss, norm


def config(**options):
    return sessions.config(precision_mode="allow_mix_precision", **options)


def scalars(path):
    """{tag: {step: value}} of the event files in a folder."""
    scalars = collections.defaultdict(dict)
    for file in sorted(path.glob("events.*")):
        for event in tf.train.summary_iterator(str(file)):
            for value in event.summary.value:
                scalars[value.tag][event.step] = value.simple_value
    return scalars


def _taken(session):
    """Whether an engine runs the session's training steps."""
    known = getattr(session, engine.ENGINE).known.values() if hasattr(session, engine.ENGINE) else ()
    return any(run.step is not None and run.programs for run in known)


needs_jax = pytest.mark.skipif(has_no_jax, reason="no JAX, and NPU_SHIM_JAX names none")
ENGINES = ["session", pytest.param("pjrt", marks=needs_jax)]


@pytest.mark.by_day("pjrt")
@pytest.mark.parametrize("kind", ENGINES)
def test_a_monitored_session_writes_the_scalars_and_trains_the_same(patched, tmp_path, kind):
    losses, written = {}, {}
    for watch in (False, True):
        with tf.Graph().as_default():
            train, loss, norm = model()
            folder = tmp_path / str(watch)
            hooks = [tf.train.SummarySaverHook(save_steps=1, output_dir=str(folder), summary_op=tf.summary.merge_all())]
            creator = tf.train.ChiefSessionCreator(config=config(npu_shim_watch=watch, npu_shim_engine=kind))
            with tf.train.MonitoredSession(creator, hooks) as session:
                runs = [session.run([train, loss, norm], {"x:0": X}) for _ in range(4)]
                taken = _taken(session._tf_sess())
            assert taken == (kind == "pjrt")
            losses[watch], written[watch] = [run[1:] for run in runs], scalars(folder)
    assert losses[True] == losses[False]
    assert set(written[False]) == {"loss"}
    shares = {"npu_shim/overflow_share/first", "npu_shim/overflow_share/second"}
    assert set(written[True]) - {"loss"} == {
        "npu_shim/loss_scale", "npu_shim/skipped_steps", "npu_shim/gradient_norm", *shares
    }  # fmt: skip
    assert all(len(values) == 4 for values in written[True].values())
    assert set(written[True]["npu_shim/loss_scale"].values()) == {2.0**10}
    norms = [written[True]["npu_shim/gradient_norm"][step] for step in sorted(written[True]["loss"])]
    np.testing.assert_allclose(norms, [run[1] for run in losses[True]], rtol=1e-6)
    assert {value for tag in shares for value in written[True][tag].values()} == {0.0}


@pytest.mark.by_day("<lambda>0", "<lambda>3")
@pytest.mark.parametrize("nest", [
    lambda train, merged: [train, merged], lambda train, merged: (train, [merged, {"also": merged}]),
    lambda train, merged: Fetched(train, merged), lambda train, merged: {"merged": merged.name, "train": train},
])  # fmt: skip
def test_an_overflow_is_told_by_scope_whatever_the_form_of_the_fetches(patched, nest):
    with tf.Graph().as_default():
        train, _, _ = model(2.0**30)
        merged = tf.summary.merge_all()
        with tf.Session(config=config(npu_shim_watch=True)) as session:
            session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
            fetches = nest(train, merged)
            result = session.run(fetches, {"x:0": X})
        assert type(result) is type(fetches)
        summaries = [summary for summary in tf.nest.flatten(result) if summary is not None]
        for text in summaries:
            values = {value.tag: value.simple_value for value in tf.Summary.FromString(text).value}
            assert values["npu_shim/overflow_share/second"] > 0.5
            assert not np.isfinite(values["npu_shim/gradient_norm"])
        assert summaries


SPARSE = {
    "descent": tf.train.GradientDescentOptimizer, "adam": tf.train.AdamOptimizer, "adagrad": tf.train.AdagradOptimizer,
    "momentum": lambda rate: tf.train.MomentumOptimizer(rate, 0.9),
}  # fmt: skip


@pytest.mark.parametrize(("resource", "scaled", "dense"), [(1, 1, 1), (0, 0, 1), (0, 1, 0), (1, 0, 0)])
@pytest.mark.parametrize("kind", SPARSE)
def test_sparse_gradients_count_by_their_rows(patched, kind, resource, scaled, dense):
    """Those of optimizers that scatter them, and all in branches, were left out; of Adam the step was taken."""
    with tf.Graph().as_default():
        table = tf.get_variable("table", [5, 3], initializer=tf.ones_initializer(), use_resource=bool(resource))
        w = tf.get_variable("w", [3, 1], initializer=tf.ones_initializer(), use_resource=bool(resource))
        rows = tf.nn.embedding_lookup(table, [1, 1, 3])
        loss = tf.reduce_sum(tf.square(tf.matmul(rows, w) if dense else rows))
        optimizer = SPARSE[kind](0.25)
        if scaled:
            optimizer = LossScaleOptimizer(optimizer, ExponentialUpdateLossScaleManager(8.0, 100))
        pairs = optimizer.compute_gradients(loss)
        train = optimizer.apply_gradients(pairs)
        tf.summary.scalar("loss", loss)
        fetches = [train, tf.summary.merge_all(), tf.global_norm([gradient for gradient, _ in pairs])]
        with tf.Session(config=config(npu_shim_watch=True)) as session:
            session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
            _, text, norm = session.run(fetches)
            tags = {value.tag: value.simple_value for value in tf.Summary.FromString(text).value}
            np.testing.assert_allclose(tags["npu_shim/gradient_norm"], norm, rtol=1e-6)
            assert tags["npu_shim/overflow_share/table"] == 0


def test_runs_without_summaries_and_runs_that_train_nothing(patched):
    with tf.Graph().as_default() as graph:
        train, loss, _ = model()
        merged = tf.summary.merge_all()
        with tf.Session(config=config(npu_shim_watch=True)) as session:
            session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
            count = len(graph.get_operations())
            session.run([train, loss], {"x:0": X})
            assert len(graph.get_operations()) == count
            text = session.run(merged, {"x:0": X})
    tags = {value.tag for value in tf.Summary.FromString(text).value}
    assert tags == {"loss", "npu_shim/loss_scale", "npu_shim/skipped_steps"}


def model_fn(features, labels, mode):
    train, loss, _ = model_of(features)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)


@pytest.mark.by_day("3-session", "1-pjrt")
@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize("per_loop", [1, 3])
def test_an_estimator_writes_the_scalars(patched, tmp_path, per_loop, kind):
    options = {"precision_mode": "allow_mix_precision", "npu_shim_watch": True, "npu_shim_engine": kind}
    npurun_config = NPURunConfig(model_dir=str(tmp_path), save_summary_steps=2, iterations_per_loop=per_loop, **options)
    data = lambda: tf.data.Dataset.from_tensors((X, X)).repeat()  # noqa: E731
    NPUEstimator(model_fn, config=npurun_config).train(data, max_steps=6)
    written = scalars(tmp_path)
    tags = {"npu_shim/loss_scale", "npu_shim/skipped_steps", "npu_shim/gradient_norm", "npu_shim/overflow_share/first"}
    assert tags < set(written)
    assert all(set(written[tag]) == set(written["loss"]) for tag in tags)
    assert len(written["loss"]) >= 3


def test_keras_in_a_session_tells_what_its_summaries_are_run_with(patched, tmp_path):
    """fit and train_on_batch run no merged summaries; a script that runs its own beside the update has all of these."""
    keras = pytest.importorskip("tensorflow.compat.v1.keras", reason="no Keras of TensorFlow 1")
    with tf.Graph().as_default():
        with tf.Session(config=config(npu_shim_watch=True)) as session:
            keras.backend.set_session(session)
            network = keras.Sequential([keras.layers.Dense(4, input_shape=(4,), name="only")])
            network.compile("sgd", "mse")
            first = network.train_on_batch(X, X)
            tf.summary.scalar("told", network.total_loss)
            merged = tf.summary.merge_all()
            fetched = network.train_function if hasattr(network.train_function, "updates_op") else None
            feed = {network.inputs[0]: X, network._targets[0]: X}
            text, _ = session.run([merged, fetched.updates_op], feed)
            assert np.isfinite(first)
    tags = {value.tag for value in tf.Summary.FromString(text).value}
    assert {"told", "npu_shim/gradient_norm", "npu_shim/overflow_share/only"} <= tags
