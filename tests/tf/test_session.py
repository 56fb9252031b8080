"""Real sessions through the hook: what runs in float16, and how errors surface."""

import json
import logging

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.options.entrances import plugin
from npu_shim.options.ops.scopes import keep_dtype_scope
from npu_shim.session.interception import patch as npu_session
from npu_shim.session.native import build, loader

pytestmark = pytest.mark.usefixtures("patched")
MIX = "allow_mix_precision"


@pytest.fixture
def graph():
    """A small training graph: conv, matmul, softmax, their gradients, Adam; resource variables."""
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(1)
        with tf.variable_scope("net", use_resource=True):
            x = tf.placeholder(tf.float32, [None, 8, 8, 1], "x")
            kernel = tf.get_variable("kernel", [3, 3, 1, 4], initializer=tf.glorot_uniform_initializer(seed=2))
            weight = tf.get_variable("weight", [256, 10], initializer=tf.glorot_uniform_initializer(seed=3))
        h = tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME", name="conv"), name="relu")
        logits = tf.matmul(tf.reshape(h, [-1, 256]), weight, name="logits")
        labels = tf.placeholder(tf.int32, [None], "labels")
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits), name="loss")
        tf.train.AdamOptimizer(1e-2, name="step").minimize(loss)
        yield graph


FEEDS = {"net/x:0": np.linspace(0, 1, 6 * 64).reshape(6, 8, 8, 1), "labels:0": np.arange(6)}
HEAVY = ("Conv2D", "MatMul", "Conv2DBackpropFilter", "Conv2DBackpropInput", "_FusedConv2D", "_FusedMatMul")


def initialized(config):
    session = tf.Session(config=config)
    session.run(tf.global_variables_initializer())
    return session


def test_matrix_and_convolution_ops_and_gradients_run_in_float16(graph):
    with initialized(sessions.config(precision_mode=MIX)) as session:
        ran = sessions.Ran(session, ["loss:0", "step"], FEEDS)
        assert set(ran.dtypes(*HEAVY).values()) == {"float16"}
        assert len(ran.dtypes(*HEAVY)) == 5  # 2 forward, 3 backward: the images need no gradient
        assert set(ran.dtypes("SparseSoftmaxCrossEntropyWithLogits", "ResourceApplyAdam").values()) == {"float32"}
        assert {v.dtype for v in session.run(tf.global_variables())} == {np.dtype("float32")}


def test_losses_stay_near_float32(graph):
    with initialized(sessions.config(precision_mode=MIX)) as session:
        mixed = [session.run(["loss:0", "step"], FEEDS)[0] for _ in range(5)]
    with initialized(sessions.config(precision_mode="must_keep_origin_dtype", npu_shim_profile="gpu")) as session:
        plain = [session.run(["loss:0", "step"], FEEDS)[0] for _ in range(5)]
    # a few float16 epsilons (2**-10) of a loss near 2.3: rounded inputs, weights and activations each bring about one
    assert np.allclose(mixed, plain, rtol=4 * 2**-10)
    assert mixed != plain


def test_fetched_low_precision_tensors_come_back_as_float32_and_change_nothing(graph):
    with initialized(sessions.config(precision_mode=MIX)) as session:
        alone = session.run("loss:0", FEEDS)
        loss, relu, logits = session.run(["loss:0", "relu:0", "logits:0"], FEEDS)
        assert relu.dtype == logits.dtype == np.float32
        assert loss == alone


def test_an_intermediate_tensor_can_be_fed(graph):
    with initialized(sessions.config(precision_mode=MIX)) as session:
        relu = session.run("relu:0", FEEDS)
        feeds = {"relu:0": relu, "labels:0": FEEDS["labels:0"]}
        assert np.isclose(session.run("loss:0", feeds), session.run("loss:0", FEEDS), rtol=2**-10)


def test_interactive_session_is_rewritten_too(graph):
    session = tf.InteractiveSession(config=sessions.config(precision_mode=MIX))
    try:
        session.run(tf.global_variables_initializer())
        assert set(sessions.Ran(session, "logits:0", FEEDS).dtypes("MatMul").values()) == {"float16"}
    finally:
        session.close()


def test_monitored_training_session_is_rewritten_too(graph, tmp_path):
    tf.train.get_or_create_global_step()
    config = sessions.config(precision_mode=MIX)
    with tf.train.MonitoredTrainingSession(config=config, checkpoint_dir=str(tmp_path)) as session:
        ran = sessions.Ran(session, "logits:0", FEEDS)
        assert set(ran.dtypes("MatMul").values()) == {"float16"}
    saved = tf.train.load_checkpoint(str(tmp_path)).get_variable_to_dtype_map()
    assert saved["net/kernel"] == saved["net/weight/step_1"] == tf.float32


def test_a_session_that_is_extended_between_runs(graph):
    with initialized(sessions.config(precision_mode=MIX)) as session:
        before = session.run("loss:0", FEEDS)
        more = tf.matmul(graph.get_tensor_by_name("logits:0"), tf.ones([10, 2]), name="more")
        assert set(sessions.Ran(session, more, FEEDS).dtypes("MatMul").values()) == {"float16"}
        assert session.run("loss:0", FEEDS) == before


def test_two_sessions_with_different_modes_on_one_graph(graph):
    with initialized(sessions.config(precision_mode=MIX)) as mixed:
        with initialized(sessions.config(precision_mode="must_keep_origin_dtype", npu_shim_profile="gpu")) as plain:
            assert set(sessions.Ran(plain, "logits:0", FEEDS).dtypes("MatMul").values()) == {"float32"}
        assert set(sessions.Ran(mixed, "logits:0", FEEDS).dtypes("MatMul").values()) == {"float16"}


def test_reference_variables_train_too():
    with tf.Graph().as_default():
        weight = tf.get_variable("w", [4, 4], initializer=tf.ones_initializer(), use_resource=False)
        loss = tf.reduce_sum(tf.matmul(tf.ones([2, 4]), weight))
        step = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
        with initialized(sessions.config(precision_mode=MIX)) as session:
            ran = sessions.Ran(session, [loss, step])
            assert set(ran.dtypes("MatMul").values()) == {"float16"}
            assert session.run(loss) == 0  # 1 - 0.5 * 2 everywhere: exact in float16


def test_keep_dtype_attribute_pins_a_node():
    with tf.Graph().as_default() as graph:
        with graph._attr_scope({"_keep_dtype": tf.AttrValue(i=1)}):  # as npu_scope.keep_dtype_scope sets it
            kept = tf.matmul(tf.random_uniform([2, 2]), tf.random_uniform([2, 2]))
        with initialized(sessions.config(precision_mode=MIX)) as session:
            assert set(sessions.Ran(session, kept).dtypes("MatMul").values()) == {"float32"}


@pytest.mark.parametrize("gradients", [False, True])
def test_keep_dtype_scope_and_gradients(gradients):
    with tf.Graph().as_default():
        w = tf.get_variable("w", [4, 4], use_resource=True)
        with keep_dtype_scope(gradients=gradients):
            kept = tf.matmul(w, w, name="kept")
        loss = tf.reduce_sum(tf.matmul(kept, w, name="low"))
        with initialized(sessions.config(precision_mode=MIX)) as session:
            ran = sessions.Ran(session, [loss, *tf.gradients(loss, w)]).dtypes("MatMul")
    backward = {dtype for name, dtype in ran.items() if "kept_grad" in name}
    assert (ran["kept"], ran["low"]) == ("float32", "float16")
    assert backward == {"float32" if gradients else "float16"}


def test_to_float_scope_decides_and_the_innermost_wins():
    with tf.Graph().as_default():
        x = tf.random_uniform([4, 4])
        with npu_shim.to_float("float32"):
            kept = tf.matmul(x, x, name="kept")
            with npu_shim.to_float(tf.float16):
                low = tf.exp(x, name="low")
        with initialized(sessions.config(precision_mode=MIX)) as session:
            ran = sessions.Ran(session, [kept + 0.0, low + 0.0])
            assert ran.dtypes("MatMul", "Exp") == {"kept": "float32", "low": "float16"}
        with pytest.raises(npu_shim.ConfigError, match=r"'floot16'.*did you mean 'float16'"):
            npu_shim.to_float("floot16").__enter__()


@pytest.mark.parametrize("profile", ["ascend910", "grappler"])
def test_to_float_leaves_variables_and_constants_as_they_are(profile):
    """Regression: profile grappler refused a variable of the scope, and a constant of it ended the process."""
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [2])
        with npu_shim.to_float("float16"):
            v = tf.get_variable("v", initializer=[2049.0, 1.0])
            y = tf.exp(x * tf.constant([0.0, 1.0]) * v, name="low")
        with initialized(sessions.config(precision_mode=MIX, npu_shim_profile=profile)) as session:
            ran = sessions.Ran(session, [y + 0.0, v], {x: [1.0, 0.0]})
    assert ran.dtypes("Exp") == {"low": "float16"}
    assert [value.tolist() for value in ran.values] == [[1.0, 1.0], [2049.0, 1.0]]


@pytest.mark.parametrize("profile", ["ascend910", "grappler"])
def test_what_tensorflow_computes_beforehand_is_no_longer_customized(profile, tmp_path, caplog, monkeypatch):
    """A correct line for a node that became a constant was an error, or made a constant of a wrong dtype."""
    monkeypatch.setattr(logging.getLogger("npu_shim"), "propagate", True)
    path = tmp_path / "dtypes.txt"
    path.write_text("known::InputDtype:float16,OutputDtype:float16\n")
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [2, 2])
        known = tf.nn.relu(tf.constant([[2049.0, -1.0], [1.0, 2.0]]), name="known")
        y = tf.identity(tf.matmul(x, known))
        options = {"precision_mode": MIX, "npu_shim_profile": profile, "customize_dtypes": str(path)}
        with tf.Session(config=sessions.config(**options)) as session:
            assert session.run(y, {x: np.eye(2)}).tolist() == [[2048.0, 0.0], [1.0, 2.0]]
    text = "customize_dtypes: TensorFlow computes 'known' before the graph runs, in its own dtype"
    assert any(text in record.getMessage() for record in caplog.records)


def test_customize_dtypes_by_name_and_type(graph, tmp_path):
    path = tmp_path / "dtypes.txt"
    path.write_text(
        "# the convolution as it is, matrix products with float32 results\n\n"
        "conv::InputDtype:float32,float32,OutputDtype:float32\n"
        "OpType::MatMulV2:InputDtype:float16,float16,float32,OutputDtype:float32\n"
    )
    with initialized(sessions.config(precision_mode=MIX, customize_dtypes=str(path))) as session:
        ran = sessions.Ran(session, "loss:0", FEEDS)
        assert set(ran.dtypes("Conv2D", "MatMul").values()) == {"float32"}
        assert [node.name for node in ran.nodes if node.name.endswith("-to-float16-rounded")]


@pytest.mark.parametrize("mode", ["force_fp32", "cube_fp16in_fp32out"])
def test_float16_inputs_and_float32_sums_do_not_overflow(mode):
    """8 x 300 x 300 is 720,000: infinity in float16; 1/3 shows that the inputs were rounded to it."""
    with tf.Graph().as_default():
        row = tf.placeholder(tf.float32, [1, 8])
        product = tf.matmul(row, row, transpose_b=True)
        feeds = {row: np.full([1, 8], 300.0)}
        third = {row: np.full([1, 8], 1 / 3)}
        with initialized(sessions.config(precision_mode=mode)) as session:
            assert session.run(product, feeds) == 720000.0
            assert session.run(product, third) == np.float32(8 * np.float64(np.float16(1 / 3)) ** 2)
        with initialized(sessions.config(precision_mode=MIX)) as session:
            assert np.isinf(session.run(product, feeds))


def test_force_fp32_raises_a_float16_graph():
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float16, [2])
        squared = tf.square(x) * tf.constant(0.5, tf.float16)
        with initialized(sessions.config(precision_mode="force_fp32")) as session:
            ran = sessions.Ran(session, tf.cast(squared, tf.float32), {x: [300, 2]})
            assert set(ran.dtypes("Square", "Mul").values()) == {"float32"}


def test_options_of_npu_resource_init_are_the_defaults_of_sessions(graph):
    plugin.npu_resource_init(precision_mode=MIX)
    try:
        with initialized(sessions.config()) as session:
            assert set(sessions.Ran(session, "relu:0", FEEDS).dtypes("Relu").values()) == {"float16"}
        own = sessions.config(precision_mode_v2="origin", npu_shim_profile="gpu")
        with initialized(own) as session:
            assert set(sessions.Ran(session, "relu:0", FEEDS).dtypes("Relu", "Conv2D").values()) == {"float32"}
    finally:
        plugin.npu_resource_shutdown()
    with initialized(sessions.config()) as session:
        assert set(sessions.Ran(session, "relu:0", FEEDS).dtypes("Relu").values()) == {"float32"}


def test_off_line_false_leaves_the_graph_alone(graph):
    with initialized(sessions.config(precision_mode=MIX, use_off_line=False)) as session:
        assert set(sessions.Ran(session, "logits:0", FEEDS).dtypes("MatMul").values()) == {"float32"}


def test_unset_mode_is_allow_fp32_to_fp16_for_training_and_force_fp16_for_inference(graph):
    with initialized(sessions.config()) as session:
        ran = sessions.Ran(session, "logits:0", FEEDS)
        assert ran.dtypes("MatMul", "Relu") == {"logits-in-float16": "float16", "relu": "float32"}
    with initialized(sessions.config(graph_run_mode=0)) as session:
        ran = sessions.Ran(session, "logits:0", FEEDS)
        assert ran.dtypes("MatMul", "Relu") == {"logits-in-float16": "float16", "relu": "float16"}


BAD = {
    "misspelt mode": (
        {"precision_mode": "alow_mix_precision"}, tf.errors.InvalidArgumentError,
        "alow_mix_precision.*allow_mix_precision"
    ),
    "empty mode": ({"precision_mode": ""}, tf.errors.InvalidArgumentError, "precision_mode"),
    "mode in the wrong field": ({"precision_mode": True}, tf.errors.InvalidArgumentError, "precision_mode"),
    "mixlist without a mixed mode": ({"modify_mixlist": "a.json"}, tf.errors.InternalError, "modify_mixlist"),
    "missing mixlist": (
        {"precision_mode": MIX, "modify_mixlist": "/nowhere/mix.json"}, tf.errors.InternalError, "/nowhere/mix.json"
    ),
    "both modes": (
        {"precision_mode": MIX, "precision_mode_v2": "mixed_float16"}, tf.errors.InternalError, "precision_mode_v2"
    ),
    "unknown profile": (
        {"precision_mode": MIX, "npu_shim_profile": "gpo"}, tf.errors.InvalidArgumentError, "'gpo'.*did you mean 'gpu'"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_options_fail_at_the_first_run_and_the_process_lives(graph, case):
    parameters, error, message = BAD[case]
    with tf.Session(config=sessions.config(**parameters)) as session:
        with pytest.raises(error, match=message):
            session.run(tf.global_variables_initializer())
    with initialized(sessions.config(precision_mode=MIX)) as session:
        session.run("loss:0", FEEDS)


def test_a_mixlist_that_is_not_json(graph, tmp_path):
    path = tmp_path / "mix.json"
    path.write_text("black-list: Mul")
    with tf.Session(config=sessions.config(precision_mode=MIX, modify_mixlist=str(path))) as session:
        with pytest.raises(tf.errors.InternalError, match=r"mix\.json' is not JSON"):
            session.run(tf.global_variables_initializer())


def test_must_keep_origin_dtype_names_op_node_mode_and_way_out(graph):
    with sessions.started(config=sessions.config(precision_mode="must_keep_origin_dtype")) as session:
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            session.run("relu:0", FEEDS)
    for word in ("Conv2D", "'conv'", "must_keep_origin_dtype", "allow_mix_precision", "'gpu'"):
        assert word in str(caught.value)


def test_unknown_keys_are_ignored_and_reported_once(graph, caplog):
    config = sessions.config(precision_mode=MIX, fusion_switch_fil="x")
    caplog.set_level("WARNING", logger="npu_shim")
    npu_session.LOG.propagate = True
    with initialized(config) as session:
        session.run("loss:0", FEEDS)
    lines = [r.getMessage() for r in caplog.records if "fusion_switch_fil" in r.getMessage()]
    assert len(lines) == 1
    assert lines[0].endswith("'fusion_switch_fil' is unknown and ignored (did you mean 'fusion_switch_file'?)")


def test_an_internal_error_is_the_sessions_error(graph, monkeypatch):
    monkeypatch.setattr(npu_session, "rewrite_graph", lambda *_, **__: 1 // 0)
    with tf.Session(config=sessions.config(precision_mode=MIX)) as session:
        with pytest.raises(tf.errors.InternalError, match="ZeroDivisionError"):
            session.run(tf.global_variables_initializer())


def test_the_users_config_gets_what_the_bridge_adds_and_no_more(graph):
    config = sessions.config(precision_mode=MIX)
    tf.Session(config=config).close()
    rewrite = config.graph_options.rewrite_options
    assert (rewrite.remapping, config.allow_soft_placement) == (rewrite.OFF, True)
    assert (rewrite.min_graph_nodes, rewrite.meta_optimizer_iterations) == (0, 0)


def test_patch_is_reversible_and_not_doubled():
    inits = tf.Session.__init__, tf.InteractiveSession.__init__
    npu_shim.patch()
    assert (tf.Session.__init__, tf.InteractiveSession.__init__) == inits
    npu_shim.unpatch()
    assert tf.Session.__init__ is not inits[0]
    with tf.Graph().as_default(), tf.Session() as session:
        product = tf.matmul(tf.random_uniform([2, 2]), tf.random_uniform([2, 2]))
        assert set(sessions.Ran(session, product).dtypes("MatMul").values()) == {"float32"}


@pytest.mark.parametrize("arguments", [(), ("", None, None)])
def test_sessions_without_a_config_work(arguments):
    with tf.Graph().as_default(), tf.Session(*arguments) as session:
        assert session.run(tf.constant(3)) == 3


def test_xla_marks_compile_on_cpu(graph, caplog):
    caplog.set_level("INFO", logger="npu_shim")
    npu_session.LOG.propagate = True
    with initialized(sessions.config(precision_mode=MIX)) as session:
        plain = session.run("loss:0", FEEDS)
    with initialized(sessions.config(precision_mode=MIX, npu_shim_xla="on")) as session:
        compiled = session.run("loss:0", FEEDS)
    assert any("XLA compiles" in r.getMessage() for r in caplog.records)
    assert np.isclose(plain, compiled, rtol=2**-10)


class TestBuild:
    def test_no_compiler_is_one_clear_error_and_leaves_nothing(self, monkeypatch, tmp_path):
        monkeypatch.setenv("NPU_SHIM_CACHE", str(tmp_path))
        monkeypatch.setenv("PATH", "")
        monkeypatch.delenv("CXX", raising=False)
        with pytest.raises(build.BuildError, match=r"no C\+\+ compiler.*install g\+\+"):
            build.build()
        assert [p.name for p in tmp_path.iterdir()] == ["lock"]

    def test_a_compiler_that_fails_leaves_nothing(self, monkeypatch, tmp_path):
        monkeypatch.setenv("NPU_SHIM_CACHE", str(tmp_path))
        monkeypatch.setenv("CXX", "false")
        with pytest.raises(build.BuildError, match="did not compile"):
            build.build()
        assert [p.name for p in tmp_path.iterdir()] == ["lock"]

    def test_connecting_twice_does_nothing(self, graph):
        with initialized(sessions.config(precision_mode=MIX)) as session:
            loader.connect(None, None, None)
            assert set(sessions.Ran(session, "logits:0", FEEDS).dtypes("MatMul").values()) == {"float16"}


def test_forced_options_go_before_the_sessions_own(patched, monkeypatch):
    """NPU_SHIM_OPTIONS: 2049 is 2048 in float16; a mode of the script's own is replaced, whichever option has it."""
    for asked, own, expected in (
        ({"precision_mode": "allow_mix_precision"}, {"precision_mode_v2": "origin"}, 2048.0),
        ({"use_off_line": False}, {"precision_mode": "allow_mix_precision"}, 2049.0),
        ({}, {"precision_mode": "allow_mix_precision"}, 2048.0),
    ):
        monkeypatch.setenv("NPU_SHIM_OPTIONS", json.dumps(asked))
        with tf.Graph().as_default():
            x = tf.placeholder(tf.float32, [1, 1])
            y = tf.matmul(x, tf.ones([1, 1]))
            with tf.Session(config=sessions.config(**own)) as session:
                assert session.run(y, {x: [[2049.0]]}) == expected
