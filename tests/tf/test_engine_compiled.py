"""compile_step on PJRT: the same entrances, numbers and errors as on TensorFlow's XLA."""

import gc
import logging
import weakref

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.export import programs, traced
from npu_shim.loss_scale import ExponentialUpdateLossScaleManager, NPULossScaleOptimizer
from npu_shim.xla import refusals, step_function

pytestmark = sessions.NEEDS_ENGINE
FETCHES = {"loss": "loss:0", "train": "train", "w": "w"}
FLOAT32 = {"precision_mode": "must_keep_origin_dtype", "profile": "gpu"}
MIX = {"precision_mode": "allow_mix_precision", "profile": "gpu"}


def built(convolution=False, rate=0.2):
    """A graph with dropout, a loss scale that grows, and a step counter."""
    graph = tf.Graph()
    with graph.as_default():
        x, y = tf.placeholder(tf.float32, [None, 6], "x"), tf.placeholder(tf.int32, [None], "y")
        h = tf.nn.relu(tf.matmul(x, tf.get_variable("w", [6, 16], initializer=tf.glorot_uniform_initializer(1))))
        if convolution:
            kernel = tf.get_variable("k", [3, 1, 2], initializer=tf.glorot_uniform_initializer(3))
            h = tf.reshape(tf.nn.conv1d(h[..., None], kernel, 1, "SAME"), [-1, 32])
        h = tf.nn.dropout(h, rate=rate, seed=5) if rate else h  # TensorFlow's own XLA drops others
        logits = tf.matmul(h, tf.get_variable("v", [h.shape[1], 2], initializer=tf.glorot_uniform_initializer(2)))
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits), name="loss")
        manager = ExponentialUpdateLossScaleManager(2.0**10, 3, 1, decr_ratio=0.5)
        optimizer = NPULossScaleOptimizer(tf.train.AdamOptimizer(0.01), manager)
        optimizer.minimize(loss, tf.train.get_or_create_global_step(), name="train")
        tf.global_variables_initializer()
    return graph


def batches(count, rows=8):
    rng = np.random.RandomState(0)
    rows_of = [rng.randn(rows, 6).astype("f") for _ in range(count)]
    return [{"x:0": row, "y:0": (row.sum(1) > 0).astype("i")} for row in rows_of]


def stacked(some):
    return {name: np.stack([batch[name] for batch in some]) for name in some[0]}


def step_of(graph, engine="pjrt", **more):
    return npu_shim.compile_step(graph, FETCHES, ["x", "y"], engine=engine, initializer="init", **{**FLOAT32, **more})


@pytest.mark.parametrize(
    ("convolution", "mode", "rtol"), [(False, FLOAT32, 1e-4), (False, MIX, 4e-3), (True, FLOAT32, 1e-4)]
)
def test_steps_and_loops_are_those_of_tensorflow_s_xla(convolution, mode, rtol):
    graph = built(convolution, 0)
    wanted, one, loop = (step_of(graph, "tensorflow", **mode), step_of(graph, **mode),
                         step_of(graph, iterations_per_loop=5, **mode))  # fmt: skip
    data = batches(10)
    expected = [wanted(feeds) for feeds in data]
    actual = [one(feeds) for feeds in data]
    looped = [loop(stacked(data[k : k + 5])) for k in (0, 5)]
    for pair in (*zip(actual, expected), (looped[0], expected[4]), (looped[1], expected[9])):
        np.testing.assert_allclose(pair[0]["loss"], pair[1]["loss"], rtol=rtol)
        np.testing.assert_allclose(pair[0]["w"], pair[1]["w"], rtol=rtol * 10, atol=rtol)
        assert pair[0]["train"] is None
        assert type(pair[0]["loss"]) is type(pair[1]["loss"])
    for step in (one, loop):
        assert set(step.state()) == set(wanted.state())
        for name in FETCHES["w"], "w/Adam_1", "loss_scale", "global_step":
            value = wanted.state()[name]
            np.testing.assert_allclose(step.state()[name], value, rtol=rtol * 10, atol=rtol)
        assert step.state()["global_step"] == 10
        assert step.recomputation.counts() == wanted.recomputation.counts()


def test_checkpoints_go_both_ways_and_to_a_saver(tmp_path):
    graph, data = built(rate=0), batches(6)
    one, other = step_of(graph), step_of(graph, "tensorflow")
    first = [one(feeds)["loss"] for feeds in data[:3]]
    path = one.save(tmp_path / "at3")
    second = [one(feeds)["loss"] for feeds in data[3:]]
    other.load(path)
    np.testing.assert_allclose([other(feeds)["loss"] for feeds in data[3:]], second, rtol=1e-4)
    one.load(path)
    np.testing.assert_allclose([one(feeds)["loss"] for feeds in data[3:]], second, rtol=1e-4)
    assert first != second
    with tf.Session(graph=graph) as session, graph.as_default():
        session.run("init")
        tf.train.Saver(tf.global_variables()).restore(session, path)
        assert session.run(tf.train.get_global_step(graph)) == 3
        taken = npu_shim.compile_step(session, FETCHES, ["x", "y"], engine="pjrt", **FLOAT32)
        assert taken.state()["global_step"] == 3
        taken(data[0])
        assert taken.state()["global_step"] == 4
        assert session.run(tf.train.get_global_step(graph)) == 3


def test_other_shapes_compile_anew_and_steps_without_feeds_or_state_run():
    step = step_of(built())
    for rows in (8, 3, 8):
        step(batches(1, rows)[0])
    assert len(step._running._programs) == 2
    with tf.Graph().as_default() as graph:
        count = tf.get_variable("count", [], initializer=tf.zeros_initializer(), use_resource=True)
        more = tf.identity(count.assign_add(1), name="more")
        tf.global_variables_initializer()
    assert npu_shim.compile_step(graph, more, engine="pjrt", initializer="init", iterations_per_loop=4)() == 4
    with tf.Graph().as_default() as graph:
        y = tf.matmul(tf.placeholder(tf.float32, [2, 2], "x"), tf.eye(2), name="made")
    np.testing.assert_array_equal(npu_shim.compile_step(graph, [y, y], ["x"], engine="pjrt")({"x": np.eye(2)}),
                                  [np.eye(2)] * 2)  # fmt: skip


@pytest.mark.parametrize("engine", ["tensorflow", "pjrt"])
def test_of_many_shapes_the_least_recently_used_program_gives_way(engine, monkeypatch):
    loads = []
    step, plain = step_of(built(), engine, programs=2), step_of(built(), engine)
    running = step._running
    place, name = (traced, "of") if engine == "pjrt" else (step_function.Prepared, "for_shapes")
    made = getattr(place, name)

    def counted(prepared, shapes=(), *others):
        loads.append(shapes[0][0])
        return made(prepared, shapes, *others)

    order = (8, 3, 8, 5, 8, 3)  # 5 takes the place of 3, and 3 then that of 5
    with monkeypatch.context() as patched:
        patched.setattr(place, name, counted)
        losses, programs = [], []
        for rows in order:
            losses.append(step(batches(1, rows)[0])["loss"])
            shapes = (rows, 6), (rows,)
            program = running._programs.get((shapes, "interpreted") if engine == "pjrt" else shapes)
            held = getattr(getattr(running, "_device", None), "_programs", {})
            program = held.get(program, program)
            code = getattr(program, "call", program)
            programs.append(weakref.ref(code) if callable(code) else None)  # that of a worker is there
            assert len(running._programs) <= 2
            assert engine != "pjrt" or len(running._device._programs) <= 2
    assert loads == [8, 3, 5, 3]
    np.testing.assert_array_equal(losses, [plain(batches(1, rows)[0])["loss"] for rows in order])
    gc.collect()
    if programs[0] is not None:  # freed, and not only forgotten
        assert [program() is not None for program in programs] == [True, False, True, False, True, True]


@pytest.mark.parametrize("number", [0, -1, "many"])
def test_a_number_of_programs_is_above_zero(number):
    with pytest.raises(npu_shim.ConfigError, match="programs"):
        step_of(built(), programs=number)


def test_errors_are_those_of_tensorflow_s_xla():
    graph = built()
    for engine in ("tensorflow", "pjrt"):
        step = step_of(graph, engine)
        with pytest.raises(npu_shim.ConfigError, match="feed 'y:0' is missing"):
            step({"x:0": np.zeros([8, 6])})
        shape = r"feed 'x:0' has shape \(8, 5\), the graph expects \((None|\?), 6\)"
        with pytest.raises(npu_shim.ConfigError, match=shape):
            step({"x:0": np.zeros([8, 5]), "y:0": np.zeros([8], "i")})
    with pytest.raises(npu_shim.ConfigError, match=r"engine is 'pjtr', expected one of tensorflow, pjrt .* 'pjrt'"):
        step_of(graph, "pjtr")
    with pytest.raises(npu_shim.ConfigError, match="device is 'GPU', and JAX finds cpu"):
        step_of(graph, device="GPU")(batches(1)[0])
    with pytest.raises(npu_shim.ConfigError, match="the step's variables have no values"):
        npu_shim.compile_step(graph, FETCHES, ["x", "y"], engine="pjrt", **FLOAT32)(batches(1)[0])


def test_a_device_that_fails_leaves_the_state_of_the_last_call():
    step, data = step_of(built()), batches(4)
    for feeds in data[:2]:
        step(feeds)
    failing, real = step._running._device, step._running._device.run

    def run(*arguments):
        raise RuntimeError("RESOURCE_EXHAUSTED: out of memory")

    failing.run = run
    with pytest.raises(RuntimeError, match=r"engine 'pjrt' failed on cpu.* has the state of the last completed call"):
        step(data[2])
    failing.run = real
    assert step.state()["global_step"] == 2
    step(data[2])
    assert step.state()["global_step"] == 3


def test_a_result_whose_rows_only_the_data_count_is_an_error_of_the_converter(monkeypatch):
    """Converted, a program gives the most rows that there may be, and anything in the rest."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [6], "x")
        tf.identity(tf.boolean_mask(x, x > 0), name="some")
    feeds = {"x:0": [1, -2, 3, 4, -1, 2]}
    for engine in ("tensorflow", "pjrt"):
        assert npu_shim.compile_step(graph, "some:0", ["x"], engine=engine)(feeds).tolist() == [1, 3, 4, 2]
    monkeypatch.setenv("NPU_SHIM_STEP", "tensorflow")
    with pytest.raises(npu_shim.PlanError, match="'some:0' has a number of rows that depends on the data"):
        npu_shim.compile_step(graph, "some:0", ["x"], engine="pjrt")(feeds)


@pytest.mark.parametrize("engine", ["tensorflow", "pjrt"])
def test_a_length_that_is_fed_is_part_of_the_program(engine):
    """Regression: PJRT refused a result of such a length."""
    with tf.Graph().as_default() as graph:
        x, n = tf.placeholder(tf.float32, [None, 2], "x"), tf.placeholder(tf.int32, [], "n")
        w = tf.get_variable("w", initializer=np.eye(2, dtype=np.float32), use_resource=True)
        tf.identity(tf.matmul(x[:n], w * 2.0), name="rows")
        tf.global_variables_initializer()
    step = npu_shim.compile_step(graph, ["rows:0"], ["x", "n"], initializer="init", engine=engine)
    rows = np.arange(8.0, dtype=np.float32).reshape(4, 2)
    for count, given in ((1, 4), (3, 4), (1, 2), (1, 4), (4, 4)):
        np.testing.assert_array_equal(step({"x": rows[:given], "n": count})[0], rows[:count] * 2)
    assert len(step._running._programs) == 4


def test_feeds_without_axes():
    """Regression: a TypeError, of a step that takes them one by one."""
    with tf.Graph().as_default() as graph:
        x, rate = tf.placeholder(tf.float32, [2], "x"), tf.placeholder(tf.float32, [], "rate")
        tf.reduce_sum(x * rate, name="sum")
    step = npu_shim.compile_step(graph, "sum:0", ["x", "rate"], engine="pjrt")
    assert step({"x:0": [1.0, 2.0], "rate:0": 0.5}) == 1.5


OPEN = {
    "tiled": lambda rows: tf.tile(rows, [2, 1]),
    "tiled both ways": lambda rows: tf.reshape(tf.tile(rows[1:], [2, 3]), [-1, 3]),
    "softmax of a column": lambda rows: tf.nn.softmax(rows, 0),
    "rows by their places": lambda rows: tf.gather(rows, tf.where(rows[:, :2] - 1.0)[:, 0]),
    "high columns": lambda rows: rows * tf.reduce_sum(tf.cast(tf.where(tf.reduce_max(rows, 0) > 1.5), tf.float32)),
    "mask of a mask": lambda rows: tf.boolean_mask(rows, rows[:, 0] > 0.5),
}


def summed(way):
    """A graph of the gradient of what is made of the rows of x whose first value is below a limit."""
    with tf.Graph().as_default() as graph:
        x, limit = tf.placeholder(tf.float32, [6, 3], "x"), tf.placeholder(tf.float32, [], "limit")
        w = tf.get_variable("w", initializer=np.float32(np.eye(3) + 0.5), use_resource=True)
        product = way(tf.matmul(tf.boolean_mask(x, x[:, 0] < limit), w))
        loss = tf.reduce_sum(tf.square(product)) + tf.reduce_sum(w**2)
        tf.identity(tf.gradients(loss, w)[0], "gradient")
        tf.identity(tf.stack([loss, tf.cast(tf.shape(product)[0], tf.float32)]), "results")
        tf.global_variables_initializer()
    return graph


@pytest.mark.parametrize("engine", ["tensorflow", "pjrt"])
@pytest.mark.parametrize("name", OPEN)
def test_rows_that_only_the_data_count(name, engine):
    """Regression: StableHLO had no form of them, and TensorFlow's own compiler ended the process for tf.where."""
    fetches, given = ["gradient:0", "results:0"], np.arange(18, dtype=np.float32).reshape(6, 3) / 8
    with tf.Session(graph=summed(OPEN[name])) as session:
        session.run("init")
        step = npu_shim.compile_step(session, fetches, ["x", "limit"], engine=engine)
        for count in range(5):
            feeds = {"x:0": given, "limit:0": given[count, 0]}
            for actual, wanted in zip(step(feeds), session.run(fetches, feeds)):
                np.testing.assert_allclose(actual, wanted, rtol=1e-5)


def test_what_stablehlo_has_no_form_of_is_named():
    """Regression: "MLIRError: Unable to parse module assembly", in which no node of the user's is named."""
    squared = summed(lambda rows: tf.matmul(tf.nn.softmax(tf.matmul(rows, rows, transpose_b=True)), rows))
    feeds = {"x:0": np.arange(18, dtype=np.float32).reshape(6, 3) / 8, "limit:0": np.float32(1.0)}
    with tf.Session(graph=squared) as session:
        session.run("init")
        step = npu_shim.compile_step(session, "gradient:0", ["x", "limit"], engine="pjrt")
        if tf.__version__.startswith("2.15"):
            with pytest.raises(npu_shim.ConfigError, match=r"to StableHLO: node '\S*Softmax\S*': .*bounded"):
                step(feeds)
            return
        # a newer TensorFlow writes it in another way
        np.testing.assert_allclose(step(feeds), session.run("gradient:0", feeds), rtol=1e-5)


@pytest.mark.parametrize(("enabled", "override", "products"), [
    (True, None, "default"), (False, None, "highest"), (True, "0", "highest"), (True, "1", "default"),
])  # fmt: skip
def test_tf32_is_off_where_the_script_or_the_user_wants_it_off(enabled, override, products, monkeypatch):
    if override is not None:
        monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", override)
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(enabled)
    try:
        step = step_function.build(built(), ["loss:0", "train"], {"x": [8, 6], "y": [8]}, **FLOAT32)
        described, hlo = programs.of(step)
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(before)
    assert described.float32_products == products
    module = refusals.parsed(hlo)
    dots = [i for c in module.computations for i in c.instructions if i.opcode == "dot"]
    asked = {number for dot in dots for number in dot.precision_config.operand_precision}
    highest = 2  # xla_data.proto: PrecisionConfig.Precision.HIGHEST
    assert dots
    assert (asked == {highest}) == (products == "highest")


# -- npu_shim.step -----------------------------------------------------------------------------------------------------


def recurrent():
    """A graph whose lengths are fed: the loop of its gradient keeps as many values as they say."""
    with tf.Graph().as_default() as graph:
        x, n = tf.placeholder(tf.float32, [4, 6, 3], "x"), tf.placeholder(tf.int32, [4], "n")
        outputs, _ = tf.nn.dynamic_rnn(tf.nn.rnn_cell.BasicRNNCell(5), x, n, dtype=tf.float32)
        loss = tf.reduce_mean(tf.square(outputs - 1), name="loss")
        tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss, name="train")
        tf.global_variables_initializer()
    return graph


def compared_with_session(graph, feeds, count=4, **options):
    """Compares the losses of an interpreted step with those of the session from which it starts; returns the step."""
    with tf.Session(graph=graph) as session:
        session.run("init")
        step = npu_shim.compile_step(session, ["loss:0", "train"], list(feeds[0]), engine="pjrt", **options)
        pairs = [(step(batch)[0], session.run(["loss:0", "train"], batch)[0]) for batch in feeds[:count]]
    np.testing.assert_allclose(*zip(*pairs), rtol=1e-6)
    return step


def test_an_interpreted_step_draws_what_a_session_draws(monkeypatch, caplog):
    monkeypatch.setenv("NPU_SHIM_STEP", "jax")
    with caplog.at_level(logging.INFO, "npu_shim"):
        compared_with_session(built(True), batches(4))  # with seeded dropout
        random = np.random.RandomState(0)
        lengths = [np.int32([6, 3, 1, 2]), np.int32([5, 5, 1, 2])]
        compared_with_session(recurrent(), [{"x:0": random.randn(4, 6, 3).astype("f"), "n:0": n} for n in lengths])
    assert not [record for record in caplog.records if "converted by TensorFlow" in record.getMessage()]


def gelus():
    """A loop and a conditional of TensorFlow 1, and layers with activations of many ops and with seeded dropout."""
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(1)
        h = x = tf.placeholder(tf.float32, [None, 16], "x")
        h = tf.while_loop(lambda n, h: n < 3, lambda n, h: (n + 1, tf.tanh(h)), (0, h))[1]
        h = tf.cond(tf.reduce_sum(x) > 0, lambda: 2.0 * h, lambda: tf.sin(h))
        for number in range(3):
            kernel = tf.get_variable("w%d" % number, initializer=np.linspace(-1, 1, 256).astype("f").reshape(16, 16))
            h = tf.matmul(h, kernel)
            h = tf.nn.dropout(h * 0.5 * (1 + tf.tanh(0.8 * (h + 0.04 * h * h * h))), rate=0.1)
        loss = tf.reduce_mean(tf.square(h - x), name="loss")
        tf.train.MomentumOptimizer(0.05, 0.9).minimize(loss, name="train")
        tf.global_variables_initializer()
    return graph


@sessions.unless_in_worker
def test_an_interpreted_step_computes_values_again(monkeypatch):
    monkeypatch.setenv("NPU_SHIM_STEP", "jax")
    data = [{"x:0": np.random.RandomState(n).randn(32, 16)} for n in range(3)]
    step = compared_with_session(gelus(), data, recompute="memory")
    assert step.recomputation.chains
    assert step.attention.because == "it becomes kernels in programs for GPUs only"


def test_a_bound_that_was_passed_stops_the_step(monkeypatch):
    from npu_shim.engine.device.programs import PassedBound
    from npu_shim.step.counters import BOUNDS

    step = step_of(built())
    step(batches(1)[0])
    device = step._running._device
    run = device.run
    monkeypatch.setattr(device, "run", lambda *steps: {**run(*steps), BOUNDS: np.bool_(False)})
    with pytest.raises(PassedBound, match="restore a checkpoint"):
        step(batches(1)[0])


def test_a_step_that_is_not_interpreted_is_converted_and_says_why(monkeypatch, caplog):
    from npu_shim.engine import compiled

    def refused(*_):
        raise traced.Refused("node 'x' (Odd): this op has no rule")

    monkeypatch.setenv("NPU_SHIM_STEP", "jax")
    monkeypatch.setattr(compiled.traced, "of", refused)
    with caplog.at_level(logging.INFO, "npu_shim"):
        assert np.isfinite(step_of(built())(batches(1)[0])["loss"])
    said = [record.getMessage() for record in caplog.records]
    assert any("the step is converted by TensorFlow: node 'x' (Odd): this op has no rule" in s for s in said)
    monkeypatch.setenv("NPU_SHIM_STEP", "jacks")
    with pytest.raises(npu_shim.ConfigError, match="NPU_SHIM_STEP"):
        step_of(built())
