"""Compiled training steps of embeddings and of graphs, beside a session."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf
from compiled_steps import assert_as_in_a_session

import npu_shim
from npu_shim.loss_scale import FixedLossScaleManager, LossScaleOptimizer

pytestmark = [*sessions.COMPILED, pytest.mark.usefixtures("control_flow_of_version_1")]
ROWS, COLUMNS, IDS = 20, 4, 12
EPS = 2.0**-23


def table(name, use_resource, columns=COLUMNS):
    start = np.random.RandomState(len(name)).randn(ROWS, columns).astype("f")
    return tf.get_variable(name, initializer=start, use_resource=use_resource)


def steps(graph, fetches, feeds, count=3):
    """Holds compiled steps against a session's."""
    local = graph.get_collection(tf.GraphKeys.LOCAL_VARIABLES)
    init = ["init", *(variable.initializer for variable in local)]
    batches = [feeds[number % len(feeds)] for number in range(count)]
    assert_as_in_a_session(graph, fetches, batches, init, 256 * EPS, 256 * EPS)


def batches(*names):
    draw = np.random.RandomState(5)
    return [{name: draw.randint(0, ROWS, IDS) for name in names} for _ in range(2)]


OPTIMIZERS = {
    "adagrad": lambda: tf.train.AdagradOptimizer(0.1),
    "ftrl": lambda: tf.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
    "adam": lambda: tf.train.AdamOptimizer(0.01),
}


def sums_by_row(name, ids, optimizer, use_resource=True):
    """(loss, train, gradient of the table, which has a row for each different index: SparseSegment*GradV2)."""
    e, segments = table(name, use_resource), np.arange(IDS, dtype=np.int32) // 3
    given = {"data": tf.convert_to_tensor(e), "indices": ids, "segment_ids": segments, "num_segments": 4}
    sums = [getattr(tf.raw_ops, "SparseSegment%sWithNumSegments" % kind) for kind in ("Sum", "Mean", "SqrtN")]
    loss = tf.reduce_sum(tf.square(tf.concat([op(sparse_gradient=True, **given) for op in sums], 1) - 1.0))
    (gradient,) = tf.gradients(loss, e)
    return loss, optimizer.apply_gradients([(gradient, e)]), gradient


def test_gradients_with_a_row_for_each_index():
    """ "scaled" asks whether they are finite; what can tell rows of one index apart is fetched."""
    descent = lambda: tf.train.GradientDescentOptimizer(0.01)  # noqa: E731
    scaled = lambda: LossScaleOptimizer(descent(), FixedLossScaleManager(8.0))  # noqa: E731
    fetches = []
    with tf.Graph().as_default() as graph:
        ids = tf.placeholder(tf.int32, [IDS], "ids")
        for name, make in {**OPTIMIZERS, "descent": descent, "scaled": scaled}.items():
            for use_resource in (True, False):
                loss, train, gradient = sums_by_row("%s%d" % (name, use_resource), ids, make(), use_resource)
                assert isinstance(gradient, tf.IndexedSlices)
                fetches += [loss, train]
        rows, norm = tf.gather(tf.reduce_sum(gradient.values, 1), [0]), tf.global_norm([gradient])
        fetches += [rows, norm, tf.size(tf.unique(gradient.indices)[0])]
        tf.global_variables_initializer()
    steps(graph, fetches, [{"ids:0": np.random.RandomState(seed).randint(0, 9, IDS)} for seed in range(2)])


@pytest.mark.parametrize("version", [1, 2])
def test_tables_that_two_losses_share(version):
    """Ids come twice within a batch and in both lookups; the step is skipped when its loss is not finite."""
    fetches = []
    with sessions.control_flow(version), tf.Graph().as_default() as graph:
        users, items = tf.placeholder(tf.int32, [None], "users"), tf.placeholder(tf.int32, [None], "items")
        for name, make in OPTIMIZERS.items():
            for use_resource in (True, False) if version == 1 else (True,):
                scope = "%s%d" % (name, use_resource)
                first, second = table(scope + "e", use_resource), table(scope + "wide", use_resource, 1)
                deep = tf.nn.embedding_lookup(first, users) * tf.nn.embedding_lookup(first, items)
                wide = tf.nn.embedding_lookup(second, tf.reshape(items, [-1, 2]))
                loss = tf.reduce_mean(tf.square(tf.reduce_sum(deep, 1) - 1)) + tf.reduce_mean(tf.square(wide))
                minimizer = make()
                gradients = minimizer.compute_gradients(loss, [first, second])
                apply = lambda: tf.group(minimizer.apply_gradients(gradients))  # noqa: E731, B023
                fetches += [loss, tf.cond(tf.is_finite(loss), apply, tf.no_op).op.name]
        tf.global_variables_initializer()
    steps(graph, fetches, batches("users:0", "items:0"))


def sum_over_the_different(ids, e):
    rows = tf.gather(e, tf.unique(ids)[0])
    return tf.reduce_sum(tf.square(rows)), []


def count_of_the_different(ids, e):
    distinct, places = tf.unique(ids)
    rows = tf.gather(tf.gather(e, distinct), places)
    return tf.reduce_sum(tf.square(rows)) / tf.cast(tf.size(distinct), tf.float32), []


def norm_of_the_sums(ids, e):
    loss = tf.reduce_sum(tf.square(tf.gather(e, ids)))
    gradient = tf.gradients(loss, e)[0]
    distinct, places = tf.unique(gradient.indices)
    sums = tf.unsorted_segment_sum(gradient.values, places, tf.size(distinct))
    return loss, [tf.norm(sums), tf.scatter_sub(e, distinct, 0.1 * sums).op.name]


def counts(ids, e):
    _, places, numbers = tf.unique_with_counts(ids)
    weights = 1.0 / tf.cast(tf.gather(numbers, places), tf.float32)
    return tf.reduce_sum(tf.square(tf.gather(e, ids)) * weights[:, tf.newaxis]), []


def clipped_sums(ids, e):
    """What optimizers of Keras do, with gradients clipped row by row."""
    loss = tf.reduce_sum(tf.square(tf.gather(e, ids)))
    gradient = tf.gradients(loss, e)[0]
    distinct, places = tf.unique(gradient.indices)
    sums = tf.clip_by_value(tf.unsorted_segment_sum(gradient.values, places, tf.shape(distinct)[0]), -0.5, 0.5)
    return loss, [tf.scatter_sub(e, distinct, 0.1 * sums).op.name]


def bags(ids, e):
    """Regression: a sum of rows of which data says how many there are was refused, as was its gradient."""
    places = np.stack([np.arange(IDS) // 3, np.arange(IDS) % 3], 1)
    given = {"params": e, "sp_ids": tf.SparseTensor(places, ids, [IDS // 3, 3]), "sp_weights": None}
    rows = [tf.nn.embedding_lookup_sparse(combiner=combiner, **given) for combiner in ("sum", "mean", "sqrtn")]
    return tf.reduce_sum(tf.square(tf.concat(rows, 1) - 1.0)), []


def test_what_is_made_of_the_different_ids():
    fetches, builds = [], [sum_over_the_different, count_of_the_different, norm_of_the_sums, counts, clipped_sums, bags]
    with tf.Graph().as_default() as graph:
        ids = tf.placeholder(tf.int32, [None], "ids")
        for build in builds:
            e = table(build.__name__, True)
            loss, more = build(ids, e)
            trained = [] if more else [tf.train.AdagradOptimizer(0.1).minimize(loss, var_list=[e]).name]
            fetches += [loss, *more, *trained]
        tf.global_variables_initializer()
    steps(graph, fetches, batches("ids:0"))


def test_unique_of_what_depends_on_data():
    """XLA's Unique takes the padding behind such values for values: it trained wrongly, and nothing said so."""
    graph = tf.Graph()
    with graph.as_default():
        ids = tf.placeholder(tf.int32, [IDS], "ids")
        distinct = tf.unique(tf.boolean_mask(ids, ids > 3))[0]
        tf.size(distinct, name="size")
    step = npu_shim.compile_step(graph, ["size:0"], ["ids:0"])
    for ids in (np.arange(IDS), np.arange(IDS) // 2, np.arange(IDS) % 5):
        assert step({"ids:0": ids}) == [len(np.unique(ids[ids > 3]))]


@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
def test_variables_by_indices_of_several_dimensions(use_resource):
    """gather_nd of a variable, as a CRF's score has it; scatters by several indices; a counter with a limit."""
    graph = tf.Graph()
    with graph.as_default():
        at = tf.placeholder(tf.int32, [None, 2], "at")
        e, kept = table("e", use_resource), table("kept", use_resource)
        count = tf.get_variable("count", initializer=0, trainable=False, use_resource=use_resource)
        loss = tf.reduce_sum(tf.square(tf.gather_nd(e, at)))
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, var_list=[e])
        with tf.control_dependencies([train]):
            values = tf.gather_nd(e, at)
            writes = [tf.scatter_nd_add(kept, at, values)]
        with tf.control_dependencies(writes):
            writes = [tf.scatter_nd_update(kept, at[:1], values[:1] * 2)]
        with tf.control_dependencies(writes):
            if use_resource:  # there are no kernels for references
                given = {"ref": kept.handle, "indices": tf.add(at, [1, 0]), "updates": values}
                writes = [tf.raw_ops.ResourceScatterNdMax(**given)]
                with tf.control_dependencies(writes):
                    writes = [tf.raw_ops.ResourceScatterNdMin(**{**given, "indices": tf.add(at, [2, 0])})]
                counted = tf.raw_ops.ResourceCountUpTo(resource=count.handle, limit=9, T=tf.int32)
            else:
                counted = tf.raw_ops.CountUpTo(ref=count._ref(), limit=9)
        names = [train.name, writes[-1].name if use_resource else writes[-1].op.name]
        tf.global_variables_initializer()
    feeds = [{"at:0": [[3, 1], [0, 2], [7, 0], [12, 1]]}, {"at:0": [[3, 2], [1, 1], [9, 0], [2, 1]]}]
    steps(graph, [loss, counted, *names], feeds)


def test_writes_that_nothing_orders_are_not_lost():
    """What is lowered reads first and writes later: a write of the same rows in between was lost."""
    graph = tf.Graph()
    with graph.as_default():
        ids = tf.placeholder(tf.int32, [IDS], "ids")
        v, a = table("v", True), tf.get_variable("a", initializer=tf.zeros([ROWS, COLUMNS]), use_resource=True)
        give = {"grad": tf.ones([IDS, COLUMNS]), "indices": ids, "lr": 0.1, "momentum": 1.0}
        momentum = [tf.raw_ops.ResourceSparseApplyMomentum(var=v.handle, accum=a.handle, **give) for _ in range(2)]
        tf.group(*momentum, tf.assign_add(a, tf.ones([ROWS, COLUMNS])), name="train")
        tf.global_variables_initializer()
    feed = {"ids:0": np.arange(IDS)}
    rows = npu_shim.compile_step(graph, ["train", "a:0"], ["ids:0"], initializer="init")(feed)[1]
    np.testing.assert_array_equal(rows[:, 0], np.where(np.arange(ROWS) < IDS, 3, 1))


def graph_convolution(x, support, w):
    return tf.sparse_tensor_dense_matmul(support, tf.matmul(x, w))


def attention(x, support, w):
    """Weights of neighbours by a softmax over each row's."""
    h = tf.matmul(x, w)
    scores = support * tf.reduce_sum(h, 1, keepdims=True)
    scores = tf.SparseTensor(scores.indices, tf.nn.leaky_relu(scores.values), scores.dense_shape)
    weights = tf.sparse_softmax(scores * tf.reduce_sum(tf.square(h), 1)[tf.newaxis])
    return tf.sparse_tensor_dense_matmul(weights, h)


def attention_of_two(x, support, w):
    """Scores that are the sum of a row's and a column's, as of a sparse graph attention network, and another sum."""
    h = tf.matmul(x, w)
    own, others = support * tf.reduce_sum(h, 1, keepdims=True), support * tf.reduce_sum(tf.square(h), 1)[tf.newaxis]
    weights = tf.sparse_softmax(tf.sparse_add(own, others))
    few = tf.sparse_retain(others, support.values > 0.3)
    return tf.sparse_tensor_dense_matmul(weights, h) + tf.sparse_tensor_dense_matmul(tf.sparse_add(few, own), h)


def with_dropout(x, support, w):
    """Of the sparse tensor: how many values are left is data."""
    kept = tf.sparse_retain(support, support.values > 0.3)
    return tf.sparse_tensor_dense_matmul(kept, tf.matmul(x, w))


def of_parts(x, support, w):
    """A part with a gradient, two parts behind each other again, and the largest of each column."""
    h = tf.matmul(x, w)
    part = tf.sparse_slice(support * tf.reduce_sum(h, 1, keepdims=True), [3, 0], [12, ROWS])
    again = tf.sparse_concat(1, tf.sparse_split(axis=1, num_split=2, sp_input=support))
    parts = tf.pad(tf.sparse_tensor_dense_matmul(part, h), [[3, ROWS - 15], [0, 0]])
    return parts + tf.sparse_tensor_dense_matmul(again, h) + h * tf.sparse_reduce_max(support, 0)[:, tf.newaxis]


def graph_network(layer, shape):
    graph = tf.Graph()
    with graph.as_default():
        support = tf.sparse_placeholder(tf.float32, shape, "support")
        x, y = tf.placeholder(tf.float32, [ROWS, 6], "x"), tf.placeholder(tf.int32, [ROWS], "y")
        w = tf.get_variable("w", initializer=np.random.RandomState(1).randn(6, 3).astype("f"))
        logits = layer(x, support, w)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        train = tf.train.AdamOptimizer(0.1).minimize(loss)
        tf.global_variables_initializer()
    draw = np.random.RandomState(4)
    at = np.argwhere(draw.rand(ROWS, ROWS) < 0.2).astype(np.int64)
    feed = {"support/indices:0": at, "support/values:0": draw.rand(len(at)), "x:0": draw.randn(ROWS, 6),
            "y:0": draw.randint(0, 3, ROWS)}  # fmt: skip
    return graph, [loss, train.name], feed


def in_a_branch(x, support, w):
    return tf.matmul(tf.cond(x[0, 0] > 0.0, lambda: tf.sparse_tensor_dense_matmul(support, x), lambda: x), w)


def in_a_loop(x, support, w):
    step = lambda k, h: [k + 1, tf.tanh(tf.sparse_tensor_dense_matmul(support, h))]  # noqa: E731
    shapes = [tf.TensorShape([]), tf.TensorShape([None, 6])]
    return tf.matmul(tf.while_loop(lambda k, _: k < 3, step, [0, x], shapes, maximum_iterations=3)[1], w)


def in_a_function(x, support, w):
    inner = tf.function(lambda h: tf.sparse_tensor_dense_matmul(support, h), autograph=False)
    return tf.matmul(tf.function(lambda h: tf.tanh(inner(inner(h))), autograph=False)(x), w)


@pytest.mark.parametrize(("layer", "version"), [
    (graph_convolution, 1), (attention, 1), (attention_of_two, 1), (with_dropout, 1), (of_parts, 1), (in_a_branch, 1),
    (in_a_loop, 1), (in_a_branch, 2), (in_a_loop, 2), (in_a_function, 2),
])  # fmt: skip
def test_networks_on_sparse_graphs(layer, version):
    with sessions.control_flow(version):
        graph, fetches, feed = graph_network(layer, [ROWS, ROWS])
    steps(graph, fetches, [feed])


def test_the_shape_of_a_sparse_tensor_may_be_fed_or_a_constant():
    """Fed, it is part of the program."""
    graph, fetches, feed = graph_network(graph_convolution, None)
    steps(graph, fetches, [{**feed, "support/shape:0": [ROWS, ROWS]}])
    step = npu_shim.compile_step(
        graph, fetches, list(feed), initializer="init", constants={"support/shape:0": [ROWS] * 2}
    )
    assert np.isfinite(step(feed)[0])


def test_sizes_that_follow_from_the_shapes_of_feeds_are_known():
    """Keras' UpSampling2D doubles the shape of what it takes; the gradient must know it."""
    graph = tf.Graph()
    with graph.as_default():
        x = tf.placeholder(tf.float32, [None, None, None, 2], "x")
        w = tf.get_variable("w", initializer=np.random.RandomState(1).randn(3, 3, 2, 2).astype("f"))
        y = tf.nn.conv2d(x, w, 2, "SAME")
        large = tf.image.resize_nearest_neighbor(y, tf.shape(y)[1:3] * 2)
        loss = tf.reduce_mean(tf.square(large * tf.nn.conv2d(x, w, 1, "SAME") - 1.0))
        train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
        tf.global_variables_initializer()
    steps(graph, [loss, train], [{"x:0": np.random.RandomState(0).randn(2, 6, 8, 2)}])
