"""Sessions whose training steps run on PJRT: the same numbers as in the session, and one truth for variables."""

import logging
import os
import re
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.engine import sessions as engine
from npu_shim.engine import step
from npu_shim.engine.partition.cut import Place
from npu_shim.engine.runtime import loading
from npu_shim.estimator import iterations
from npu_shim.options import engine as options
from npu_shim.xla import recent

pytestmark = [*sessions.NEEDS_ENGINE, pytest.mark.usefixtures("patched", "own_graph")]
STEPS = 5
FLOAT32, MIX = "must_keep_origin_dtype", "allow_mix_precision"


def of(session):
    """The session's Engine."""
    return vars(session)[engine.ENGINE]


def steps_of(session):
    """The steps that were taken."""
    return [known.step for known in of(session).known.values() if known.step is not None]


def programs_of(session):
    """How many programs run steps."""
    return sum(len(known.programs) for known in of(session).known.values())


def reasons_of(session):
    """Why runs that write variables were not taken."""
    return [known.reason for known in of(session).known.values() if known.step is None and known.access.written]


def batches(count=STEPS, rows=8, columns=6):
    rng = np.random.RandomState(0)
    for _ in range(count):
        x = rng.randn(rows, columns).astype(np.float32)
        yield x, (x.sum(1) > 0).astype(np.int32)


def classifier(x, y, scope="net", resource=None):
    """(loss, logits) of a small network with batch normalization."""
    with tf.variable_scope(scope, use_resource=resource):
        hidden = tf.layers.dense(x, 16, use_bias=False, name="one")
        hidden = tf.layers.batch_normalization(hidden, training=True, fused=False)
        logits = tf.layers.dense(tf.nn.relu(hidden), 2, name="two")
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)), logits


def fed_classifier(resource=None, optimizer=None):
    x, y = tf.placeholder(tf.float32, [None, 6], "x"), tf.placeholder(tf.int32, [None], "y")
    loss, logits = classifier(x, y, resource=resource)
    step = tf.train.get_or_create_global_step()
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train = (optimizer or tf.train.AdamOptimizer(0.01)).minimize(loss, step)
    return x, y, loss, logits, train, step


@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
def test_losses_evaluation_and_global_step_are_the_session_s(resource):
    x, y, loss, logits, train, step = fed_classifier(resource)

    def trained(kind):
        with sessions.opened(kind) as session:
            losses = [session.run([train, loss], {x: a, y: b})[1] for a, b in batches()]
            out = session.run(logits, {x: np.ones([3, 6], np.float32)})
            return losses, out, session.run(step), session.run(tf.global_variables()), session

    wanted, actual = trained("session"), trained("pjrt")
    np.testing.assert_allclose(actual[0], wanted[0], rtol=2e-5)
    np.testing.assert_allclose(actual[1], wanted[1], rtol=2e-4, atol=1e-5)
    assert actual[2] == wanted[2] == STEPS
    assert isinstance(actual[0][0], np.float32)
    sessions.assert_close(actual[3], wanted[3], rtol=2e-4, atol=1e-5)
    assert len(steps_of(actual[4])) == 1
    assert engine.ENGINE not in vars(wanted[4])


def test_values_move_only_when_the_other_side_needs_them():
    x, y, _, _, train, step = fed_classifier()
    a, b = next(batches())
    with sessions.opened() as session:
        for _ in range(3):
            session.run(train, {x: a, y: b})
        count = len(tf.global_variables())
        moved = of(session).residency.moved
        assert moved == {"to the device": count, "to the session": 0}
        assert session.run(step) == 3
        assert moved["to the session"] == 1
        session.run(step)
        session.run(train, {x: a, y: b})
        assert moved == {"to the device": count, "to the session": 1}  # the device's were as new
        session.run(tf.assign(step, 40))
        session.run(train, {x: a, y: b})
        assert moved["to the device"] == count + 1
        assert session.run(step) == 41
        tf.global_variables()[0].load(np.zeros_like(session.run(tf.global_variables()[0])), session)
        session.run(train, {x: a, y: b})
        assert moved["to the device"] == count + 2


def test_a_saver_goes_both_ways_in_the_middle_of_training(tmp_path):
    x, y, loss, _, train, _ = fed_classifier()
    saver, data = tf.train.Saver(), list(batches(6))

    def run(session, some):
        return [session.run([train, loss], {x: a, y: b})[1] for a, b in some]

    with sessions.opened("session") as session:
        whole = run(session, data)
    with sessions.opened() as session:
        first = run(session, data[:3])
        path = saver.save(session, str(tmp_path / "at3"))
        run(session, data[:2])  # lost again
        saver.restore(session, path)
        second = run(session, data[3:])
    with sessions.opened("session") as session:
        saver.restore(session, path)
        other = run(session, data[3:])
    np.testing.assert_allclose(first + second, whole, rtol=2e-4)
    np.testing.assert_allclose(other, whole[3:], rtol=2e-4)


def test_mixed_precision_lowers_the_session_s_slots():
    x, y, loss, _, train, _ = fed_classifier()

    def losses(kind):
        with sessions.opened(kind, MIX) as session:
            return [session.run([train, loss], {x: a, y: b})[1] for a, b in batches()], session

    wanted, _ = losses("session")
    actual, session = losses("pjrt")
    np.testing.assert_allclose(actual, wanted, rtol=2e-2)
    products = [node for node in steps_of(session)[0].parts[0].prepared.graph_def.node if node.op == "MatMul"]
    assert {node.attr["T"].type for node in products} == {tf.float16.as_datatype_enum}


def test_an_iterator_feeds_the_program_until_its_end():
    data = list(batches())
    xs, ys = (np.stack(part) for part in zip(*data))
    from_tensor_slices = tf.data.Dataset.from_tensor_slices((xs, ys, [b"%d" % n for n in range(STEPS)]))
    x, y, name = tf.data.make_one_shot_iterator(from_tensor_slices).get_next()
    loss, _ = classifier(x, y)
    train = tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)

    def losses(kind):
        results = []
        with sessions.opened(kind) as session:
            results.extend(session.run([loss, name, train])[:2] for _ in range(STEPS))
            with pytest.raises(tf.errors.OutOfRangeError):
                session.run([loss, name, train])
            return [pair[0] for pair in results], [pair[1] for pair in results], session

    wanted, actual = losses("session"), losses("pjrt")
    np.testing.assert_allclose(actual[0], wanted[0], rtol=2e-5)
    assert actual[1] == [b"0", b"1", b"2", b"3", b"4"] == wanted[1]
    cut = steps_of(actual[2])[0].cut
    assert cut.places["IteratorGetNext"] is Place.FEED


def test_summaries_read_what_the_program_computes():
    x, y, loss, _, train, _ = fed_classifier()
    tf.summary.scalar("loss", loss)
    tf.summary.histogram("weights", tf.trainable_variables()[0])
    merged = tf.summary.merge_all()
    with sessions.opened() as session:
        for a, b in batches(2):
            value, text, _ = session.run([loss, merged, train], {x: a, y: b})
        summary = tf.Summary.FromString(text)
        assert summary.value[0].simple_value == value
        assert summary.value[1].histo.num == 96
        assert set(steps_of(session)[0].cut.reasons.values()) == {"it holds strings"}


def test_python_functions_run_on_either_side_once_a_step():
    seen = []

    def augmented(value):
        seen.append("feed")
        return value * np.float32(2)

    def judged(value):
        seen.append("read")
        return np.float32(value.sum())

    x, y = tf.placeholder(tf.float32, [None, 6]), tf.placeholder(tf.int32, [None])
    doubled = tf.py_func(augmented, [x], tf.float32)
    doubled.set_shape([None, 6])
    loss, logits = classifier(doubled, y)
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    score = tf.py_func(judged, [tf.nn.softmax(logits)], tf.float32) * 10

    def losses(kind):
        with sessions.opened(kind) as session:
            return [session.run([loss, score, train], {x: a, y: b})[:2] for a, b in batches(3)]

    wanted = losses("session")
    del seen[:]
    np.testing.assert_allclose(losses("pjrt"), wanted, rtol=2e-5)
    assert seen == ["feed", "read"] * 3


def test_two_optimizers_share_the_state_on_the_device():
    noise, real = tf.placeholder(tf.float32, [8, 4]), tf.placeholder(tf.float32, [8, 6])

    def judge(value):
        with tf.variable_scope("judge", reuse=tf.AUTO_REUSE):
            return tf.layers.dense(tf.nn.relu(tf.layers.dense(value, 16, name="a")), 1, name="b")

    with tf.variable_scope("maker"):
        fake = tf.layers.dense(tf.nn.relu(tf.layers.dense(noise, 16)), 6)
    loss_d = tf.reduce_mean(tf.nn.softplus(-judge(real))) + tf.reduce_mean(tf.nn.softplus(judge(fake)))
    loss_g = tf.reduce_mean(tf.nn.softplus(-judge(fake)))
    train_d = tf.train.AdamOptimizer(0.01).minimize(loss_d, var_list=tf.trainable_variables("judge"))
    train_g = tf.train.AdamOptimizer(0.01).minimize(loss_g, var_list=tf.trainable_variables("maker"))
    rng = np.random.RandomState(1)
    data = [(rng.randn(8, 4), rng.randn(8, 6)) for _ in range(STEPS)]

    def losses(kind):
        losses = []
        with sessions.opened(kind) as session:
            for n, r in data:
                losses.append(session.run([loss_d, train_d], {noise: n, real: r})[0])
                losses.append(session.run([loss_g, train_g], {noise: n})[0])
            if kind == "pjrt":
                assert len(steps_of(session)) == 2
                assert of(session).residency.moved["to the session"] == 0
            return losses

    np.testing.assert_allclose(losses("pjrt"), losses("session"), rtol=1e-4)


def test_what_is_not_taken_runs_in_the_session_and_says_why(caplog):
    x, y = tf.placeholder(tf.float32, [None, 6]), tf.placeholder(tf.int32, [None])
    with tf.variable_scope("net"):
        hidden = tf.layers.dense(x, 6)
        largest = tf.get_variable("largest", [], initializer=tf.zeros_initializer())
        with tf.control_dependencies([largest.assign(tf.reduce_max(hidden))]):
            hidden = tf.py_func(lambda value: value, [hidden], tf.float32)
        hidden.set_shape([None, 6])
        loss = tf.reduce_mean(tf.square(tf.layers.dense(hidden, 2)))
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    a, b = next(batches())
    logger = logging.getLogger("npu_shim")
    logger.propagate = True
    with caplog.at_level(logging.INFO, "npu_shim"), sessions.opened() as session:
        first, second = (session.run([loss, train], {x: a, y: b})[0] for _ in range(2))
    assert second < first
    assert not steps_of(session)
    said = [r.getMessage() for r in caplog.records if "runs in the session" in r.getMessage()]
    assert len(said) == 1
    assert "(PyFunc) must run in the session" in said[0]
    assert "and waits until variable 'net/largest' is written" in said[0]


def test_a_step_that_fails_leaves_the_state_of_the_one_before():
    x, y, _, _, train, step = fed_classifier()
    a, b = next(batches())
    with sessions.opened() as session:
        for _ in range(2):
            session.run(train, {x: a, y: b})
        real = of(session).device.run

        def failing(*arguments, **options):
            raise RuntimeError("RESOURCE_EXHAUSTED: out of memory")

        of(session).device.run = failing
        with pytest.raises(tf.errors.InternalError, match="state of the last completed step"):
            session.run(train, {x: a, y: b})
        of(session).device.run = real
        assert session.run(step) == 2
        session.run(train, {x: a, y: b})  # in the session from now on
        assert session.run(step) == 3


def test_partial_runs_partial_fetches_and_fed_intermediates_see_the_newest_values():
    x, y, loss, logits, train, step = fed_classifier()
    a, b = next(batches())
    with sessions.opened() as session:
        session.run(train, {x: a, y: b})
        handle = session.partial_run_setup([logits, step], [x])
        assert session.partial_run(handle, step) == 1
        assert session.run([loss, step], {x: a, y: b})[1] == 1
        given = np.zeros([8, 2], np.float32)
        value, _ = session.run([loss, train], {x: a, logits: given, y: b})
        np.testing.assert_allclose(value, np.log(2), rtol=1e-5)
        assert session.run(step) == 2


def test_what_is_fetched_and_fed_is_not_computed():
    """TensorFlow returns what was fed, and runs nothing for it; the engine ran the update in front of it."""
    x = tf.placeholder(tf.float32, [4, 6], "x")
    v = tf.get_variable("v", initializer=np.ones([6, 6], "f"))
    with tf.control_dependencies([tf.assign_add(v, tf.matmul(x, tf.matmul(x, v), transpose_a=True))]):
        hidden = tf.identity(x, "hidden")
    w = tf.get_variable("w", initializer=np.ones([6, 2], "f"))
    train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(tf.matmul(hidden, w)), var_list=[w])
    a = np.ones([4, 6], np.float32)
    with sessions.opened() as session:
        given, *_ = session.run([hidden, train], {x: a, hidden: 2 * a})
        assert len(steps_of(session)) == 1
        np.testing.assert_array_equal(given, 2 * a)
        np.testing.assert_array_equal(session.run(v), np.ones([6, 6]))
        np.testing.assert_allclose(session.run(w), np.full([6, 2], 1 - 0.8), rtol=1e-6)
        np.testing.assert_array_equal(session.run(hidden, {x: a, hidden: a}), a)
        np.testing.assert_array_equal(session.run(v), np.ones([6, 6]))


@pytest.mark.parametrize("waits", ["", "for the batch", "for a copy"])
def test_a_step_that_is_not_compiled_runs_nothing_twice(waits, monkeypatch):
    """What feeds it has run when XLA says no: the session must not run it again with the rest."""
    data = tf.data.make_initializable_iterator(tf.data.Dataset.range(9).map(lambda n: tf.cast(n, tf.float32)))
    x, calls = data.get_next(), []
    y = tf.py_func(lambda value: calls.append(value) or value, [x], tf.float32)
    v = tf.get_variable("v", initializer=np.ones([4, 4], "f"))
    with tf.control_dependencies({"": [], "for the batch": [x], "for a copy": [tf.identity(x)]}[waits]):
        checked = tf.no_op()
    with tf.control_dependencies([checked]):
        loss = tf.reduce_sum(tf.matmul(v, v)) * tf.reshape(y, [])
    train = tf.group(tf.train.GradientDescentOptimizer(0.0).minimize(loss), y)
    monkeypatch.setattr(loading.Programs, "_load", lambda *_: None)
    with sessions.opened() as session:
        session.run(data.initializer)
        looped = iterations.set_iteration_per_loop(session, tf.group(train), 2)
        assert [session.run([x, step])[0] for step in (train, looped, train)] == [0, 2, 3]
        assert calls == [0, 1, 2, 3]
        refused = any("waits for 'IteratorGetNext'" in reason for reason in reasons_of(session))
        assert refused == (waits == "for the batch") == (not steps_of(session))


@pytest.mark.slow
def test_shapes_beyond_the_bound_run_in_the_session(monkeypatch):
    monkeypatch.setattr(recent, "MOST", 4)  # sixteen programs take half a minute
    x, y, _, _, train, step = fed_classifier()
    with sessions.opened() as session:
        for rows in range(2, recent.MOST + 4):
            a, b = next(batches(1, rows))
            session.run(train, {x: a, y: b})
            session.run(train, {x: a, y: b})
        assert session.run(step) == 2 * (recent.MOST + 2)
        (known,) = (known for known in of(session).known.values() if known.step is not None)
        assert sum(number is not None for number in known.programs.values()) == recent.MOST


def test_what_comes_once_is_compiled_for_a_few_shapes_alone(caplog):
    x, y, _, _, train, step = fed_classifier()
    logging.getLogger("npu_shim").propagate = True
    with caplog.at_level(logging.INFO, "npu_shim"), sessions.opened() as session:
        for rows in (2, 3, 4, 5, 6, 7, 7):
            a, b = next(batches(1, rows))
            session.run(train, {x: a, y: b})
        assert session.run(step) == 7
        (known,) = (known for known in of(session).known.values() if known.step is not None)
        taken = [shapes[0][0] for _, shapes, *_ in known.programs]
    assert sorted(taken) == [2, 3, 4, 5, 7]
    assert any("for feeds of shapes [7, " in record.getMessage() for record in caplog.records)


def test_an_evaluation_runs_in_the_session(caplog):
    """Its metrics write variables that depend on a product, but local ones."""
    x, y, _, logits, train, _ = fed_classifier()
    value, update = tf.metrics.accuracy(y, tf.argmax(logits, 1))
    a, b = next(batches())
    with sessions.opened() as session:
        session.run(tf.local_variables_initializer())
        session.run(train, {x: a, y: b})
        session.run(update, {x: a, y: b})
        assert 0 <= session.run(value) <= 1
        assert [known.reason for known in of(session).known.values() if "local variables" in known.reason]


def test_of_a_long_compilation_is_said_what_the_wait_is_for(caplog, monkeypatch):
    monkeypatch.setattr(loading, "LONG", 0.0)
    x, y, _, _, train, _ = fed_classifier()
    a, b = next(batches())
    logging.getLogger("npu_shim").propagate = True
    with caplog.at_level(logging.INFO, "npu_shim"), sessions.opened() as session:
        session.run(train, {x: a, y: b})
    said = [record.getMessage() for record in caplog.records]
    assert [line for line in said if re.search("engine: still compiling the run of .*, [0-9]+ ops", line)]


def test_a_step_whose_results_nobody_fetches_does_not_wait():
    """So the next one takes its input while the device computes."""
    x, y, loss, _, train, step = fed_classifier()
    a, b = next(batches())
    with sessions.opened() as session:

        def waits():
            on = of(session).device
            return (on._pending if hasattr(on, "_pending") else on._then) is None

        session.run([loss, train], {x: a, y: b})
        session.run(train, {x: a, y: b})
        assert not waits()
        session.run(train, {x: a, y: b})
        assert not waits()
        assert session.run(step) == 3
        assert waits()


def test_prints_are_printed(capfd):
    x, y, loss, _, _, _ = fed_classifier()
    shown = tf.Print(loss, [loss], "the loss: ")
    train = tf.train.GradientDescentOptimizer(0.1).minimize(shown)
    a, b = next(batches())
    with sessions.opened() as session:
        value = session.run([shown, train], {x: a, y: b})[0]
        assert len(steps_of(session)) == 1
    (printed,) = re.findall(r"the loss: \[(.*)\]", capfd.readouterr().err)
    assert float(printed) == pytest.approx(value, rel=1e-6)


@pytest.mark.slow
def test_a_monitored_session_with_hooks_stops_saves_and_goes_on(tmp_path):
    x, y, loss, _, train, step = fed_classifier()
    a, b = next(batches())
    config = sessions.config(precision_mode=FLOAT32, npu_shim_profile="gpu", npu_shim_engine="pjrt")
    seen = []

    class Seen(tf.train.SessionRunHook):
        def before_run(self, context):
            return tf.train.SessionRunArgs([loss, step])

        def after_run(self, context, values):
            seen.append(values.results)

    for last in (4, 6):
        hooks = [tf.train.StopAtStepHook(last_step=last), Seen()]
        with tf.train.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path), hooks=hooks, config=config, save_checkpoint_steps=2, log_step_count_steps=None
        ) as session:
            while not session.should_stop():
                session.run(train, {x: a, y: b})
            assert programs_of(session._tf_sess()) == 1  # a MonitoredSession gives a RunMetadata with every run
        assert tf.train.latest_checkpoint(str(tmp_path)).endswith("-%d" % last)
    losses = [value for value, _ in seen]
    assert losses == sorted(losses, reverse=True)
    assert len(losses) == 6


def test_a_run_that_is_traced_is_tensorflows():
    x, y, loss, _, train, _ = fed_classifier()
    a, b = next(batches())
    with sessions.opened() as session:
        feeds, metadata = {x: a, y: b}, tf.RunMetadata()
        session.run([loss, train], feeds)
        session.run([loss, train], feeds, tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), metadata)
        assert programs_of(session) == 1
        assert metadata.step_stats.dev_stats


def test_a_variable_that_a_dataset_reads_stays_in_the_session():
    scale = tf.get_variable("scale", [], initializer=tf.ones_initializer(), use_resource=True)
    dataset = tf.data.Dataset.from_tensors(np.ones([4, 6], np.float32)).repeat().map(lambda value: value * scale)
    data = tf.data.make_initializable_iterator(dataset)
    loss = tf.reduce_mean(tf.square(tf.layers.dense(data.get_next() + scale, 2)))
    train = tf.train.GradientDescentOptimizer(0.001).minimize(loss)
    with sessions.opened() as session:
        session.run(data.initializer)
        first, second = (session.run([loss, train])[0] for _ in range(2))
        assert second < first
        assert reasons_of(session)[-1] == "a dataset reads variable 'scale'"


def test_queues_and_their_threads_feed_the_program():
    data = list(batches(4))
    x, y = tf.train.slice_input_producer([np.stack([a for a, _ in data]), np.stack([b for _, b in data])], num_epochs=2)
    loss, _ = classifier(x, y)
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    with sessions.opened() as session:
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        for _ in range(8):
            session.run([loss, train])
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run([loss, train])
        coordinator.request_stop()
        coordinator.join(threads)
        assert len(steps_of(session)) == 1


def test_threads_train_and_look_at_one_session():
    x, y, loss, logits, train, step = fed_classifier()
    a, b = next(batches())
    seen, problems = [], []

    def trains(session):
        try:
            for _ in range(20):
                session.run([loss, train], {x: a, y: b})
        except Exception as error:
            problems.append(error)

    with sessions.opened() as session:
        threads = [threading.Thread(target=trains, args=[session]) for _ in range(2)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            seen.append(session.run([step, logits], {x: a})[0])
        for thread in threads:
            thread.join()
        assert not problems
        assert session.run(step) == 40
        assert seen == sorted(seen)


@pytest.mark.skipif(not options.has_jax(), reason="no JAX in this process; test_engine_worker.py has the worker's")
def test_ctrl_c_in_a_step_loses_no_state():
    x, y, _, _, train, step = fed_classifier()
    a, b = next(batches())
    with sessions.opened() as session:
        for _ in range(2):
            session.run(train, {x: a, y: b})
        programs = of(session).device._programs
        loaded = programs[0]

        def interrupted(*arguments):
            os.kill(os.getpid(), signal.SIGINT)
            return loaded.call(*arguments)

        programs[0] = loaded._replace(call=interrupted)
        with pytest.raises(KeyboardInterrupt):
            session.run(train, {x: a, y: b})
        programs[0] = loaded
        assert session.run(step) == 3  # the step was on its way, and is whole
        session.run(train, {x: a, y: b})
        assert session.run(step) == 4


def test_a_wrong_engine_is_an_error():
    product = tf.matmul(tf.placeholder_with_default(tf.ones([4, 4]), [4, 4]), tf.ones([4, 4]))
    session = tf.Session(config=sessions.config(npu_shim_engine="pjtr"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="'pjtr' is not one of auto, session, pjrt"):
        session.run(product)


def test_without_being_asked_for_a_session_is_tensorflow_s_own(monkeypatch):
    monkeypatch.delenv("NPU_SHIM_ENGINE", raising=False)
    with tf.Session(config=sessions.config()) as session:
        assert engine.ENGINE not in vars(session)
    monkeypatch.setenv("NPU_SHIM_ENGINE", "pjrt")
    with tf.Session(config=sessions.config()) as session:
        assert engine.ENGINE in vars(session)


@pytest.mark.by_day("FtrlOptimizer")
@pytest.mark.parametrize("optimizer", [tf.train.AdagradOptimizer, tf.train.FtrlOptimizer])
def test_ops_that_xla_lacks_are_lowered_in_the_program(optimizer):
    """A product with a sparse tensor, whose fed shape becomes part of the program; rows that are updated."""
    support = tf.sparse_placeholder(tf.float32, name="support")
    ids = tf.placeholder(tf.int32, [None], "ids")
    table = tf.get_variable("table", initializer=np.random.RandomState(0).randn(9, 6).astype("f"))
    w = tf.get_variable("w", initializer=np.random.RandomState(1).randn(6, 3).astype("f"))
    loss = tf.reduce_mean(tf.square(tf.sparse_tensor_dense_matmul(support, tf.matmul(tf.gather(table, ids), w)) - 1))
    train = optimizer(0.1).minimize(loss)
    feeds = [
        {support: tf.SparseTensorValue([[0, 1], [size - 1, 0]], [1.0, 2.0], [size, 4]), ids: [1, 3, 1, 8]}
        for size in (5, 5, 3)
    ]
    losses = {}
    for kind in ("session", "pjrt"):
        with sessions.opened(kind) as session:
            losses[kind] = [session.run([loss, train], feed)[0] for feed in feeds]
            taken = steps_of(session) if kind == "pjrt" else []
    assert len(taken) == 1
    assert taken[0].parts[0].constants == (("support/shape:0", "support/shape:0", "value"),)
    np.testing.assert_allclose(losses["pjrt"], losses["session"], rtol=64 * 2.0**-23)


@pytest.mark.by_day("weights")
@pytest.mark.parametrize("weighted", [False, True], ids=["ids", "weights"])
def test_lookups_of_sparse_ids_are_sums_whose_number_the_session_counts(weighted):
    """The rows of embedding_lookup_sparse are one more than the last row that has an id."""
    ids, weights = tf.sparse_placeholder(tf.int64, name="ids"), tf.sparse_placeholder(tf.float32, name="weights")
    table = tf.get_variable("table", initializer=np.random.RandomState(0).randn(9, 6).astype("f"))
    looked_up = tf.nn.embedding_lookup_sparse(table, ids, weights if weighted else None, combiner="mean")
    more = tf.nn.embedding_lookup_sparse(table, ids, None, combiner="sqrtn")
    w = tf.get_variable("w", initializer=np.random.RandomState(1).randn(6, 3).astype("f"))
    loss = tf.reduce_sum(tf.square(tf.matmul(looked_up + more, w) - 1))
    train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
    feeds, rows = [], ([0, 0, 2, 3], [0, 1, 2, 3], [0, 1, 1, 2])
    for places in ([[row, number] for number, row in enumerate(ids_of_row)] for ids_of_row in rows):
        shape = [places[-1][0] + 1, 4]
        feed = {ids: tf.SparseTensorValue(places, [1, 7, 1, 8], shape)}
        feeds.append({**feed, weights: tf.SparseTensorValue(places, [1.0, 0.5, 2.0, 3.0], shape)})
    losses = {}
    for kind in ("session", "pjrt"):
        with sessions.opened(kind) as session:
            losses[kind] = [session.run([loss, train], feed)[0] for feed in feeds]
            taken = steps_of(session) if kind == "pjrt" else []
            programs = programs_of(session) if kind == "pjrt" else 0
    assert programs == 2  # of four rows and of three
    assert len(taken) == 1
    np.testing.assert_allclose(losses["pjrt"], losses["session"], rtol=64 * 2.0**-23)


def test_labels_that_a_sampler_has_drawn_cost_no_program_of_their_own():
    """Their number differs from step to step; each was compiled for, and after 16 the session ran the steps."""
    x, labels = tf.placeholder(tf.float32, [8, 6], "x"), tf.placeholder(tf.int64, [8, 1], "labels")
    w = tf.get_variable("w", initializer=np.random.RandomState(0).randn(20, 6).astype("f"))
    b = tf.get_variable("b", initializer=np.zeros(20, "f"))
    hidden = tf.layers.dense(x, 6, tf.nn.tanh, kernel_initializer=tf.glorot_uniform_initializer(seed=1))
    loss = tf.reduce_mean(tf.nn.sampled_softmax_loss(w, b, labels, hidden, 12, 20, seed=4))
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    hits = next(op for op in tf.get_default_graph().get_operations() if op.type == "ComputeAccidentalHits")
    losses, counts = {}, set()
    for kind in ("session", "pjrt"):
        draw = np.random.RandomState(2)
        with sessions.opened(kind) as session:
            losses[kind] = []
            for _ in range(6):
                feed = {x: draw.randn(8, 6), labels: draw.randint(0, 20, [8, 1])}
                value, _, positions = session.run([loss, train, hits.outputs[0]], feed)
                losses[kind].append(value)
                counts.add(len(positions))
            if kind == "pjrt":
                assert len(steps_of(session)) == 1
                assert programs_of(session) == 1
    assert len(counts) > 2
    np.testing.assert_allclose(losses["pjrt"], losses["session"], rtol=64 * 2.0**-23)


def test_a_run_that_tensorflow_refuses_has_its_own_error_after_a_step_that_draws():
    x = tf.placeholder(tf.float32, [2, 4])
    w = tf.get_variable("w", [4, 4], initializer=tf.ones_initializer())
    loss = tf.reduce_sum(tf.nn.dropout(tf.matmul(x, w), rate=0.5))
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    with sessions.opened() as session:
        for _ in range(2):
            session.run(train, {x: np.ones([2, 4])})
            with pytest.raises(ValueError, match="Cannot feed value of shape"):
                session.run(loss, {x: np.ones([3, 4])})
        assert len(steps_of(session)) == 1
        before = session.run(w)
        of(session).release()
        np.testing.assert_array_equal(session.run(w), before)
        assert not np.array_equal(before, np.ones([4, 4]))


SIZED = """
import numpy as np
import tensorflow as tf
USES = {
    "drawn": lambda x, n: x * tf.floor(0.5 + tf.random_uniform([n, 6])),
    "filled": lambda x, n: x * tf.fill([n, 6], 2.0),
    "counted": lambda x, n: x * tf.expand_dims(tf.cast(tf.range(n), tf.float32), 1),
    "reshaped": lambda x, n: tf.reshape(tf.reshape(x, [n, 2, 3]), [n, 6]),
    "repeated": lambda x, n: tf.tile(x, [n, 1]),
    "an axis": lambda x, n: x + tf.reduce_sum(x, n - 6, keepdims=True),
    "split": lambda x, n: tf.split(x, [n - 2, 2], 0)[0],
    "padded": lambda x, n: tf.pad(x, [[0, n], [0, 0]]),
    "one hot": lambda x, n: x * tf.reduce_sum(tf.one_hot(tf.zeros([4], tf.int32), n), 0)[:, None],
}
for name, use in USES.items():
    with tf.Graph().as_default():
        n, x = tf.placeholder(tf.int32, []), tf.placeholder(tf.float32, [None, 6])
        w = tf.get_variable("w", [6, 4])
        train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(tf.square(tf.matmul(use(x, n), w))))
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            session.run(train, {n: 6, x: np.ones([6, 6])})
"""


@pytest.mark.nightly  # TensorFlow's log of a process of its own
@pytest.mark.slow
def test_a_size_that_is_fed_is_found_before_tensorflow_logs_a_stack(tmp_path):
    (tmp_path / "sized.py").write_text(SIZED)
    own = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    command = [sys.executable, "-m", "npu_shim", "run", "--verbose", "--engine", "pjrt", "sized.py"]
    done = subprocess.run(
        command, cwd=str(tmp_path), env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("is one program on") == 9, done.stdout
    assert "OP_REQUIRES" not in done.stdout, done.stdout


def test_how_much_is_taken_is_a_constant_where_the_last_row_is_asked_for():
    def trained(kind):
        with tf.Graph().as_default():
            x, n = tf.placeholder(tf.float32, [6, 3]), tf.placeholder(tf.int32, [])
            w = tf.get_variable("w", [3, 3], initializer=tf.initializers.orthogonal(seed=1))
            rows = tf.matmul(x, w)
            loss = tf.reduce_sum(tf.square(rows[:n][-1] - 1.0)) + tf.nn.top_k(rows[:, 0], n).values[-1]
            train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
            with sessions.opened(kind) as session:
                data = [(np.random.RandomState(k).randn(6, 3), k) for k in (4, 2, 4)]
                return [session.run([loss, train], {x: a, n: k})[0] for a, k in data], session

    wanted, actual = trained("session"), trained("pjrt")
    np.testing.assert_allclose(actual[0], wanted[0], rtol=2e-5)
    assert len(steps_of(actual[1])) == 1, reasons_of(actual[1])
    assert programs_of(actual[1]) == 2  # one for each number


COLUMNS = 2


def wide_and_deep():
    """(features, loss, train) of columns of numbers: an embedding each, and a linear model of them."""
    fed = {"c%d" % k: tf.placeholder(tf.int32, [None]) for k in range(COLUMNS)}
    columns = [tf.feature_column.categorical_column_with_identity(name, 10) for name in sorted(fed)]
    deep = tf.feature_column.input_layer(fed, [tf.feature_column.embedding_column(column, 4) for column in columns])
    wide = tf.feature_column.linear_model(fed, columns)
    loss = tf.reduce_mean(tf.square(tf.layers.dense(deep, 1) + wide - 1.0))
    return fed, loss, tf.train.GradientDescentOptimizer(0.1).minimize(loss)


def sums_of_segments():
    """(features, loss, train) of rows of a table, added up by ids that are fed, for each of some features."""
    fed = {"c%d" % k: tf.placeholder(tf.int32, [None]) for k in range(COLUMNS)}
    table = tf.get_variable("table", [10, 4], initializer=tf.glorot_uniform_initializer(seed=1))
    rows = [tf.segment_sum(tf.gather(table, ids), tf.cumsum(ids % 2)) for ids in fed.values()]
    loss = tf.add_n([tf.reduce_mean(tf.square(tf.layers.dense(part, 1) - 1.0)) for part in rows])
    return fed, loss, tf.train.GradientDescentOptimizer(0.1).minimize(loss)


@pytest.mark.parametrize(("network", "walks_of"), [(wide_and_deep, []), (sums_of_segments, [1])])
def test_a_network_of_features_learns_what_they_need_together(network, walks_of, monkeypatch):
    """Of ids that are fed the session is asked how many segments there are; of a batch of known size it is not.

    It is asked once, and one walk tells of all of these numbers whether they are in loops.
    """
    walks, asked, knowing, depths = [], [], step.Step.knowing, step.walks.depths
    monkeypatch.setattr(step.walks, "depths", lambda nodes: walks.append(nodes) or depths(nodes))

    def watched(self, *what):
        before = len(walks)
        more = knowing(self, *what)
        asked.append(len(walks) - before)
        return more

    monkeypatch.setattr(step.Step, "knowing", watched)

    def trained(kind):
        random = np.random.RandomState(0)
        with tf.Graph().as_default():
            tf.set_random_seed(3)
            fed, loss, train = network()
            with sessions.opened(kind) as session:
                data = [{name: random.randint(0, 10, 8) for name in fed.values()} for _ in range(3)]
                return [session.run([loss, train], feed)[0] for feed in data], session

    wanted, actual = trained("session"), trained("pjrt")
    np.testing.assert_allclose(actual[0], wanted[0], rtol=2e-5)
    assert len(steps_of(actual[1])) == 1, reasons_of(actual[1])
    assert asked == walks_of


def test_ids_of_which_something_is_asserted_are_counted_by_the_session():
    """As a column of tf.feature_column asserts it: their number, and the ids that are told apart, wait for that."""

    def trained(kind):
        with tf.Graph().as_default():
            data = tf.data.Dataset.from_tensor_slices(np.random.RandomState(1).randint(0, 10, 30)).batch(8)
            ids = tf.expand_dims(tf.data.make_one_shot_iterator(data).get_next(), 1)
            places = tf.where(tf.not_equal(ids, -1))
            values = tf.gather_nd(ids, places)
            with tf.control_dependencies([tf.debugging.assert_less(values, np.int64(10))]):
                values = tf.identity(values)
            table = tf.get_variable("table", [10, 4], initializer=tf.glorot_uniform_initializer(seed=1))
            looked_up = tf.nn.safe_embedding_lookup_sparse(
                [table], tf.SparseTensor(places, values, tf.shape(ids, out_type=tf.int64))
            )
            w = tf.get_variable("w", [4, 1], initializer=tf.ones_initializer())
            loss = tf.reduce_mean(tf.square(tf.matmul(looked_up, w) - 1.0))
            train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
            with sessions.opened(kind) as session:
                return [session.run([loss, train])[0] for _ in range(4)], session

    wanted, actual = trained("session"), trained("pjrt")
    np.testing.assert_allclose(actual[0], wanted[0], rtol=2e-5)
    assert len(steps_of(actual[1])) == 1, reasons_of(actual[1])
    assert programs_of(actual[1]) == 2  # of eight rows, and of the last six


def summarized(kind, runs, histogram=False):
    """The losses of a network in runs with summaries ("with") and without, the summaries, the session."""
    with tf.Graph().as_default():
        tf.set_random_seed(3)
        x, y, loss, logits, train, _ = fed_classifier()
        tf.summary.scalar("loss", loss)
        tf.summary.scalar("largest", tf.reduce_max(logits))
        if histogram:
            tf.summary.histogram("first", tf.reshape(tf.trainable_variables()[0], [-1, 1]) * tf.ones([1, 30]))
        merged = tf.summary.merge_all()
        with sessions.opened(kind) as session:
            losses, texts = [], []
            for how, (a, b) in zip(runs, batches(len(runs))):
                fetched = session.run([train, loss, *([merged] if how == "with" else [])], {x: a, y: b})
                losses.append(fetched[1])
                texts += fetched[2:]
            return losses, [tf.Summary.FromString(text) for text in texts], session


def different_programs(session):
    return len({id(known.programs) for known in of(session).known.values() if known.programs})


@pytest.mark.by_day("runs1")
@pytest.mark.parametrize("runs", [("with", "without", "without", "with"), ("without", "with", "without", "with")])
def test_a_step_with_and_without_scalar_summaries_is_one_program_if_the_larger_comes_first(runs):
    wanted, actual = summarized("session", runs), summarized("pjrt", runs)
    np.testing.assert_allclose(actual[0], wanted[0], rtol=2e-5)
    for one, other in zip(actual[1], wanted[1]):
        assert [value.tag for value in one.value] == [value.tag for value in other.value]
        values = [[value.simple_value for value in text.value] for text in (one, other)]
        np.testing.assert_allclose(values[0], values[1], rtol=2e-5)
    assert len(steps_of(actual[2])) == 2
    assert different_programs(actual[2]) == (1 if runs[0] == "with" else 2)


def test_a_step_without_large_summaries_does_not_compute_them():
    runs = ("with", "without", "without")
    wanted, actual = summarized("session", runs, histogram=True), summarized("pjrt", runs, histogram=True)
    np.testing.assert_allclose(actual[0], wanted[0], rtol=2e-5)
    assert different_programs(actual[2]) == 2


def test_a_step_that_fetches_nothing_does_not_wait_for_summaries():
    x, y, loss, _, train, _ = fed_classifier()
    a, b = next(batches())
    with sessions.opened() as session:
        session.run([train, loss], {x: a, y: b})
        session.run(train, {x: a, y: b})
    assert different_programs(session) == len(steps_of(session)) == 2


def test_a_step_that_writes_more_is_another_program():
    x, y, loss, _, train, _ = fed_classifier()
    average = tf.train.ExponentialMovingAverage(0.5).apply([loss])
    with sessions.opened() as session:
        for fetches in ([train, average], [train], [train, average]):
            a, b = next(batches())
            session.run(fetches, {x: a, y: b})
    assert different_programs(session) == len(steps_of(session)) == 2
