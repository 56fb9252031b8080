"""The benchmark's models in TensorFlow 1: ResNet-50, BERT and an LSTM language model at any size.

Each is written as scripts of that time are, in float32, with its optimizer; how it is lowered is the rewriter's
business. Sources: ResNet v1.5 (stride in the 3x3 convolution), BERT (Devlin et al. 2018, sequence classification),
word-level LSTM (Zaremba et al. 2014). None has dropout, so that every form of a model computes the same.
"""

from typing import Any, Dict, List, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.loss_scale import ExponentialUpdateLossScaleManager, LossScaleOptimizer

SMALL = 64  # variables of at most so many values are described by their values


class Weights:
    """Makes variables, and remembers how each is initialized: name -> (mean, standard deviation)."""

    def __init__(self):
        self.rules = {}

    def __call__(self, name, shape, deviation, mean=0.0, trainable=True):
        """Returns a resource variable of normally distributed values."""
        initializer = tf.random_normal_initializer(mean, deviation) if deviation else tf.constant_initializer(mean)
        variable = tf.get_variable(name, shape, tf.float32, initializer, trainable=trainable, use_resource=True)
        self.rules[variable.op.name] = (mean, deviation)
        return variable


def resnet50(weights, batch=128, image=224, width=64, blocks=(3, 4, 6, 3), classes=1000):
    """Returns (loss, feeds) of ResNet-50 v1.5; feeds is name -> (dtype, shape, bound), integers below `bound`."""
    images = tf.placeholder(tf.float32, [batch, image, image, 3], "images")
    labels = tf.placeholder(tf.int32, [batch], "labels")
    net = tf.nn.relu(_normed(weights, "stem", _conv(weights, "stem", images, 7, width, 2)))
    net = tf.nn.max_pool2d(net, 3, 2, "SAME")
    for stage, count in enumerate(blocks):
        for block in range(count):
            stride = 2 if stage and not block else 1
            net = _bottleneck(weights, "stage%d/block%d" % (stage, block), net, width * 2**stage, stride)
    net = tf.reduce_mean(net, [1, 2])
    logits = _dense(weights, "logits", net, classes, 0.01)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    decayed = [tf.nn.l2_loss(v) for v in tf.trainable_variables() if v.op.name.endswith("kernel")]
    feeds = {"images:0": ("float32", images.shape, None), "labels:0": ("int32", labels.shape, classes)}
    return loss + 1e-4 * tf.add_n(decayed), feeds


def _bottleneck(weights, name, net, width, stride):
    out = 4 * width
    short = net
    if stride != 1 or int(net.shape[-1]) != out:
        short = _normed(weights, name + "/short", _conv(weights, name + "/short", net, 1, out, stride))
    for layer, (size, channels, step) in enumerate(((1, width, 1), (3, width, stride), (1, out, 1))):
        part = "%s/conv%d" % (name, layer)
        net = _normed(weights, part, _conv(weights, part, net, size, channels, step))
        net = tf.nn.relu(net if layer < 2 else net + short)
    return net


def _conv(weights, name, net, size, channels, stride):
    fan_in = size * size * int(net.shape[-1])
    kernel = weights(name + "/kernel", [size, size, int(net.shape[-1]), channels], (2.0 / fan_in) ** 0.5)
    return tf.nn.conv2d(net, kernel, stride, "SAME")


def _normed(weights, name, net):
    channels = [int(net.shape[-1])]
    scale, offset = weights(name + "/gamma", channels, 0.0, 1.0), weights(name + "/beta", channels, 0.0)
    means = weights(name + "/moving_mean", channels, 0.0, trainable=False)
    variances = weights(name + "/moving_variance", channels, 0.0, 1.0, trainable=False)
    net, mean, variance = tf.nn.fused_batch_norm(net, scale, offset, epsilon=1e-5)
    for moving, now in ((means, mean), (variances, variance)):
        tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, moving.assign_sub(0.1 * (moving - now)))
    return net


def bert(weights, batch=32, sequence=128, hidden=1024, layers=24, heads=16, vocabulary=30522, classes=2):
    """Returns (loss, feeds) of BERT for sequence classification; the defaults are BERT-large's."""
    ids = tf.placeholder(tf.int32, [batch, sequence], "input_ids")
    mask = tf.placeholder(tf.int32, [batch, sequence], "input_mask")
    labels = tf.placeholder(tf.int32, [batch], "labels")
    net = tf.gather(weights("embeddings/word", [vocabulary, hidden], 0.02), ids)
    net += weights("embeddings/position", [sequence, hidden], 0.02)
    net = tf.reshape(_layer_normed(weights, "embeddings/norm", net), [-1, hidden])
    bias = (1.0 - tf.cast(tf.reshape(mask, [-1, 1, 1, sequence]), tf.float32)) * -10000.0
    for layer in range(layers):
        name = "layer%d/" % layer
        context = _attention(weights, name, net, bias, (-1, sequence, heads, hidden // heads))
        net = _layer_normed(weights, name + "norm1", net + _dense(weights, name + "output", context, hidden))
        wide = _gelu(_dense(weights, name + "wide", net, 4 * hidden))
        net = _layer_normed(weights, name + "norm2", net + _dense(weights, name + "narrow", wide, hidden))
    first = tf.reshape(net, [-1, sequence, hidden])[:, 0]
    logits = _dense(weights, "classes", tf.tanh(_dense(weights, "pooler", first, hidden)), classes)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    tokens = [batch, sequence]
    feeds = {"input_ids:0": ("int32", tokens, vocabulary), "input_mask:0": ("int32", tokens, 2)}
    return loss, dict(feeds, **{"labels:0": ("int32", [batch], classes)})


def _attention(weights, name, net, bias, sizes):
    batch, sequence, heads, size = sizes
    query, key, value = (
        tf.transpose(tf.reshape(_dense(weights, name + part, net, heads * size), [batch, sequence, heads, size]),
                     [0, 2, 1, 3])
        for part in ("query", "key", "value")
    )  # fmt: skip
    scores = tf.matmul(query, key, transpose_b=True) * size**-0.5 + bias
    context = tf.matmul(tf.nn.softmax(scores), value)
    return tf.reshape(tf.transpose(context, [0, 2, 1, 3]), [-1, heads * size])


def _gelu(net):
    return net * 0.5 * (1.0 + tf.tanh(np.sqrt(2 / np.pi).astype(np.float32) * (net + 0.044715 * tf.pow(net, 3))))


def _layer_normed(weights, name, net):
    size = [int(net.shape[-1])]
    mean, variance = tf.nn.moments(net, [-1], keep_dims=True)
    gamma, beta = weights(name + "/gamma", size, 0.0, 1.0), weights(name + "/beta", size, 0.0)
    return tf.nn.batch_normalization(net, mean, variance, beta, gamma, 1e-12)


def _dense(weights, name, net, units, deviation=0.02):
    kernel = weights(name + "/kernel", [int(net.shape[-1]), units], deviation)
    return tf.nn.bias_add(tf.matmul(net, kernel), weights(name + "/bias", [units], 0.0))


def lstm(weights, batch=64, time=64, vocabulary=10000, hidden=1024, layers=2):
    """Returns (loss, feeds) of a word-level LSTM language model; its loop is TensorFlow 1's while loop."""
    ids = tf.placeholder(tf.int32, [batch, time], "ids")
    targets = tf.placeholder(tf.int32, [batch, time], "targets")
    net = tf.transpose(tf.gather(weights("embedding", [vocabulary, hidden], 0.05), ids), [1, 0, 2])
    for layer in range(layers):
        name = "lstm%d/" % layer
        # read once, outside the loop, as dynamic_rnn has them read
        kernel = tf.identity(weights(name + "kernel", [2 * hidden, 4 * hidden], 0.05))
        bias = tf.identity(weights(name + "bias", [4 * hidden], 0.0))
        net = _lstm_layer(net, kernel, bias, (time, batch, hidden))
    logits = _dense(weights, "logits", tf.reshape(net, [time * batch, hidden]), vocabulary, 0.05)
    wanted = tf.reshape(tf.transpose(targets), [time * batch])
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=wanted, logits=logits))
    tokens = ("int32", [batch, time], vocabulary)
    return loss, {"ids:0": tokens, "targets:0": tokens}


def _lstm_layer(net, kernel, bias, sizes):
    """One LSTM layer over [time, batch, hidden], as tf.nn.dynamic_rnn unrolls it: TensorArrays in a while loop."""
    time, batch, hidden = sizes
    given = tf.TensorArray(tf.float32, time, element_shape=[batch, hidden]).unstack(net)
    outputs = tf.TensorArray(tf.float32, time, element_shape=[batch, hidden])

    def body(step, cell, out, outputs):
        gates = tf.nn.bias_add(tf.matmul(tf.concat([given.read(step), out], 1), kernel), bias)
        enter, new, forget, leave = tf.split(gates, 4, 1)
        cell = cell * tf.sigmoid(forget + 1.0) + tf.sigmoid(enter) * tf.tanh(new)
        out = tf.tanh(cell) * tf.sigmoid(leave)
        return step + 1, cell, out, outputs.write(step, out)

    zeros = tf.zeros([batch, hidden])
    outputs = tf.while_loop(lambda step, *_: step < time, body, (0, zeros, zeros, outputs), maximum_iterations=time)[3]
    return tf.reshape(outputs.stack(), [time, batch, hidden])


def images(weights, batch=128, image=224, classes=10):
    """Returns (loss, feeds) of a regression on colours: little work for 77 MB of images, so that copies show."""
    given = tf.placeholder(tf.float32, [batch, image, image, 3], "images")
    labels = tf.placeholder(tf.int32, [batch], "labels")
    logits = _dense(weights, "logits", tf.reduce_mean(given, [1, 2]), classes)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    return loss, {"images:0": ("float32", given.shape, None), "labels:0": ("int32", labels.shape, classes)}


class Built(NamedTuple):
    """A training step.

    Attributes:
        graph: tf.Graph.
        fetches: names of the loss and of the operation that trains.
        feeds: name -> (dtype, shape, bound), see the models.
        rules: variable name -> ["normal", mean, deviation] or ["values", list]: how it is initialized.
        own: names of the variables that are the model's, not the optimizer's.
    """

    graph: tf.Graph
    fetches: List[str]
    feeds: Dict[str, Any]
    rules: Dict[str, Any]
    own: List[str]


# name -> (model, its optimizer)
MODELS = {
    "resnet50": (resnet50, lambda: tf.train.MomentumOptimizer(0.01, 0.9)),
    "bert": (bert, lambda: tf.train.AdamOptimizer(1e-4)),
    "lstm": (lstm, lambda: tf.train.AdamOptimizer(1e-3)),
    "images": (images, lambda: tf.train.MomentumOptimizer(0.01, 0.9)),
}


def build(name, sizes, scaled=False):
    """Builds a model's training step in a graph of its own.

    Args:
        name: key of MODELS.
        sizes: keyword arguments of the model; a batch of None, of resnet50 and bert, is open.
        scaled: with dynamic loss scaling, which float16 needs.

    Returns:
        Built.
    """
    model, optimizer = MODELS[name]
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(1)
        weights = Weights()
        loss, feeds = model(weights, **sizes)
        loss = tf.identity(loss, "loss")
        inner = optimizer()
        if scaled:
            manager = ExponentialUpdateLossScaleManager(2.0**15, 1000, 2, 2, 0.5)
            inner = LossScaleOptimizer(inner, manager, on_stuck="ignore")
        step = inner.minimize(loss)
        with tf.control_dependencies([step, *tf.get_collection(tf.GraphKeys.UPDATE_OPS)]):
            tf.no_op("train")
        tf.global_variables_initializer()
        rules = _rules(weights.rules)
    feeds = {key: (dtype, tf.TensorShape(shape).as_list(), bound) for key, (dtype, shape, bound) in feeds.items()}
    return Built(graph, ["loss:0", "train"], feeds, rules, sorted(weights.rules))


def _rules(given):
    variables = {v.op.name: v for v in tf.global_variables()}
    small = {name: v.initial_value for name, v in variables.items() if v.shape.num_elements() <= SMALL}
    with tf.Session() as session:
        values = session.run(small)
    rules = {name: ["normal", *given.get(name, (0.0, 0.0))] for name in variables}
    rules.update((name, ["values", np.asarray(value).tolist()]) for name, value in values.items())
    return rules
