"""On a CPU: float32's kernels on float16 values, for what float16's kernels are slow at or refuse."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import graphs
import npu_shim
from npu_shim.options import precision, rewriting
from npu_shim.options.ops import kernel_tables
from npu_shim.options.table import of_keywords
from npu_shim.rewriter.graph.emulation import ROUNDED, Way
from npu_shim.rewriter.planner import report
from npu_shim.rewriter.planner.decisions import Reason
from npu_shim.session.clusters import marking

MIX = "allow_mix_precision"
EPSILON = 2.0**-11  # of float16, half a unit in the last place
IMAGE, FIRST, CUBE, CUBE_FIRST = [2, 8, 8, 4], [2, 4, 8, 8], [2, 4, 8, 8, 4], [2, 4, 4, 8, 8]


pytestmark = pytest.mark.usefixtures("patched")


def weight(*shape):
    values = np.random.RandomState(len(shape)).normal(size=shape) * 0.3
    return tf.get_variable("w", initializer=values.astype("f"), use_resource=True)


def conv(x, layout="NHWC", **how):
    return tf.nn.conv2d(x, weight(3, 3, 4, 8), 1, "SAME", data_format=layout, **how)


def conv3d(x, layout="NDHWC"):
    return tf.nn.conv3d(x, weight(3, 3, 3, 4, 8), [1] * 5, "SAME", data_format=layout)


def depthwise(x, layout="NHWC"):
    return tf.nn.depthwise_conv2d(x, weight(3, 3, 4, 2), [1] * 4, "SAME", data_format=layout)


def pool(op, x):
    return op(conv(x, "NCHW"), 2, 2, "SAME", data_format="NCHW")


def pool3d(op, x):
    return op(conv3d(x, "NCDHW"), 2, 2, "SAME", data_format="NCDHW")


def norm(x):
    normed = tf.nn.fused_batch_norm(conv(x, "NCHW"), tf.ones([8]), tf.ones([8]), data_format="NCHW")[0]
    return normed * tf.linspace(0.0, 1.0, 8)  # by itself it has one mean and one variance whatever x is


def in_a_branch(x):
    w = weight(3, 3, 4, 8)
    with sessions.control_flow(2):  # functions
        return tf.cond(
            tf.reduce_sum(x) < 1e9,
            lambda: tf.nn.max_pool2d(tf.nn.conv2d(x, w, 1, "SAME", data_format="NCHW"), 2, 2, "SAME", "NCHW"),
            lambda: tf.ones([2, 8, 4, 4]),
        )


# what float32's kernels run on a CPU, some with oneDNN only: form -> (shape of the input, the form)
FORMS = {
    "channels first": (FIRST, lambda x: conv(x, "NCHW")),
    "dilation": (IMAGE, lambda x: conv(x, dilations=2)),
    "dilation, channels first": (FIRST, lambda x: conv(x, "NCHW", dilations=2)),
    "groups": (IMAGE, lambda x: tf.nn.conv2d(x, weight(3, 3, 2, 8), 1, "SAME")),
    "transposed": (IMAGE, lambda x: tf.nn.conv2d_transpose(x, weight(3, 3, 8, 4), [2, 16, 16, 8], 2)),
    "depthwise": (IMAGE, depthwise),
    "depthwise, channels first": (FIRST, lambda x: depthwise(x, "NCHW")),
    "3-D": (CUBE, conv3d),
    "3-D, channels first": (CUBE_FIRST, lambda x: conv3d(x, "NCDHW")),
    "3-D mean": (CUBE, lambda x: tf.nn.avg_pool3d(conv3d(x), 2, 2, "SAME")),
    "3-D mean, channels first": (CUBE_FIRST, lambda x: pool3d(tf.nn.avg_pool3d, x)),
    "3-D maximum, channels first": (CUBE_FIRST, lambda x: pool3d(tf.nn.max_pool3d, x)),
    "bias, channels first": (FIRST, lambda x: tf.nn.bias_add(conv(x, "NCHW"), tf.ones([8]), data_format="NCHW")),
    "norm, channels first": (FIRST, norm),
    "maximum, channels first": (FIRST, lambda x: pool(tf.nn.max_pool2d, x)),
    "mean, channels first": (FIRST, lambda x: pool(tf.nn.avg_pool2d, x)),
    "in a branch, channels first": (FIRST, in_a_branch),
    "4,096 terms": ([8, 4096], lambda x: tf.matmul(x, weight(4096, 8))),
    "einsum": (IMAGE, lambda x: tf.einsum("nhwc,cd->nhwd", x, weight(4, 8))),
}  # fmt: skip
ONE_DNN = ("groups", "dilation", "norm, channels first", "bias, channels first")  # TensorFlow 1.15: on a GPU only


@pytest.mark.parametrize("form", FORMS)
def test_what_float32_runs_runs(form):
    if tf.__version__.startswith("1.") and any(word in form for word in ONE_DNN):
        pytest.skip("no float32 kernel either")
    shape, make = FORMS[form]
    given = np.random.RandomState(0).normal(size=shape)
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, shape)
        # a plain sum would reach no product of the gradients with values that need rounding
        loss = tf.reduce_mean(tf.square(make(x)))
        fetches = [loss, *tf.gradients(loss, [x, *tf.trainable_variables()])]
        results = []
        for mode in ("force_fp32", MIX):
            with sessions.started(config=sessions.config(precision_mode=mode)) as session:
                results.append(session.run(fetches, {x: given}))
    assert results[0][0] != results[1][0]  # float16 it is
    for exact, rounded in zip(*results):
        np.testing.assert_allclose(rounded, exact, rtol=0, atol=64 * EPSILON * np.abs(exact).max())


def products(build, feeds=("x:0",), fetches=()):
    """(GraphDef, its rewrite, its plan) of what `build` adds to a graph, whose loss is "loss"."""
    with tf.Graph().as_default() as graph:
        tf.identity(build(), "loss")
    graph_def = graph.as_graph_def()
    done, plan = npu_shim.rewrite(graph_def, ["loss", *fetches], feeds, precision_mode=MIX)
    return graph_def, done, plan


def run(graph_def, fetches, feeds, grappler=True):
    config = tf.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = not grappler
    npu_shim.unpatch()
    return sessions.run_graph(graph_def, fetches, feeds, config)


def chain():
    x = tf.placeholder(tf.float32, [8, 16], "x")
    w = tf.constant(np.random.RandomState(1).normal(size=(16, 16)).astype("f"))
    first = tf.matmul(x, w, name="first")
    return tf.reduce_sum(tf.exp(tf.matmul(tf.nn.relu(first), w, name="second") * 0.01))


def test_sums_are_float32s():
    ones = np.ones([1, 4096])
    graph_def, done, _ = products(lambda: tf.matmul(tf.placeholder(tf.float32, [1, 4096], "x"), tf.ones([4096, 1])))
    assert run(done, "loss:0", {"x:0": ones}) == 4096  # float16 sums end at 2048, where adding 1 changes nothing
    assert run(graph_def, "loss:0", {"x:0": ones}) == 4096


def test_inputs_and_results_are_float16_values():
    values = np.random.RandomState(0).normal(size=(8, 16)).astype("f")
    _, done, _ = products(chain, fetches=["first", "second"])
    first, second = run(done, ["first:0", "second:0"], {"x:0": values})
    w = np.random.RandomState(1).normal(size=(16, 16)).astype("e").astype("f")
    expected = values.astype("e").astype("f") @ w
    np.testing.assert_allclose(first, expected, rtol=2 * EPSILON)
    for result in (first, second):
        np.testing.assert_array_equal(result, result.astype("e").astype("f"))


def test_nobody_takes_the_rounding_away_and_a_second_rewrite_changes_nothing():
    values = {"x:0": np.random.RandomState(0).normal(size=(8, 16))}
    _, done, plan = products(chain)
    assert set(plan.running.ways.values()) == {Way.ROUNDED, Way.CARRIED}
    again, _ = npu_shim.rewrite(done, ["loss"], ["x:0"], precision_mode=MIX)
    assert again is done
    assert run(done, "loss:0", values) == run(done, "loss:0", values, grappler=False)


def mixture():
    """Rounded values carried around a loop and through a maximum, to a softmax, to statistics and to a gray op."""
    x = tf.placeholder(tf.float32, [4, 4], "x")
    w = tf.placeholder(tf.float32, [4, 4], "w")
    product = tf.maximum(tf.minimum(tf.matmul(x, w), 4.0), -4.0)
    looped = tf.while_loop(lambda i, _: i < 2, lambda i, h: (i + 1, tf.nn.relu(tf.matmul(h, w))), (0, product))[1]
    normed = tf.nn.fused_batch_norm(tf.reshape(looped, [1, 4, 4, 1]), [1.0], [0.0])
    turned = tf.transpose(tf.concat([looped, tf.nn.softmax(product)], 0))
    mixed = tf.where(tf.greater(product, 0.0), looped, x)
    sums = [tf.reduce_sum(value * 0.5) for value in (*normed, turned, mixed)]
    return tf.add_n([*sums, tf.reduce_sum(tf.matmul(mixed, tf.reshape(normed[0], [4, 4])))])


PROFILES = [("allow_mix_precision", "ascend910"), ("allow_mix_precision", "gpu"), ("force_fp16", "ascend910")]


@pytest.mark.parametrize(("mode", "profile"), PROFILES)
@pytest.mark.parametrize("version", [1, 2])
def test_a_second_rewrite_of_a_mixture_changes_nothing(version, mode, profile):
    """It planned the float32 kernels anew, as if nothing stood around them: casts more at every rewrite."""
    with tf.Graph().as_default() as graph, sessions.control_flow(version):
        tf.identity(mixture(), "loss")
    how = {"precision_mode": mode, "profile": profile}
    done, plan = npu_shim.rewrite(graph.as_graph_def(), ["loss"], ["x", "w"], **how)
    if profile != "grappler":  # which runs what TensorFlow's own pass would run
        assert {Way.ROUNDED, Way.CARRIED} <= set(plan.running.ways.values())
    again, second = npu_shim.rewrite(done, ["loss"], ["x", "w"], **how)
    assert again is done
    assert not [warning for warning in second.warnings if "lowers nothing" in warning]


@pytest.mark.parametrize("device", ["CPU", "GPU"])
def test_a_second_rewrite_knows_what_casts_were_moved_across(device):
    """What only moved a weight was low for the second one, and what else read it followed: an op more in float16."""
    with tf.Graph().as_default() as graph, sessions.control_flow(1):
        x = tf.placeholder(tf.float32, [4, 4], "x")
        w = tf.placeholder(tf.float32, [4, 4], "w")
        turned = tf.concat(tf.split(w, 2, 1)[::-1], 1)
        chosen = tf.where(tf.greater(x, 0.0), w, turned)  # nobody reads it
        looped = tf.while_loop(lambda i, *_: i < 2, lambda i, h, v: (i + 1, tf.matmul(h, v), v), (0, x, turned))[1]
        with tf.control_dependencies([chosen]):
            tf.identity(tf.matmul(looped, turned), "loss")
    how = {"device": device, "precision_mode": MIX}
    done, plan = npu_shim.rewrite(graph.as_graph_def(), ["loss"], ["x", "w"], **how)
    assert {decision.op for decision in plan.decisions() if decision.reason is Reason.MOVED} >= {"Split", "ConcatV2"}
    assert npu_shim.rewrite(done, ["loss"], ["x", "w"], **how)[0] is done


CUSTOMIZED = """\
turned::InputDtype:float32,OutputDtype:float32
relu::InputDtype:float16,OutputDtype:float16
parts::InputDtype:,float16,OutputDtype:float16,float16
"""


@pytest.mark.parametrize("device", ["CPU", "GPU"])
def test_a_second_rewrite_finds_requests_fulfilled(device, tmp_path):
    """A cast was moved across what was asked for in float32; of what is fetched the up-cast was to be low."""
    (tmp_path / "dtypes.txt").write_text(CUSTOMIZED)
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4, 4], "x")
        tf.matmul(x, tf.identity(x, "turned"), name="product")
        tf.nn.relu(x, "relu")
        tf.split(x, 2, 0, name="parts")
    how = {"device": device, "precision_mode": MIX, "customize_dtypes": str(tmp_path / "dtypes.txt")}
    fetches = ["product", "relu", "parts:0", "parts:1"]
    done, plan = npu_shim.rewrite(graph.as_graph_def(), fetches, ["x"], **how)
    decided = {decision.node: (decision.becomes, decision.reason) for decision in plan.decisions()}
    low = tf.float16.as_datatype_enum
    expected = {"turned": tf.float32.as_datatype_enum, "relu": low, "parts": low}
    assert {name: decided[name] for name in expected} == {name: (d, Reason.CUSTOM) for name, d in expected.items()}
    assert npu_shim.rewrite(done, fetches, ["x"], **how)[0] is done


def test_what_is_fetched_changes_no_bit():
    values = {"x:0": np.random.RandomState(0).normal(size=(8, 16))}
    losses = [run(products(chain, fetches=names)[1], "loss:0", values) for names in ([], ["first"], ["Relu", "second"])]
    assert losses[0] == losses[1] == losses[2]


def test_a_weight_is_rounded_outside_of_its_loop():
    def loop():
        x = tf.placeholder(tf.float32, [8, 16], "x")
        w = tf.placeholder(tf.float32, [16, 16], "w")
        looped = tf.while_loop(lambda i, _: i < 5, lambda i, h: (i + 1, tf.nn.tanh(tf.matmul(h, w))), (0, tf.tanh(x)))
        return tf.reduce_sum(looped[1])

    with sessions.control_flow(1):
        graph_def, done, plan = products(loop, ["x:0", "w:0"])
    matmul = next(p for p, node in enumerate(plan.view.nodes) if node.op == "MatMul")
    weight_in_loop = plan.view.nodes[matmul].inputs[1].node
    assert plan.running.ways[weight_in_loop] is Way.CARRIED
    random = np.random.RandomState(0)
    values = {"x:0": random.normal(size=(8, 16)), "w:0": random.normal(size=(16, 16))}
    np.testing.assert_allclose(run(done, "loss:0", values), run(graph_def, "loss:0", values), rtol=0, atol=0.2)


def test_clusters_leave_the_rounding_alone():
    _, done, _ = products(chain)
    assert any(ROUNDED in node.attr for node in done.node)
    marked = graphs.after(marking.mark, done)
    assert not [n.name for n in marked.node if ROUNDED in n.attr and marking.MARK in n.attr and n.attr[marking.MARK].b]


@pytest.mark.skipif(tf.__version__.startswith("1."), reason="TensorFlow 1.15 compiles no step as a whole")
def test_what_is_compiled_as_a_whole_is_low():
    with tf.Graph().as_default() as graph:
        tf.identity(chain(), "loss")
    chosen = precision.resolve(of_keywords({"precision_mode": MIX}))
    given = graph.as_graph_def(), ["x:0"], ["loss"], chosen
    compiled, session = (rewriting.rewrite_graph(*given, device).plan for device in ("XLA", "CPU"))
    assert not compiled.running.ways
    assert compiled.running.runs == compiled.becomes
    assert list(compiled.becomes) == list(session.becomes)
    assert not kernel_tables.of("XLA").slow


def test_reports_say_how_it_runs():
    _, _, plan = products(chain)
    text = report.as_text(plan)
    assert "runs as float32 kernel on rounded values" in text
    rows = {(row["node"], row["attr"]): row["runs"] for row in report.as_json(plan)["decisions"]}
    assert rows["first", "T"] == Way.ROUNDED.value
    assert rows["x", "dtype"] == Way.KERNEL.value
