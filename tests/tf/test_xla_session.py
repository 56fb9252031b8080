"""XLA in the session: what is in its clusters, what stays out, and what happens when shapes change."""

import functools
import logging
import os

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import graphs
from npu_bridge.npu_init import npu_scope
from npu_shim.rewriter.ir import graphdef
from npu_shim.session import devices
from npu_shim.session.clusters import MARK, mark, marking, traps
from npu_shim.session.interception import patch as npu_session

ON = {"precision_mode": "must_keep_origin_dtype", "npu_shim_profile": "gpu", "npu_shim_xla": "on"}
CLUSTER = "_XlaCompile"


def out_of(build):
    """Names of the nodes that stay out of clusters, of a graph that `build` makes."""
    with tf.Graph().as_default() as graph:
        build(tf.placeholder(tf.float32, [None, 8], "x"), tf.placeholder(tf.int32, [None], "n"))
    return traps.excluded(graphdef.read(graph.as_graph_def()).graph)


def test_a_network_and_its_gradient_have_no_traps():
    def build(x, n):
        w = tf.get_variable("w", [8, 4], use_resource=True)
        y = tf.reshape(tf.nn.relu(tf.matmul(x, w)), [tf.shape(x)[0] * 4])
        tf.gradients(tf.reduce_mean(y) + tf.reduce_sum(tf.zeros(tf.shape(x))), [w])

    assert out_of(build) == set()


def test_rows_picked_by_value_are_out_until_they_are_summed_up():
    def build(x, n):
        rows = tf.boolean_mask(x, n > 0, name="rows")
        total = tf.reduce_sum(tf.square(rows, name="squares"), name="total")
        tf.multiply(total, x, name="scaled")

    out = out_of(build)
    assert {"squares", "total"} <= out
    assert any(name.endswith("Where") for name in out)
    assert not {"x", "scaled"} & out


def test_a_size_out_of_data_is_out_but_not_what_it_only_masks():
    def build(x, n):
        mask = tf.cast(tf.sequence_mask(n, name="mask"), tf.float32, name="kept")
        tf.multiply(x, mask, name="masked")
        tf.fill([tf.reduce_max(n)], 1.0, name="long")
        tf.nn.relu(tf.exp(x, name="e") * mask, name="after")

    out = out_of(build)
    assert {"kept", "masked", "long", "mask/Range"} <= out
    assert not {"e", "after"} & out


def test_a_root_of_zero_whose_gradient_is_masked_gets_no_nan_but_that_of_a_variance_is_in():
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4], "x")
        y = x
        for _ in range(4):  # a cluster has eight ops
            y = tf.exp(tf.log(tf.abs(y) + 1)) - 1
        masked = tf.reduce_sum(tf.where(y > 0, tf.sqrt(y), tf.zeros_like(y)))
        gradient = tf.gradients(masked, x)[0]
        scaled = y * tf.rsqrt(tf.nn.moments(y, [0])[1] + 1e-3)
        tf.gradients(scaled, x)
    marked = {node.op: node.attr[CLUSTER].b for node in graphs.after(mark, graph.as_graph_def()).node}

    def computed(switch):
        with tf.Session(graph=graph, config=sessions.config(**dict(ON, npu_shim_xla=switch))) as session:
            return session.run(gradient, {"x:0": [0, 1, 0, 4]})

    assert np.isfinite(computed("off")).all()
    np.testing.assert_allclose(computed("on"), computed("off"), rtol=1e-5)
    assert not marked["SqrtGrad"]
    assert marked["RsqrtGrad"]


def test_the_embeddings_sparse_update_is_out_and_the_embedding_in():
    def build(x, n):
        table = tf.get_variable("table", [50, 8], use_resource=True)
        rows = tf.gather(table, n, name="found")
        loss = tf.reduce_sum(tf.square(rows, name="squares"))
        tf.train.AdamOptimizer(0.1).minimize(loss)

    out = out_of(build)
    assert any("Unique" in name for name in out)
    assert not {"found", "squares"} & out


@pytest.mark.skipif(not hasattr(tf.raw_ops, "SparseSegmentSumGradV2"), reason="this TensorFlow has no such op")
def test_gradients_by_row_are_out():
    def build(x, n):
        rows = tf.raw_ops.SparseSegmentSumGradV2(grad=x, indices=n, segment_ids=n, dense_output_dim0=50)
        tf.multiply(rows.output, 2.0, name="doubled")

    assert "doubled" in out_of(build)


def test_batches_of_a_dataset_are_no_trap():
    def build(x, n):
        data = tf.data.Dataset.from_tensors((np.ones([4, 8], np.float32), np.ones([4], np.int32))).repeat()
        images, labels = tf.data.make_one_shot_iterator(data).get_next()
        tf.fill([tf.reduce_max(labels)], 1.0, name="long")
        tf.nn.relu(tf.matmul(images, tf.ones([8, 2])), name="hidden")

    out = out_of(build)
    assert "long" in out
    assert not {"hidden", "MatMul"} & out


def test_strings_are_out():
    assert {"words"} <= out_of(lambda x, n: tf.strings.length(tf.as_string(x, name="words")))


def test_a_scope_opts_out(monkeypatch):
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [8, 8], "x")
        with npu_scope.without_npu_compile_scope():
            tf.exp(x, name="host")
        tf.exp(x, name="device")
    marked = graphs.after(mark, graph.as_graph_def())
    marks = {node.name: node.attr[MARK].b for node in marked.node if MARK in node.attr}
    assert marks["device"] is True
    assert marks["host"] is False


@pytest.fixture
def log(caplog):
    npu_session.LOG.propagate = True
    caplog.set_level(logging.INFO, logger="npu_shim")
    return lambda: [record.getMessage() for record in caplog.records]


def dense(layers):
    x = tf.placeholder(tf.float32, [None, 16], "x")
    h = x
    for _ in range(layers):
        h = tf.nn.relu(tf.layers.dense(h, 16))
    loss = tf.reduce_mean(tf.square(h), name="loss")
    tf.train.AdamOptimizer(1e-3).minimize(loss, name="train")


def test_a_step_is_one_cluster_and_variables_are_in_it(patched, log):
    with tf.Graph().as_default(), tf.Session(config=sessions.config(**ON)) as session:
        tf.get_variable_scope().set_use_resource(True)
        dense(3)
        session.run(tf.global_variables_initializer())
        ran = sessions.Ran(session, ["loss:0", "train"], {"x:0": np.ones([4, 16], np.float32)})
    ops = [node.op for node in ran.nodes]
    assert ops.count(CLUSTER) == 1
    assert not {"MatMul", "_FusedMatMul", "Relu", "ResourceApplyAdam"} & set(ops)
    assert log()[-1] == "npu_shim: XLA compiles 1 cluster"


def test_a_few_ops_are_no_cluster(patched, log):
    with tf.Graph().as_default(), tf.Session(config=sessions.config(**ON)) as session:
        x = tf.placeholder(tf.float32, [4])
        assert session.run(tf.exp(x) * 2, {x: np.zeros(4)}).tolist() == [2.0] * 4
    assert not [line for line in log() if "XLA" in line]


def test_many_shapes_are_said_once_and_still_right(patched, log):
    with tf.Graph().as_default(), tf.Session(config=sessions.config(**ON)) as session:
        dense(3)
        session.run(tf.global_variables_initializer())
        for rows in range(1, marking.MANY_SHAPES + 4):
            fed = np.random.RandomState(rows).rand(rows, 16).astype(np.float32)
            assert np.isfinite(session.run("loss:0", {"x:0": fed}))
            session.run("loss:0", {"x:0": fed})
    said = [line for line in log() if "sets of shapes" in line]
    assert len(said) == 1
    assert "was fed %d sets" % (marking.MANY_SHAPES + 1) in said[0]


def test_few_shapes_are_not_said(patched, log):
    with tf.Graph().as_default(), tf.Session(config=sessions.config(**ON)) as session:
        x = tf.placeholder(tf.float32, [None])
        y = tf.exp(x)
        for _ in range(20):
            session.run(y, {x: np.zeros(4)})
    assert not [line for line in log() if "sets of shapes" in line]


def test_the_cache_is_tensorflows_own_on_a_gpu(monkeypatch, tmp_path):
    monkeypatch.setattr(devices, "accelerator", lambda: "GPU")
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_max_cluster_size=9")
    marking.configure({"npu_shim_xla": "on"})
    assert os.environ["TF_XLA_FLAGS"] == "--tf_xla_max_cluster_size=9"
    marking.configure({"npu_shim_xla": "on", "npu_shim_xla_cache": str(tmp_path)})
    flags = os.environ["TF_XLA_FLAGS"]
    assert "--tf_xla_max_cluster_size=9" in flags
    assert "--tf_xla_persistent_cache_directory=%s" % tmp_path in flags
    marking.configure({"npu_shim_xla": "on", "npu_shim_xla_cache": "/another"})
    assert os.environ["TF_XLA_FLAGS"] == flags


def test_the_cache_on_a_cpu_does_nothing_and_says_so(patched, log, monkeypatch, tmp_path):
    monkeypatch.setattr(devices, "accelerator", lambda: "CPU")
    monkeypatch.setenv("TF_XLA_FLAGS", "")
    for _ in range(2):
        with tf.Graph().as_default():
            dense(3)
            with sessions.started(config=sessions.config(npu_shim_xla_cache=str(tmp_path), **ON)) as session:
                assert np.isfinite(session.run("loss:0", {"x:0": np.ones([4, 16], np.float32)}))
    assert len([line for line in log() if "npu_shim_xla_cache keeps no clusters here" in line]) == 1
    assert os.environ["TF_XLA_FLAGS"] == ""
    assert not list(tmp_path.iterdir())


def test_without_xla_the_cache_is_not_spoken_of(log, tmp_path):
    assert marking.configure({"npu_shim_xla": "off", "npu_shim_xla_cache": str(tmp_path)}) is None
    assert not log()


@pytest.mark.skipif(tf.__version__.startswith("1."), reason="TensorFlow 1.15 does not tell which kernels XLA has")
def test_what_clusters_do_not_check_is_said_once_a_session(caplog, patched):
    """Regression: a gather out of range gave the last row, and nothing said so."""
    logging.getLogger("npu_shim").propagate = True
    caplog.set_level(logging.WARNING, "npu_shim")
    with tf.Graph().as_default() as graph:
        x, k = tf.placeholder(tf.float32, [4, 8], "x"), tf.placeholder(tf.int32, [2], "k")
        rows = tf.gather(tf.tanh(x), k, name="rows")
        other = tf.reduce_sum(tf.gather(x * 2.0, k, name="others"))
    fed = {"x:0": np.ones([4, 8]), "k:0": [0, 1]}
    for _ in range(2):
        with tf.Session(graph=graph, config=sessions.config(**ON)) as session:
            session.run(rows, fed)
            session.run(other, fed)
    told = [record.getMessage() for record in caplog.records if "takes the last row" in record.getMessage()]
    assert len(told) == 2
    assert "'rows'" in told[0]


def test_targets_that_are_no_class_are_in_no_top(patched):
    """Regression: in a cluster the prediction for a target that is no class was 0."""
    with tf.Graph().as_default() as graph:
        x, k = tf.placeholder(tf.float32, [3, 4], "x"), tf.placeholder(tf.int32, [3], "k")
        y = functools.reduce(lambda y, _: tf.tanh(y * 2.0), range(8), x)  # small clusters are dissolved
        share = tf.reduce_mean(tf.cast(tf.nn.in_top_k(y, k, 2), tf.float32) * 3.0)
    fed = {"x:0": [[-3, -1, -1, -2], [-3, -1, -1, -2], [3, 2, 1, 0]], "k:0": [-1, 4, 1]}
    with tf.Session(graph=graph, config=sessions.config(**ON)) as session:
        assert [session.run(share, fed) for _ in range(3)] == [1.0] * 3


def test_a_pool_that_was_turned_is_in_a_cluster(patched):
    """Regression: "'NoneType' object has no attribute 'attr'" of a node that an earlier pass had added."""
    x = np.random.RandomState(0).normal(size=[2, 4, 8, 8]).astype(np.float32)

    def pooled():
        with tf.Graph().as_default(), tf.Session(config=sessions.config(**ON)) as session:
            y = tf.nn.relu(tf.nn.avg_pool2d(x, [1, 1, 2, 2], [1, 1, 2, 2], "SAME", "NCHW") * 2.0 + 1.0)
            return session.run(y)

    def plain():
        with tf.Graph().as_default(), tf.Session() as session:
            mean = tf.nn.avg_pool2d(x.transpose(0, 2, 3, 1), 2, 2, "SAME") * 2.0 + 1.0
            return session.run(tf.nn.relu(mean)).transpose(0, 3, 1, 2)

    np.testing.assert_allclose(pooled(), plain(), rtol=1e-6)
