"""Synthetic graphs for bench_rewrite.py, as GraphDef bytes; each grows with one number."""

import functools

import tensorflow.compat.v1 as tf


def chain(nodes):
    """About `nodes` nodes: layers of matrix, gray, black and data-moving ops on variables and constants."""
    graph = tf.GraphDef()
    names = _Names(graph)
    x = names.add("Placeholder", (), dtype=tf.float32)
    shape = names.constant([4, 4], tf.int32)
    bias = names.constant([0.5] * 4)
    while len(graph.node) < nodes:
        weight = names.add("VarHandleOp", (), dtype=tf.float32, shape=tf.TensorShape([4, 4]))
        read = names.add("ReadVariableOp", [weight], dtype=tf.float32)
        x = names.add("MatMul", [x, read], T=tf.float32)
        x = names.add("BiasAdd", [x, bias], T=tf.float32)
        x = names.add("Relu", [x], T=tf.float32)
        x = names.add("Mul", [x, names.constant(0.5)], T=tf.float32)
        x = names.add("Exp", [x], T=tf.float32)
        x = names.add("Reshape", [x, shape], T=tf.float32, Tshape=tf.int32)
        x = names.add("Tanh", [x], T=tf.float32)
    names.add("Identity", [x], "out", T=tf.float32)
    return graph.SerializeToString()


class _Names:
    """Adds nodes to a GraphDef, each named after its number."""

    def __init__(self, graph):
        self._graph = graph

    def add(self, op, inputs, name=None, **attrs):
        node = self._graph.node.add(name=name or "n%d" % len(self._graph.node), op=op, input=inputs)
        for key, value in attrs.items():
            if isinstance(value, tf.TensorShape):
                node.attr[key].shape.CopyFrom(value.as_proto())
            else:
                node.attr[key].type = value.as_datatype_enum
        return node.name

    def constant(self, value, dtype=tf.float32):
        name = self.add("Const", (), dtype=dtype)
        self._graph.node[-1].attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, dtype))
        return name


def tensor_lists(count):
    """A TensorList of matrix products: `count` list ops, half of them writing."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4, 4], "x")
        handle = tf.raw_ops.TensorListReserve(element_shape=[4, 4], num_elements=count // 2, element_dtype=tf.float32)
        for number in range(count // 2 - 1):
            item = tf.matmul(x, x) if number % 8 == 0 else x
            handle = tf.raw_ops.TensorListSetItem(input_handle=handle, index=number, item=item)
        parts = [
            tf.raw_ops.TensorListGetItem(
                input_handle=handle, index=number, element_shape=[4, 4], element_dtype=tf.float32
            )
            for number in range(count // 2)
        ]
        tf.identity(tf.add_n(parts), "out")
    return graph.as_graph_def().SerializeToString()


def functions(count):
    """`count` functions of a matrix product and an activation, each called once, one after the other."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4, 4], "x")
        for number in range(count):
            x = _layer(float(number))(x)
        tf.identity(x, "out")
    return graph.as_graph_def().SerializeToString()


def _layer(scale):
    @tf.function(autograph=False)
    def layer(x):
        return tf.nn.relu(tf.matmul(x, x) * scale)

    return layer


def nested_loops(count):
    """`count` times three loops in one another (v1 control flow), a matrix product in each."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4, 4], "x")
        for _ in range(count):
            x = _loop(3, x)
        tf.identity(x, "out")
    return graph.as_graph_def().SerializeToString()


def _loop(depth, x):
    def body(i, v):
        v = tf.matmul(v, x)
        return i + 1, tf.nn.relu(_loop(depth - 1, v) if depth > 1 else v)

    return tf.while_loop(lambda i, _: i < 3, body, [0, x])[1]


def graphs():
    """(name, function that makes GraphDef bytes, fetches, feeds) of every synthetic graph."""
    makers = [("chain %dk" % n, functools.partial(chain, 1000 * n)) for n in (1, 5, 20, 50, 200)]
    makers += [("%d TensorList ops" % n, functools.partial(tensor_lists, n)) for n in (200, 800, 3200)]
    makers += [("200 functions", functools.partial(functions, 200))]
    makers += [("30 nests of 3 loops", functools.partial(nested_loops, 30))]
    return [(name, make, ["out:0"], None) for name, make in makers]
