"""Attention of compiled steps: the finder on real gradients, and its calls beside TensorFlow's own nodes."""

from dataclasses import replace

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.xla import step_function
from npu_shim.xla.sources import Source

pytestmark = [
    pytest.mark.skipif(tf.__version__.startswith("1."), reason="TensorFlow 1.15.5 compiles no steps"),
    pytest.mark.usefixtures("control_flow_of_version_1"),
]
BATCH, LENGTH, HEADS, SIZE = 2, 12, 2, 8
WIDTH = HEADS * SIZE
FLOAT32 = {"precision_mode": "must_keep_origin_dtype", "profile": "gpu"}
BFLOAT16 = {"precision_mode": "allow_mix_precision_bf16"}


def dense(net, name, units=WIDTH):
    kernel = tf.get_variable(
        name, [int(net.shape[-1]), units], initializer=tf.random_normal_initializer(0, 0.4, seed=7)
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


WAYS = [bert, albert, transformer, multiplied_heads, relative, einsum, by_hand]


def prepared(way, options, rate=0.0, batch=BATCH, gated=True):
    """A Prepared of two layers and Adam, and what it is fed."""
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(5)
        x = tf.placeholder(tf.float32, [batch, LENGTH, WIDTH], "x")
        mask = tf.placeholder(tf.int32, [batch, LENGTH], "mask")
        net = x
        for layer in range(2):
            with tf.variable_scope("layer%d" % layer):
                net = net + dense(way(net, mask, rate), "out")
        loss = tf.reduce_mean(tf.square(net - 1.0))
        optimizer = tf.train.AdamOptimizer(0.01)
        gate = optimizer.GATE_OP if gated else optimizer.GATE_NONE
        train = optimizer.apply_gradients(optimizer.compute_gradients(loss, gate_gradients=gate))
        with tf.Session(graph=graph) as session:
            session.run(tf.global_variables_initializer())
            return step_function.prepare(Source.of(session), [loss, train], [x, mask], **options)


def losses(step, count=20):
    random = np.random.RandomState(3)
    mask = np.ones([BATCH, LENGTH], np.int32)
    mask[:, LENGTH - 3 :] = 0
    with tf_internals.eager_mode():
        compiled = tf.function(step.function, autograph=False, jit_compile=True)
        feeds = [random.normal(size=[BATCH, LENGTH, WIDTH]).astype("f"), mask]
        return np.array([compiled(*map(tf.constant, feeds))[0].numpy() for _ in range(count)])


def with_calls(step):
    """For a GPU, on this CPU."""
    return replace(step, manner=replace(step.manner, has_kernels=True)).for_shapes()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_each_way_to_write_it_is_taken_and_trains_as_before(way):
    before = losses(prepared(way, FLOAT32).for_shapes())
    step = with_calls(prepared(way, FLOAT32))
    counts = step.attention.counts()
    assert (counts["forward"], counts["backward"], counts["near_misses"]) == (2, 2, 0), step.attention.as_text()
    assert before[-1] < before[0]
    np.testing.assert_allclose(losses(step), before, rtol=2e-5)
