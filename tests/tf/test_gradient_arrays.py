"""TensorArrays of data and their gradient arrays, which have one dtype: low where all that is computed from them is."""

import random

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from sessions import decided_dtype

import npu_shim
from npu_shim.rewriter.planner.decisions import Reason

pytestmark = pytest.mark.usefixtures("control_flow_of_version_1")
MIX = {"precision_mode": "allow_mix_precision"}
ARRAY_OPS = ("TensorArrayReadV3", "TensorArrayWriteV3", "TensorArrayGatherV3", "TensorArrayScatterV3")


def sequence(index=lambda i: i, also=None):
    """Four matrices that a loop reads one by one from an array; what it gives, and its gradient to the matrices.

    `index` is what a step reads, by its number; `also` makes of the array what is fetched besides.
    """
    x = tf.placeholder(tf.float32, [4, 2, 3], "x")
    array = tf.TensorArray(tf.float32, 4, clear_after_read=False).unstack(x)
    weight = tf.constant(np.linspace(-1, 1, 9).reshape(3, 3), tf.float32)

    def body(i, h):
        return i + 1, tf.matmul(array.read(index(i)), weight) * 0.5 + tf.nn.relu(h)

    _, y = tf.while_loop(lambda i, _: i < 4, body, [0, tf.matmul(tf.ones([2, 3]), weight)])
    y = tf.matmul(y, weight)
    fetches = [tf.identity(y, "y"), tf.identity(tf.gradients(y, x)[0], "gradient")]
    return fetches + ([tf.identity(also(array), "also")] if also else [])


def rewritten(fetches, **options):
    """The rewritten graph and its plan; it is checked that another rewrite changes nothing."""
    names = [fetch.op.name for fetch in fetches]
    result, plan = npu_shim.rewrite(fetches[0].graph.as_graph_def(), names, **MIX, **options)
    again, _ = npu_shim.rewrite(result, names, **MIX, **options)
    assert again is result
    return result, plan


def dtypes(graph_def, ops=("TensorArrayV3", *ARRAY_OPS)):
    nodes = [node for node in graph_def.node if node.op in ops]
    return {tf.as_dtype(decided_dtype(node, "T" if "T" in node.attr else "dtype")).name for node in nodes}


def values(graph_def, names):
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(graph_def, name="")
        return session.run([name + ":0" for name in names], {"x:0": np.linspace(-1, 1, 24).reshape(4, 2, 3)})


def test_an_array_of_data_is_low_if_the_loop_reads_it_low_and_its_gradients_are():
    with tf.Graph().as_default():
        fetches = sequence()
        graph_def = fetches[0].graph.as_graph_def()
        result, plan = rewritten(fetches, device="GPU")  # on a CPU products take what is read as float32
    assert dtypes(result) == {"float16"}
    reasons = {d.reason for d in plan.decisions() if d.op in ARRAY_OPS}
    assert reasons == {Reason.MOVED}
    inside = [node for node in result.node if node.op == "Cast" and "TensorArrayRead" in node.input[0]]
    assert inside == []
    # four products of three numbers within one, added up
    for one, other in zip(values(graph_def, ["y", "gradient"]), values(result, ["y", "gradient"])):
        np.testing.assert_allclose(one, other, atol=16 * 2**-11)


@pytest.mark.parametrize("also", [lambda array: array.stack(), lambda array: tf.exp(array.stack())])
def test_an_array_that_is_read_in_float32_too_keeps_it_and_its_gradients_are_low_values_all_the_same(also):
    with tf.Graph().as_default():
        result, _ = rewritten(sequence())
        expected = values(result, ["y", "gradient"])
    with tf.Graph().as_default():
        result, _ = rewritten(sequence(also=also))
    assert dtypes(result) == {"float32"}
    for one, other in zip(expected, values(result, ["y", "gradient"])):
        np.testing.assert_array_equal(one, other)


def test_gradients_that_add_up_at_one_index_do_so_in_float32():
    with tf.Graph().as_default():
        result, _ = rewritten(sequence(index=lambda i: 0))
    assert dtypes(result) == {"float32"}


def test_what_is_computed_from_low_gradients_follows_them():
    with tf.Graph().as_default():
        gradient = sequence()[1]
        result, plan = rewritten([tf.identity(tf.nn.relu(2.0 * gradient), "scaled")])
    decided = {d.op: d for d in plan.decisions() if d.node in ("mul", "Relu")}
    assert dtypes(result, ("Relu",)) == {"float16"}
    assert {d.reason for d in decided.values()} == {Reason.FOLLOWS_LOW}


def written_often():
    """An array that four products are written into, and its gradient."""
    x = tf.placeholder(tf.float32, [4, 3], "x")
    array = tf.TensorArray(tf.float32, 4)
    for k in range(4):
        array = array.write(k, tf.matmul(x * (k + 1.0), tf.ones([3, 3])))
    y = tf.nn.relu(array.stack())
    return [tf.identity(y, "y"), tf.identity(tf.gradients(y, x)[0], "gradient")]


@pytest.mark.parametrize("build", [written_often, sequence])
def test_of_several_causes_the_same_one_is_told_whatever_the_order_of_the_nodes(build):
    with tf.Graph().as_default() as graph:
        names = [fetch.op.name for fetch in build()]
    graph_def = graph.as_graph_def()
    nodes, told = list(graph_def.node), []
    for seed in range(4):
        random.Random(seed).shuffle(nodes)
        del graph_def.node[:]
        graph_def.node.extend(nodes)
        _, plan = npu_shim.rewrite(graph_def, names, **MIX)
        told.append(list(plan.decisions()))
    assert all(decisions == told[0] for decisions in told)
