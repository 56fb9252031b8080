"""A session keeps the kernels of stateful ops by name: one op in two dtypes needs two names."""

import numpy as np
import pytest
import session_passes
import sessions
import tensorflow.compat.v1 as tf
from sessions import config

import graphs
from npu_shim.session.passes import kernel_names

NETWORK = """
node { name: "seed" op: "Const" attr { key: "dtype" value { type: DT_INT32 } } }
node { name: "noise" op: "RandomUniform" input: "seed" attr { key: "dtype" value { type: DT_FLOAT } } }
node { name: "relu" op: "Relu" input: "noise" attr { key: "T" value { type: DT_FLOAT } } }
node { name: "late" op: "NoOp" input: "^noise" input: "^relu"
       attr { key: "_class" value { list { s: "loc:@noise" s: "loc:@relu" } } } }
node { name: "noisy" op: "Relu" input: "noise:0" attr { key: "T" value { type: DT_FLOAT } } }
"""


def graph(text):
    from google.protobuf import text_format

    return text_format.Parse(text, tf.GraphDef())


def test_a_stateful_node_in_another_dtype_moves_with_all_that_names_it():
    before, after = graph(NETWORK), graph(NETWORK.replace("DT_FLOAT", "DT_HALF"))
    moved = kernel_names.distinct(before, after)
    assert moved == {"noise": "noise-in-float16"}
    nodes = {node.name: node for node in graphs.after(kernel_names.rename, after, moved).node}
    assert after == graph(NETWORK.replace("DT_FLOAT", "DT_HALF"))
    assert set(nodes) == {"seed", "noise-in-float16", "relu", "late", "noisy"}
    assert list(nodes["late"].input) == ["^noise-in-float16", "^relu"]
    assert list(nodes["late"].attr["_class"].list.s) == [b"loc:@noise-in-float16", b"loc:@relu"]
    assert [nodes[name].input[0] for name in ("relu", "noisy")] == ["noise-in-float16"] * 2


def test_what_reads_the_first_output_by_its_number_is_as_it_was():
    """Regression: "noise:0" became "noise", which was a difference that nobody had promised."""
    after = graph(NETWORK.replace("DT_FLOAT", "DT_HALF"))
    moved = kernel_names.distinct(graph(NETWORK), after)
    renamed = graphs.after(kernel_names.rename, after, moved)
    assert session_passes.broken("kernel names", after, renamed, moved=moved) == []


def test_a_name_that_is_taken_is_not_taken_again():
    after = graph(NETWORK.replace("DT_FLOAT", "DT_HALF").replace('"late"', '"noise-in-float16"'))
    assert kernel_names.distinct(graph(NETWORK), after) == {"noise": "noise-in-float16_"}


@pytest.mark.usefixtures("patched")
def test_a_fetched_stateful_op_in_another_dtype_keeps_its_name():
    """Regression: a fetched tf.multinomial was "not found in the Graph" under force_fp16."""
    with tf.Graph().as_default():
        drawn = tf.multinomial(tf.placeholder_with_default([[0.0, 1.0, 0.5]], [1, 3]) * 2.0, 8, seed=2)
        results = []
        for settings in (tf.ConfigProto(), config(precision_mode="force_fp16")):
            with tf.Session(config=settings) as session:
                results.append([session.run([drawn, drawn.op])[0] for _ in range(2)])
    assert all(ours.shape == (1, 8) and ours.dtype == plain.dtype for ours, plain in zip(*results))
    np.testing.assert_array_equal(results[1], results[0])


def test_nodes_that_are_as_they_were_keep_their_names():
    only_relu = graph(NETWORK.replace('"T" value { type: DT_FLOAT', '"T" value { type: DT_HALF'))
    marked = graph(NETWORK)
    marked.node[1].attr["_mark"].i = 1
    for after in (graph(NETWORK), only_relu, marked):
        assert kernel_names.distinct(graph(NETWORK), after) == {}


CONDITIONAL = """
node { name: "p" op: "Placeholder" attr { key: "dtype" value { type: DT_BOOL } } }
node { name: "choice" op: "If" input: "p" input: "x" input: "x"
       attr { key: "then_branch" value { func { name: "THEN" } } }
       attr { key: "else_branch" value { func { name: "b" } } }
       attr { key: "Tcond" value { type: DT_BOOL } } attr { key: "Tin" value { list { } } }
       attr { key: "Tout" value { list { type: ONE type: OTHER } } } }
"""


def test_a_conditional_is_another_kernel_for_each_pair_of_functions_and_each_order_of_dtypes():
    def rewritten(then="a", one="DT_FLOAT", other="DT_FLOAT"):
        return graph(CONDITIONAL.replace("THEN", then).replace("ONE", one).replace("OTHER", other))

    forms = [("low", "DT_HALF", "DT_FLOAT"), ("low", "DT_FLOAT", "DT_HALF"), ("a", "DT_FLOAT", "DT_HALF"), ("a_1",)]
    names = [kernel_names.distinct(rewritten(), rewritten(*form))["choice"] for form in forms]
    assert len(set(names)) == len(forms)
    assert [kernel_names.distinct(rewritten(), rewritten(*form))["choice"] for form in forms] == names
    assert kernel_names.distinct(rewritten(), rewritten()) == {}


@pytest.mark.usefixtures("patched", "control_flow_of_version_1")
def test_an_rnn_that_trained_with_its_embedding_runs_forward_alone():
    with tf.Graph().as_default(), tf.variable_scope("", use_resource=True):
        tf.set_random_seed(1)
        words, lengths = tf.placeholder(tf.int32, [4, 5]), tf.placeholder(tf.int32, [4])
        table = tf.get_variable("table", [10, 8])
        cell = tf.nn.rnn_cell.GRUCell(8)
        embedded = tf.nn.embedding_lookup(table, words)
        outputs, _ = tf.nn.dynamic_rnn(cell, embedded, lengths, dtype=tf.float32)
        logits = tf.layers.dense(outputs, 3)
        loss = tf.reduce_mean(tf.square(logits))
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
        feed = {words: np.arange(20).reshape(4, 5) % 10, lengths: [5, 4, 3, 2]}
        with sessions.started(config=config(precision_mode="allow_mix_precision")) as sess:
            sess.run([loss, train], feed)
            forward = sess.run(logits, feed)
            np.testing.assert_allclose(sess.run([loss, train], feed)[0], np.mean(np.square(forward)), 1e-2)
