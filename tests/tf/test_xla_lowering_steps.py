"""Compiled training steps of embeddings and graphs: ops that XLA lacks, in the steps that have them."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import npu_shim

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
    with tf.Session(graph=graph) as session:
        session.run("init")
        step = npu_shim.compile_step(session, fetches, list(feeds[0]))
        found = [step(feeds[k % len(feeds)]) for k in range(count)]
        expected = [session.run(fetches, feeds[k % len(feeds)]) for k in range(count)]
        state = session.run({v.op.name: v for v in graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES)})
    for ours, theirs in zip(found, expected):
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
        made = OPTIMIZERS[optimizer]()
        gradients = made.compute_gradients(loss)
        apply = lambda: made.apply_gradients(gradients)  # noqa: E731
        train = tf.cond(tf.is_finite(loss), apply, tf.no_op, name="train")
        tf.global_variables_initializer()
    ops = steps(graph, [loss, train.op.name], batches("users:0", "items:0"))
    assert "Unique" not in ops


def sum_over_the_different(ids, e):
    rows = tf.gather(e, tf.unique(ids)[0])
    return tf.reduce_sum(tf.square(rows)), []


def count_of_the_different(ids, e):
    found, places = tf.unique(ids)
    rows = tf.gather(tf.gather(e, found), places)
    return tf.reduce_sum(tf.square(rows)) / tf.cast(tf.size(found), tf.float32), []


def norm_of_the_sums(ids, e):
    loss = tf.reduce_sum(tf.square(tf.gather(e, ids)))
    gradient = tf.gradients(loss, e)[0]
    found, places = tf.unique(gradient.indices)
    sums = tf.unsorted_segment_sum(gradient.values, places, tf.size(found))
    return loss, [tf.norm(sums), tf.scatter_sub(e, found, 0.1 * sums).op.name]


def counts(ids, e):
    _, places, numbers = tf.unique_with_counts(ids)
    weights = 1.0 / tf.cast(tf.gather(numbers, places), tf.float32)
    return tf.reduce_sum(tf.square(tf.gather(e, ids)) * weights[:, tf.newaxis]), []


def clipped_sums(ids, e):
    """What optimizers of Keras do, with gradients clipped row by row."""
    loss = tf.reduce_sum(tf.square(tf.gather(e, ids)))
    gradient = tf.gradients(loss, e)[0]
    found, places = tf.unique(gradient.indices)
    sums = tf.clip_by_value(tf.unsorted_segment_sum(gradient.values, places, tf.shape(found)[0]), -0.5, 0.5)
    return loss, [tf.scatter_sub(e, found, 0.1 * sums).op.name]


@pytest.mark.parametrize(
    ("build", "holes"),
    [(sum_over_the_different, False), (count_of_the_different, False), (norm_of_the_sums, False), (counts, True), (clipped_sums, True)],
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


def test_unique_of_what_depends_on_data_is_refused():
    """XLA's Unique takes the padding behind such values for values: it trained wrongly, and nothing said so."""
    graph = tf.Graph()
    with graph.as_default():
        ids = tf.placeholder(tf.int32, [IDS], "ids")
        found = tf.unique(tf.boolean_mask(ids, ids > 3))[0]
        tf.size(found, name="size")
    with pytest.raises(npu_shim.PlanError, match=r"'Unique' \(Unique\) takes values whose number depends on data"):
        npu_shim.compile_step(graph, ["size:0"], ["ids:0"])({"ids:0": np.arange(IDS)})
