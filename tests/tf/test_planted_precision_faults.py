"""Faults of precision planted in healthy models: the plan's warnings or a calibration name the node each time."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.session.observers.ranges import proposals

MODE = "allow_mix_precision"


def dense(x, size, name):
    w = tf.get_variable(name, [x.shape[-1], size], initializer=tf.glorot_uniform_initializer(seed=len(name)))
    flat = tf.reshape(x, [-1, int(x.shape[-1])])
    return tf.reshape(tf.matmul(flat, w, name=name + "/product"), [-1, *map(int, x.shape[1:-1]), size])


def convolution(plant):
    x = tf.placeholder(tf.float32, [None, 6, 6, 3], "x")
    f = tf.get_variable("f", [3, 3, 3, 4], initializer=tf.glorot_uniform_initializer(seed=1))
    y = plant(tf.nn.relu(tf.nn.conv2d(x, f, 1, "SAME")))
    return dense(tf.reshape(y, [-1, 144]), 2, "head"), [4, 6, 6, 3]


def transformer(plant):
    x = tf.placeholder(tf.float32, [None, 6, 8], "x")
    q, k, v = (dense(x, 8, name) for name in "qkv")
    logits = plant(tf.matmul(q, k, transpose_b=True) * 8**-0.5)
    y = x + tf.matmul(tf.nn.softmax(logits), v)
    mean, variance = tf.nn.moments(y, [-1], keepdims=True)
    return dense(tf.reshape((y - mean) * tf.rsqrt(variance + 1e-6), [-1, 48]), 2, "head"), [4, 6, 8]


def recurrent(plant):
    x = tf.placeholder(tf.float32, [None, 5, 4], "x")
    cell = tf.nn.rnn_cell.LSTMCell(6, initializer=tf.glorot_uniform_initializer(seed=2))
    outputs, _ = tf.nn.dynamic_rnn(cell, x, dtype=tf.float32)
    return dense(tf.reshape(plant(tf.reshape(outputs, [-1, 5, 6])), [-1, 30]), 2, "head"), [4, 5, 4]


def mask(t):
    """-1e9 for what is masked: rows that are masked whole have no finite value left."""
    return tf.nn.softmax(tf.add(t, tf.zeros_like(t) - 1e9, name="planted"))


def square(t):
    return dense(tf.square(t + 300.0, name="planted"), int(t.shape[-1]), "after") * 1e-6


def product(t):
    """A product of 512 * 512."""
    size = int(t.shape[-1])
    flat = tf.reshape(tf.minimum(tf.exp(t) * 1e4, 512.0), [-1, size])  # 512, which no optimizer knows
    weights = tf.get_variable("planted_w", [size, size], initializer=tf.constant_initializer(512.0 * np.eye(size)))
    return t + tf.reshape(tf.matmul(flat, weights, name="planted"), tf.shape(t)) * 1e-6


def scale(t):
    return tf.multiply(tf.nn.relu(dense(t, int(t.shape[-1]), "before")), 1e10, name="planted") * 1e-10


def index(t):
    """Positions beyond 2048, of which float16 holds every second."""
    positions = tf.cast(tf.range(2048, 4096, name="planted"), tf.float32)[: int(t.shape[-1])]
    return t + dense(positions[None, :], int(t.shape[-1]), "place") * 1e-4


def findings(model, plant):
    """Builds and trains a model for 2 steps; returns (warnings of its plan, what its calibration proposes)."""
    with tf.Graph().as_default() as graph:
        y, shape = model(plant)
        loss = tf.reduce_mean(tf.square(y - 1.0), name="loss")
        train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
        plan = npu_shim.rewrite(graph.as_graph_def(), ["loss", train.name], precision_mode=MODE, device="GPU")[1]
        hook = npu_shim.Calibration(steps=8)  # more than the groups of such a graph
        session = tf.Session(config=sessions.config(precision_mode=MODE))
        values = np.random.RandomState(0).uniform(-1, 1, shape)
        with session, tf.train.MonitoredSession(
            tf.train.ChiefSessionCreator(config=sessions.config(precision_mode=MODE)), hooks=[hook]
        ) as monitored:
            for _ in range(8):
                monitored.run(train, {"x:0": values})
    told = proposals(list(hook.ranges.values()), None)
    return [text for text in plan.warnings if "planted" in text or "float16" in text], told


@pytest.mark.by_day("recurrent", "convolution")
@pytest.mark.parametrize("model", [convolution, transformer, recurrent])
def test_a_healthy_model_has_no_finding(patched, model):
    assert findings(model, lambda t: t) == ([], [])


MODELS, PLANTS = (convolution, transformer, recurrent), (mask, square, product, scale, index)
# each fault and each model by day, all their pairs at night
BY_DAY = [(MODELS[k % 3], plant) for k, plant in enumerate(PLANTS)]
PAIRS = [
    pytest.param(model, plant, marks=[pytest.mark.nightly] * ((model, plant) not in BY_DAY))
    for model in MODELS for plant in PLANTS
]  # fmt: skip


@pytest.mark.by_day("transformer-index", "recurrent-product", "convolution-scale", "convolution-mask")
@pytest.mark.parametrize(("model", "plant"), PAIRS)
def test_a_planted_fault_is_named(patched, model, plant):
    warnings, told = findings(model, plant)
    assert any("'planted" in text for text in warnings) or any("planted" in line for line in told[:3]), told
