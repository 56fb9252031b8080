"""Which variables of a graph belong to no model: a run that writes these alone is an evaluation, no training step."""

import pytest
import tensorflow.compat.v1 as tf

from npu_shim.engine.partition import facts

pytestmark = pytest.mark.skipif(tf.__version__.startswith("1."), reason="the engine needs TensorFlow 2.15 or later")
LOCAL, GLOBAL = tf.GraphKeys.LOCAL_VARIABLES, tf.GraphKeys.GLOBAL_VARIABLES


@pytest.mark.parametrize("resource", [False, True], ids=["reference", "resource"])
def test_local_variables_are_known_whatever_their_kind(resource):
    with tf.Graph().as_default() as graph:
        for name, collections in (("count", [LOCAL]), ("both", [LOCAL, GLOBAL]), ("weights", [GLOBAL])):
            tf.Variable(0.0, trainable=False, name=name, collections=collections, use_resource=resource)
        assert facts.local_variables(graph) == {"count"}
