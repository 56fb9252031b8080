"""iterations_per_loop on PJRT: one program whose loop runs the steps, with what N runs of one step leave."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.engine import sessions as engine
from npu_shim.engine.runtime import loops
from npu_shim.estimator import iterations
from npu_shim.options import engine as options

pytestmark = [
    *sessions.NEEDS_ENGINE,
    *([] if options.has_jax() else [pytest.mark.nightly]),  # a worker takes minutes
    pytest.mark.usefixtures("patched", "own_graph"),
]
ROWS = 8


def config(kind, **more):
    return sessions.config(
        precision_mode="must_keep_origin_dtype", npu_shim_profile="gpu", npu_shim_engine=kind, **more
    )


def dataset(count, sizes=(ROWS,)):
    """Batches of (x, y) whose numbers of rows go round `sizes`."""
    rng = np.random.RandomState(0)
    data = [rng.randn(sizes[number % len(sizes)], 6).astype("f") for number in range(count)]
    rows = tf.data.Dataset.from_generator(lambda: iter(data), tf.float32, [None, 6])
    return rows.map(lambda x: (x, tf.cast(tf.reduce_sum(x, 1) > 0, tf.int32)))


def network(x, y, convolution=False):
    """(loss, operation that trains) with a learning rate of the global step."""
    step = tf.train.get_or_create_global_step()
    first, second = (tf.glorot_uniform_initializer(seed) for seed in (1, 2))  # an Estimator seeds graphs as it likes
    hidden = tf.layers.dense(x, 16, tf.nn.tanh, kernel_initializer=first)
    if convolution:
        hidden = tf.layers.flatten(tf.layers.conv1d(hidden[..., None], 2, 3))
    logits = tf.layers.dense(hidden, 2, kernel_initializer=second)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    rate = tf.train.exponential_decay(0.1, step, 3, 0.9)
    return loss, tf.train.MomentumOptimizer(rate, 0.9).minimize(loss, step)


def trained(kind, fetches, train, per_loop, runs, init):
    """(results of the runs, the last one perhaps the error that ended them; values of the variables)."""
    outcomes = []
    with tf.Session(config=config(kind)) as session:
        session.run(init)
        looped = iterations.set_iteration_per_loop(session, train, per_loop)
        for _ in range(runs):
            try:
                outcomes.append(session.run([looped, *fetches])[1:])
            except tf.errors.OutOfRangeError as error:
                outcomes.append(type(error))
                break
        values = session.run(tf.global_variables())
        if kind == "pjrt":
            own = vars(session)[engine.ENGINE]
            serving = {number for known in own.known.values() for number in known.programs.values()}
            assert set(own.device._programs) == serving - {None}  # one that a loop has replaced is freed
        return outcomes, values


def compare(fetches, train, per_loop, runs, init):
    """Holds the engine's results and variables against the session's."""
    init = tf.group(tf.global_variables_initializer(), *init)
    wanted, actual = (trained(kind, fetches, train, per_loop, runs, init) for kind in ("session", "pjrt"))
    assert len(actual[0]) == len(wanted[0])
    for one, other in zip(actual[0], wanted[0]):
        if isinstance(other, type):
            assert one is other
        else:
            np.testing.assert_allclose(one, other, rtol=1e-4)
    sessions.assert_close(actual[1], wanted[1], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("convolution", [False, True], ids=["loop", "one after another"])
def test_ten_steps_of_an_iterator_are_one_run_of_one_program(convolution, counts):
    data = tf.data.make_initializable_iterator(dataset(30))
    loss, train = network(*data.get_next(), convolution=convolution)
    compare([loss, tf.train.get_global_step()], train, 10, 3, [data.initializer])
    assert counts[0] == [10]
    assert counts[1] == [10, 10, 10]


def test_an_input_that_ends_in_the_middle_leaves_the_steps_before_its_end(counts):
    data = tf.data.make_initializable_iterator(dataset(7))
    loss, train = network(*data.get_next())
    compare([loss], train, 5, 3, [data.initializer])
    assert counts[0] == [5]
    assert counts[1] == [5, 2]


def test_batches_of_other_shapes_are_runs_of_their_own(counts):
    data = tf.data.make_initializable_iterator(dataset(12, (ROWS, 3, ROWS, ROWS)))
    loss, train = network(*data.get_next())
    compare([loss], train, 6, 2, [data.initializer])
    assert counts[1] == [1, 1, 3, 1, 3, 1, 2]
    assert counts[0] == [1, 1, 3]  # a loop of three steps in the place of the first program


def test_few_batches_at_a_time_where_they_are_large(monkeypatch, counts):
    monkeypatch.setattr(loops, "MOST_BYTES", 3 * ROWS * (6 + 1) * 4)
    data = tf.data.make_initializable_iterator(dataset(14))
    loss, train = network(*data.get_next())
    compare([loss], train, 7, 2, [data.initializer])
    assert counts[0] == [3]
    assert counts[1] == [3, 3, 1] * 2


def test_feeds_are_each_step_s_and_what_is_fetched_besides_is_the_last_step_s():
    rate = tf.placeholder_with_default(2.0, [])
    data = tf.data.make_initializable_iterator(dataset(8))
    x, y = data.get_next()
    loss, train = network(x * rate, y)
    name = tf.strings.as_string(tf.reduce_sum(x), 4)
    init = [tf.global_variables_initializer(), data.initializer]
    actual = {}
    for kind in ("session", "pjrt"):
        with tf.Session(config=config(kind)) as session:
            session.run(init)
            looped = iterations.set_iteration_per_loop(session, train, 4)
            results = [session.run([looped, loss, name, tf.train.get_global_step()], {rate: 0.5})[1:] for _ in range(2)]
            actual[kind] = results
    for (one, text, step), (other, wanted, at) in zip(actual["pjrt"], actual["session"]):
        assert one == pytest.approx(other, rel=1e-4)
        assert text == wanted
        assert abs(step - at) <= 1  # a session reads it before or after the increment


def noted(seen, value):
    return tf.py_func(lambda value_of: seen.append(1) or value_of, [value], tf.float32)


@pytest.mark.parametrize(
    ("where", "calls", "reason"),
    [("behind", 6, "runs in the session after each step"), ("once", 2, "belongs to the last step only"),
     ("before", 6, "belongs to the steps")],
)  # fmt: skip
def test_what_a_loop_would_do_otherwise_runs_step_by_step(where, calls, reason):
    seen = []
    data = tf.data.make_initializable_iterator(dataset(6))
    x, y = data.get_next()
    if where == "before":
        tf.train.get_or_create_global_step()
        with tf.control_dependencies([x]):
            scale = noted(seen, tf.cast(tf.train.get_global_step(), tf.float32))
        scale.set_shape([])
        x = x * (1 + scale)
    loss, train = network(x, y)
    more = noted(seen, loss) if where != "before" else loss
    if where == "behind":
        train = tf.group(train, more)
    init = tf.group(tf.global_variables_initializer(), data.initializer)
    fetches = [loss] if where == "behind" else [loss, more]
    wanted = trained("session", fetches, train, 3, 2, init)
    assert len(seen) == calls
    del seen[:]
    with tf.Session(config=config("pjrt")) as session:
        session.run(init)
        looped = iterations.set_iteration_per_loop(session, train, 3)
        actual = [session.run([looped, *fetches])[1:] for _ in range(2)]
        told = [loop for known in vars(session)[engine.ENGINE].known.values() for loop in known.loops.values()]
    np.testing.assert_allclose(actual, wanted[0], rtol=1e-4)
    assert len(seen) == calls
    assert len(told) == 1
    assert reason in told[0]


def test_an_estimator_of_25_steps_in_loops_of_10(tmp_path, counts):
    from npu_bridge.npu_init import NPUEstimator, NPURunConfig

    def model(features, labels, mode):
        loss, train = network(features, labels)
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)

    class Seen(tf.train.SessionRunHook):
        def before_run(self, context):
            return tf.train.SessionRunArgs(tf.train.get_global_step())

        def after_run(self, context, values):
            seen.append(values.results)

    kernels = []
    for kind in ("session", "pjrt"):
        seen = []
        chosen = NPURunConfig(
            model_dir=str(tmp_path / kind), iterations_per_loop=10, save_checkpoints_steps=100, tf_random_seed=1,
            save_summary_steps=0, precision_mode="must_keep_origin_dtype", npu_shim_profile="gpu", npu_shim_engine=kind,
        )  # fmt: skip
        estimator = NPUEstimator(model, config=chosen)
        estimator.train(lambda: dataset(40), steps=25, hooks=[Seen()])
        assert estimator.get_variable_value("global_step") == 25
        assert len(seen) == 3
        kernels.append(estimator.get_variable_value("dense/kernel"))
    np.testing.assert_allclose(kernels[1], kernels[0], rtol=1e-3, atol=1e-5)
    assert counts == ([10], [10, 10, 5])
