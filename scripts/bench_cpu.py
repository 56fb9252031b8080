"""What mixed precision costs on a CPU: seconds of a training step with and without it, side by side in one process.

    python scripts/bench_cpu.py [MODEL...] [--mode M] [--steps N] [--write FILE]

Both sessions run the same float32 graph, one of them through NpuOptimizer, alternating step by step; medians are
compared. A step is made of a model's loss, its gradients and its optimizer, in the session, without XLA.
"""

import argparse
import statistics
import time

import bench_models
import bench_tables
import numpy as np
import tensorflow.compat.v1 as tf

import npu_shim


def _trained(loss, optimizer):
    step = optimizer.minimize(loss, name="step")
    return [loss.name, step.name]


def _classified(net, classes, hidden):
    labels = tf.placeholder(tf.int32, [net.shape[0]], "labels")
    for units in hidden:
        net = tf.layers.dense(net, units, tf.nn.relu)
    logits = tf.layers.dense(net, classes)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    return loss, ("int32", net.shape[:1], classes)


def digits(batch=64):
    """A small convolution network on 8 by 8 images: (fetches, feeds); feeds are name -> (dtype, shape, bound)."""
    images = tf.placeholder(tf.float32, [batch, 8, 8, 1], "images")
    net = tf.layers.conv2d(images, 16, 3, padding="same", activation=tf.nn.relu)
    net = tf.layers.flatten(tf.layers.max_pooling2d(net, 2, 2))
    loss, labels = _classified(net, 10, [64])
    return _trained(loss, tf.train.AdamOptimizer(1e-3)), {"images:0": ("float32", images.shape, 1), "labels:0": labels}


def lenet(batch=64):
    """LeNet-5 on 28 by 28 images."""
    images = tf.placeholder(tf.float32, [batch, 28, 28, 1], "images")
    net = tf.layers.max_pooling2d(tf.layers.conv2d(images, 32, 5, padding="same", activation=tf.nn.relu), 2, 2)
    net = tf.layers.max_pooling2d(tf.layers.conv2d(net, 64, 5, padding="same", activation=tf.nn.relu), 2, 2)
    loss, labels = _classified(tf.layers.flatten(net), 10, [512])
    return _trained(loss, tf.train.AdamOptimizer(1e-3)), {"images:0": ("float32", images.shape, 1), "labels:0": labels}


def textcnn(batch=32, words=56, vocabulary=5000):
    """Convolutions of three widths over word embeddings, max over time."""
    ids = tf.placeholder(tf.int32, [batch, words], "ids")
    net = tf.expand_dims(tf.nn.embedding_lookup(tf.get_variable("embedding", [vocabulary, 64]), ids), -1)
    parts = []
    for width in (3, 4, 5):
        part = tf.layers.conv2d(net, 128, [width, 64], activation=tf.nn.relu)
        parts.append(tf.nn.max_pool(part, [1, words - width + 1, 1, 1], [1, 1, 1, 1], "VALID"))
    net = tf.nn.dropout(tf.reshape(tf.concat(parts, 3), [batch, 3 * 128]), rate=0.5)
    loss, labels = _classified(net, 2, [])
    feeds = {"ids:0": ("int32", ids.shape, vocabulary), "labels:0": labels}
    return _trained(loss, tf.train.AdamOptimizer(1e-3)), feeds


def dcgan(batch=32, size=32, depth=64):
    """A generator of transposed convolutions and its discriminator, with batch norm; both are trained in one step."""
    noise = tf.placeholder(tf.float32, [batch, 100], "noise")
    images = tf.placeholder(tf.float32, [batch, size, size, 3], "images")

    def discriminator(net):
        for layer in range(3):
            net = tf.layers.conv2d(net, depth * 2**layer, 5, 2, "same")
            net = tf.layers.batch_normalization(net, training=True) if layer else net
            net = tf.nn.leaky_relu(net)
        return tf.layers.dense(tf.layers.flatten(net), 1)

    with tf.variable_scope("generator"):
        net = tf.reshape(tf.layers.dense(noise, size // 8 * size // 8 * depth * 4), [batch, size // 8, size // 8, -1])
        for layer in (2, 1):
            net = tf.nn.relu(tf.layers.batch_normalization(net, training=True))
            net = tf.layers.conv2d_transpose(net, depth * layer, 5, 2, "same")
        net = tf.nn.relu(tf.layers.batch_normalization(net, training=True))
        image = tf.tanh(tf.layers.conv2d_transpose(net, 3, 5, 2, "same"))
    with tf.variable_scope("discriminator"):
        real = discriminator(images)
    with tf.variable_scope("discriminator", reuse=True):
        fake = discriminator(image)

    def crossed(logits, label):
        labels = label * tf.ones_like(logits)
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(logits=logits, labels=labels))

    steps = []
    for scope, loss in (("discriminator", crossed(real, 1) + crossed(fake, 0)), ("generator", crossed(fake, 1))):
        trained = tf.trainable_variables(scope)
        steps.append(tf.train.AdamOptimizer(2e-4, 0.5).minimize(loss, var_list=trained).name)
    feeds = {"noise:0": ("float32", noise.shape, 1), "images:0": ("float32", images.shape, 1)}
    return [loss.name, *steps], feeds


def _of_models(name, **sizes):
    def model():
        built = bench_models.build(name, sizes)
        tf.import_graph_def(built.graph.as_graph_def(), name="")
        return built.fetches, built.feeds

    return model


MODELS = {
    "digits": digits,
    "lenet": lenet,
    "textcnn": textcnn,
    "dcgan": dcgan,
    "bert_tiny": _of_models("bert", batch=16, sequence=64, hidden=128, layers=2, heads=2, vocabulary=5000),
    "lstm": _of_models("lstm", batch=32, time=20, vocabulary=2000, hidden=200, layers=2),
    "resnet50": _of_models("resnet50", batch=16, image=64),
}


def session(graph, mode, init=None):
    """A session on `graph` in a precision mode, or, for None, without the shim; its variables are initialized.

    Args:
        graph: tf.Graph.
        mode: a precision mode, or None.
        init: name of the op that initializes; None runs the variables' own, one by one.
    """
    config = tf.ConfigProto()
    if mode is None:
        npu_shim.unpatch()
    else:
        npu_shim.patch()
        entry = config.graph_options.rewrite_options.custom_optimizers.add()
        entry.name = "NpuOptimizer"
        entry.parameter_map["precision_mode"].s = mode.encode()
        entry.parameter_map["npu_shim_xla"].s = b"off"
    opened = tf.Session(graph=graph, config=config)
    if init is not None:
        opened.run(init)
        return opened
    for node in graph.get_operations():
        if node.type in ("VarHandleOp", "VariableV2"):
            opened.run(node.name + "/Assign")
    return opened


def values(feeds, seed=0):
    """Random values for a model's feeds."""
    random = np.random.RandomState(seed)
    return {name: random.uniform(0, bound or 1, shape).astype(dtype) for name, (dtype, shape, bound) in feeds.items()}


def seconds(name, mode, steps):
    """((median, best), (median, best)) seconds of a step without the shim and in a mode, and the number of nodes.

    Args:
        name: key of MODELS.
        mode: a precision mode.
        steps: how many steps are timed at most; a slow model takes fewer.
    """
    with tf.Graph().as_default() as graph:
        fetches, feeds = MODELS[name]()
    given = values(feeds)
    sessions = {chosen: session(graph, chosen) for chosen in (None, mode)}
    taken = {None: [], mode: []}
    begin = time.perf_counter()
    while len(taken[mode]) < steps and (len(taken[mode]) < 5 or time.perf_counter() - begin < LONGEST):
        for chosen, opened in sessions.items():
            start = time.perf_counter()
            opened.run(fetches, given)
            taken[chosen].append(time.perf_counter() - start)
    both = [(statistics.median(taken[which][2:]), min(taken[which])) for which in (None, mode)]
    return both, len(graph.get_operations())


TITLE = ["# Training steps on a CPU, in mixed precision and in float32", ""]
LONGEST = 30.0  # seconds a model, once it has made five steps


def row(name, mode, steps):
    """The cells of a model's row, see `seconds`."""
    ((plain, best), (mixed, best_mixed)), nodes = seconds(name, mode, steps)
    times = (plain * 1e3, mixed * 1e3), (mixed / plain, best_mixed / best)
    return [name, str(nodes), *("%.1f" % time for time in times[0]), *("%.2f" % ratio for ratio in times[1])]


def main():
    """Measures, prints, and writes the result where --write says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help="some of %s; without any, all" % ", ".join(MODELS))
    parser.add_argument("--mode", default="allow_mix_precision", help="precision mode")
    parser.add_argument("--steps", type=int, default=60, help="steps at most")
    parser.add_argument("--write", help="file for the result")
    args = parser.parse_args()
    unknown = set(args.models) - set(MODELS)
    if unknown:
        parser.error("no model '%s'; there are %s" % (min(unknown), ", ".join(MODELS)))
    columns = ["model", "nodes", "float32 ms", "%s ms" % args.mode, "ratio", "of the best steps"]
    names = args.models or MODELS
    bench_tables.table(columns, (row(name, args.mode, args.steps) for name in names), args.write, TITLE)


if __name__ == "__main__":
    main()
