"""Variables of a session are given values in one way, whatever their initializers share."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from npu_shim.checkpoint import assignments
from npu_shim.rewriter.errors import PlanError

pytestmark = pytest.mark.usefixtures("own_graph")


def given(session, pairs):
    """Gives variables values, and returns what they have then."""
    writes = [(assignments.assignment_of(assignments.variable_op(variable)), value) for variable, value in pairs]
    assignments.assign(session.run, writes)
    return session.run([variable for variable, _ in pairs])


@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
def test_variables_of_one_initial_tensor_get_values_of_their_own(resource):
    with tf.variable_scope("net", use_resource=resource):
        start = tf.random_uniform([3])
        shared = [tf.Variable(start, use_resource=resource) for _ in range(3)]
        own = tf.get_variable("own", [2])
    tf.get_default_graph().finalize()
    pairs = [(variable, np.full([3], n, "f")) for n, variable in enumerate(shared)] + [(own, np.ones([2], "f"))]
    with tf.Session() as session:
        for (_, value), now in zip(pairs, given(session, pairs)):
            np.testing.assert_array_equal(now, value)


@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
def test_a_variable_of_any_shape_takes_other_shapes(resource):
    v = tf.Variable(np.ones([3], "f"), validate_shape=False, shape=tf.TensorShape(None), use_resource=resource)
    with tf.Session() as session:
        session.run(v.initializer)
        for shape in ([5], [2, 2]):
            np.testing.assert_array_equal(given(session, [(v, np.zeros(shape, "f"))])[0], np.zeros(shape))


def test_a_finalized_graph_without_an_assignment_says_so():
    v = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="v", name="v")
    tf.get_default_graph().finalize()
    with pytest.raises(PlanError, match="variable 'v' has no assignment"):
        assignments.assignment_of(v.op)


def test_an_assignment_that_waits_is_left_alone():
    v = tf.raw_ops.VariableV2(dtype=tf.float32, shape=[2], name="v")
    value = tf.constant([1.0, 2.0])
    with tf.control_dependencies([tf.no_op()]):
        waits = tf.raw_ops.Assign(ref=v, value=value)
    assignment = assignments.assignment_of(v.op)
    assert assignment.operation is not waits.op
    with tf.Session() as session:
        assignments.assign(session.run, [(assignment, [3, 4])])
        assert session.run(v).tolist() == [3, 4]
