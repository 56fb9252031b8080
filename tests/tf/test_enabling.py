"""`npu_shim.enable`, and `npu-shim run` with options, for scripts whose configs never heard of an NPU."""

import contextlib
import json
import logging
import os
import subprocess
import sys

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.compat.behaviour import strategies
from npu_shim.loss_scale import automatic
from npu_shim.loss_scale.managers import managers
from npu_shim.loss_scale.optimizers.optimizer import NPULossScaleOptimizer
from npu_shim.options.entrances import config_proto, forced
from npu_shim.rewriter import tf_internals
from npu_shim.session import devices, lines
from npu_shim.session.interception import enabling, session_options

ROW = [[1, 2, 3, 2049.0]]  # its sum is 2055 in float32, 2054 in float16
SCRIPT = """
import sys
import tensorflow as tf
x = tf.placeholder(tf.float32, [None, 4])
w = tf.get_variable("w", [4, 4], initializer=tf.ones_initializer())
y = tf.identity(tf.matmul(x, w))
config = tf.ConfigProto()
if "amp" in sys.argv:
    config.graph_options.rewrite_options.auto_mixed_precision = 1
with tf.Session(config=config) as session:
    session.run(tf.global_variables_initializer())
    print("SUM", session.run(y, {x: [[1, 2, 3, 2049.0]]})[0, 0])
"""


@pytest.fixture(autouse=True)
def off_again(monkeypatch):
    for name in (forced.VARIABLE, "NPU_SHIM_ENGINE", enabling.NVIDIA, enabling.NVIDIA_REWRITE, enabling.NVIDIA_SCALE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(enabling, "_reads_requests", False)
    with tf.Graph().as_default():
        yield
    npu_shim.unpatch()


@pytest.fixture
def said(caplog):
    """The texts that are logged."""
    logging.getLogger("npu_shim").propagate = True
    caplog.set_level(logging.INFO, logger="npu_shim")
    return lambda word: [record.getMessage() for record in caplog.records if word in record.getMessage()]


def small_loss():
    """A loss whose gradients are too small for float16, and its variable."""
    w = tf.get_variable("w", [4, 4], initializer=tf.ones_initializer(), use_resource=True)
    return 1e-9 * tf.reduce_sum(tf.matmul(tf.matmul(tf.ones([2, 4]), w), tf.ones([4, 4]))), w


def dtypes(config=None):
    """The dtypes in which the products of a new session run."""
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, 4])
        product = tf.matmul(x, tf.get_variable("w", [4, 4], initializer=tf.ones_initializer()))
        with tf.Session(config=config) as session:
            session.run(tf.global_variables_initializer())
            ran = sessions.Ran(session, tf.identity(product), {x: ROW})  # AMP leaves what is fetched alone
    return set(ran.dtypes("MatMul", "_FusedMatMul").values())


def amp_config(state=1, field="auto_mixed_precision"):
    config = tf.ConfigProto()
    setattr(config.graph_options.rewrite_options, field, state)
    return config


class TestEnable:
    def test_a_plain_session_lowers_while_it_is_on(self):
        npu_shim.enable(precision_mode="allow_mix_precision")
        assert dtypes() == {"float16"}
        assert dtypes(tf.ConfigProto()) == {"float16"}
        npu_shim.disable()
        assert dtypes() == {"float32"}

    def test_a_mode_of_either_option(self):
        npu_shim.enable(precision_mode="mixed_bfloat16")
        assert dtypes() == {"bfloat16"}

    def test_auto_is_bfloat16_on_cpus_and_float16_on_cards_without_it(self, monkeypatch):
        npu_shim.enable(precision_mode="auto")
        assert dtypes() == {"bfloat16"}
        monkeypatch.setattr(devices, "mixed_mode", lambda: devices.FLOAT16)
        assert dtypes() == {"float16"}

    @pytest.mark.parametrize(("capabilities", "mode"), [
        ([], devices.BFLOAT16),
        ([(8, 0)], devices.BFLOAT16),
        ([(12, 0), (8, 9)], devices.BFLOAT16),
        ([(7, 5)], devices.FLOAT16),
        ([(9, 0), (7, 0)], devices.FLOAT16),
        ([None], devices.FLOAT16),
    ])  # fmt: skip
    def test_what_auto_is_on_gpus(self, monkeypatch, capabilities, mode):
        experimental = tf.config.experimental
        monkeypatch.setattr(experimental, "list_physical_devices", lambda kind: capabilities)
        details = lambda gpu: {} if gpu is None else {"compute_capability": gpu}  # noqa: E731
        monkeypatch.setattr(experimental, "get_device_details", details, raising=False)
        assert devices.mixed_mode.__wrapped__() == mode

    def test_without_a_mode_a_plain_session_runs_as_written(self):
        npu_shim.enable(engine="session")
        assert dtypes() == {"float32"}

    def test_a_config_that_names_the_optimizer_keeps_what_is_not_asked_for(self):
        npu_shim.enable(engine="session")
        assert dtypes(sessions.config(precision_mode="allow_mix_precision")) == {"float16"}

    def test_a_mode_goes_before_the_config_and_one_line_says_so(self, said):
        npu_shim.enable(precision_mode="allow_mix_precision_bf16")
        assert dtypes(sessions.config(precision_mode="allow_mix_precision")) == {"bfloat16"}
        [line] = said("is overridden")
        assert "'allow_mix_precision'" in line
        assert "'allow_mix_precision_bf16'" in line

    def test_the_same_mode_needs_no_line(self, said):
        npu_shim.enable(precision_mode="allow_mix_precision")
        assert dtypes(sessions.config(precision_mode="allow_mix_precision")) == {"float16"}
        assert not said("is overridden")

    def test_the_environment_goes_before_it(self, monkeypatch):
        npu_shim.enable(precision_mode="allow_mix_precision")
        monkeypatch.setenv(forced.VARIABLE, json.dumps({"precision_mode_v2": "mixed_bfloat16"}))
        assert dtypes() == {"bfloat16"}

    def test_the_scripts_config_stays_what_it_is(self, monkeypatch):
        monkeypatch.setattr(devices, "has_gpu", lambda: True)  # without one ops on GPUs are placed on the CPU
        npu_shim.enable(precision_mode="allow_mix_precision")
        config = tf.ConfigProto(log_device_placement=True)
        config.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.OFF
        before = config.SerializeToString()
        with tf.Session(config=config) as session:
            assert session._config.log_device_placement
            assert not session._config.allow_soft_placement
        assert config.SerializeToString() == before

    def test_monitored_sessions_too(self, said, tmp_path):
        npu_shim.enable(precision_mode="allow_mix_precision")
        step = tf.train.get_or_create_global_step()
        w = tf.get_variable("w", [4, 4], initializer=tf.ones_initializer())
        loss = tf.reduce_sum(tf.square(tf.matmul(tf.ones([2, 4]), w)))
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, step)
        with tf.train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path)) as session:
            session.run([train, loss])
        assert said("allow_mix_precision: ")

    @pytest.mark.parametrize("options", [{"precision_mode": "must_keep_origin_dtype"}, {"engine": "session"}])
    def test_what_lowers_nothing_is_plain_tensorflow_bit_by_bit(self, options):
        def trained():
            with tf.Graph().as_default():
                tf.set_random_seed(1)
                x = tf.placeholder(tf.float32, [8, 12, 12, 3])
                start = tf.random_uniform_initializer(-0.5, 0.5, seed=1)
                kernel = tf.get_variable("kernel", [3, 3, 3, 32], initializer=start)
                bias = tf.get_variable("bias", [32], initializer=start)
                h = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, kernel, 1, "SAME"), bias))
                w = tf.get_variable("w", [4608, 33], initializer=start)
                h = tf.nn.relu(tf.nn.bias_add(tf.reshape(h, [8, 4608]) @ w, tf.get_variable("c", [33])))
                mean = tf.reduce_mean(h, -1, keepdims=True)
                n = (h - mean) * tf.rsqrt(tf.reduce_mean(tf.square(h - mean), -1, keepdims=True) + 1e-5)
                n *= tf.sigmoid(1.7 * n)  # what a second round of TensorFlow's optimizers changes
                loss = tf.reduce_mean(tf.square(h - 0.5)) + tf.reduce_mean(tf.square(n @ tf.ones([33, 8]) - 0.5))
                train = tf.train.AdamOptimizer(0.01).minimize(loss)
                given = np.random.RandomState(0).rand(8, 12, 12, 3).astype("f")
                with tf.Session() as session:
                    session.run(tf.global_variables_initializer())
                    losses = [session.run([loss, train], {x: given})[0] for _ in range(3)]
                    evaluated = sessions.Ran(session, tf.identity(h), {x: given})
                    fused = sorted(node.op for node in evaluated.nodes if "Fused" in node.op)
                    return [*losses, *session.run(tf.trainable_variables())], fused

        wanted, fused = trained()
        npu_shim.enable(**options)
        actual, own = trained()
        assert own == fused
        exact = tf.__version__.startswith("1.") or tf_internals.onednn_is_on()
        for one, other in zip(actual, wanted):
            # without oneDNN the gradient of the convolution is oneDNN's all the same: TensorFlow's own has no groups
            np.testing.assert_allclose(one, other, rtol=0 if exact else 1e-4)

    def test_where_nodes_are_shown_products_are_not_fused(self, tmp_path, monkeypatch):
        x = tf.placeholder(tf.float32, [None, 4])
        y = tf.identity(tf.nn.relu(tf.nn.bias_add(tf.matmul(x, tf.ones([4, 4]) * x[0]), tf.ones([4]))))

        def fused():
            with tf.Session() as session:
                return [node.op for node in sessions.Ran(session, y, {x: ROW}).nodes if "Fused" in node.op]

        assert fused() or tf.__version__.startswith("1.")
        monkeypatch.setenv("NPU_SHIM_REPORT", str(tmp_path))
        npu_shim.enable(precision_mode="must_keep_origin_dtype")
        assert not fused()

    @pytest.mark.parametrize(("mode", "scale", "factor"), [
        ("allow_mix_precision", "auto", 2.0**15),
        ("mixed_float16", 1024, 1024),
        ("allow_fp32_to_fp16", "auto", 2.0**15),
        ("allow_mix_precision", "off", None),
        ("allow_mix_precision", None, None),
        ("allow_mix_precision_bf16", "auto", None),
        ("must_keep_origin_dtype", "auto", None),
    ])  # fmt: skip
    def test_an_optimizer_gets_a_loss_scale_in_modes_with_float16(self, mode, scale, factor):
        npu_shim.enable(precision_mode=mode, loss_scale=scale)
        loss, w = small_loss()
        [gradient], train = tf.gradients(loss, [w]), tf.train.GradientDescentOptimizer(1e9).minimize(loss)
        scales = automatic.variables()
        assert (len(scales) > 0) == (factor is not None)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            session.run(train)
            assert np.allclose(session.run(w), 1 - 8 if factor or "16" not in mode or "bf" in mode else 1, rtol=0.01)
            assert session.run(gradient).dtype == np.float32

    @pytest.mark.parametrize("by_hand", [False, True])
    @pytest.mark.parametrize("imported", [False, True])
    def test_a_training_graph_that_was_there_before_is_told_of(self, said, imported, by_hand):
        loss, w = small_loss()
        if by_hand:
            w.assign_sub(tf.gradients(loss, [w])[0])
        else:
            tf.train.AdamOptimizer(0.1).minimize(loss)
        described = tf.train.export_meta_graph()
        npu_shim.enable(precision_mode="allow_mix_precision")
        with tf.Graph().as_default() if imported else contextlib.nullcontext():
            if imported:
                tf.train.import_meta_graph(described)
            with tf.Session() as session:
                session.run(tf.global_variables_initializer())
        [line] = said("their loss is not scaled")
        assert "the updates of w were built before loss scales are given, or imported" in line
        assert "npu_shim.enable before the graph is built" in line

    @pytest.mark.parametrize("scale", ["auto", 1024, "script's"])
    def test_an_imported_graph_that_has_a_scale_is_not(self, said, scale):
        npu_shim.enable(precision_mode="allow_mix_precision", loss_scale="auto" if scale == "script's" else scale)
        loss, _ = small_loss()
        optimizer = tf.train.AdamOptimizer(0.1)
        if scale == "script's":
            optimizer = tf.train.experimental.MixedPrecisionLossScaleOptimizer(optimizer, "dynamic")
        optimizer.minimize(loss)
        described = tf.train.export_meta_graph()
        with tf.Graph().as_default():
            tf.train.import_meta_graph(described)
            with tf.Session() as session:
                session.run(tf.global_variables_initializer())
        assert not said("their loss is not scaled")

    @pytest.mark.parametrize(("arguments", "words"), [
        ({"precision_mode": "auto", "loss_scale": "dynamic"}, "loss_scale is 'dynamic', expected 'auto', 'off' or"),
        ({"precision_mode": "auto", "loss_scale": 0.0}, "a number above 0"),
        ({"precision_mode": "auto", "loss_scale": True}, "a number above 0"),
        ({}, "needs something to turn on"),
        ({"precision_mode": "allow_mixed_precision"}, "did you mean 'allow_mix_precision'"),
        ({"precision_mode": None, "engine": "pjtr"}, "did you mean 'pjrt'"),
        ({"precisionmode": "auto"}, "did you mean 'precision_mode'"),
        ({"profile": "gpus"}, "'gpus' is not one of"),
        ({"graph_run_mode": "one"}, "graph_run_mode must be int"),
    ])  # fmt: skip
    def test_what_is_wrong_is_said_at_once(self, arguments, words):
        with pytest.raises(npu_shim.ConfigError, match=words):
            npu_shim.enable(**arguments)
        assert dtypes() == {"float32"}

    def test_eager_execution_is_named(self, monkeypatch):
        monkeypatch.setattr(tf, "executing_eagerly", lambda: True)
        with pytest.raises(npu_shim.ConfigError, match="graphs and sessions, and eager execution is on"):
            npu_shim.enable(precision_mode="auto")

    def test_a_second_call_replaces_the_first(self):
        npu_shim.enable(precision_mode="allow_mix_precision")
        npu_shim.enable(precision_mode="allow_mix_precision_bf16")
        assert dtypes() == {"bfloat16"}

    def test_unpatch_takes_it_back(self):
        npu_shim.enable(precision_mode="allow_mix_precision")
        npu_shim.unpatch()
        npu_shim.patch()
        config = tf.ConfigProto()
        with tf.Session(config=config) as session:
            assert not config_proto.is_added(config_proto.find_npu_optimizer(session._config))


class TestRequests:
    @pytest.fixture(autouse=True)
    def run(self):
        enabling.begin_run(False)

    def test_nothing_is_asked_and_nothing_is_done(self):
        with tf.Session() as session:
            assert config_proto.find_npu_optimizer(session._config) is None

    @pytest.mark.parametrize(("field", "low"), [
        ("auto_mixed_precision", "float16"),
        ("auto_mixed_precision_cpu", "float16"),
        ("auto_mixed_precision_mkl", "bfloat16"),
        ("auto_mixed_precision_onednn_bfloat16", "bfloat16"),
    ])  # fmt: skip
    def test_each_field_of_the_config_is_answered_by_our_rewriter_alone(self, field, low):
        if field not in config_proto.own_fields(tf.ConfigProto()):
            pytest.skip("this TensorFlow has no field %s" % field)
        config = amp_config(field=field)
        assert dtypes(config) == {low}
        with tf.Session(config=config) as session:
            assert config_proto.find_npu_optimizer(session._config) is not None
        copy = config_proto.for_session(enabling.completed(config))
        assert getattr(copy.graph_options.rewrite_options, field) == copy.graph_options.rewrite_options.OFF

    @pytest.mark.parametrize(("optimizer", "field", "is_told"), [
        (lambda: tf.train.AdamOptimizer(), "auto_mixed_precision", True),
        (lambda: tf.train.AdamOptimizer(), "auto_mixed_precision_mkl", False),
        (lambda: NPULossScaleOptimizer(
            tf.train.AdamOptimizer(), managers.FixedLossScaleManager(8.0)), "auto_mixed_precision", False),
        (None, "auto_mixed_precision", False),
    ])  # fmt: skip
    def test_a_request_for_float16_alone_is_told_that_it_scales_no_loss(self, said, optimizer, field, is_told):
        if field not in config_proto.own_fields(tf.ConfigProto()):
            pytest.skip("this TensorFlow has no field %s" % field)
        loss, _ = small_loss()
        if optimizer is not None:
            optimizer().minimize(loss)
        for _ in range(2):
            tf.Session(config=amp_config(field=field)).close()
        lines = said("rewrite_options.auto_mixed_precision lowers to float16 and brings no loss scale")
        assert len(lines) == is_told
        assert all("--precision-mode auto" in line for line in lines)

    def test_a_config_that_says_off_stays_float32(self, monkeypatch):
        monkeypatch.setenv(enabling.NVIDIA, "1")
        assert dtypes(amp_config(state=2)) == {"float32"}

    @pytest.mark.parametrize(("variables", "is_scaled"), [
        ({enabling.NVIDIA: "1"}, True),
        ({enabling.NVIDIA: "1", enabling.NVIDIA_SCALE: "0"}, False),
        ({enabling.NVIDIA_REWRITE: "1"}, False),
        ({}, False),
    ])  # fmt: skip
    def test_nvidias_loss_scale(self, monkeypatch, variables, is_scaled):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        enabling.begin_run(False)
        w = tf.get_variable("w", [4, 4])
        tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(tf.matmul(w, w)))
        assert bool(automatic.variables()) == is_scaled
        automatic.uninstall()

    @pytest.mark.parametrize(("variables", "low"), [
        ({enabling.NVIDIA: "1"}, "float16"),
        ({enabling.NVIDIA: "0"}, "float32"),
        ({enabling.NVIDIA_REWRITE: "true"}, "float16"),
        ({enabling.NVIDIA: "1", enabling.NVIDIA_REWRITE: "0"}, "float32"),
    ])  # fmt: skip
    def test_nvidias_variables(self, monkeypatch, variables, low):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert dtypes() == {low}

    def test_tensorflows_graph_rewrite(self):
        try:
            tf.train.experimental.enable_mixed_precision_graph_rewrite(tf.train.GradientDescentOptimizer(0.1))
            assert dtypes() == {"float16"}
        finally:
            tf.train.experimental.disable_mixed_precision_graph_rewrite()

    def test_what_is_asked_outside_of_the_script_goes_first(self, monkeypatch):
        monkeypatch.setenv(forced.VARIABLE, json.dumps({"precision_mode": "allow_mix_precision_bf16"}))
        enabling.turn_on()
        assert dtypes(amp_config()) == {"bfloat16"}

    @pytest.mark.parametrize("config", [lambda: None, amp_config], ids=["plain", "request"])
    def test_a_mode_that_is_taken_away_leaves_float32(self, config, monkeypatch):
        monkeypatch.setenv(forced.VARIABLE, json.dumps({"precision_mode": None}))
        enabling.turn_on()
        assert dtypes(config()) == {"float32"}


@pytest.mark.by_day("options0-arguments0-2054-allow_mix_precision: ", "options3-arguments3-2055-")
@pytest.mark.parametrize(("options", "arguments", "total", "line"), [
    (["--precision-mode", "allow_mix_precision"], [], 2054, "allow_mix_precision: "),
    (["--set", "precision_mode=allow_mix_precision"], [], 2054, "allow_mix_precision: "),
    ([], ["amp"], 2054, "allow_mix_precision: "),
    ([], [], 2055, ""),
])  # fmt: skip
def test_a_plain_script_as_a_user_runs_it(tmp_path, options, arguments, total, line):
    script = tmp_path / "plain.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "npu_shim", "run", *options, str(script), *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NPU_SHIM")}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    out, told = done.stdout.decode(), done.stderr.decode()
    assert done.returncode == 0, told
    assert np.float32(out.split("SUM ")[1]) == total
    assert ("npu_shim: " + line in told) == bool(line)


def placed_on_a_gpu():
    """The value of an op that the script places on a GPU."""
    with tf.Graph().as_default():
        with tf.device("/gpu:0"):
            six = tf.square(tf.Variable(2.0)) + 2.0
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            return session.run(six)


@pytest.mark.skipif(devices.has_gpu(), reason="TensorFlow sees a GPU: the graph runs where it says")
@pytest.mark.parametrize("begin", [lambda: enabling.begin_run(False), lambda: npu_shim.enable(engine="session")])
def test_graphs_that_name_gpus_run_without_one_and_a_line_says_so(begin, said):
    begin()
    lines.once.cache_clear()
    assert placed_on_a_gpu() == placed_on_a_gpu() == 6.0
    assert len(said("TensorFlow has no GPU here, and the graph places ops on one")) == 1


def test_strategies_know_of_devices_that_an_option_asks_for():
    assert not strategies.engine_divides()
    npu_shim.enable(devices=2, engine="pjrt")
    assert strategies.engine_divides()
    npu_shim.enable(npu_shim_devices="all", engine="pjrt")
    assert strategies.engine_divides()
    npu_shim.disable()
    assert not strategies.engine_divides()


@pytest.mark.skipif(devices.has_gpu(), reason="TensorFlow sees a GPU: the graph runs where it says")
def test_plain_sessions_place_as_they_did(said):
    npu_shim.patch()
    npu_shim.unpatch()
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?i)device:GPU:0"):
        placed_on_a_gpu()
    assert not said("has no GPU here")


def test_a_config_is_copied_and_soft_placement_stays(monkeypatch):
    config = tf.ConfigProto(log_device_placement=True)
    monkeypatch.setattr(devices, "has_gpu", lambda: False)
    softened = devices.softened(config)
    assert softened.allow_soft_placement
    assert softened.log_device_placement
    assert not config.allow_soft_placement
    assert devices.softened(softened) is softened
    assert devices.softened("no config") == "no config"
    monkeypatch.setattr(devices, "has_gpu", lambda: True)
    assert devices.softened(config) is config
    assert devices.softened(None) is None


@pytest.mark.parametrize("size", [1, 2])
def test_what_ranks_ask_each_other_is_no_session_of_the_script(monkeypatch, size):
    """Regression: lines said that a session of the script, with the address of rank 0, ran as it was written."""
    for name, value in {"RANK_SIZE": size, "RANK_ID": 0, "NPU_SHIM_HOSTS": "localhost:1,localhost:2"}.items():
        monkeypatch.setenv(name, str(value))
    npu_shim.enable(precision_mode="allow_mix_precision")
    config = tf_internals.client_session().BaseSession("grpc://localhost:2", tf.Graph())._config
    asked = config is not None and config_proto.find_npu_optimizer(config) is not None
    assert asked == (size == 1)


def test_a_mode_that_takes_no_mixlist_leaves_out_the_script_s(monkeypatch, tmp_path):
    (tmp_path / "lists.json").write_text('{"black-list": {"to-add": ["Relu"]}}')
    config = sessions.config(precision_mode="allow_mix_precision", modify_mixlist=str(tmp_path / "lists.json"))
    told = []
    monkeypatch.setattr(lines, "once", told.append)
    for mode, lists in (("must_keep_origin_dtype", False), ("allow_mix_precision_bf16", True)):
        monkeypatch.setenv(forced.VARIABLE, json.dumps({"precision_mode": mode}))
        values = session_options.of_config(config).values
        assert (values["precision_mode"], "modify_mixlist" in values) == (mode, lists)
    (text,) = [text for text in told if "modify_mixlist of the session's config has no effect" in text]
    assert "with 'must_keep_origin_dtype', which was asked for outside of the script" in text
