"""Losses of training in low precision: low inputs, sums that lose nothing, one rounding; in a session and compiled.

The reference is the graph that is planned for a GPU, each of its low-precision ops computed in float64 from the low
inputs, the result rounded once to the low dtype. A GPU's matrix units differ from it by the last bits of float32 sums.
A session on a CPU runs slow kernels in float32 between roundings; compile_step gives XLA the low ops themselves, whose
CPU code sums in float32 too and may leave out a rounding between two ops of one fusion.
"""

import collections

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.rewriter import tf_internals

STEPS = 12
DEVICE = "GPU" if tf.__version__.startswith("1.") else "XLA"  # all low; XLA is asked of TensorFlow 2.15 only
LOW = {tf.float16.as_datatype_enum: tf.float16, tf.bfloat16.as_datatype_enum: tf.bfloat16}
# what computes; the others hand on values, or shapes
COMPUTES = frozenset([
    "MatMul", "BatchMatMulV2", "Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", "BiasAdd", "BiasAddGrad",
    "AddV2", "Add", "AddN", "Sub", "Mul", "RealDiv", "Neg", "Sum", "Mean", "Tanh", "TanhGrad", "Sigmoid", "SigmoidGrad",
    "Relu", "ReluGrad", "MaxPool", "MaxPoolGrad", "Square",
])  # fmt: skip
EPSILON = {tf.float16: 2.0**-11, tf.bfloat16: 2.0**-8}
MODES = {"allow_mix_precision": tf.float16, "allow_mix_precision_bf16": tf.bfloat16}


def exactly(graph_def):
    """Returns a copy of a low-precision GraphDef whose low ops compute in float64 and round their results once."""
    copy = tf.GraphDef(versions=graph_def.versions, library=graph_def.library)
    for node in graph_def.node:
        low = node.attr["T"].type if node.op in COMPUTES else None
        assert low or node.op not in COMPUTES
        if low not in LOW:
            copy.node.add().CopyFrom(node)
            continue
        definition = tf_internals.op_defs()[node.op]
        wide = copy.node.add()
        wide.CopyFrom(node)
        wide.name += "/exact"
        wide.attr["T"].type = tf.float64.as_datatype_enum
        typed = [arg.type_attr == "T" for arg in definition.input_arg for _ in range(_count(node, arg))]
        for k, is_low in enumerate(typed):
            if is_low:
                wide.input[k] = _cast(copy, "%s/up%d" % (node.name, k), node.input[k], low, tf.float64.as_datatype_enum)
        _cast(copy, node.name, wide.name, tf.float64.as_datatype_enum, low)
    return copy


def _count(node, argument):
    return node.attr[argument.number_attr].i if argument.number_attr else 1


def _cast(graph_def, name, source, before, after):
    cast = graph_def.node.add(name=name, op="Cast", input=[source])
    cast.attr["SrcT"].type, cast.attr["DstT"].type = before, after
    return name


def variable(name, *shape):
    values = np.random.RandomState(sum(map(ord, name))).normal(size=shape) * (2.0 / np.prod(shape[:-1])) ** 0.5
    return tf.get_variable(name, initializer=values.astype("f"), use_resource=True)


def dense(x):
    """4,096 terms a sum: added up in float16 they would lose four of its eleven bits."""
    hidden = tf.nn.relu(tf.matmul(x, variable("w1", 4096, 64)) + variable("b1", 64))
    return tf.matmul(hidden, variable("w2", 64, 10))


def conv(x):
    net = tf.reshape(x, [16, 8, 8, 64])
    net = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(net, variable("k1", 3, 3, 64, 32), 1, "SAME"), variable("c1", 32)))
    net = tf.nn.max_pool2d(tf.nn.conv2d(net, variable("k2", 3, 3, 32, 32), 2, "SAME"), 2, 2, "SAME")
    return tf.matmul(tf.reshape(net, [16, 128]), variable("w", 128, 10))


def lstm(x):
    output, state = tf.zeros([16, 64]), tf.zeros([16, 64])
    kernel, bias = variable("kernel", 192, 256), variable("bias", 256)
    for step in tf.split(tf.reshape(x, [16, 32, 128])[:, :4], 4, axis=1):
        gates = tf.matmul(tf.concat([tf.squeeze(step, 1), output], 1), kernel) + bias
        i, j, f, o = tf.split(gates, 4, axis=1)
        state = state * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
        output = tf.tanh(state) * tf.sigmoid(o)
    return tf.matmul(output, variable("w", 64, 10))


def attention(x):
    words = tf.reshape(x, [16, 32, 128])
    flat = tf.reshape(words, [512, 128])
    q, k, v = [tf.reshape(tf.matmul(flat, variable(name, 128, 64)), [16, 32, 64]) for name in ("q", "k", "v")]
    attended = tf.matmul(tf.nn.softmax(tf.matmul(q, k, transpose_b=True) / 8.0), v)
    return tf.matmul(tf.reduce_mean(attended, axis=1), variable("w", 64, 10))


MODELS = {model.__name__: model for model in (dense, conv, lstm, attention)}


# in units of a relative rounding. In the first step, a result lies between two neighbours for another order of sums,
# and a fusion of XLA leaves out some roundings; then weights differ too, and a ReLU passes what it did not
Limits = collections.namedtuple("Limits", "loss logits")
FIRST, LAST = Limits(1, 3), Limits(3, 8)
RATES = {"dense": 0.02, "conv": 0.005, "lstm": 0.05, "attention": 0.05}
FETCHES = ["loss:0", "logits:0", "step"]


class Training:
    """Losses (float64 [STEPS]) and logits (float64 [STEPS, 16, 10]) of STEPS calls, each with a batch of its own."""

    def __init__(self, call):
        random = np.random.RandomState(0)
        images = random.normal(size=[4, 16, 4096]).astype("f")
        labels = random.randint(0, 10, [4, 16]).astype("i")
        steps = [call({"x:0": images[n % 4], "y:0": labels[n % 4]}) for n in range(STEPS)]
        self.losses, self.logits = (np.array([step[k] for step in steps], "f8") for k in (0, 1))

    def off(self, exact, eps):
        """How far losses and logits are from the reference's, in units of a relative rounding: two arrays [STEPS]."""
        moved = np.linalg.norm(self.logits - exact.logits, axis=(1, 2)) / np.linalg.norm(exact.logits, axis=(1, 2))
        return np.abs(self.losses / exact.losses - 1) / eps, moved / eps


def in_session(graph, config=None):
    """Trains in a session, without the shim where there is no config."""
    if config is None:
        config = tf.ConfigProto()
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        npu_shim.unpatch()
    else:
        npu_shim.patch()
    with tf.Session(graph=graph, config=config) as session:
        session.run("init")
        return Training(lambda feeds: session.run(FETCHES, feeds))


def built(model):
    """Returns the graph that trains a model."""
    with tf.Graph().as_default() as graph:
        x, y = tf.placeholder(tf.float32, [16, 4096], "x"), tf.placeholder(tf.int32, [16], "y")
        logits = tf.identity(MODELS[model](x), "logits")
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits), name="loss")
        tf.train.GradientDescentOptimizer(RATES[model]).minimize(loss, name="step")
        tf.global_variables_initializer()
    return graph


def low_graph(graph, mode):
    """Returns the GraphDef that is planned for a GPU."""
    return npu_shim.rewrite(graph.as_graph_def(), [*FETCHES, "init"], precision_mode=mode, device=DEVICE)[0]


def imported(graph_def):
    """Returns a graph of a GraphDef."""
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
    return graph


@pytest.mark.by_day(
    "lstm-allow_mix_precision_bf16", "conv-allow_mix_precision", "attention-allow_mix_precision",
    "dense-allow_mix_precision_bf16"
)  # fmt: skip
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("model", MODELS)
def test_losses_are_those_of_low_inputs_and_exact_sums(model, mode):
    graph, eps = built(model), EPSILON[MODES[mode]]
    exact = in_session(imported(exactly(low_graph(graph, mode))))
    ways = {"session": in_session(graph, sessions.config(precision_mode=mode))}
    if not tf.__version__.startswith("1."):
        step = npu_shim.compile_step(graph, FETCHES, ["x:0", "y:0"], initializer="init", precision_mode=mode)
        ways["compiled"] = Training(step)
    for way, runs in ways.items():
        losses, logits = runs.off(exact, eps)
        assert (losses[0] < FIRST.loss, logits[0] < FIRST.logits) == (True, True), way
        assert (losses.max() < LAST.loss, logits.max() < LAST.logits) == (True, True), way
    assert exact.losses[-1] < exact.losses[0]


@pytest.mark.skipif(tf.__version__ >= "2.2", reason="float16 kernels of TensorFlow 2.2 and later sum in float32")
def test_sums_in_float16_would_be_seen():
    """TensorFlow's own float16 kernels on the same graph: off by more than what the test above lets pass."""
    low = low_graph(built("dense"), "allow_mix_precision")
    losses, logits = in_session(imported(low)).off(in_session(imported(exactly(low))), EPSILON[tf.float16])
    assert losses[0] > FIRST.loss
    assert logits[0] > FIRST.logits
