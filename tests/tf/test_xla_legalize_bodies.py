"""Ops that XLA lacks inside of functions: control flow of version 2, tf.function."""

import pytest
import sessions
import tensorflow.compat.v1 as tf
import test_xla_legalize_steps as networks

pytestmark = [
    pytest.mark.skipif(tf.__version__.startswith("1."), reason="compile_step needs TensorFlow 2.15"),
    pytest.mark.usefixtures("control_flow_of_version_2"),
]


@pytest.mark.parametrize("optimizer", list(networks.OPTIMIZERS))
def test_an_optimizer_in_a_branch(optimizer):
    """The duplicate indices are found in the branch, which takes the gradient as its argument."""
    graph = tf.Graph()
    with graph.as_default():
        ids = tf.placeholder(tf.int32, [None], "ids")
        e = networks.table("e", True)
        loss = tf.reduce_mean(tf.square(tf.nn.embedding_lookup(e, ids) - 1))
        minimizer = networks.OPTIMIZERS[optimizer]()
        gradients = minimizer.compute_gradients(loss)
        apply = lambda: tf.group(minimizer.apply_gradients(gradients))  # noqa: E731
        train = tf.cond(tf.is_finite(loss), apply, tf.no_op)
        tf.global_variables_initializer()
    networks.steps(graph, [loss, train.name], networks.batches("ids:0"))
    bodies = [node.op for function in graph.as_graph_def().library.function for node in function.node_def]
    assert any(op in bodies for op in ("Unique", "UniqueV2"))


def in_a_branch(support, x):
    return tf.cond(x[0, 0] > 0.0, lambda: tf.sparse_tensor_dense_matmul(support, x), lambda: x)


def in_a_loop(support, x):
    step = lambda k, h: [k + 1, tf.tanh(tf.sparse_tensor_dense_matmul(support, h))]  # noqa: E731
    shapes = [tf.TensorShape([]), tf.TensorShape([None, 6])]
    return tf.while_loop(lambda k, _: k < 3, step, [0, x], shapes, maximum_iterations=3)[1]


def in_a_function(support, x):
    inner = tf.function(lambda h: tf.sparse_tensor_dense_matmul(support, h), autograph=False)
    return tf.function(lambda h: tf.tanh(inner(inner(h))), autograph=False)(x)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("build", [in_a_branch, in_a_loop, in_a_function])
def test_a_product_in_a_body(build, version):
    shape = [networks.ROWS, networks.ROWS]
    layer = lambda x, support, w: tf.matmul(build(support, x), w)  # noqa: E731
    with sessions.control_flow(version):
        graph, fetches, feed = networks.graph_network(layer, shape)
    networks.steps(graph, fetches, [feed])
