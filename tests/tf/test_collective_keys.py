"""Keys of collectives: hashes that collide, and ranks that mean different things by one key."""

import logging
import time

import forked
import pytest
import session_passes
import tensorflow.compat.v1 as tf

import graphs
from npu_shim.distributed.collectives import call_fusion, keys, signature
from npu_shim.distributed.job import cluster, ranks
from npu_shim.distributed.launcher import layout
from npu_shim.distributed.liveness import watch
from npu_shim.distributed.liveness.progress import difference
from npu_shim.rewriter.errors import ConfigError
from npu_shim.session.passes import arrivals


def key_of(label):
    with tf.Graph().as_default():
        return keys.instance(label, 0)


@pytest.fixture
def colliding(monkeypatch):
    """Two labels with one block of keys."""
    monkeypatch.setattr(keys, "BLOCKS", 2)
    labels = {}
    for label in ("first", "second", "third"):
        labels.setdefault(key_of(label), []).append(label)
    return next(pair for pair in labels.values() if len(pair) > 1)[:2]


def collectives(labels):
    """The collectives, by their node, of a graph in which each label has one."""
    with tf.Graph().as_default() as graph:
        for label in labels:
            key = keys.instance(label, 0)
            tf.raw_ops.CollectiveReduce(input=[1.0], group_size=2, group_key=1, instance_key=key, merge_op="Add",
                                        final_op="Id", subdiv_offsets=[0], name=label)  # fmt: skip
        return signature.of_run(graph, [op.name for op in graph.get_operations()], {})[1]


def test_labels_on_one_block_are_named_where_ranks_build_them_in_other_orders(colliding):
    ours, again, theirs = collectives(colliding), collectives(colliding), collectives(colliding[::-1])
    assert {our.node: our.instance for our in ours} == {collective.node: collective.instance for collective in again}
    assert len({collective.instance for collective in ours}) == 2
    assert difference(ours, again, "here", "there") is None
    said = difference(ours, theirs, "here", "there")
    for label in colliding:
        assert "labelled '%s/0'" % label in said
    assert "in the same order on all ranks" in said


def test_long_labels_are_told_by_their_beginning_and_a_hash():
    with tf.Graph().as_default() as graph:
        one, other = (keys.instance("\n".join(["kind"] * 500 + [end]), 0) for end in "ab")
        said = keys.label(graph, one), keys.label(graph, other)
    assert said[0] != said[1]
    assert max(map(len, said)) < 130


SCRIPT = """
from npu_bridge.npu_init import *
from npu_shim.distributed.collectives import keys, reductions
from npu_shim.distributed.job import ranks
keys.BLOCKS = 2
labels = {}
for label in ("first", "second", "third"):
    with tf.Graph().as_default():
        labels.setdefault(keys.instance(label, 0), []).append(label)
pair = next(each for each in labels.values() if len(each) > 1)[:2]
if sys.argv[1] == "swapped" and get_rank_id():
    pair.reverse()
sums = {label: reductions.allreduce([1.0 if label == "first" else 10.0], "sum", ranks.WORLD, keys.instance(label, 0))
        for label in pair}
with tf.Session() as session:
    try:
        print("SUMS", sorted(float(value[0]) for value in session.run(list(sums.values()))))
    except tf.errors.InvalidArgumentError as error:
        print("REFUSED", error.message)
"""


@pytest.mark.by_day("swapped-REFUSED")
@pytest.mark.parametrize(("order", "said"), [("same", "SUMS"), ("swapped", "REFUSED")])
def test_two_ranks_compare_labels_before_they_sum(tmp_path, order, said):
    (tmp_path / "script.py").write_text("import sys\n" + SCRIPT)
    hosts = ",".join("localhost:%d" % port for port in layout.free_ports(2))
    line = "RANK_SIZE=2 RANK_ID=%d NPU_SHIM_HOSTS=%s CUDA_VISIBLE_DEVICES= python script.py %s"
    with forked.server(300) as together:
        ended = together([(line % (rank, hosts, order), tmp_path) for rank in range(2)])
    for process in ended:
        assert said in process.output, process.output
        if order == "swapped":
            assert process.output.count("labelled") >= 2, process.output


def test_fused_calls_that_hash_alike_have_keys_of_their_own(monkeypatch):
    monkeypatch.setattr(call_fusion, "KEYS", 2)
    monkeypatch.setattr(call_fusion, "_taken", {}, raising=False)
    with tf.Graph().as_default() as graph:
        for name, fusion_id in (("a", 1), ("b", 1), ("c", 2), ("d", 2)):
            call_fusion.mark(cluster_sum(name), 2, fusion_id)
        for _ in range(2):  # the same graph again has the same keys
            done = graphs.after(call_fusion.fuse, graph.as_graph_def())
            keys_of = [node.attr["instance_key"].i for node in done.node if node.op == "CollectiveReduce"]
            assert len(keys_of) == len(set(keys_of)) == 2


def cluster_sum(name):
    return tf.raw_ops.CollectiveReduce(
        input=tf.placeholder(tf.float32, [3], name + "_in"), group_size=2, group_key=1,
        instance_key=keys.instance(name, 0), merge_op="Add", final_op="Id", subdiv_offsets=[0], name=name,
    )  # fmt: skip


def test_groups_with_one_key_are_named(monkeypatch):
    monkeypatch.setattr(keys, "GROUPS", 1, raising=False)
    monkeypatch.setattr(keys, "_groups", {}, raising=False)
    assert cluster.group_key("odd") == cluster.group_key("odd") != cluster.group_key(ranks.WORLD)
    with pytest.raises(ConfigError, match="the groups 'odd' and 'even' have the same key"):
        cluster.group_key("even")


def test_a_slow_run_is_a_warning_once(monkeypatch, caplog):
    monkeypatch.setattr(watch, "_own", [0])
    monkeypatch.setattr(watch, "name_of", "rank {}".format)
    monkeypatch.setattr(watch.channel, "ask", lambda *_: None)
    state = {"runs": {"1": 7}, "running": [1], "since": 9.0, "still": 9.0, "failed": {}, "ended": None, "fault": None,
             "arrived": {}}  # fmt: skip
    what = {1: collectives(["sum"])}
    with caplog.at_level(logging.WARNING, "npu_shim"):
        for number in (5, 6, 7):
            for running in ([1], []):
                waiting = watch._Waiting(what, {1: (number, False)}, {1: [0, 1]}, 0.0)
                waiting._since = time.monotonic() - 9
                told = dict(state, runs={"1": number}, running=running, since=0.0)
                waiting._judge_progress(1, told, 1, number, None)
    assert len([line for line in caplog.messages if "lasts longer than" in line]) == 1, caplog.messages
    assert len([line for line in caplog.messages if "makes other runs" in line]) == 1, caplog.messages


def test_a_collective_in_a_function_is_noted_there():
    with tf.Graph().as_default() as graph:

        @tf.function
        def body(x):
            return tf.raw_ops.CollectiveReduce(
                input=tf.exp(x), group_size=2, group_key=7, instance_key=11, merge_op="Add", final_op="Id",
                subdiv_offsets=[0],
            )  # fmt: skip

        body(tf.ones([3]))
    graph_def = graph.as_graph_def()
    done = graphs.after(arrivals.mark, graph_def)
    assert session_passes.broken("arrivals", graph_def, done) == []
    (inside,) = (function.node_def for function in done.library.function)
    arrival, reduced = (next(node for node in inside if node.op == op) for op in (arrivals.OP, "CollectiveReduce"))
    assert [arrival.attr["key"].i, *reduced.input] == [11, arrival.name + ":y:0"]
    assert graphs.after(arrivals.mark, done) is done
