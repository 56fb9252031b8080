"""The cases of TensorFlow's Python suite of its mixed-precision pass, built anew: in profile grappler, where the pass
itself answers as well, and in ascend910, whose rule lowers the same products and convolutions.
"""

import grappler_oracle as oracle
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from grappler_suite import PROFILES, Case, const, values, version_1_graph
from tensorflow.python.framework import function  # noqa: TID251  # functions that are never inlined have no public API

ROUNDING = 2.0**-11  # of float16
# of a few layers with sums of some dozens of terms, relative to outputs of about one
LAYERS = {"rtol": 64 * ROUNDING, "atol": 64 * ROUNDING}


@pytest.fixture(autouse=True)
def graph():
    oracle.available()
    with version_1_graph() as built:
        yield built


@pytest.fixture(params=PROFILES)
def profile(request):
    return request.param


def weight(*shape):
    return tf.constant(values(*shape, low=-0.3, high=0.3))


def conv(x, out=4, name=None):
    return tf.nn.conv2d(x, weight(3, 3, int(x.shape[-1]), out), 1, "SAME", name=name)


def batch_norm(x):
    ones, zeros = tf.ones(x.shape[-1:]), tf.zeros(x.shape[-1:])
    return tf.nn.fused_batch_norm(x, ones, zeros, is_training=True)[0]


def conv_bn(x):
    return batch_norm(conv(x))


def conv_pool(x):
    y = tf.nn.relu(tf.nn.bias_add(conv(x), weight(4)))
    return tf.nn.max_pool2d(y, 2, 2, "SAME")


def image(channels=3):
    return const(values(2, 8, 8, channels), "image")


def trained(loss, *inputs):
    """The loss and its gradients, as fetches."""
    return [tf.identity(t) for t in [loss, *tf.gradients(loss, list(inputs))]]


def finished(case, profile, casts=None, **tolerances):
    """What every case ends with: the pass does the same, casts are as many, and the values are those of float32."""
    if profile == "grappler":
        case.agrees_with_the_pass()
        assert casts in (None, case.casts)
    return case.computes_the_same(**(tolerances or LAYERS))


def test_conv_bn(graph, profile):
    case = Case(graph, [tf.identity(conv_bn(conv_bn(image())))], profile)
    case.low("Conv2D", "FusedBatchNormV3", "Conv2D_1")
    # data and two filters down; the second batch norm follows no white op any more, so its input comes up
    finished(case, profile, (3, 1))


def conv3d(x, out=3):
    return tf.nn.conv3d(x, weight(2, 2, 2, int(x.shape[-1]), out), [1] * 5, "SAME")


def test_conv3d(graph, profile):
    x, kernel = const(values(1, 4, 4, 4, 2), "volume"), const(values(2, 2, 2, 2, 3), "kernel")
    y = tf.nn.conv3d(x, kernel, [1] * 5, "SAME")
    case = Case(graph, trained(tf.reduce_sum(tf.tanh(y)), x, kernel), profile)
    case.low("Conv3D", *(n.name for n in case.rewritten.node if n.op.startswith("Conv3DBackprop")))
    if profile == "grappler":
        case.agrees_with_the_pass()


def test_conv3d_bn(graph, profile):
    def block(x):
        y = conv3d(x)
        return tf.reshape(batch_norm(tf.reshape(y, [4, 4, 4, 3])), y.shape)

    case = Case(graph, [tf.identity(block(block(const(values(1, 4, 4, 4, 2), "volume"))))], profile)
    case.low("Conv3D", "FusedBatchNormV3", "Conv3D_1")
    finished(case, profile, (3, 1))


def test_conv_bn_dropout(graph, profile):
    x = image()
    y = conv_bn(x)
    mask = const((values(2, 8, 8, 4) > 0).astype(np.float32), "mask")  # a dropout that two runs have in common
    y = conv_bn(tf.add(y * 2.0 * mask, 1.0, name="addition"))
    case = Case(graph, trained(tf.reduce_mean(y * values(2, 8, 8, 4)), x), profile)
    case.low("Conv2D", "FusedBatchNormV3", "addition", "Conv2D_1")
    finished(case, profile)


def test_conv_pool(graph, profile):
    case = Case(graph, [tf.identity(conv_pool(conv_pool(image())))], profile)
    case.low("Conv2D", "Relu", "MaxPool2d", "Conv2D_1")
    finished(case, profile, (4, 1))


def test_depthwise_conv2d(graph, profile):
    y = tf.nn.depthwise_conv2d(image(), weight(3, 3, 3, 2), [1] * 4, "SAME")
    case = Case(graph, [tf.identity(y)], profile)
    case.low("depthwise")
    finished(case, profile, (2, 1))


def repeated(body, variables):
    return tf.while_loop(lambda i, *_: i < 4, lambda i, *v: (i + 1, *body(*v)), [tf.constant(0), *variables])[1:]


def test_simple_loop(graph, profile):
    x = const(values(8, 8), "x")

    def body(y):
        for _ in range(4):
            y = tf.nn.relu(tf.matmul(y, weight(8, 8)))
        return [y]

    [y] = repeated(body, [x])
    case = Case(graph, trained(tf.reduce_sum(y), x), profile)
    case.low("while/MatMul", "while/Relu", "while/MatMul_3", "while/Relu_3")
    finished(case, profile)


def test_a_loop_with_variables_that_change_places(graph, profile):
    x = const(values(8, 8), "x")

    def body(j, a, b):
        return j - 1, tf.nn.relu(tf.matmul(b, weight(8, 8))), tf.nn.relu(tf.matmul(a, weight(8, 8)))

    _, a, b = repeated(body, [tf.constant(9), x, x + 1.0])
    case = Case(graph, trained(tf.reduce_sum(a + b), x), profile)
    case.low("while/MatMul", "while/Relu", "while/MatMul_1", "while/Relu_1")
    finished(case, profile)


def test_multi_paths(graph, profile):
    x = image()
    towers = [conv_pool(conv_pool(part)) for part in tf.split(conv(x, 6), 3, 3)]
    case = Case(graph, trained(tf.reduce_sum(tf.concat(towers, 3) ** 2), x), profile)
    case.low("split", *("Conv2D_%d" % k for k in range(1, 7)), "Relu", "Relu_2", "Relu_4", "MaxPool2d", "MaxPool2d_2")
    finished(case, profile, rtol=64 * ROUNDING, atol=512 * ROUNDING)


def test_multi_paths_2(graph, profile):
    x = const(values(8, 8), "x")
    branches = [tf.nn.relu(tf.matmul(x, weight(8, 8))) for _ in range(2)]
    case = Case(graph, trained(tf.reduce_sum(tf.add_n([x, *branches]) ** 2), x), profile)
    case.low("MatMul", "Relu", "MatMul_1", "Relu_1")
    finished(case, profile)


def test_recurrent_lstm(graph, profile):
    """A cell written by hand on a TensorArray: low in the loop, though TensorArrays themselves are float32 in 2.15."""
    inputs = tf.TensorArray(tf.float32, 4).unstack(const(values(4, 2, 8), "x"))
    kernel = const(values(16, 32, low=-0.3, high=0.3), "kernel")

    def body(i, c, h):
        gates = tf.matmul(tf.concat([inputs.read(i), h], 1), kernel)
        g, f, o, u = tf.split(gates, 4, 1)
        c = tf.sigmoid(f) * c + tf.sigmoid(g) * tf.tanh(u)
        return i + 1, c, tf.sigmoid(o) * tf.tanh(c)

    zeros = tf.zeros([2, 8])
    _, _, h = tf.while_loop(lambda i, *_: i < 4, body, [tf.constant(0), zeros, zeros])
    case = Case(graph, trained(tf.reduce_sum(h), kernel), profile)
    case.low(*("while/" + name for name in ("concat", "MatMul", "split", "Sigmoid", "Sigmoid_2")))
    case.low("while/Tanh" if profile == "ascend910" else "while/Tanh_1")
    finished(case, profile)


def product(x):
    return tf.matmul(x, weight(8, 8))


def addition(x):
    return tf.raw_ops.AddV2(x=x, y=weight(8, 8))


def rectified(x):
    return tf.nn.relu(x)


def power(x):
    return tf.pow(tf.pow(x, 2.0), 2.0)


LETTERS = {"w": product, "g": addition, "c": rectified, "b": power}
# before the loop, in its body, behind it; capital letters are low in the end
LOOPS = ["W,C,C", "C,C,W", "W,G,W", "W,gbg,W", "b,gWC,c", "b,CWCG,C", "C,GWCG,C", "C,CgbgWC,g"]


@pytest.mark.parametrize("pattern", LOOPS)
def test_propagation_through_a_loop(graph, profile, pattern):
    before, inside, behind = pattern.split(",")
    x = const(values(8, 8, low=0.0, high=0.3), "x")
    lows = {}

    def applied(x, letters, scope):
        for number, letter in enumerate(letters):
            where = "%s%d%s" % (scope, number, letter.lower())
            with tf.name_scope(where):
                x = LETTERS[letter.lower()](x)
            lows[x.op.name] = letter.isupper()
        return x

    y = applied(x, before, "before")
    [y] = repeated(lambda y: [applied(y, inside, "inside")], [y])
    y = applied(y, behind, "behind")
    case = Case(graph, [tf.identity(y)], profile)
    if profile == "grappler":
        case.low(*(name for name in lows if lows[name]))
        case.high(*(name for name in lows if not lows[name]))
    else:
        case.low(*(name for name in lows if name.endswith("MatMul")))
        case.high(*(name for name in lows if name.endswith("Pow_1")))
    finished(case, profile)


def test_a_function_that_is_not_inlined(graph, profile):
    """A call in the middle, whose gradient is a function too: the pass must live with it."""

    @function.Defun(tf.float32, tf.float32, noinline=True)
    def swish_gradient(x, dy):
        s = tf.sigmoid(x)
        return dy * (s * (1.0 + x * (1.0 - s)))

    @function.Defun(tf.float32, noinline=True, grad_func=swish_gradient, shape_func=lambda op: [op.inputs[0].shape])
    def swish(x):
        return x * tf.sigmoid(x)

    x = const(values(8, 8), "x")
    y = swish(tf.nn.relu(tf.matmul(x, weight(8, 8))))
    case = Case(graph, trained(tf.reduce_sum(y * y), x), profile)
    case.low("MatMul", "gradients/MatMul_grad/MatMul")
    case.computes_the_same(**LAYERS)


def test_a_training_loop_in_the_graph(graph, profile):
    """Adam steps on reference variables in a while loop: what is read is never older than what was written."""
    features, labels = values(16, 8), (values(16) > 0).astype(np.int32)

    with tf.variable_scope("net", use_resource=False):
        kernel = tf.get_variable("kernel", [8, 2], initializer=tf.constant_initializer(0.1))
        bias = tf.get_variable("bias", [2], initializer=tf.zeros_initializer())
    optimizer = tf.train.AdamOptimizer(0.05)

    def step(i, _):
        logits = tf.matmul(tf.constant(features), kernel) + bias
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        with tf.control_dependencies([optimizer.minimize(loss)]):
            return i + 1, tf.identity(loss)

    _, loss = tf.while_loop(lambda i, _: i < 50, step, [0, 0.0], parallel_iterations=1)
    init = tf.global_variables_initializer()
    case = Case(graph, [tf.identity(loss)], profile)
    products = [n.name for n in case.rewritten.node if n.op == "MatMul" and n.name.startswith("while/")]
    assert len(products) >= 2
    # what reads a reference variable that its loop writes stays float32: a cast could be of its value from before. The
    # pass casts it, and profile grappler is right to differ
    case.low(*(name for name in products if name.endswith("MatMul_1")))
    # fifty steps of Adam, each of which moves every weight by 0.05 at most: the losses part by less than that times
    # the few roundings of a step
    plain, _ = case.computes_the_same(8 * ROUNDING, 8 * ROUNDING, init=init.name)
    assert plain[0] < 0.6  # it has learned something


def test_a_product_that_float16_cannot_hold(graph, profile):
    """The behaviour that shows from outside: 2**10 times 2**10 becomes infinite in float16, and only there."""
    big = const(np.full([4, 4], 2.0**10, np.float32), "x")
    case = Case(graph, [tf.identity(tf.matmul(big, big))], profile)
    case.low("MatMul")
    if profile == "grappler":
        case.agrees_with_the_pass()
    plain, mixed = case.run_both()
    assert np.all(plain[0] == 2.0**22)
    assert np.all(np.isinf(mixed[0]))
