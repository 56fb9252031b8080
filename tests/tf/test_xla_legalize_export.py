"""Lowered ops in exported programs: what today's XLA makes of them, in a process without TensorFlow."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
import test_compiled_ctc as ctc
import test_compiled_sparse as networks
import test_compiled_sparse_updates as updates
import test_export

from npu_shim.export import export

pytestmark = [
    pytest.mark.skipif(tf.__version__.startswith("1."), reason="export needs TensorFlow 2.15"),
    pytest.mark.usefixtures("control_flow_of_version_1"),
]
STEPS = 3
EPS = 2.0**-23


def tables():
    graph = tf.Graph()
    with graph.as_default():
        ids = tf.placeholder(tf.int32, [networks.IDS], "ids")
        e, wide = networks.table("e", True), networks.table("wide", False, 1)
        loss = tf.reduce_mean(tf.square(tf.gather(e, ids) * tf.gather(wide, ids[::-1]) - 1))
        first = networks.OPTIMIZERS["adagrad"]().minimize(loss, var_list=[e])
        train = [first.name, networks.OPTIMIZERS["ftrl"]().minimize(loss, var_list=[wide]).name]
        tf.global_variables_initializer()
    return graph, loss, train, networks.batches("ids:0")[0]


def sparse_graph():
    graph, (loss, train), feed = networks.graph_network(networks.attention, [networks.ROWS, networks.ROWS])
    return graph, loss, [train], feed


def spoken():
    graph, (losses, _) = ctc.graph_of({})
    with graph.as_default():
        w = tf.get_variable("w", initializer=np.eye(ctc.CLASSES, dtype="f"), use_resource=True)
        x = tf.tensordot(graph.get_tensor_by_name("x:0"), w, 1)
        op = losses.op
        loss = tf.reduce_sum(tf.raw_ops.CTCLoss(
            inputs=x, labels_indices=op.inputs[1], labels_values=op.inputs[2], sequence_length=op.inputs[3]
        )[0])  # fmt: skip
        train = tf.train.GradientDescentOptimizer(0.01).minimize(loss).name
        tf.global_variables_initializer()
    given = ctc.feed()
    del given["labels/shape:0"]
    return graph, loss, [train], given


def every_update():
    """Indices that come again: a loop over their turns."""
    graph = updates.sparse_updates(True)
    with graph.as_default(), tf.control_dependencies([graph.get_operation_by_name("train")]):
        variables = graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES)
        sums = [tf.reduce_sum(tf.square(v.read_value())) for v in variables]
        loss = tf.add_n(sums) / len(sums)
    feed = {"grad:0": np.random.RandomState(9).randn(6, updates.COLUMNS), "indices:0": updates.INDICES["again"]}
    return graph, loss, ["train"], feed


@pytest.mark.slow
@pytest.mark.nightly  # test_export_apart.py and test_fuzz.py export other graphs
def test_exported_programs_give_the_sessions_losses(tmp_path):
    interpreter = test_export.interpreter_with_jax()
    expected, folders = [], []
    for number, build in enumerate([tables, sparse_graph, spoken, every_update]):
        graph, loss, train, feed = build()
        folders.append(str(tmp_path / build.__name__))
        with tf.Session(graph=graph) as session:
            session.run("init")
            dtypes = {name: graph.get_tensor_by_name(name).dtype.as_numpy_dtype for name in feed}
            feed = {name: np.asarray(value, dtypes[name]) for name, value in feed.items()}
            shapes = {name: value.shape for name, value in feed.items()}
            export(session, [loss, *train], shapes, folders[number], jax=interpreter)
            expected.append([session.run([loss, *train], feed)[0] for _ in range(STEPS)])
        np.savez(folders[number] + ".npz", **feed)
    actual = test_export.under_jax(interpreter, folders, tmp_path / "site", STEPS)
    np.testing.assert_allclose(actual, expected, rtol=256 * EPS)
