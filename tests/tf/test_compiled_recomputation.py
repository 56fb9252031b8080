"""Recomputation in compiled steps: the same bits, and what the plan says."""

import os

import differential
import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim import export
from npu_shim.rewriter.errors import ConfigError
from npu_shim.xla import interpreted, step_checkpoint, step_function
from npu_shim.xla.sources import Source

pytestmark = [*sessions.COMPILED, pytest.mark.usefixtures("control_flow_of_version_1")]
STEPS = 20
BARRIER = b"OptimizationBarrier"
INTERPRETER = os.environ.get("NPU_SHIM_JAX")
FORMS = {
    "float32": {"precision_mode": "must_keep_origin_dtype", "profile": "gpu"},
    "float16": {"precision_mode": "allow_mix_precision"},
    "bfloat16": {"precision_mode": "allow_mix_precision_bf16"},
}


def dense(net, name, units):
    shape = [int(net.shape[-1]), units]
    draw = tf.random_normal_initializer(0, 0.2, seed=len(name))
    kernel = tf.get_variable(name + "/kernel", shape, initializer=draw)
    bias = tf.get_variable(name + "/bias", [units], initializer=tf.zeros_initializer())
    return tf.nn.bias_add(tf.matmul(net, kernel), bias)


def normed(net, name):
    mean, variance = tf.nn.moments(net, [-1], keep_dims=True)
    scale = tf.get_variable(name + "/gamma", [int(net.shape[-1])], initializer=tf.ones_initializer())
    offset = tf.get_variable(name + "/beta", [int(net.shape[-1])], initializer=tf.zeros_initializer())
    return tf.nn.batch_normalization(net, mean, variance, offset, scale, 1e-6)


def gelu(x):
    return x * 0.5 * (1.0 + tf.tanh(0.8 * (x + 0.04 * tf.pow(x, 3))))


def transformer(x):
    """Attention, layer norm and GELU, twice."""
    net = dense(x, "in", 32)
    for layer in range(2):
        name = "layer%d/" % layer
        query, key, value = (tf.reshape(dense(net, name + part, 32), [4, 8, 32]) for part in "qkv")
        weights = tf.nn.softmax(tf.matmul(query, key, transpose_b=True) * 0.2)
        net = normed(net + dense(tf.reshape(tf.matmul(weights, value), [32, 32]), name + "out", 32), name + "norm1")
        wide = gelu(dense(net, name + "wide", 128))
        net = normed(net + dense(wide, name + "narrow", 32), name + "norm2")
    return net


def convolutions(x):
    """Convolutions with batch norm and ReLU, and a residual connection."""
    net, short = tf.reshape(x, [8, 8, 8, 4]), None
    for layer, size in enumerate((3, 1, 3, 1)):
        draw = tf.random_normal_initializer(0, 0.3, seed=layer)
        kernel = tf.get_variable("kernel%d" % layer, [size, size, int(net.shape[-1]), 16], initializer=draw)
        net = tf.nn.conv2d(net, kernel, 1, "SAME")
        scale = tf.get_variable("gamma%d" % layer, [16], initializer=tf.ones_initializer())
        offset = tf.get_variable("beta%d" % layer, [16], initializer=tf.zeros_initializer())
        net = tf.nn.fused_batch_norm(net, scale, offset)[0]
        net = tf.nn.relu(net if layer % 2 or short is None else net + short)
        short = net
    return tf.reshape(net, [32, -1])


def recurrent(x):
    """An LSTM."""
    cell = tf.nn.rnn_cell.LSTMCell(16, initializer=tf.random_normal_initializer(0, 0.3, seed=2))
    return tf.reshape(tf.nn.dynamic_rnn(cell, tf.reshape(x, [4, 8, 64]), dtype=tf.float32)[0], [32, 16])


def branched(x):
    """A layer in a loop, and one in a conditional with an activation of many ops, in front of a transformer's."""
    x = tf.while_loop(lambda n, net: n < 3, lambda n, net: (n + 1, dense(net, "loop", 64)), (0, x))[1]
    x = tf.cond(tf.reduce_sum(x) > 0, lambda: gelu(dense(x, "cond", 64)), lambda: 2.0 * x)
    return transformer(x)


MODELS = {"transformer": transformer, "convolutions": convolutions, "recurrent": recurrent}


def built(model):
    graph = tf.Graph()
    with graph.as_default():
        tf.set_random_seed(1)
        x, y = tf.placeholder(tf.float32, [32, 64], "x"), tf.placeholder(tf.int32, [32], "y")
        logits = dense((MODELS[model] if isinstance(model, str) else model)(x), "logits", 5)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits), name="loss")
        tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss, name="train")
        tf.global_variables_initializer()
    return graph


def trained(model, form, mode):
    """(losses, variables, Recomputation) of STEPS steps."""
    with tf.Session(graph=built(model)) as session:
        session.run("init")
        step = npu_shim.compile_step(session, ["loss:0", "train"], ["x", "y"], recompute=mode, **FORMS[form])
        draw = np.random.RandomState(0)
        feeds = [{"x": draw.randn(32, 64).astype("f"), "y": draw.randint(0, 5, 32)} for _ in range(STEPS)]
        losses = [step(feed)[0] for feed in feeds]
    return losses, step.state(), step.recomputation


# the others at night
BY_DAY = (("transformer", "float16"), ("convolutions", "float32"))
PAIRS = [
    pytest.param(model, form, marks=[] if (model, form) in BY_DAY else [pytest.mark.nightly])
    for model in MODELS for form in FORMS
]  # fmt: skip


@pytest.mark.parametrize(("model", "form"), PAIRS)
def test_recomputation_changes_no_bit_but_of_sums(model, form):
    """The values of 20 steps and all variables; and that something is computed again."""
    losses, state, nothing = trained(model, form, "off")
    assert nothing.chains == ()
    assert np.all(np.isfinite(losses))
    for mode in ("auto", "memory"):
        actual, after, again = trained(model, form, mode)
        if mode == "auto" and form != "float32":  # a rounding to 16 bits stands between a product and a sum
            np.testing.assert_array_equal(actual, losses)
            for name, value in after.items():
                np.testing.assert_array_equal(value, state[name], err_msg=name)
        else:
            require_near(actual, losses, after, state, form)
        if model == "transformer" or (model == "convolutions" and mode == "memory"):
            assert again.saved > 0, again.as_text()


def require_near(actual, losses, after, state, form):
    """Values but for the order of sums: those that run again stand in other loops.

    In float32 XLA's code for CPUs also fuses a product and a sum into one rounding, or does not, as its loops fall.
    A ReLU then passes what it did not, and steps multiply that: here from the 13th on.
    """
    if form == "float32":
        np.testing.assert_allclose(actual[:10], losses[:10], rtol=2e-6)
        np.testing.assert_allclose(actual, losses, rtol=1e-3)
        return
    # a sum may be rounded to the next number of 16 bits, too
    np.testing.assert_allclose(actual[:5], losses[:5], rtol=2e-4)
    np.testing.assert_allclose(actual, losses, rtol=5e-3)


@pytest.mark.skipif(not INTERPRETER, reason="no interpreter with JAX: NPU_SHIM_JAX names none")
@pytest.mark.nightly
@pytest.mark.parametrize("form", ["float32", "float16"])
def test_exported_recomputation_changes_no_bit_under_jax(form, tmp_path):
    """Twenty losses and all variables of the exported step, by the newer XLA."""
    draw = np.random.RandomState(0)
    feeds = [{"x:0": draw.randn(32, 64).astype("f"), "y:0": draw.randint(0, 5, 32).astype("i")} for _ in range(STEPS)]
    folders = [tmp_path / mode for mode in ("off", "auto", "memory")]
    for folder in folders:
        folder.mkdir()
        with tf.Session(graph=built("transformer")) as session:
            session.run("init")
            shapes = {"x": [32, 64], "y": [32]}
            options = dict(FORMS[form], recompute=folder.name)
            exported = export.export(session, ["loss:0", "train"], shapes, str(folder / "step"), **options)
        assert bool(exported.plan["recompute"]["chains"]) == (folder.name != "off")
        batches = {"%d|%s" % (number, name): batch for number, fed in enumerate(feeds) for name, batch in fed.items()}
        np.savez(str(folder / "batches.npz"), **batches)
    # without instructions that fuse a product and a sum into one rounding: XLA uses them as its loops happen to fall
    differential.run_under_jax(folders, INTERPRETER, XLA_FLAGS="--xla_cpu_max_isa=AVX")
    results = [dict(np.load(str(folder / "results.npz"))) for folder in folders]
    assert len(results[0]) > STEPS
    for name, value in results[0].items():
        np.testing.assert_array_equal(results[1][name], value, err_msg=name)
        # float32 sums that run again stand in other loops, between other barriers, and are added in another order
        np.testing.assert_allclose(results[2][name], value, rtol=1e-4, atol=1e-6, err_msg=name)


def step_of(model, form, fetches=("loss:0", "train"), **options):
    """The step as JAX interprets it, for a GPU."""
    shapes = {"x": [32, 64], "y": [32]}
    source = Source.of(built(model))
    prepared = step_function.prepare(source, list(fetches), shapes, None, None, "GPU", **FORMS[form], **options)
    return interpreted.of(prepared, list(shapes.values()))


def test_the_plan_says_what_is_computed_again_from_what_and_what_it_saves():
    """GELU from the product before it, behind the gradient of the product after it."""
    again = step_of("transformer", "float16").recomputation
    assert again.mode == "auto"
    assert len(again.chains) == 2
    nodes = {name.rpartition("/")[2].partition("_")[0] for name in again.chains[0].nodes}
    assert {"Tanh", "Pow"} <= nodes
    assert any(name.startswith(("MatMul", "BiasAdd")) for name in again.chains[0].kept)
    assert again.chains[0].after.startswith("gradients/")
    text = again.as_text()
    assert text.startswith("recompute=auto: ")
    assert "less to keep" in text
    assert again.counts()["saved_bytes"] == sum(chain.saved for chain in again.chains)
    assert not any(name.startswith(("Softmax", "Mean", "moments")) for c in again.chains for name in c.nodes)
    memory = step_of("transformer", "float16", recompute="memory").recomputation
    assert memory.saved > again.saved


@pytest.mark.parametrize("model", [convolutions, branched], ids=lambda model: model.__name__)
def test_what_convolutions_and_bodies_compute_again(model):
    """Also where loops and conditionals are as the graph has them, and variables are references."""
    auto, memory = (step_of(model, "float16", recompute=mode) for mode in ("auto", "memory"))
    assert bool(auto.recomputation.chains) == (model is branched)
    assert memory.recomputation.saved > auto.recomputation.saved
    assert len(memory.content) > len(auto.content)
    names = [name for chain in memory.recomputation.chains for name in chain.nodes]
    assert not any(name.startswith(("while", "cond")) for name in names)


def test_copies_stand_behind_barriers():
    """Else XLA's common-subexpression pass would undo them."""
    for form in ("float16", "bfloat16"):  # which card the program is for is not known
        assert step_of("transformer", form).content.count(BARRIER) == 2
    assert BARRIER not in step_of("transformer", "float16", recompute="off").content


def test_fetched_and_fed_values_random_ops_and_later_writes_keep_their_meaning():
    """The activation is fetched, the dropout mask drawn once, and its scale, a variable, is written in the step."""
    results = {}
    for mode in ("off", "memory"):
        graph = tf.Graph()
        with graph.as_default():
            tf.set_random_seed(1)
            x = tf.placeholder(tf.float32, [32, 16], "x")
            scale = tf.get_variable("scale", [64], initializer=tf.ones_initializer(), use_resource=mode == "off")
            hidden = tf.tanh(dense(x, "one", 64) * scale, name="hidden")
            dropped = tf.nn.dropout(hidden, rate=0.5, seed=3)
            loss = tf.reduce_mean(tf.square(dense(tf.tanh(dense(dropped, "two", 64)), "three", 4)), name="loss")
            train = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
            with tf.control_dependencies([hidden.op]):
                wider = tf.assign_add(scale, tf.ones([64]))
            tf.group(train, wider, name="train")
            tf.global_variables_initializer()
        with tf.Session(graph=graph) as session:
            session.run("init")
            step = npu_shim.compile_step(session, ["loss:0", "hidden:0", "train"], ["x"], recompute=mode)
            actual = [step({"x": np.full([32, 16], k, "f")})[:2] for k in range(3)]
        results[mode] = actual, {k: v for k, v in step.state().items() if not step_checkpoint.is_of_random_ops(k)}
        if mode == "memory":
            copied = {name for chain in step.recomputation.chains for name in chain.nodes}
            assert any("Tanh" in name or "hidden" in name for name in copied)
            assert not any("random" in name.lower() for name in copied)
    for ours, theirs in zip(results["memory"][0], results["off"][0]):
        for value, wanted in zip(ours, theirs):
            np.testing.assert_array_equal(value, wanted)
    for name, value in results["memory"][1].items():
        np.testing.assert_array_equal(value, results["off"][1][name], err_msg=name)


@pytest.mark.parametrize("equation", ["bii->bi", "bij->ji", "bij->"])
def test_einsum_of_one_input_is_compiled(equation):
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [2, 3, 3])
        y = tf.square(tf.einsum(equation, x))
        fetches = [y, *tf.gradients(y, x)]
        given = np.arange(18, dtype=np.float32).reshape(2, 3, 3)
        with tf.Session() as session:
            expected = session.run(fetches, {x: given})
            actual = npu_shim.compile_step(session, fetches, [x])({x: given})
    for value, wanted in zip(actual, expected):
        np.testing.assert_allclose(value, wanted, rtol=1e-6)


def test_a_step_without_a_backward_pass_computes_nothing_again():
    step = step_of("transformer", "float32", ["loss:0"], recompute="memory")
    assert step.recomputation.chains == ()
    assert "nothing is computed again: no value" in step.recomputation.as_text()


def test_another_word_is_an_error():
    graph = built("transformer")
    expected = r"recompute is 'memroy', expected one of auto, off, memory \(did you mean 'memory'"
    with pytest.raises(ConfigError, match=expected):
        npu_shim.compile_step(graph, ["loss:0"], ["x", "y"], recompute="memroy")
