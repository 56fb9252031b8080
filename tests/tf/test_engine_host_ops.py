"""Host ops in the middle of a training step: a program before them and one behind, with the session's numbers."""

import re
import time

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.compat.names import names
from npu_shim.engine import report
from npu_shim.engine import sessions as engine
from npu_shim.engine.partition import facts
from npu_shim.engine.partition.cut import Place
from npu_shim.options import engine as options

pytestmark = [
    *sessions.NEEDS_ENGINE,
    *([] if options.has_jax() else [pytest.mark.nightly]),  # a worker takes minutes
    pytest.mark.usefixtures("patched", "own_graph", "control_flow_of_version_1"),
]
STEPS = 4
summary = names.load("tensorflow.python.ops.summary_ops_v2")  # tf.contrib.summary
FLOAT32, MIX = "must_keep_origin_dtype", "allow_mix_precision"


def called(function, tensor):
    """A py_func of the same shape, and the list of what it was given."""
    seen = []

    def call(value):
        seen.append(value)
        return function(value).astype(value.dtype)

    result = tf.py_func(call, [tensor], tensor.dtype)
    result.set_shape(tensor.shape)
    return result, seen


def trained(kind, fetches, feeds, mode=FLOAT32):
    """(results of the steps, the session)."""
    with sessions.opened(kind, mode) as session:
        return [session.run(fetches, fed)[:-1] for fed in feeds], session


def compared(fetches, feeds, mode=FLOAT32, rtol=1e-4):
    """The step that was taken, or why it was not, where its results are the session's."""
    wanted, _ = trained("session", fetches, feeds, mode)
    actual, session = trained("pjrt", fetches, feeds, mode)
    for one, other in zip(actual, wanted):
        sessions.assert_close(one, other, rtol=rtol, atol=rtol / 10)
    *_, last = vars(session)[engine.ENGINE].known.values()  # others initialized the variables
    return last.step or last.reason


def data(rows=8, columns=6):
    rng = np.random.RandomState(0)
    return [rng.randn(rows, columns).astype("f") for _ in range(STEPS)]


@pytest.mark.parametrize(("mode", "rtol"), [(FLOAT32, 1e-4), (MIX, 4e-3)])
def test_a_python_function_in_the_middle(mode, rtol):
    x = tf.placeholder(tf.float32, [None, 6], "x")
    first = tf.layers.dense(x, 16, tf.nn.tanh)
    weights, seen = called(lambda value: np.abs(value).mean(1, keepdims=True) + 0 * value, first)
    second = tf.layers.batch_normalization(tf.layers.dense(first * weights, 4), training=True, fused=False)
    loss = tf.reduce_mean(tf.square(second - x[:, :4]))
    tf.summary.scalar("loss", loss)
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train = tf.train.AdamOptimizer(0.01).minimize(loss, tf.train.get_or_create_global_step())
    calls = compared([loss, first, weights, train], [{x: batch} for batch in data()], mode, rtol)
    assert len(calls.parts) == 2
    assert len(seen) == 2 * STEPS
    assert seen[0].shape == (8, 16)
    assert set(calls.cut.reasons.values()) == {"the interpreter has no rule for it, and it runs Python"}


def test_a_python_function_with_a_gradient_divides_the_step_twice():
    @tf.custom_gradient
    def clipped(value):
        result, _ = called(lambda array: np.clip(array, -0.5, 0.5), value)

        def gradient(given):
            return called(lambda array: array * 0.5, given)[0]

        return result, gradient

    x = tf.placeholder(tf.float32, [None, 6], "x")
    hidden = clipped(tf.layers.dense(x, 16, tf.nn.tanh))
    loss = tf.reduce_mean(tf.square(tf.layers.dense(hidden, 6) - x))
    train = tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    taken = compared([loss, train], [{x: batch} for batch in data()])
    assert len(taken.parts) == 3
    first, _, last = (part.program for part in taken.parts)
    assert first.passed
    assert not any(variable.updated for part in taken.parts[:2] for variable in part.prepared.state)
    assert last.taken


def test_boxes_that_are_chosen_in_the_program_are_as_many_as_data_say():
    x = tf.placeholder(tf.float32, [None, 6], "x")
    hidden = tf.layers.dense(x, 16, tf.nn.tanh)
    corners = tf.sigmoid(tf.layers.dense(hidden, 2))
    boxes, scores = tf.concat([corners, corners + 0.4], 1), tf.reduce_sum(hidden, 1)
    chosen = tf.raw_ops.NonMaxSuppressionV2(boxes=boxes, scores=scores, max_output_size=5, iou_threshold=0.5)
    loss = tf.reduce_mean(tf.square(tf.layers.dense(tf.gather(hidden, chosen), 6) - tf.gather(x, chosen)))
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    taken = compared([loss, chosen, train], [{x: batch} for batch in data()])
    assert len(taken.parts) == 1


def test_loops_on_both_sides_are_computed_again_where_their_gradient_needs_them():
    x = tf.placeholder(tf.float32, [4, 5, 6], "x")
    with tf.variable_scope("before"):
        first, _ = tf.nn.dynamic_rnn(tf.nn.rnn_cell.GRUCell(8), x, dtype=tf.float32)
    weights, _ = called(lambda value: np.abs(value), first)
    with tf.variable_scope("behind"):
        second, _ = tf.nn.dynamic_rnn(tf.nn.rnn_cell.GRUCell(6), first * weights, dtype=tf.float32)
    loss = tf.reduce_mean(tf.square(second - x))
    train = tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    rng = np.random.RandomState(0)
    taken = compared([loss, train], [{x: rng.randn(4, 5, 6)} for _ in range(STEPS)])
    assert len(taken.parts) == 2


def test_what_is_drawn_before_is_the_same_behind():
    """The mask of a dropout is drawn once: its gradient has the zeros of its result."""
    x = tf.placeholder(tf.float32, [None, 6], "x")
    w = tf.get_variable("w", [6, 40])
    hidden = tf.matmul(x, w)
    dropped = tf.nn.dropout(hidden, rate=0.5)
    weights, seen = called(lambda value: np.ones_like(value), dropped)
    loss = tf.reduce_sum(dropped * weights)
    (gradient,) = tf.gradients(loss, [hidden])
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    actual, session = trained("pjrt", [dropped, gradient, train], [{x: batch} for batch in data()])
    (step,) = [run.step for run in vars(session)[engine.ENGINE].known.values() if run.step]
    assert len(step.parts) == 2
    for (value, slopes), given in zip(actual, seen):
        np.testing.assert_array_equal(value != 0, slopes != 0)
        np.testing.assert_array_equal(value, given)
        assert 0.3 < (value == 0).mean() < 0.7
    assert (actual[0][0] != 0).tolist() != (actual[1][0] != 0).tolist()


def test_classes_are_sampled_for_labels_that_the_step_computes():
    x = tf.placeholder(tf.float32, [None, 6], "x")
    hidden = tf.layers.dense(x, 16, tf.nn.tanh)
    labels = tf.argmax(hidden, 1)[:, None]
    weights, biases = tf.get_variable("w", [16, 16]), tf.get_variable("b", [16])
    sampled = tf.nn.sampled_softmax_loss(weights, biases, labels, hidden, 5, 16, remove_accidental_hits=False)
    loss = tf.reduce_mean(sampled)
    train = tf.train.AdagradOptimizer(0.5).minimize(loss)
    losses, session = trained("pjrt", [loss, train], [{x: data()[0]} for _ in range(20)])
    (step,) = [run.step for run in vars(session)[engine.ENGINE].known.values() if run.step]
    middle = [name.rpartition("/")[2] for name, place in step.cut.places.items() if place is Place.MIDDLE]
    assert middle == ["LogUniformCandidateSampler"]
    assert np.mean(losses[-5:]) < np.mean(losses[:5])


def test_sums_of_a_tensor_with_itself_are_fed_to_the_session_and_not_read_around():
    """TensorFlow's arithmetic optimizer reads around a fed x + x: it ran what feeds the step again, on other values."""
    x = tf.placeholder(tf.float32, [None, 6], "x")
    before, seen = called(np.tanh, x)
    hidden = tf.layers.dense(before, 6)
    doubled = hidden + hidden
    weights, middle = called(np.abs, doubled)
    judged, behind = called(np.sign, tf.add_n([doubled, doubled]))
    loss = tf.reduce_mean(tf.square(tf.layers.dense(doubled * weights, 6) - x))
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    taken = compared([loss, doubled, judged, train], [{x: batch} for batch in data()])
    assert len(taken.parts) == 2
    assert [len(calls) for calls in (seen, middle, behind)] == [2 * STEPS] * 3


def test_rows_that_only_the_data_count_do_not_pass_between_programs():
    x = tf.placeholder(tf.float32, [None, 6], "x")
    some = tf.boolean_mask(tf.layers.dense(x, 16, tf.nn.tanh), tf.reduce_sum(x, 1) > 0)
    weights, _ = called(np.abs, some)
    loss = tf.reduce_mean(tf.square(tf.layers.dense(some * weights, 6)))
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    reason = compared([loss, train], [{x: batch} for batch in data()])
    assert "'boolean_mask/GatherV2:0' stays on the device, and has a number of rows that depends on the data" in reason


def test_the_plan_says_what_stands_in_the_middle():
    x = tf.placeholder(tf.float32, [None, 6], "x")
    weights, _ = called(np.abs, tf.layers.dense(x, 6))
    loss = tf.reduce_mean(tf.square(tf.layers.dense(weights, 6)))
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    text = report.of_graph(tf.get_default_graph().as_graph_def(), [loss.name, train.name])
    assert re.match(r"engine: 2 programs of \d+ and \d+ ops\n  in the session, in its middle \(1\):\n", text)


def test_a_function_that_fails_leaves_the_state_as_it_was_and_the_next_step_goes_on():
    x = tf.placeholder(tf.float32, [None, 6], "x")

    def picky(value):
        if np.isnan(value).any():
            raise ValueError("no number")
        return value

    checked, _ = called(picky, tf.layers.dense(x, 16, tf.nn.tanh))
    step = tf.train.get_or_create_global_step()
    loss = tf.reduce_mean(tf.square(tf.layers.dense(checked, 6) - x))
    train = tf.train.AdamOptimizer(0.01).minimize(loss, step)
    config = sessions.config(precision_mode=FLOAT32, npu_shim_profile="gpu", npu_shim_engine="pjrt")
    with sessions.started(config=config) as session:
        session.run(train, {x: data()[0]})
        before = session.run(tf.global_variables())
        with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.UnknownError), match="no number"):
            session.run(train, {x: np.full([8, 6], np.nan)})
        sessions.assert_close(session.run(tf.global_variables()), before)
        session.run(train, {x: data()[0]})
        assert session.run(step) == 2
        assert sum(len(run.programs) for run in vars(session)[engine.ENGINE].known.values()) == 2


@pytest.mark.parametrize("kind", ["py_func", "numpy_function", "function of a variable"])
def test_a_python_function_behind_the_step_runs_though_nobody_takes_its_result(kind):
    seen = []
    x = tf.placeholder(tf.float32, [None, 6], "x")
    loss = tf.reduce_mean(tf.square(tf.layers.dense(x, 6) - x))
    step = tf.get_variable("step", initializer=np.int64(0), use_resource="variable" in kind, trainable=False)
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, step)

    def note(value):
        seen.append(int(value))
        return value

    @tf.function
    def noted():
        return tf.numpy_function(note, [step], tf.int64)

    with tf.control_dependencies([train]):
        if kind == "function of a variable":
            behind = noted()
        else:
            behind = getattr(tf, kind)(note, [step], tf.int64)
    compared([loss, tf.group(behind)], [{x: batch} for batch in data()])
    assert len(seen) == 2 * STEPS


def test_what_takes_the_value_of_a_variable_may_wait_all_the_same():
    step = tf.get_variable("step", initializer=np.int64(0), use_resource=False)
    queue = tf.FIFOQueue(1, tf.int64, shapes=[[]])
    ops = [queue.enqueue(step), tf.py_func(lambda value: value, [step], tf.int64).op, step.assign_add(1).op]
    graph_def = tf.get_default_graph().as_graph_def()
    needed = facts.needed_by({node.name: node for node in graph_def.node}.__getitem__, [op.name for op in ops], ())
    blocked = facts.blocking(facts.nodes_of(graph_def, [op.name for op in ops]), facts.variables_touched(needed, {}))
    assert blocked == {ops[0].name, ops[1].name}


@pytest.mark.parametrize("between", ["constant", "product", "group"])
def test_functions_behind_the_step_run_in_the_order_that_control_dependencies_give_them(between):
    """TensorFlow lets the second one wait for the first through what it takes: a constant, or what is computed of y."""
    box = [np.float32(0)]

    def put(value):
        time.sleep(0.02)
        box[0] = value
        return value

    x = tf.placeholder(tf.float32, [None, 6], "x")
    y = tf.reduce_sum(tf.layers.dense(x, 6))
    train = tf.train.GradientDescentOptimizer(0.01).minimize(y)
    first = tf.py_func(put, [y], tf.float32)
    with tf.control_dependencies([tf.group(first) if between == "group" else first]):
        second = y * 2 if between == "product" else tf.constant(1.0)
        seen = tf.py_func(lambda _: box[0], [second], tf.float32)
    assert not seen.op.control_inputs
    taken = compared([seen, train], [{x: batch} for batch in data()])
    assert taken.cut.place(second.name) is Place.READ


@pytest.mark.parametrize("version", [1, 2])
def test_summaries_in_a_conditional_are_written_behind_the_program(tmp_path, version):
    """As tf.contrib.summary writes them every second step; one has the global step that the conditional reads.

    A handle that a conditional of version 2 takes does not pass: its summary has the step that is read around it.
    """
    if version == 2:
        tf.enable_control_flow_v2()
    x = tf.placeholder(tf.float32, [8, 6], "x")
    loss = tf.reduce_mean(tf.square(tf.layers.dense(x, 6) - x))
    count = tf.get_variable("count", initializer=np.int64(0), use_resource=True, trainable=False)
    at = count.read_value()
    writer = summary.create_file_writer(str(tmp_path), name="written")
    with writer.as_default(), summary.record_summaries_every_n_global_steps(2, at):
        for step in (at, count if version == 1 else at):
            summary.scalar("loss", loss, step=step)
        with tf.control_dependencies([at, loss]):
            train = tf.group(tf.train.GradientDescentOptimizer(0.1).minimize(loss, count), summary.all_v2_summary_ops())
        close = writer.close()
    assert any(op.type == "If" for op in train.graph.get_operations()) == (version == 2)
    written = []
    (opened,) = summary.summary_writer_initializer_op()
    for kind in ("session", "pjrt"):
        with sessions.opened(kind, FLOAT32) as session:
            session.run(opened, {opened.inputs[1]: str(tmp_path / kind)})
            for batch in data():
                session.run([loss, train], {x: batch})
            session.run(close)
        (path,) = (tmp_path / kind).iterdir()
        events = [event for event in tf.train.summary_iterator(str(path)) if event.summary.value]
        written.append([(event.step, event.summary.value[0]) for event in events])
    (taken,) = [known.step for known in vars(session)[engine.ENGINE].known.values() if known.step is not None]
    assert bool(taken.cut.programs[0].again) == (version == 1)
    assert [step for step, _ in written[1]] == [0, 0, 2, 2]
    values = [
        [tf.make_ndarray(v.tensor) if v.HasField("tensor") else v.simple_value for _, v in events] for events in written
    ]
    np.testing.assert_allclose(values[1], values[0], rtol=1e-5)
