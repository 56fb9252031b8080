import gc
import weakref

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow.compat.v1")

from npu_shim.estimator import iterations  # noqa: E402


@pytest.fixture
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def counter(name="counter"):
    """A variable and the operation that adds one to it."""
    variable = tf.get_variable(name, shape=(), dtype=tf.int64, initializer=tf.zeros_initializer(), use_resource=True)
    return variable, tf.group(variable.assign_add(1), name=name + "_step")


class LastStep(tf.train.SessionRunHook):
    """Remembers the global step after each run and at the end of the session."""

    def begin(self):
        self.values = []

    def after_run(self, run_context, run_values):
        self.values.append(run_context.session.run(tf.train.get_global_step()))

    def end(self, session):
        self.value = session.run(tf.train.get_global_step())


@pytest.mark.parametrize(
    ("step", "last", "marks", "expected"),
    [
        (395, 405, (), 10),
        (400, 405, (), 5),
        (404, 405, (), 1),
        (405, 405, (), 1),  # a run makes at least one step: whether to run at all is decided elsewhere
        (0, None, (), 10),
        (95, None, ((100, 0),), 5),
        (100, None, ((100, 0),), 10),
        (100, None, ((100, 1),), 1),
        (101, None, ((100, 1),), 10),
        (0, 3, ((100, 0), (2, 0)), 2),
        (7, None, ((1, 0),), 1),
    ],
)
def test_steps_of_run(step, last, marks, expected):
    assert iterations.steps_of_run(step, 10, last, marks) == expected


def test_every_mark_and_the_last_step_are_met():
    for per_loop in (1, 3, 7, 100):
        step, seen = 0, set()
        while step < 57:
            step += iterations.steps_of_run(step, per_loop, 57, ((10, 0), (10, 1)))
            seen.add(step)
        assert max(seen) == 57
        assert {10, 11, 20, 21, 50, 51} <= seen


def test_set_iteration_per_loop_by_object_name_and_among_others(graph):
    variable, step = counter()
    with tf.Session() as session, tf.Session() as other:
        session.run(variable.initializer)
        looped = iterations.set_iteration_per_loop(session, step, 5)
        assert isinstance(looped, tf.Operation)
        assert session.run(looped) is None
        assert session.run(variable) == 5
        session.run(looped.name)
        assert session.run(variable) == 10
        three = tf.constant(3)
        result = session.run({"a": [looped, (three.name,)], "b": three})
        assert result["b"] == 3
        assert result["a"] == [None, (3,)]
        assert session.run(variable) == 15
        looped.run(session=session)
        assert session.run(variable) == 20
        # what is not the returned operation runs once
        session.run(step)
        assert session.run(variable) == 21
        other.run(variable.initializer)
        other.run(looped)
        assert other.run(variable) == 1
        assert "run" not in vars(other)


def test_what_depends_on_the_looped_operation_repeats_it_too(graph):
    variable, step = counter()
    with tf.Session() as session:
        session.run(variable.initializer)
        looped = iterations.set_iteration_per_loop(session, step, 5)
        with tf.control_dependencies([looped]):
            after = variable.read_value()
            grouped = tf.group(tf.no_op())
        doubled = after * 2
        assert session.run(doubled) == 10
        session.run(grouped)
        assert session.run(variable) == 10
        assert session.run(doubled, {after: 7}) == 14  # nothing of it is needed
        assert session.run([doubled, looped])[0] == 30
        assert session.make_callable(doubled)() == 40
        assert session.run(variable) == 20


@pytest.mark.parametrize("session", [None, "session"])
def test_what_is_no_session_is_told(graph, session):
    with pytest.raises(TypeError, match=r"sess must be a tf\.Session or MonitoredSession, got <class"):
        iterations.set_iteration_per_loop(session, counter()[1], 2)


def test_two_loops_on_one_session(graph):
    (slow, slow_step), (fast, fast_step) = counter("slow"), counter("fast")
    with tf.Session() as session:
        session.run([slow.initializer, fast.initializer])
        two = iterations.set_iteration_per_loop(session, slow_step, 2)
        five = iterations.set_iteration_per_loop(session, fast_step, 5)
        session.run([two, five])
        assert session.run([slow, fast]) == [2, 5]
        session.run(two)
        assert session.run([slow, fast]) == [4, 5]


def test_feeds_options_and_metadata_reach_the_steps(graph):
    amount = tf.placeholder(tf.float32, ())
    total = tf.get_variable("total", shape=(), initializer=tf.zeros_initializer(), use_resource=True)
    step = tf.group(total.assign_add(amount))
    with tf.Session() as session:
        session.run(total.initializer)
        looped = iterations.set_iteration_per_loop(session, step, 4)
        metadata = tf.RunMetadata()
        session.run(
            looped, {amount: 2.5}, options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), run_metadata=metadata
        )
        assert session.run(total) == 10.0
        assert metadata.step_stats.dev_stats


def test_one_is_the_operation_itself_and_changes_no_session(graph):
    _, step = counter()
    before = len(graph.get_operations())
    with tf.Session() as session:
        assert iterations.set_iteration_per_loop(session, step) is step
        assert iterations.set_iteration_per_loop(session, step, iterations_per_loop=1) is step
        assert "run" not in vars(session)
    assert len(graph.get_operations()) == before


@pytest.mark.parametrize(
    ("count", "error", "words"),
    [(0, ValueError, "positive"), (-1, ValueError, "positive"), (1.5, TypeError, "int"), ("1", TypeError, "int")],
)
def test_wrong_count(graph, count, error, words):
    _, step = counter()
    with tf.Session() as session, pytest.raises(error, match="iterations_per_loop must be " + words):
        iterations.set_iteration_per_loop(session, step, count)


def test_wrong_operation(graph):
    variable, _ = counter()
    with tf.Session() as session, pytest.raises(ValueError, match=r"npu_shim: .* train_op must be a tf\.Operation"):
        iterations.set_iteration_per_loop(session, variable.assign_add(1), 2)


def test_same_operation_again_takes_the_new_count(graph):
    variable, step = counter()
    with tf.Session() as session:
        session.run(variable.initializer)
        iterations.repeat(session, step, lambda _: 2)
        iterations.repeat(session, step, lambda _: 3)
        session.run(step)
        assert session.run(variable) == 3


def test_session_is_freed_without_the_garbage_collector(graph):
    _, step = counter()
    session = tf.Session()
    iterations.set_iteration_per_loop(session, step, 2)
    session.close()
    alive = weakref.ref(session)
    gc.disable()
    try:
        del session
        assert alive() is None
    finally:
        gc.enable()


def test_finalized_graph_of_a_monitored_session(graph):
    tf.train.create_global_step()
    variable, step = counter()
    with tf.train.MonitoredTrainingSession() as session:
        looped = iterations.set_iteration_per_loop(session, step, 4)
        assert looped is step
        session.run(looped)
        assert session.run(variable) == 4


def test_hook_by_hand_repeats_the_optimizers_step(graph):
    step = tf.train.get_or_create_global_step()
    weight = tf.get_variable("w", initializer=1.0, use_resource=True)
    train_op = tf.train.GradientDescentOptimizer(1.0).minimize(weight, global_step=step)
    with tf.train.MonitoredTrainingSession(hooks=[iterations.SetIterationsVarHook(10)]) as session:
        session.run(train_op)
        assert session.run([step, weight]) == [10, -9.0]
        session.run(train_op)
        assert session.run(step) == 20


def test_hook_stops_at_exactly_the_last_step(graph):
    step = tf.train.get_or_create_global_step()
    train_op = tf.group(tf.assign_add(step, 1))
    stop = tf.train.StopAtStepHook(num_steps=25)
    hook = iterations.SetIterationsVarHook(10, train_op, hooks=[stop])
    runs = 0
    last = LastStep()
    with tf.train.MonitoredTrainingSession(hooks=[hook, stop, last]) as session:
        while not session.should_stop():
            session.run(train_op)
            runs += 1
    assert runs == 3
    assert last.value == 25


@pytest.mark.parametrize("per_loop", [1, 4, 10])
def test_skipped_updates_neither_hang_nor_overshoot(graph, per_loop):
    step = tf.train.get_or_create_global_step()
    tries, try_once = counter("tries")
    with tf.control_dependencies([try_once]):
        finite = tf.not_equal(tries.read_value() % 3, 0)  # every third step overflows
        train_op = tf.cond(finite, lambda: tf.group(tf.assign_add(step, 1)), tf.no_op)
    stop = tf.train.StopAtStepHook(last_step=25)
    last = LastStep()
    runs = 0
    with tf.train.MonitoredTrainingSession(
        hooks=[iterations.SetIterationsVarHook(per_loop, train_op, [stop]), stop, last]
    ) as session:
        while not session.should_stop():
            session.run(train_op)
            runs += 1
            assert runs < 100
    # 25 updates take 37 tries, as every third is skipped
    assert last.value == 25
    assert runs >= -(-37 // per_loop)


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("last", [14, 15])
def test_a_step_that_adds_two_to_the_global_step_does_not_overshoot(last, resource):
    def ends(per_loop, checkpoint_steps=None):
        with tf.Graph().as_default(), tf.variable_scope("", use_resource=resource):
            step = tf.train.get_or_create_global_step()
            first = tf.assign_add(step, 1)
            with tf.control_dependencies([first]):  # as a second optimizer that is given the global step
                train_op = tf.group(tf.assign_add(step, 1))
            stop = tf.train.StopAtStepHook(last_step=last)
            seen = LastStep()
            hook = iterations.SetIterationsVarHook(per_loop, train_op, [stop], checkpoint_steps)
            with tf.train.MonitoredTrainingSession(hooks=[hook, stop, seen]) as session:
                while not session.should_stop():
                    session.run(train_op)
        return seen.value, seen.values

    # the hook reads the step before or after the last addition, and may want one run more
    assert last <= ends(10)[0] <= last + 2
    assert {6, 12} <= set(ends(10, checkpoint_steps=6)[1])


def test_data_that_ends_inside_a_run_ends_training_with_its_last_checkpoint(graph, tmp_path):
    step = tf.train.get_or_create_global_step()
    data = tf.data.make_one_shot_iterator(tf.data.Dataset.range(13)).get_next()
    with tf.control_dependencies([data]):
        train_op = tf.group(tf.assign_add(step, 1))
    hook = iterations.SetIterationsVarHook(10, train_op)
    runs = 0
    with tf.train.MonitoredTrainingSession(
        hooks=[hook], checkpoint_dir=str(tmp_path), save_checkpoint_steps=100
    ) as session:
        while not session.should_stop():
            session.run(train_op)
            runs += 1
    assert runs == 1
    assert tf.train.load_variable(str(tmp_path), "global_step") == 13


def test_hook_without_a_step_warns(graph, caplog):
    tf.train.get_or_create_global_step()
    _, step = counter()
    with tf.train.MonitoredTrainingSession(hooks=[iterations.SetIterationsVarHook(iterations_per_loop=3)]) as session:
        session.run(step)
    assert "no training step to repeat" in caplog.text


def test_hook_for_one_step_changes_nothing(graph, caplog):
    tf.train.get_or_create_global_step()
    variable, step = counter()
    for count in (None, 1):
        with tf.train.MonitoredTrainingSession(hooks=[iterations.SetIterationsVarHook(count, step)]) as session:
            session.run(step)
            np.testing.assert_array_equal(session.run(variable), 1)
            assert "run" not in vars(session._tf_sess())
    assert not caplog.records
