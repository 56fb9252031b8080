"""Compiled training steps of embeddings and graphs: ops that XLA lacks, in the steps that have them."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.loss_scale import FixedLossScaleManager, LossScaleOptimizer

pytestmark = [
    pytest.mark.skipif(tf.__version__.startswith("1."), reason="compile_step needs TensorFlow 2.15"),
    pytest.mark.usefixtures("control_flow_of_version_1"),
]
ROWS, COLUMNS, IDS = 20, 4, 12
EPS = 2.0**-23


def table(name, use_resource, columns=COLUMNS):
    start = np.random.RandomState(len(name)).randn(ROWS, columns).astype("f")
    return tf.get_variable(name, initializer=start, use_resource=use_resource)


def steps(graph, fetches, feeds, count=3):
    """(values of the fetches, variables, graph of the compiled step) of compiled steps and of a session's."""
    local = graph.get_collection(tf.GraphKeys.LOCAL_VARIABLES)
    with tf.Session(graph=graph) as session:
        session.run(["init", *(variable.initializer for variable in local)])
        step = npu_shim.compile_step(session, fetches, list(feeds[0]))
        actual = [step(feeds[k % len(feeds)]) for k in range(count)]
        expected = [session.run(fetches, feeds[k % len(feeds)]) for k in range(count)]
        state = session.run({v.op.name: v for v in [*graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES), *local]})
    for ours, theirs in zip(actual, expected):
        for value, wanted in zip(ours, theirs):
            if wanted is not None:
                np.testing.assert_allclose(value, wanted, rtol=64 * EPS, atol=64 * EPS)
    for name, value in step.state().items():
        np.testing.assert_allclose(value, state[name], rtol=256 * EPS, atol=256 * EPS, err_msg=name)
    shapes = [np.shape(value) for value in feeds[0].values()]
    return [node.op for node in step._prepared.for_shapes(shapes).graph_def.node]


def batches(*names):
    draw = np.random.RandomState(5)
    return [{name: draw.randint(0, ROWS, IDS) for name in names} for _ in range(2)]


OPTIMIZERS = {
    "adagrad": lambda: tf.train.AdagradOptimizer(0.1),
    "ftrl": lambda: tf.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
    "adam": lambda: tf.train.AdamOptimizer(0.01),
}


def sums_by_row(optimizer, use_resource):
    """(graph, loss, train, gradient of the table, which has a row for each different index: SparseSegment*GradV2)."""
    graph = tf.Graph()
    with graph.as_default():
        ids = tf.placeholder(tf.int32, [IDS], "ids")
        e, segments = table("e", use_resource), np.arange(IDS, dtype=np.int32) // 3
        given = {"data": tf.convert_to_tensor(e), "indices": ids, "segment_ids": segments, "num_segments": 4}
        sums = [getattr(tf.raw_ops, "SparseSegment%sWithNumSegments" % kind) for kind in ("Sum", "Mean", "SqrtN")]
        loss = tf.reduce_sum(tf.square(tf.concat([op(sparse_gradient=True, **given) for op in sums], 1) - 1.0))
        (gradient,) = tf.gradients(loss, e)
        train = optimizer().apply_gradients([(gradient, e)])
        tf.global_variables_initializer()
    return graph, loss, train, gradient


@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
@pytest.mark.parametrize("optimizer", ["adagrad", "adam", "descent", "scaled"])
def test_gradients_with_a_row_for_each_index(optimizer, use_resource):
    """ "scaled" asks whether they are finite."""
    descent = lambda: tf.train.GradientDescentOptimizer(0.01)  # noqa: E731
    scaled = lambda: LossScaleOptimizer(descent(), FixedLossScaleManager(8.0))  # noqa: E731
    make = {**OPTIMIZERS, "descent": descent, "scaled": scaled}[optimizer]
    graph, loss, train, gradient = sums_by_row(make, use_resource)
    assert isinstance(gradient, tf.IndexedSlices)
    feeds = [{"ids:0": np.random.RandomState(seed).randint(0, 9, IDS)} for seed in range(2)]
    assert not {op for op in steps(graph, [loss, train], feeds) if "GradV2" in op}


@pytest.mark.parametrize("use", ["rows", "norm", "indices"])
def test_what_can_tell_rows_of_one_index_apart_stays_in_the_session(use):
    graph, loss, _, gradient = sums_by_row(OPTIMIZERS["adam"], True)
    with graph.as_default():
        asked = {"rows": gradient.values, "norm": tf.global_norm([gradient]), "indices": tf.unique(gradient.indices)[0]}
    with pytest.raises(npu_shim.PlanError, match=r"number of rows (that )?depends on the data"):
        npu_shim.compile_step(graph, [loss, asked[use]], ["ids:0"], initializer="init")({"ids:0": np.arange(IDS)})


@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
def test_tables_that_two_losses_share(optimizer, use_resource):
    """Ids come twice within a batch and in both lookups; the step is skipped when its loss is not finite."""
    graph = tf.Graph()
    with graph.as_default():
        users, items = tf.placeholder(tf.int32, [None], "users"), tf.placeholder(tf.int32, [None], "items")
        first, second = table("e", use_resource), table("wide", use_resource, 1)
        deep = tf.nn.embedding_lookup(first, users) * tf.nn.embedding_lookup(first, items)
        wide = tf.nn.embedding_lookup(second, tf.reshape(items, [-1, 2]))
        loss = tf.reduce_mean(tf.square(tf.reduce_sum(deep, 1) - 1)) + tf.reduce_mean(tf.square(wide))
        minimizer = OPTIMIZERS[optimizer]()
        gradients = minimizer.compute_gradients(loss)
        apply = lambda: minimizer.apply_gradients(gradients)  # noqa: E731
        train = tf.cond(tf.is_finite(loss), apply, tf.no_op, name="train")
        tf.global_variables_initializer()
    ops = steps(graph, [loss, train.op.name], batches("users:0", "items:0"))
    assert "Unique" not in ops


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


@pytest.mark.parametrize(
    ("build", "holes"),
    [(sum_over_the_different, False), (count_of_the_different, False), (norm_of_the_sums, False), (counts, True),
     (clipped_sums, True)],
)  # fmt: skip
def test_unique_has_holes_only_where_nothing_can_tell(build, holes):
    graph = tf.Graph()
    with graph.as_default():
        ids = tf.placeholder(tf.int32, [None], "ids")
        e = table("e", True)
        loss, more = build(ids, e)
        fetches = [loss, *more]
        if not more:
            fetches.append(tf.train.AdagradOptimizer(0.1).minimize(loss, var_list=[e]).name)
        tf.global_variables_initializer()
    ops = steps(graph, fetches, batches("ids:0"))
    assert ("Unique" not in ops) is holes


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


def with_dropout(x, support, w):
    """Of the sparse tensor: how many values are left is data."""
    kept = tf.sparse_retain(support, support.values > 0.3)
    return tf.sparse_tensor_dense_matmul(kept, tf.matmul(x, w))


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


@pytest.mark.parametrize("layer", [graph_convolution, attention, with_dropout])
def test_networks_on_sparse_graphs(layer):
    graph, fetches, feed = graph_network(layer, [ROWS, ROWS])
    steps(graph, fetches, [feed])


def test_the_shape_of_a_sparse_tensor_must_be_known():
    graph, fetches, feed = graph_network(graph_convolution, None)
    feed["support/shape:0"] = [ROWS, ROWS]
    with pytest.raises(npu_shim.PlanError, match=r"\(SparseTensorDenseMatMul\).*its input a_shape must be known"):
        npu_shim.compile_step(graph, fetches, list(feed), initializer="init")(feed)
    shape = {"support/shape:0": feed.pop("support/shape:0")}
    step = npu_shim.compile_step(graph, fetches, list(feed), initializer="init", constants=shape)
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
