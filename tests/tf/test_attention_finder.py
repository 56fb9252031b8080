"""Attention of compiled steps: what the finder takes of real gradients; JAX runs none of it."""

import os
from dataclasses import replace

import differential
import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim import export
from npu_shim.pjrt.attention.spec import BACKWARD, FORWARD, Spec
from npu_shim.xla import interpreted, step_function
from npu_shim.xla.sources import Source

pytestmark = [
    pytest.mark.skipif(tf.__version__.startswith("1."), reason="TensorFlow 1.15.5 writes tf.einsum with other ops"),
    pytest.mark.usefixtures("control_flow_of_version_1"),
]
INTERPRETER = os.environ.get("NPU_SHIM_JAX")
BATCH, LENGTH, HEADS, SIZE = 2, 12, 2, 8
WIDTH = HEADS * SIZE
SPREAD = 0.4  # of kernels
FLOAT32 = {"precision_mode": "must_keep_origin_dtype", "profile": "gpu"}
BFLOAT16 = {"precision_mode": "allow_mix_precision_bf16"}


def dense(net, name, units=WIDTH):
    kernel = tf.get_variable(
        name, [int(net.shape[-1]), units], initializer=tf.random_normal_initializer(0, SPREAD, seed=7)
    )
    return tf.reshape(tf.matmul(tf.reshape(net, [-1, int(net.shape[-1])]), kernel), [BATCH, -1, units])


def heads(net, name):
    return tf.transpose(tf.reshape(dense(net, name), [BATCH, -1, HEADS, SIZE]), [0, 2, 1, 3])


def merged(net):
    return tf.reshape(tf.transpose(net, [0, 2, 1, 3]), [BATCH, -1, WIDTH])


def bert(net, mask, rate):
    """As google-research/bert writes it."""
    query, key, value = (heads(net, name) for name in "qkv")
    scores = tf.multiply(tf.matmul(query, key, transpose_b=True), 1.0 / np.sqrt(float(SIZE)))
    ones = tf.ones([BATCH, LENGTH, 1], tf.float32)
    mask = ones * tf.cast(tf.reshape(mask, [BATCH, 1, LENGTH]), tf.float32)
    scores += (1.0 - tf.cast(tf.expand_dims(mask, axis=[1]), tf.float32)) * -10000.0
    probabilities = tf.nn.softmax(scores)
    if rate:
        probabilities = tf.nn.dropout(probabilities, rate=rate)
    return merged(tf.matmul(probabilities, value))


def albert(net, mask, rate):
    """As google-research/albert does: the mask is a product too."""
    query, key, value = (heads(net, name) for name in "qkv")
    logits = tf.multiply(tf.matmul(query, key, transpose_b=True), 1.0 / np.sqrt(float(SIZE)))
    bias = tf.cast(tf.reshape(mask, [BATCH, 1, LENGTH, 1]), tf.float32)
    bias = tf.matmul(tf.ones([BATCH, 1, LENGTH, 1], tf.float32), bias, transpose_b=True)
    logits += (1.0 - bias) * -10000.0
    weights = tf.nn.softmax(logits)
    if rate:
        weights = tf.nn.dropout(weights, rate=rate)
    return merged(tf.matmul(weights, value))


def transformer(net, mask, rate):
    """As the official Transformer does: queries are scaled, keys and values come from elsewhere."""
    query, key, value = heads(net, "q") * SIZE**-0.5, heads(net[:, :8], "k"), heads(net[:, :8], "v")
    padding = tf.cast(tf.equal(mask[:, :8], 0), tf.float32) * -1e9
    logits = tf.matmul(query, key, transpose_b=True) + padding[:, None, None, :]
    weights = tf.nn.softmax(logits, name="attention_weights")
    if rate:
        weights = tf.nn.dropout(weights, 1 - rate)
    return merged(tf.matmul(weights, value))


def tensor2tensor(net, mask, rate):
    """As tensor2tensor does: dropout draws once for all sentences and heads."""
    query, key, value = heads(net, "q") * SIZE**-0.5, heads(net, "k"), heads(net, "v")
    logits = tf.matmul(query, key, transpose_b=True)
    logits += tf.cast(tf.equal(mask, 0), tf.float32)[:, None, None, :] * -1e9
    weights = tf.nn.softmax(logits, name="attention_weights")
    if rate:
        weights = tf.nn.dropout(weights, 1 - rate, noise_shape=[1, 1, LENGTH, LENGTH])
    return merged(tf.matmul(weights, value))


def multiplied_heads(net, mask, rate):
    """As many scripts do: heads in the batch, keys transposed before."""
    query, key, value = (tf.concat(tf.split(dense(net, name), HEADS, axis=2), axis=0) for name in "qkv")
    scores = tf.matmul(query, tf.transpose(key, [0, 2, 1])) / (SIZE**0.5)
    weights = tf.nn.softmax(scores + tf.tile(tf.log(tf.cast(mask, tf.float32) + 1e-9), [HEADS, 1])[:, None, :])
    if rate:
        weights = tf.nn.dropout(weights, rate=rate)
    return tf.concat(tf.split(tf.matmul(weights, value), HEADS, axis=0), axis=2)


def relative(net, mask, rate):
    """With a trained bias for each distance."""
    query, key, value = (heads(net, name) for name in "qkv")
    table = tf.get_variable("table", [HEADS, LENGTH, LENGTH], initializer=tf.random_normal_initializer(0, 1.0, seed=3))
    weights = tf.nn.softmax(tf.matmul(query, key, transpose_b=True) + table)
    if rate:
        weights = tf.nn.dropout(weights, rate=rate)
    return merged(tf.matmul(weights, value))


def einsum(net, mask, rate):
    """As newer models do, without a transpose of heads."""
    query, key, value = (tf.reshape(dense(net, name), [BATCH, LENGTH, HEADS, SIZE]) for name in "qkv")
    scores = tf.einsum("BTNH,BFNH->BNFT", key, query) * SIZE**-0.5
    weights = tf.nn.softmax(scores)
    if rate:
        weights = tf.nn.dropout(weights, rate=rate)
    return tf.reshape(tf.einsum("BNFT,BTNH->BFNH", weights, value), [BATCH, LENGTH, WIDTH])


def by_hand(net, mask, rate):
    """As GPT-2 does: a causal mask that is multiplied, and a softmax written by hand."""
    query, key, value = (heads(net, name) for name in "qkv")
    w = tf.matmul(query, key, transpose_b=True) * tf.rsqrt(tf.cast(SIZE, tf.float32))
    i, j = tf.range(LENGTH)[:, None], tf.range(LENGTH)
    b = tf.reshape(tf.cast(i >= j, w.dtype), [1, 1, LENGTH, LENGTH])
    w = w * b - tf.cast(1e10, w.dtype) * (1 - b)
    w = w - tf.reduce_max(w, axis=-1, keepdims=True)
    w = tf.exp(w)
    return merged(tf.matmul(w / tf.reduce_sum(w, axis=-1, keepdims=True), value))


def normalized(net, mask, rate):
    """As GANs with spectral normalization: the forward pass writes variables, and gradients wait for each other."""
    total = tf.get_variable("total", [], initializer=tf.ones_initializer(), trainable=False)
    with tf.control_dependencies([total.assign(total * 1.5)]):
        net = tf.identity(net)
    query, key, value = (dense(net, name) for name in "qkv")
    return tf.matmul(tf.nn.softmax(tf.matmul(query, key, transpose_b=True)), value)


def chained(net, mask, rate):
    """Without a projection between: what one gives, another takes as it is, and their gradients too."""
    memory = dense(net, "m")
    for _ in range(2):
        net = tf.matmul(tf.nn.softmax(tf.matmul(net, memory, transpose_b=True) * 0.3), memory)
    return net


def on_itself(net, mask, rate):
    """Queries, keys and values are one tensor."""
    for _ in range(2):
        net = tf.matmul(tf.nn.softmax(tf.matmul(net, net, transpose_b=True) * 0.2), net)
    return net


def chosen(net, mask, rate):
    """As many scripts do: what is masked is replaced, before and behind other masks."""
    query, key, value = (heads(net, name) for name in "qkv")
    low = -(2.0**32) + 1
    scores = tf.matmul(query, key, transpose_b=True) / (SIZE**0.5)
    future = tf.linalg.LinearOperatorLowerTriangular(tf.ones([LENGTH, LENGTH])).to_dense()
    future = tf.tile(future[None, None], [BATCH, HEADS, 1, 1])
    scores = tf.where(tf.equal(future, 0), tf.ones_like(future) * low, scores)
    there = tf.tile(tf.cast(mask, tf.bool)[:, None, None, :], [1, HEADS, LENGTH, 1])
    weights = tf.nn.softmax(tf.where(there, scores, tf.fill(tf.shape(scores), -1e9)))
    if rate:
        weights = tf.nn.dropout(weights, rate=rate)
    return merged(tf.matmul(weights, value))


WAYS = [
    bert, albert, transformer, tensor2tensor, multiplied_heads, relative, einsum, by_hand, chosen, normalized, chained,
    on_itself,
]  # fmt: skip


def built(way, rate=0.0, gated=True):
    """(Session, fetches, feeds) of a step of two layers and Adam."""
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(5)
        x = tf.placeholder(tf.float32, [BATCH, LENGTH, WIDTH], "x")
        mask = tf.placeholder(tf.int32, [BATCH, LENGTH], "mask")
        net = x
        for layer in range(2):
            with tf.variable_scope("layer%d" % layer):
                net = net + dense(way(net, mask, rate), "out")
        loss = tf.reduce_mean(tf.square(net - 1.0))
        optimizer = tf.train.AdamOptimizer(0.01)
        gate = optimizer.GATE_OP if gated else optimizer.GATE_NONE
        train = optimizer.apply_gradients(optimizer.compute_gradients(loss, gate_gradients=gate))
        session = tf.Session(graph=graph)
        session.run(tf.global_variables_initializer())
        return session, [loss, train], [x, mask]


def prepared(way, options, rate=0.0, gated=True):
    """The Prepared of such a step."""
    session, fetches, feeds = built(way, rate, gated)
    return prepared_of(session, fetches, feeds, **options)


def prepared_of(session, fetches, feeds, **options):
    """A Prepared of a session's step."""
    return step_function.prepare(Source.of(session), fetches, feeds, **options)


def with_calls(step):
    """What JAX interprets of a Prepared, with the kernels of a GPU."""
    step = replace(step, manner=replace(step.manner, has_kernels=True))
    return interpreted.of(step, [tuple(feed.shape.as_list()) for feed in step.feeds.values()])


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_each_way_to_write_it_is_taken(way):
    """test_attention_programs.py trains them."""
    step = with_calls(prepared(way, FLOAT32))
    counts = step.attention.counts()
    expected = {chained: (4, 4), on_itself: (4, 2)}.get(way, (2, 2))  # what is computed of feeds alone has no gradient
    assert (counts["forward"], counts["backward"]) == expected, step.attention.as_text()
    assert counts["stays"] == {}
    kinds = [Spec.from_json(text).kind for text in step.specs.values()]
    assert {FORWARD, BACKWARD} == set(kinds)


@pytest.mark.parametrize("way", [bert, transformer, tensor2tensor], ids=lambda way: way.__name__)
def test_dropout_in_bfloat16_is_taken(way):
    result = with_calls(prepared(way, BFLOAT16, rate=0.25))
    assert result.attention.counts()["backward"] == 2, result.attention.as_text()
    assert {(kernel.dtype, kernel.rate) for kernel in result.attention.taken} == {("bfloat16", 0.25)}


def test_gradients_that_wait_for_each_other_are_taken():
    """As Optimizer.minimize gates them."""
    for gated in (True, False):
        assert with_calls(prepared(bert, FLOAT32, rate=0.1, gated=gated)).attention.counts()["backward"] == 2


def test_recomputation_leaves_the_calls_as_they_are():
    step = with_calls(prepared(bert, dict(FLOAT32, recompute="memory")))
    assert step.recomputation.chains
    assert step.attention.counts()["backward"] == 2
    assert not any("attention/" in name for chain in step.recomputation.chains for name in chain.nodes)


def test_inference_is_taken_and_the_shape_of_its_scores_can_be_fetched():
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [BATCH, None, WIDTH], "x")
        scores = tf.matmul(heads(x, "q"), heads(x, "k"), transpose_b=True)
        fetches = [tf.matmul(tf.nn.softmax(scores), heads(x, "v"), name="out"), tf.shape(scores, name="sizes")]
        with sessions.started() as session:
            step = with_calls(prepared_of(session, fetches, {x: [BATCH, LENGTH, WIDTH]}))
    assert step.attention.counts() == {"mode": "auto", "forward": 1, "backward": 0, "stays": {}}


def test_a_probability_that_is_fetched_stays():
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [BATCH, LENGTH, WIDTH], "x")
        weights = tf.nn.softmax(tf.matmul(heads(x, "q"), heads(x, "k"), transpose_b=True), name="weights")
        out = tf.matmul(weights, heads(x, "v"))
        with sessions.started() as session:
            step = with_calls(prepared_of(session, [out, weights], [x]))
    assert step.attention.counts()["stays"] == {"weights": "'weights' is fetched"}
    assert "'weights' stays: 'weights' is fetched" in step.attention.as_text()


def test_attention_in_a_loop_stays():
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [BATCH, LENGTH, WIDTH], "x")
        mask = tf.placeholder(tf.int32, [BATCH, LENGTH], "mask")
        body = lambda number, net: (number + 1, bert(net, mask, 0.0))  # noqa: E731
        with tf.variable_scope("loop", reuse=tf.AUTO_REUSE):
            bert(x, mask, 0.0)  # makes the variables
            _, out = tf.while_loop(lambda number, net: number < 2, body, (tf.constant(0), x))
        with sessions.started() as session:
            step = with_calls(prepared_of(session, [out], [x, mask]))
    assert list(step.attention.counts()["stays"].values()) == ["it is in a loop, a tf.cond or another function"]
    assert step.attention.taken == ()


@pytest.mark.parametrize("option", ["off", "auto"])
def test_a_step_for_a_cpu_or_without_the_option_is_as_it_was(option):
    step = prepared(bert, dict(FLOAT32, attention=option))
    shapes = [tuple(feed.shape.as_list()) for feed in step.feeds.values()]
    plain = interpreted.of(step, shapes) if option == "auto" else with_calls(step)
    assert plain.specs == {}
    assert plain.attention.taken == ()
    assert plain.attention.because
    assert plain.attention.as_text().count("\n") == 1


@pytest.mark.nightly
@pytest.mark.skipif(not INTERPRETER, reason="no interpreter with JAX: NPU_SHIM_JAX names none")
def test_an_exported_step_calls_its_functions_by_name_and_trains_as_before(tmp_path):
    random = np.random.RandomState(3)
    feeds = [random.normal(size=[BATCH, LENGTH, WIDTH]).astype("f"), np.ones([BATCH, LENGTH], np.int32)]
    batches = {"%d|%s" % (number, name): feed for number in range(5) for name, feed in zip(("x:0", "mask:0"), feeds)}
    for option in ("auto", "off"):
        (tmp_path / option).mkdir()
        written = export.export(*built(bert), str(tmp_path / option / "step"), attention=option, **FLOAT32)
        assert written.plan["attention"]["mode"] == option
        assert written.plan["attention"]["forward"] == (2 if option == "auto" else 0)
        np.savez(str(tmp_path / option / "batches.npz"), **batches)
        program = b"".join(path.read_bytes() for path in (tmp_path / option / "step").glob("program*"))
        for kind in (b"forward", b"backward"):
            assert (b"npu_shim_attention_" + kind in program) == (option == "auto")
    differential.run_under_jax([tmp_path / "auto", tmp_path / "off"], INTERPRETER)
    actual, expected = (dict(np.load(str(tmp_path / option / "results.npz"))) for option in ("auto", "off"))
    assert len(actual) > 5
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=1e-4, atol=1e-5, err_msg=name)
