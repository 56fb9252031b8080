"""Constants that float16 cannot hold are named before they do harm."""

import logging
import re

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim


def warnings(build, mode="allow_mix_precision"):
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4, 4], "x")
        tf.identity(build(tf.matmul(x, x)), name="out")
    _, plan = npu_shim.rewrite(graph.as_graph_def(), ["out"], precision_mode=mode)
    return plan.warnings


LOST = {
    "mask": (lambda y: y + tf.constant(-1e9, name="c"), "'c' has -1e\\+09, which float16 has not.* it is -65504 for"),
    "scale": (lambda y: y * tf.constant(1e10, name="c"), "'c' has 1e\\+10, which becomes infinity"),
    "epsilon": (lambda y: y + tf.constant(1e-8, name="c"), "'c' has 1e-08, which becomes zero"),
    "one of many": (lambda y: y * tf.constant([1.0, 2.0, 1e-12, 4.0], name="c"), "'c' has 1e-12, which becomes zero"),
}


@pytest.mark.parametrize("case", LOST)
def test_lost_constants_are_named_with_their_reader_and_the_way_out(case):
    build, message = LOST[case]
    [warning] = warnings(build)
    assert re.search(message, warning)
    assert "op %s" % ("Mul" if case in ("scale", "one of many") else "AddV2") in warning
    assert "keep_dtype_scope" in warning


# number of readers -> who they are; the names follow the alphabet, not the order in the graph
READERS = {
    1: "and 'r0' (op Mul) reads it; ",
    2: "and 'r0' (op Mul) reads it, as does 'r1' (op Mul); ",
    3: "and 'r0' (op Mul) reads it, as do 'r1' (op Mul) and 'r2' (op Mul); ",
    4: "and 'r0' (op Mul) reads it, as do 'r1' (op Mul), 'r2' (op Mul) and 1 more; ",
    7: "and 'r0' (op Mul) reads it, as do 'r1' (op Mul), 'r2' (op Mul) and 4 more; ",
}


@pytest.mark.parametrize("count", READERS)
def test_all_readers_of_a_lost_constant_are_counted(count):
    """One that is kept in float32 alone leaves the others to compute with infinity."""

    def build(y):
        c = tf.constant(-1e9, name="c")
        return tf.add_n([tf.raw_ops.Mul(x=y, y=c, name="r%d" % n) for n in reversed(range(count))])

    [warning] = warnings(build)
    assert "constant 'c' has -1e+09, which becomes infinity in float16, " + READERS[count] in warning


def test_equal_constants_that_a_session_merges_have_the_readers_of_all(patched, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("npu_shim"), "propagate", True)
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [4, 4])
        y = tf.matmul(x, x)
        masked = [tf.reduce_max(tf.multiply(y + n, tf.constant(1e9), name="masked%d" % n)) for n in range(1, 4)]
        with tf.Session(config=sessions.config(precision_mode="allow_mix_precision")) as session:
            session.run(masked, {x: np.eye(4)})
    [warning] = [text for text in caplog.messages if "which becomes infinity" in text]
    assert all("'masked%d' (op Mul" % n in warning for n in range(1, 4))


def test_an_epsilon_is_named_for_those_readers_that_are_no_guards():
    def build(y):
        c = tf.constant(1e-8, name="c")
        return [1.0 / (tf.nn.relu(y) + c), tf.raw_ops.Mul(x=y, y=c, name="other")]

    texts = warnings(lambda y: tf.add_n(build(y)))
    [warning] = [text for text in texts if "constant 'c' has 1e-08, which becomes zero" in text]
    assert "and 'other' (op Mul) reads it; " in warning
    assert len(texts) == 2


@pytest.mark.parametrize("value", [0.0, 1.0, -65504.0, 6e-8, np.inf, -np.inf, np.nan])
def test_what_float16_holds_or_was_infinite_already_is_not(value):
    assert warnings(lambda y: y + tf.constant(value)) == ()


def test_bfloat16_and_float32_readers_lose_nothing():
    assert warnings(lambda y: y + tf.constant(-1e9), "allow_mix_precision_bf16") == ()
    assert warnings(lambda y: tf.exp(y) + tf.constant(-1e9)) == ()


def rewritten(build, mode="allow_mix_precision"):
    """Input and output nodes by name, original session and rewritten session results on the same feed."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4, 4], "x")
        tf.identity(build(tf.matmul(x, x)), name="out")
    result, plan = npu_shim.rewrite(graph.as_graph_def(), ["out"], precision_mode=mode)
    with tf.Graph().as_default():
        tf.import_graph_def(result, name="")
        with tf.Session() as session:
            return {node.name: node for node in result.node}, plan, session.run("out:0", {"x:0": np.eye(4)})


# where only the size of a constant matters: what builds it from scores and a mask
SIZED = {
    "select": lambda y, mask, big: tf.where(mask, y, tf.fill([4, 4], -big)),
    "one_hot": lambda y, mask, big: tf.where(mask, tf.one_hot([2, 2, 2, 2], 4, on_value=big, off_value=-big), y),
    "add": lambda y, mask, big: y + np.where(np.eye(4) > 0, -big, 0).astype(np.float32),
    "sub": lambda y, mask, big: y - np.where(np.eye(4) > 0, big, 0).astype(np.float32),
    "bounds": lambda y, mask, big: tf.minimum(tf.maximum(y, -big), big),
    "two": lambda y, mask, big: tf.where(mask, y + tf.constant(-big), tf.fill([4, 4], -big)),
    "infinite": lambda y, mask, big: tf.where(mask, y, tf.fill([4, 4], -np.inf)),
    "shared": lambda y, mask, big: tf.where(mask, y, (lambda c: c + y * c)(tf.constant(-big))),
}
BIG = {"allow_mix_precision": 2.0**32 - 1, "allow_mix_precision_bf16": float(np.finfo(np.float32).max)}


def _run(graph_def, names, fed):
    with tf.Graph().as_default():
        tf.import_graph_def(graph_def, name="")
        with tf.Session() as session:
            return session.run({name: name + ":0" for name in names}, fed)


@pytest.mark.parametrize("mode", BIG)
def test_what_is_hidden_is_found_again_by_a_comparison(mode):
    """A clamped -65504 is above a -1e8 that has become minus infinity (below it is none in float16, clamped or not)."""
    with tf.Graph().as_default() as graph:
        x, mask = tf.placeholder(tf.float32, [4, 4], "x"), tf.placeholder(tf.bool, [4, 4], "mask")
        y, big = tf.matmul(x, x), np.float32(BIG[mode])
        hidden = tf.where(mask, y, tf.fill([4, 4], -big))
        names = [out.op.name for out in (hidden > -big / 8, tf.equal(hidden, -big))]
    result, plan = npu_shim.rewrite(graph.as_graph_def(), names, ["x", "mask"], precision_mode=mode)
    assert plan.casts
    fed = {"x:0": np.eye(4), "mask:0": np.array([[1] * 4, [1, 0, 1, 0], [0] * 4, [0, 1, 1, 1]])}
    expected, low = (_run(graph_def, names, fed) for graph_def in (graph.as_graph_def(), result))
    for name in names:
        np.testing.assert_array_equal(low[name], expected[name], err_msg=name)


@pytest.mark.parametrize("mode", BIG)
def test_a_constant_of_which_only_the_size_matters_stays_finite(mode):
    """Softmax and its choice are float32's, and rows that are masked as a whole are no NaN; an exact infinity stays."""
    with tf.Graph().as_default() as graph:
        x, mask = tf.placeholder(tf.float32, [4, 4], "x"), tf.placeholder(tf.bool, [4, 4], "mask")
        built = {name: build(tf.matmul(x, x), mask, np.float32(BIG[mode])) for name, build in SIZED.items()}
        names = [(tf.identity if name == "shared" else tf.nn.softmax)(built[name], name=name).op.name for name in built]
    result, plan = npu_shim.rewrite(graph.as_graph_def(), names, ["x", "mask"], precision_mode=mode)
    fed = {"x:0": np.eye(4) * [[1], [2], [3], [-1]], "mask:0": np.array([[1] * 4, [1, 0, 1, 0], [0] * 4, [0, 1, 1, 1]])}
    expected, low = (_run(graph_def, names, fed) for graph_def in (graph.as_graph_def(), result))
    known = dict(zip(SIZED, names))
    for name in SIZED:
        want, got = expected[known[name]], low[known[name]]
        if name == "shared":
            assert not np.isfinite(got).all()  # its product reads a constant of its own, which is infinite
        elif name == "infinite":
            np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        else:
            np.testing.assert_allclose(got, want, atol=1e-2, err_msg=name)
            np.testing.assert_array_equal(got.argmax(-1), want.argmax(-1), err_msg=name)
    largest = {"allow_mix_precision": "65504", "allow_mix_precision_bf16": "3.38953e+38"}[mode]
    assert [text for text in plan.warnings if "it is -%s for" % largest in text]
    again, second = npu_shim.rewrite(result, names, ["x", "mask"], precision_mode=mode)
    assert again is result or not second.changed


# op that computes with the size of a constant, or None where nothing does -> what builds it from x, a mask, and 1e6
REACHED = {
    "Mul": lambda y, mask, big: tf.where(mask, y, tf.fill([4, 4], big)) * 1e-3,
    "RealDiv": lambda y, mask, big: tf.reshape(tf.maximum(y - 2 * big, -big), [2, 8]) / 1e4,
    "Sub": lambda y, mask, big: (y + big) - big,
    "MatMul": lambda y, mask, big: tf.matmul(tf.concat([y, tf.fill([4, 4], big)], 1), tf.fill([8, 4], 1e-5)),
    "Square": lambda y, mask, big: tf.sqrt(tf.square(tf.stack([y, -tf.fill([4, 4], big)]))),
    "Sum": lambda y, mask, big: tf.reduce_sum(tf.transpose(tf.where(mask, y, tf.fill([4, 4], big))), 1),
    "LeakyRelu": lambda y, mask, big: tf.nn.leaky_relu(tf.where(mask, y, tf.fill([4, 4], -big)), 1e-4),
    "Mul after a loop": lambda y, mask, big: 1e-3 * tf.while_loop(
        lambda i, _: i < 2, lambda i, v: (i + 1, tf.where(mask, v, tf.fill([4, 4], big))), [0, y])[1],
}  # fmt: skip
HIDDEN = {
    "scaled": lambda y, mask, big: tf.nn.softmax(tf.where(mask, y, tf.fill([4, 4], -big)) * 0.125),
    "by hand": lambda y, mask, big: (lambda s: tf.exp(s - tf.reduce_max(s, 1, keepdims=True)))(
        tf.where(mask, y, tf.fill([4, 4], -big))),
    "bounded": lambda y, mask, big: 2.0 * tf.maximum(tf.where(mask, y, tf.fill([4, 4], -big)), -1.0),
    "a ceiling": lambda y, mask, big: tf.matmul(y, tf.transpose(tf.minimum(y, big))),  # as of loss scales
    "turned": lambda y, mask, big: 2.0 * tf.nn.relu(-(tf.where(mask, y, tf.fill([4, 4], big)) + 1.0)),
    "masked": lambda y, mask, big: tf.sigmoid(y - (1.0 - tf.cast(mask, tf.float32)) * tf.fill([4, 4], big)),
}  # fmt: skip


def test_a_constant_whose_size_counts_further_on_is_float32_up_to_there():
    """As in float32, where clamped to 65504 it is wrong and finite; what hides the size is low as before."""
    with tf.Graph().as_default() as graph, sessions.control_flow(1):
        x, mask = tf.placeholder(tf.float32, [4, 4], "x"), tf.placeholder(tf.bool, [4, 4], "mask")
        names = []
        for case, build in {**REACHED, **HIDDEN}.items():
            with tf.name_scope(case.replace(" ", "_")):
                names.append(tf.identity(build(tf.matmul(x, x), mask, 1e6), "out").op.name)
    result, plan = npu_shim.rewrite(graph.as_graph_def(), names, ["x", "mask"], precision_mode="allow_mix_precision")
    fed = {"x:0": np.eye(4), "mask:0": np.array([[1] * 4, [1, 0, 1, 0], [0] * 4, [0, 1, 1, 1]])}
    expected, low = (_run(graph_def, names, fed) for graph_def in (graph.as_graph_def(), result))
    for name in names:
        np.testing.assert_allclose(low[name], expected[name], rtol=2e-3, atol=2e-3, err_msg=name)
    kept = {(name.split("/")[0], op) for name, op, *_, reason, _, _ in plan.decisions() if reason.name == "BEYOND"}
    assert {case for case, _ in kept} == {case.replace(" ", "_") for case in REACHED}
    assert all((case.replace(" ", "_"), case.split()[0]) in kept for case in REACHED)
    clamped = {cast.tensor.split("/")[0] for cast in plan.casts if cast.clamped}
    assert clamped == {case.replace(" ", "_") for case in HIDDEN if case != "masked"}  # that stays float32 anyway
    again, second = npu_shim.rewrite(result, names, ["x", "mask"], precision_mode="allow_mix_precision")
    assert again is result or not second.changed


VALUES = np.array([1 / 3, -65503.0, 6e-8, 0.1], np.float32)


MODES = [("allow_mix_precision_fp16", tf.float16), ("allow_mix_precision_bf16", tf.bfloat16)]


@pytest.mark.parametrize(("mode", "dtype"), MODES)
@pytest.mark.parametrize("value", [VALUES, np.float32(0.1), np.full([4, 4], 0.1, np.float32)])
def test_a_constant_is_written_in_low_precision_with_the_bits_of_a_cast(mode, dtype, value):
    nodes, plan, out = rewritten(lambda y: y + tf.constant(value, name="c"), mode)
    assert nodes["c"].attr["dtype"].type == tf.float32.as_datatype_enum
    low = nodes["c-0-to-%s" % dtype.name]
    assert low.op == "Const"
    with tf.Graph().as_default(), tf.Session() as session:
        cast = tf.cast(tf.constant(value), dtype)
        # the sum by TensorFlow too: numpy's arithmetic on bfloat16 is not that of TensorFlow 1.15
        expected, total = session.run([cast, tf.cast(tf.cast(tf.eye(4), dtype) + cast, tf.float32)])
    array = tf.make_ndarray(low.attr["value"].tensor)
    assert array.shape == expected.shape
    assert array.tobytes() == expected.tobytes()
    [cast] = [cast for cast in plan.casts if cast.tensor == "c"]
    assert cast.folded
    np.testing.assert_array_equal(out, total)


def test_arithmetic_on_constants_is_done_in_float32_and_rounded_once():
    nodes, _, out = rewritten(lambda y: y * tf.raw_ops.RealDiv(x=tf.constant(1.0), y=tf.constant(0.9), name="scale"))
    assert nodes["scale-0-to-float16"].op == "Const"
    np.testing.assert_array_equal(out, np.eye(4) * np.float64(np.float16(np.float32(1.0) / np.float32(0.9))))


def test_constants_of_a_loop_stay_in_the_loop():
    """Their control input says which loop they are in; without it a session refuses the graph."""

    def build(y):
        return tf.while_loop(lambda i, _: i < 3, lambda i, v: (i + 1, tf.matmul(v, y) * tf.constant(0.1)), [0, y])[1]

    tf.disable_control_flow_v2()
    nodes, _, out = rewritten(build)
    [low] = [node for node in nodes.values() if node.op == "Const" and node.name.endswith("-to-float16")]
    assert [name[0] for name in low.input] == ["^"]
    np.testing.assert_allclose(out, np.eye(4) * 0.001, rtol=2e-3)


def test_what_is_large_or_fed_is_cast():
    nodes, _, _ = rewritten(lambda y: tf.matmul(y, tf.constant(np.zeros([4, 1 << 19], np.float32), name="c"))[:, :4])
    assert nodes["c-0-to-float16"].op == "Cast"
    with tf.Graph().as_default() as graph:
        tf.identity(tf.matmul(tf.eye(4), tf.constant(np.eye(4), tf.float32, name="c")), name="out")
    result, _ = npu_shim.rewrite(graph.as_graph_def(), ["out"], ["c:0"], precision_mode="allow_mix_precision")
    assert [node.op for node in result.node if node.name == "c-0-to-float16"] == ["Cast"]


def test_an_expression_that_float16_cannot_hold_is_named_too():
    [warning] = warnings(lambda y: y * tf.raw_ops.RealDiv(x=tf.constant(1.0), y=tf.constant(1e-9), name="c"))
    assert "'c' has 1e+09, which becomes infinity" in warning


def odds(p):
    return tf.log(p / (1.0 - p))  # as Keras 2.2 makes logits of probabilities


# mode, what is made of probabilities, whether their clip stays float32
BOUNDS = {
    "a logarithm": ("allow_mix_precision", lambda p: tf.log(1.0 - tf.minimum(p, 1.0 - 1e-7)), True),
    "a divisor": ("allow_mix_precision", lambda p: odds(tf.clip_by_value(p, 1e-7, 1.0 - tf.constant(1e-7))), True),
    "a bound of zero": ("allow_mix_precision", lambda p: 1.0 / tf.transpose(tf.maximum(p, 1e-12)), True),
    "bfloat16's one": ("allow_mix_precision_bf16", lambda p: odds(tf.minimum(p, 0.999)), True),
    "float16 has it": ("allow_mix_precision", lambda p: odds(tf.minimum(p, 0.999)), False),
    "one itself": ("allow_mix_precision", lambda p: odds(tf.minimum(p, 1.0)), False),
    "no pole": ("allow_mix_precision", lambda p: tf.square(1.0 - tf.minimum(p, 1.0 - 1e-7)), False),
    "a dividend": ("allow_mix_precision", lambda p: tf.minimum(p, 1.0 - 1e-7) / tf.reduce_max(p), False),
    "a mode that lowers all": ("force_fp16", lambda p: tf.log(1.0 - tf.minimum(p, 1.0 - 1e-7)), False),
}


@pytest.mark.parametrize("case", BOUNDS)
def test_clips_at_a_pole_stay_float32(case):
    mode, build, stays = BOUNDS[case]
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4, 4], "x")
        tf.identity(build(tf.sigmoid(tf.matmul(x, x))), name="out")
    _, plan = npu_shim.rewrite(graph.as_graph_def(), ["out"], precision_mode=mode)
    told = [decision for decision in plan.decisions() if decision.op in ("Minimum", "Maximum")]
    assert told
    assert any("at which what reads it divides by zero" in decision.reason.value for decision in told) == stays
    assert all((decision.becomes == tf.float32.as_datatype_enum) == stays for decision in told)


def test_a_loss_of_clipped_probabilities_is_finite(activated):
    with tf.Graph().as_default():
        x, w = tf.placeholder(tf.float32, [4, 4], "x"), tf.Variable(tf.eye(4))
        p = tf.clip_by_value(tf.sigmoid(tf.matmul(x, w)), 1e-7, 1.0 - tf.constant(1e-7))
        loss = tf.reduce_mean(odds(p))
        fetches, plain = [loss, tf.gradients(loss, w)[0]], []
        for config in (None, sessions.config(precision_mode="allow_mix_precision")):
            with sessions.started(config) as session:
                plain.append(session.run(fetches, {x: np.full([4, 4], 6.0) * np.eye(4) + 20.0}))
    (expected, zero), (value, slope) = plain
    assert value == expected
    assert np.array_equal(slope, zero)
    assert not zero.any()
