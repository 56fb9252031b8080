"""compile_step: a training step as one XLA program does what the session does, on small graphs built here."""

import pathlib

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.engine import step_programs
from npu_shim.loss_scale import ExponentialUpdateLossScaleManager, NPULossScaleOptimizer
from npu_shim.xla import step_checkpoint

DIGITS = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "data" / "digits.npz"
pytestmark = sessions.COMPILED
STEPS = 20
EPS = {"float32": 2.0**-23, "float16": 2.0**-10}


@pytest.fixture(scope="module")
def digits():
    data = np.load(str(DIGITS))
    images, labels = data["images"].reshape(-1, 64).astype(np.float32) / 16, data["labels"].astype(np.int32)
    return [{"x:0": images[k : k + 64], "y:0": labels[k : k + 64]} for k in range(0, 64 * STEPS, 64)]


def network(use_resource=True):
    """A hidden layer, Adam, a loss scale that grows every 5 steps, and a step counter."""
    graph = tf.Graph()
    with graph.as_default():
        x, y = tf.placeholder(tf.float32, [None, 64], "x"), tf.placeholder(tf.int32, [None], "y")
        start = tf.truncated_normal_initializer(stddev=0.1, seed=1)
        with tf.variable_scope("net", use_resource=use_resource, initializer=start):
            h = tf.nn.relu(tf.matmul(x, tf.get_variable("w1", [64, 32])) + tf.get_variable("b1", [32]))
            logits = tf.matmul(h, tf.get_variable("w2", [32, 10]))
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits), name="loss")
        count = tf.train.get_or_create_global_step()
        manager = ExponentialUpdateLossScaleManager(2.0**15, 5, 1, decr_ratio=0.5)
        NPULossScaleOptimizer(tf.train.AdamOptimizer(3e-3), manager).minimize(loss, count, name="train")
        tf.global_variables_initializer()
    return graph


FETCHES = ["loss:0", "train"]
FLOAT32 = {"precision_mode": "must_keep_origin_dtype", "profile": "gpu"}


def in_session(graph, batches, config=None):
    with tf.Session(graph=graph, config=config) as session:
        session.run("init")
        step = npu_shim.compile_step(session, FETCHES, ["x", "y"])
        losses = [session.run(FETCHES, feeds)[0] for feeds in batches]
        variables = graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES)
        return step, losses, session.run({variable.op.name: variable for variable in variables})


@pytest.mark.parametrize("use_resource", [True, False])
def test_digits_train_as_in_the_session(digits, use_resource, control_flow_of_version_1):
    step, expected, state = in_session(network(use_resource), digits)
    losses = [step(feeds)[0] for feeds in digits]
    # sums of 64 products, and Adam divides by small second moments: roundings grow with the steps
    assert np.allclose(losses, expected, rtol=64 * STEPS * EPS["float32"])
    actual = step.state()
    assert losses[-1] < 0.9 * losses[0]
    assert actual["global_step"] == state["global_step"] == STEPS
    assert actual["loss_scale"] == state["loss_scale"] == 2.0**15 * 2 ** (STEPS // 5)
    assert all(np.allclose(actual[name], state[name], rtol=1e-3, atol=1e-4) for name in state)


def test_mixed_precision_trains_as_in_the_session(digits, patched):
    step, expected, _ = in_session(network(), digits, sessions.config(precision_mode="allow_mix_precision"))
    assert any(decision.becomes != decision.was for decision in step.plan.decisions())
    losses = [step(feeds)[0] for feeds in digits]
    assert np.allclose(losses, expected, rtol=STEPS * EPS["float16"])


def test_an_overflow_skips_the_step_on_the_device(digits):
    step = npu_shim.compile_step(network(), [*FETCHES, "loss_scale:0"], ["x", "y"], initializer="init", **FLOAT32)
    before = step.state()
    bad = {**digits[0], "x:0": np.full([64, 64], 1e38, np.float32)}
    assert step(bad)[2] == 2.0**14
    after = step.state()
    assert after["global_step"] == 0
    assert np.array_equal(before["net/w1"], after["net/w1"])
    step(digits[0])
    assert step.state()["global_step"] == 1
    assert not np.array_equal(before["net/w1"], step.state()["net/w1"])


def test_ten_steps_on_the_device_are_ten_steps(digits):
    graph = network()
    with tf.Session(graph=graph) as session:
        session.run("init")
        single = npu_shim.compile_step(session, FETCHES, ["x", "y"])
        looped = npu_shim.compile_step(session, FETCHES, ["x", "y"], iterations_per_loop=10)
    losses = [single(feeds)[0] for feeds in digits[:10]]
    stacked = {name: np.stack([feeds[name] for feeds in digits[:10]]) for name in digits[0]}
    assert looped(stacked)[0] == losses[-1]
    one, other = single.state(), looped.state()
    assert all(np.array_equal(one[name], other[name]) for name in one)
    assert one["global_step"] == 10


def test_state_goes_through_tensorflows_checkpoints(digits, tmp_path):
    graph = network()
    with tf.Session(graph=graph) as session:
        session.run("init")
        step = npu_shim.compile_step(session, FETCHES, ["x", "y"])
        for feeds in digits[:3]:
            step(feeds)
        prefix = step.save(tmp_path / "model.ckpt-3")
        with graph.as_default():
            saver = tf.train.Saver()
        saver.restore(session, tf.train.latest_checkpoint(str(tmp_path)))
        assert session.run(tf.train.get_global_step(graph)) == 3
        saver.save(session, str(tmp_path / "again"))
    other = npu_shim.compile_step(graph, FETCHES, ["x", "y"], precision_mode="force_fp32")
    with pytest.raises(npu_shim.ConfigError, match="have no values: give compile_step a Session"):
        other(digits[3])
    other = npu_shim.compile_step(graph, FETCHES, ["x", "y"], **FLOAT32)
    other.load(str(tmp_path / "again"))
    assert other(digits[3])[0] == step(digits[3])[0]
    one, two = step.state(), other.state()
    assert [name for name in one if not np.array_equal(one[name], two[name])] == ["loss_scale_steps"]  # of a run
    assert prefix == str(tmp_path / "model.ckpt-3")


def test_a_checkpoint_that_does_not_fit_is_one_error(tmp_path):
    step = npu_shim.compile_step(network(), FETCHES, ["x", "y"], **FLOAT32)
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("net/w", [64, 32])
        tf.get_variable("net/w2", [32, 11])
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, str(tmp_path / "other"))
    with pytest.raises(npu_shim.ConfigError) as error:
        step.load(tmp_path / "other")
    assert "no variable 'net/w1' (did you mean 'net/w" in str(error.value)
    assert "no variable 'global_step'" in str(error.value)
    assert "'net/w2' has shape [32, 11], the step has [32, 10]" in str(error.value)
    with pytest.raises(npu_shim.ConfigError, match="is not a TensorFlow checkpoint"):
        step.load(tmp_path / "nothing")


BAD_CALLS = [
    ({"x:0": np.ones([2, 63])}, r"'x:0' has shape \(2, 63\), the graph expects \((None|\?), 64\)"),
    ({"x:0": np.array([["a"] * 64] * 2)}, "'x:0' is <U1, expected float32"),
    ({"y:0": np.ones([2], np.float32)}, "'y:0' is float32, expected int32"),
    ({"x:0": None}, "feed 'x:0' is missing"),
    ({"x": np.ones([2, 64])}, "feed 'x:0' is given twice"),
    ({"y:0": [1, 2**40]}, "feed 'y:0' has 1099511627776, which int32 cannot hold"),
    ({"z:0": np.ones(3)}, "feed 'z:0' is not in the graph"),
    ({"loss:0": np.ones([])}, "feed 'loss:0' is not one of the step's"),
]


@pytest.mark.parametrize(("change", "message"), BAD_CALLS)
def test_feeds_that_do_not_fit_are_named(change, message):
    step = npu_shim.compile_step(network(), FETCHES, ["x", "y"], initializer="init", **FLOAT32)
    feeds = {"x:0": np.ones([2, 64]), "y:0": np.ones([2], np.int64), **change}
    feeds = {name: value for name, value in feeds.items() if value is not None}
    with pytest.raises(npu_shim.ConfigError, match=message):
        step(feeds)


def test_what_is_not_in_the_graph_is_named_with_the_nearest():
    with pytest.raises(npu_shim.ConfigError, match=r"fetch 'los' is not in the graph \(did you mean 'loss'\?\)"):
        npu_shim.compile_step(network(), ["los"], ["x", "y"])
    with pytest.raises(npu_shim.ConfigError, match="feed 'xx:0' is not in the graph"):
        npu_shim.compile_step(network(), FETCHES, ["xx:0"])
    with pytest.raises(npu_shim.ConfigError, match="unknown option 'precision'"):
        npu_shim.compile_step(network(), FETCHES, ["x", "y"], precision="fp16")
    with pytest.raises(npu_shim.ConfigError, match="iterations_per_loop must be an int above 0, got 0"):
        npu_shim.compile_step(network(), FETCHES, ["x", "y"], iterations_per_loop=0)


def test_an_op_without_a_rule_is_named_with_the_way_out():
    with tf.Graph().as_default() as graph:
        words = tf.strings.length(tf.as_string(tf.placeholder(tf.float32, [3], "x")), name="words")
        tf.reduce_sum(words, name="letters")
    step = npu_shim.compile_step(graph, "letters:0", ["x"], **FLOAT32)
    with pytest.raises(
        npu_shim.PlanError, match=r"node '(words|AsString)' \(\w+\): .*no rule; run the step in a session"
    ):
        step({"x": np.ones(3)})


def test_feeds_of_floats_do_not_make_a_program_for_each_batch(monkeypatch):
    """A size that data decide is known of a value; many values are many programs."""
    monkeypatch.setattr(step_programs, "MANY", 2)
    graph = tf.Graph()
    with graph.as_default():
        x = tf.placeholder(tf.float32, [2], "x")
        drawn = tf.reduce_sum(tf.random_uniform(tf.cast(x, tf.int32)), name="sum")
    step = npu_shim.compile_step(graph, [drawn], ["x:0"])
    for sizes in ([2, 3], [1, 2], [2, 3]):
        assert np.isfinite(step({"x:0": sizes})[0])
    with pytest.raises(npu_shim.PlanError, match=r"compiled for 2 values of feed .x:0.*run the step in a session"):
        step({"x:0": [3, 3]})


def test_fetches_keep_their_form_and_a_variable_gives_its_value_after_the_step(digits):
    fetches = {"loss": "loss:0", "train": "train", "step": "global_step:0"}
    step = npu_shim.compile_step(network(), fetches, ["x", "y"], initializer="init", **FLOAT32)
    results = step(digits[0])
    assert list(results) == ["loss", "train", "step"]
    assert results["train"] is None
    assert results["step"] == 1
    alone = npu_shim.compile_step(network(), "loss:0", ["x", "y"], initializer="init", **FLOAT32)
    assert np.isclose(alone(digits[0]), results["loss"])


def recurrent(bounded):
    """A v1 loop over time whose gradient takes tensors and shapes from Stacks; `bounded` gives it a constant length."""
    graph = tf.Graph()
    with graph.as_default():
        x, n = tf.placeholder(tf.float32, [None, 5, 4], "x"), tf.placeholder(tf.int32, [], "n")
        w = tf.get_variable("w", [4, 4], initializer=tf.random_normal_initializer(seed=1), use_resource=True)
        start = [tf.constant(0), tf.zeros([tf.shape(x)[0], 4])]
        body = lambda i, h: [i + 1, tf.tanh(tf.matmul(h, w) + x[:, i] * tf.ones([tf.shape(h)[0], 1]))]  # noqa: E731
        limit = {"maximum_iterations": 5} if bounded else {}
        _, h = tf.while_loop(lambda i, _: i < n, body, start, **limit)
        loss = tf.reduce_sum(tf.square(h), name="loss")
        tf.train.GradientDescentOptimizer(0.01).minimize(loss, name="train")
        tf.global_variables_initializer()
    return graph


@pytest.mark.parametrize("bounded", [True, False])
def test_a_loop_of_tensorflow_1_with_its_gradient_is_compiled(bounded, control_flow_of_version_1):
    """Without a bound, the length that is fed is part of the program."""
    graph = recurrent(bounded)
    assert any(op.type == "StackV2" for op in graph.get_operations())
    batches = [{"x:0": np.random.RandomState(k).rand(3, 5, 4).astype(np.float32), "n:0": 5 - k % 2} for k in range(6)]
    with tf.Session(graph=graph) as session:
        session.run("init")
        step = npu_shim.compile_step(session, FETCHES, ["x", "n"])
        expected = [session.run(FETCHES, feeds)[0] for feeds in batches]
    assert np.allclose([step(feeds)[0] for feeds in batches], expected, rtol=100 * EPS["float32"])
    assert np.allclose(step({**batches[0], "x:0": np.zeros([7, 5, 4])})[0], 0)  # a second batch size


def test_a_tensor_inside_the_graph_can_be_fed():
    with tf.Graph().as_default() as graph:
        _, second = tf.split(tf.strings.to_number(tf.constant(["1", "2", "3", "4"])), 2, name="parts")
        tf.add(second, 1.0, name="more")
    step = npu_shim.compile_step(graph, ["more:0", "parts:1"], ["parts:1"], **FLOAT32)
    more, parts = step({"parts:1": [10.0, 20.0]})
    assert more.tolist() == [11.0, 21.0]
    assert parts.tolist() == [10.0, 20.0]


def test_partitioned_variables_are_slices_in_the_checkpoint(tmp_path):
    with tf.Graph().as_default(), tf.Session() as session:
        table = tf.get_variable("table", [5, 2], partitioner=tf.fixed_size_partitioner(2), use_resource=True)
        loss = tf.reduce_sum(tf.square(tf.convert_to_tensor(table)), name="loss")
        tf.train.GradientDescentOptimizer(0.25).minimize(loss, name="train")
        saver = tf.train.Saver()
        session.run(tf.global_variables_initializer())
        before = session.run(tf.convert_to_tensor(table))
        step = npu_shim.compile_step(session, FETCHES)
        step()
        saver.restore(session, step.save(tmp_path / "model"))
        assert np.array_equal(session.run(tf.convert_to_tensor(table)), 0.5 * before)
        step()
        step.load(saver.save(session, str(tmp_path / "again")))
    assert np.array_equal(np.concatenate([step.state()["table/part_%d" % k] for k in range(2)]), 0.5 * before)


@pytest.mark.parametrize("form", ["graph", "GraphDef", "GraphDef without a Saver"])
def test_variables_that_only_initializers_and_reports_check_for_a_value_are_saved(form, tmp_path):
    with tf.Graph().as_default() as graph, tf.Session() as session:
        x = tf.placeholder(tf.float32, [2], "x")
        w = tf.get_variable("w", initializer=tf.ones([2]), use_resource=False)
        b = tf.get_variable("b", initializer=w.initialized_value() * 2, use_resource=False)
        train, y = tf.group(tf.assign_add(w, x), tf.assign_add(b, x), name="train"), tf.identity(w + b, "y")
        init = tf.global_variables_initializer().name
        tf.report_uninitialized_variables().mark_used()
        without_saver = graph.as_graph_def()
        saver = tf.train.Saver()
        source = {"graph": graph, "GraphDef": graph.as_graph_def()}.get(form, without_saver)
        step = npu_shim.compile_step(source, ["train", "y:0"], ["x"], initializer=init)
        session.run(init)
        session.run(train, {x: [2.0, 2.0]})
        step.load(saver.save(session, str(tmp_path / "model")))
        step({"x": np.ones(2, np.float32)})
        saver.restore(session, step.save(tmp_path / "again"))
        assert session.run([w, b, y])[0].tolist() == [4, 4]
        assert session.run(b).tolist() == [5, 5]


def test_a_read_that_waits_for_no_write_comes_first():
    with tf.Graph().as_default() as graph:
        count = tf.get_variable("count", [], initializer=tf.zeros_initializer(), use_resource=True)
        with tf.control_dependencies([count.assign_add(1.0)]):
            after = tf.identity(count.read_value(), name="after")
        before = tf.identity(count, name="before")
        tf.variables_initializer([count], name="init")
        tf.group(before, after, name="train")
    step = npu_shim.compile_step(graph, ["before:0", "after:0", "train"], initializer="init", **FLOAT32)
    assert [step()[:2] for _ in range(3)] == [[0, 1], [1, 2], [2, 3]]


def dropped(seed):
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(7) if seed else None
        keep = tf.identity(tf.random_uniform([1000], seed=seed), name="keep")
        count = tf.get_variable("count", [], initializer=tf.zeros_initializer(), use_resource=True)
        tf.group(count.assign_add(tf.reduce_sum(keep)), name="train")
        tf.variables_initializer([count], name="init")
    return graph


def test_seeded_random_ops_repeat_themselves_and_move_on_with_the_step():
    make = lambda seed, **more: npu_shim.compile_step(  # noqa: E731
        dropped(seed), ["keep:0", "train"], initializer="init", **FLOAT32, **more
    )
    one, other = make(3), make(3)
    first, second = one()[0], one()[0]
    assert np.array_equal(first, other()[0])
    assert np.array_equal(second, other()[0])
    assert not np.intersect1d(first, second).size > 10
    assert abs(np.mean(first) - 0.5) < 5 / np.sqrt(12 * 1000)
    assert not np.array_equal(make(4)()[0], first)
    assert not np.array_equal(make(None)()[0], make(None)()[0])
    third = one()[0]
    assert np.array_equal(make(3, iterations_per_loop=3)()[0], third)


def test_the_state_of_random_ops_is_saved(tmp_path):
    step = npu_shim.compile_step(dropped(None), ["keep:0", "train"], initializer="init", **FLOAT32)
    step()
    step.save(tmp_path / "model")
    expected = step()[0]
    other = npu_shim.compile_step(dropped(None), ["keep:0", "train"], **FLOAT32)
    other.load(tmp_path / "model")
    assert np.array_equal(other()[0], expected)
    assert any(map(step_checkpoint.is_of_random_ops, other.state()))


def test_what_only_a_group_waits_for_is_left_out_unless_it_has_an_effect():
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4], "x")
        w = tf.get_variable("w", initializer=[1.0, 2.0, 3.0, 4.0], use_resource=True)
        count = tf.get_variable("count", initializer=0, use_resource=True)
        idle, added = tf.sinh(x, name="idle"), count.assign_add(1, read_value=False)
        gradient = tf.gradients(tf.reduce_sum(tf.pow(x * w, 3.0)), w)[0]
        with tf.control_dependencies([tf.group(idle, added, w.read_value())]):
            train = tf.assign_sub(w, 0.1 * gradient).op
        tf.global_variables_initializer()
    fed = {"x:0": np.array([0.5, -0.25, 0.0, 2.0], np.float32)}
    with tf.Session(graph=graph) as session:
        session.run("init")
        step = npu_shim.compile_step(session, [gradient, train], ["x"])
        for _ in range(3):
            assert np.allclose(step(fed)[0], session.run([gradient, train], fed)[0], rtol=8 * EPS["float32"])
        expected = session.run([w, count])
    assert step.state()["count"] == expected[1] == 3
    assert np.allclose(step.state()["w"], expected[0], rtol=8 * EPS["float32"])
