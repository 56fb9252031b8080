"""NpuShimRound: the values of a Cast down and up, and where a session runs it in place of the two."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import graphs
import npu_shim
from npu_shim.rewriter.graph.emulation import ROUNDED
from npu_shim.rewriter.tables.dtypes import BFLOAT16, FLOAT16, FLOAT32
from npu_shim.session.passes import rounding

MIX = "allow_mix_precision"


pytestmark = pytest.mark.usefixtures("patched")


def patterns():
    """float32 values: each upper half with lower halves around what is kept, and some of all."""
    low = [0, 1, 0x7FFF, 0x8001, 0xFFF, 0x1000, 0x1001, 0x1FFF, 0x2FFF, 0x3000, 0x3001, 0x8000, 0xF000, 0xFFFF]
    high = np.arange(1 << 16, dtype=np.uint32) << 16
    some = np.arange(0, 1 << 32, 99991, dtype=np.uint64).astype(np.uint32)
    return np.concatenate([(high[:, None] | np.array(low, np.uint32)).ravel(), some]).view(np.float32)


def cast(name, source, target, values, mark=True, device=""):
    node = tf.NodeDef(name=name, op="Cast", input=values, device=device)
    node.attr["SrcT"].type, node.attr["DstT"].type = source, target
    if mark:
        node.attr[ROUNDED].type = source if target == FLOAT32 else target
    return node


def placeholder(name, dtype=FLOAT32):
    node = tf.NodeDef(name=name, op="Placeholder")
    node.attr["dtype"].type = dtype
    return node


def graph(*nodes):
    return tf.GraphDef(node=[placeholder("x"), *nodes])


def pair(mark=True, device="", low=FLOAT16):
    down = cast("down", FLOAT32, low, ["x"], mark, device)
    return [down, cast("up", low, FLOAT32, ["down"], mark, device)]


def run(graph_def, fetch, feeds):
    config = tf.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    npu_shim.unpatch()
    return sessions.run_graph(graph_def, fetch, feeds, config)


@pytest.mark.parametrize("count", [None, 5, 1])  # whole vectors of the processor, and what is left behind them
@pytest.mark.parametrize("low", [FLOAT16, BFLOAT16])
def test_the_values_are_those_of_two_casts(count, low):
    with tf.Session():  # the hook's library is loaded
        pass
    values = patterns()[:count]
    casts = graph(*pair(low=low))
    fused = graphs.after(rounding.fuse_casts, casts)
    assert {node.op for node in fused.node} == {"Placeholder", rounding.OP}
    expected, rounded = (run(graph, "up:0", {"x:0": values}) for graph in (casts, fused))
    np.testing.assert_array_equal(rounded, expected)
    # TensorFlow's casts to bfloat16 keep the sign of a NaN in some places of a tensor and not in others
    signed = [values if low == FLOAT16 else values[~np.isnan(values)] for values in (rounded, expected)]
    np.testing.assert_array_equal(*map(np.signbit, signed))


def test_a_given_tensor_is_not_written_over():
    with tf.Session():
        pass
    graph_def = graphs.after(rounding.fuse_casts, graph(*pair()))
    values = np.full([4096], 1 / 3, np.float32)
    given, rounded = run(graph_def, ["x:0", "up:0"], {"x:0": values})
    assert given[0] == values[0] != rounded[0]


def test_a_cast_down_that_others_read_stays():
    fused = graphs.after(rounding.fuse_casts, graph(*pair(), tf.NodeDef(name="reader", op="NoOp", input=["^down"])))
    assert {node.name: node.op for node in fused.node}["down"] == "Cast"
    again = graph(*pair(), cast("second", FLOAT16, FLOAT32, ["down"]))
    fused = graphs.after(rounding.fuse_casts, again)
    assert [node.op for node in fused.node] == ["Placeholder", rounding.OP, rounding.OP]


def test_waits_for_what_both_casts_waited_for():
    down, up = pair()
    down.input.append("^a")
    up.input.extend(["^a", "^b"])
    others = [tf.NodeDef(name=name, op="NoOp") for name in "ab"]
    fused = graphs.after(rounding.fuse_casts, graph(*others, down, up)).node[-1]
    assert list(fused.input) == ["x", "^a", "^b"]
    assert fused.attr[ROUNDED].type == FLOAT16


LEFT = {
    "by hand": (pair(mark=False), []),
    "another device": (pair(device="/device:GPU:0"), []),
    "another process": (pair(device="/job:ps/task:0/device:CPU:0"), []),
    "fed between": (pair(), ["down:0"]),
}


@pytest.mark.parametrize("case", LEFT)
def test_left_as_it_is(case):
    nodes, keep = LEFT[case]
    graph_def = graph(*nodes)
    assert graphs.after(rounding.fuse_casts, graph_def, keep) is graph_def


def test_nodes_without_a_device_are_the_accelerators():
    graph_def = graph(*pair())
    assert graphs.after(rounding.fuse_casts, graph_def, accelerator="GPU") is graph_def


def model():
    x = tf.placeholder(tf.float32, [64, 512], "x")
    w = tf.get_variable("w", initializer=np.random.RandomState(0).normal(size=[512, 64]).astype("f") * 0.1)
    loss = tf.reduce_mean(tf.square(tf.nn.relu(tf.matmul(x, w))), name="loss")
    step = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    return x, loss, step


def ops(session, fetches, feeds):
    return {node.op for node in sessions.Ran(session, fetches, feeds).nodes}


def trained(x, loss, step, **options):
    with sessions.started(config=sessions.config(precision_mode=MIX, **options)) as session:
        values = np.random.RandomState(1).normal(size=x.shape.as_list())
        losses = [session.run([loss, step], {x: values})[0] for _ in range(3)]
        return losses, ops(session, [loss, step], {x: values})


def test_a_session_runs_it_with_the_same_losses(monkeypatch):
    with tf.Graph().as_default():
        built = model()
        fused, ran = trained(*built)
        assert rounding.OP in ran
        monkeypatch.setattr(rounding, "fuse_casts", lambda *_: None)
        casts, ran = trained(*built)
        assert rounding.OP not in ran
    assert fused == casts


def test_a_session_writes_its_graph_after_each_pass_that_changed_it(tmp_path):
    with tf.Graph().as_default():
        trained(*model(), npu_shim_dump_graphs=str(tmp_path))
    texts = [path.read_text(encoding="utf-8") for path in tmp_path.glob("session-*-rounding.txt")]
    assert texts
    assert all(rounding.OP in graph for graph in texts)


@pytest.mark.parametrize("when", ["end", "each"])
def test_a_pass_that_breaks_its_promise_is_named_in_the_sessions_error(when, monkeypatch):
    def swap(module, *_):
        for node in module.graph:
            if node.op == "MatMul":
                node.set_inputs(node.inputs[::-1])

    monkeypatch.setattr(rounding, "fuse_casts", swap)
    with tf.Graph().as_default(), pytest.raises(tf.errors.InternalError, match="pass 'rounding': input 0 of 'MatMul'"):
        trained(*model(), npu_shim_verify=when)


def test_rewrite_gives_casts():
    with tf.Graph().as_default() as graph:
        _, loss, step = model()
    done, _ = npu_shim.rewrite(graph.as_graph_def(), [loss.name, step.name], precision_mode=MIX)
    assert rounding.OP not in {node.op for node in done.node}
    assert rounding.OP in {node.op for node in graphs.after(rounding.fuse_casts, done).node}


def test_a_session_elsewhere_runs_casts():
    server = tf.train.Server.create_local_server()
    with tf.Graph().as_default():
        x, loss, _ = model()
        with tf.Session(server.target, config=sessions.config(precision_mode=MIX)) as session:
            session.run(tf.global_variables_initializer())
            ran = ops(session, loss, {x: np.ones([64, 512])})
    assert "Cast" in ran
    assert rounding.OP not in ran
