"""Fetching a variable by the name of its tensor gives its value, also where the tensor is a resource handle."""

import collections

import pytest
import tensorflow.compat.v1 as tf

import npu_shim
import npu_shim.fetches


@pytest.fixture
def variable():
    """Sessions are patched, and the graph has a resource variable v of value 3."""
    npu_shim.patch()
    with tf.Graph().as_default():
        yield tf.get_variable("v", initializer=3.0, use_resource=True)
    npu_shim.unpatch()


def test_handles_become_values_anywhere_in_the_fetches(variable):
    handle = tf.get_default_graph().get_tensor_by_name("v:0")
    assert handle.dtype == tf.resource
    double = variable * 2.0
    with tf.Session() as session:
        session.run(variable.initializer)
        assert session.run("v:0") == 3.0
        assert session.run(handle) == 3.0
        pair = collections.namedtuple("Pair", "one two")
        assert session.run(pair("v:0", double)) == pair(3.0, 6.0)
        assert session.run([double, {"a": "v:0", "b": (handle, double)}]) == [6.0, {"a": 3.0, "b": (3.0, 6.0)}]


def test_other_fetches_are_passed_on_unchanged(variable):
    fetches = [variable, "v", variable.initializer]
    assert npu_shim.fetches.values_for_handles(tf.get_default_graph(), fetches) is fetches
    with tf.Session() as session:
        assert session.run(variable.initializer) is None
        with pytest.raises(ValueError, match="w:0"):
            session.run("w:0")
        with pytest.raises(ValueError, match="not-a name"):
            session.run("not-a name")


def test_a_local_variable_and_one_of_a_finalized_graph(variable):
    local = tf.get_variable("local", initializer=4.0, use_resource=True, collections=[tf.GraphKeys.LOCAL_VARIABLES])
    with tf.train.MonitoredSession() as session:
        assert session.run(["v:0", "local:0"]) == [3.0, 4.0]
    assert local.handle.name == "local:0"


def test_reference_variables_are_as_ever(variable):
    plain = tf.get_variable("plain", initializer=5.0, use_resource=False)
    with tf.Session() as session:
        session.run(plain.initializer)
        assert session.run("plain:0") == 5.0


def test_unpatch_takes_it_back():
    before = tf.Session.run
    npu_shim.patch()
    assert tf.Session.run is not before
    npu_shim.unpatch()
    assert tf.Session.run is before
