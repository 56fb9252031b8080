"""What no training step writes: variables that belong to no model, which an evaluation writes, and initial values."""

import pytest
import tensorflow.compat.v1 as tf

from npu_shim.engine.partition import facts, step_detection

pytestmark = pytest.mark.skipif(tf.__version__.startswith("1."), reason="the engine needs TensorFlow 2.15 or later")
LOCAL, GLOBAL = tf.GraphKeys.LOCAL_VARIABLES, tf.GraphKeys.GLOBAL_VARIABLES


@pytest.mark.parametrize("resource", [False, True], ids=["reference", "resource"])
def test_local_variables_are_known_whatever_their_kind(resource):
    with tf.Graph().as_default() as graph:
        for name, collections in (("count", [LOCAL]), ("both", [LOCAL, GLOBAL]), ("weights", [GLOBAL])):
            tf.Variable(0.0, trainable=False, name=name, collections=collections, use_resource=resource)
        assert facts.local_variables(graph) == {"count"}


@pytest.mark.parametrize("resource", [False, True], ids=["reference", "resource"])
def test_an_initializer_is_no_step_whatever_it_computes(resource):
    """Regression: the initial values of averages were compiled, since they are made of variables by many ops."""
    with tf.Graph().as_default() as graph, tf.variable_scope("net", use_resource=resource):
        weights = [tf.get_variable("w%d" % number, [4, 4], collections=["ours"]) for number in range(20)]
        averages = [tf.get_variable("a%d" % n, initializer=tf.matmul(w, w)) for n, w in enumerate(weights)]
        start = tf.variables_initializer([*weights, *averages])
        step = tf.group(start, averages[0].assign_add(tf.matmul(weights[0], weights[0])))
        begins = facts.initializers(graph)
        assert begins == {variable.initializer.name for variable in [*weights, *averages]}
        known = {op: facts.nodes_of(graph.as_graph_def(), [op.name]) for op in (start, step)}
    assert step_detection.refusal(known[start]) is None
    assert step_detection.refusal(known[start], (), begins) == "it initializes variables"
    assert step_detection.refusal(known[step], (), begins) is None
