"""Random graphs of ops on 4x4 matrices, as hypothesis draws them: every list, both kinds of variables, loops, branches,
containers, casts, devices, gradients. A drawn graph is a list of steps (op, two inputs, an inner list of steps).
"""

import tensorflow.compat.v1 as tf
from hypothesis import strategies as st
from tensorflow import raw_ops

SIZE = 4


def _image(x):
    return tf.reshape(x, [1, SIZE, SIZE, 1])


def _matrix(x):
    return tf.reshape(x, [SIZE, SIZE])


def _convolution(a, b):
    return _matrix(tf.nn.conv2d(_image(a), tf.reshape(b, [SIZE, SIZE, 1, 1]), 1, "SAME"))


def _batch_norm(version):
    def op(a, b):
        statistics = tf.reduce_mean(b) + tf.zeros([1])
        x = {"x": _image(a), "scale": statistics, "offset": statistics, "mean": [0.0], "variance": [1.0]}
        normed = getattr(raw_ops, "FusedBatchNorm" + version)(is_training=False, **x)
        return _matrix(normed.y) + normed.batch_mean

    return op


def _list_of(a, b):
    handle = raw_ops.TensorListReserve(element_shape=[SIZE, SIZE], num_elements=2, element_dtype=tf.float32)
    handle = raw_ops.TensorListSetItem(input_handle=handle, index=0, item=a)
    handle = raw_ops.TensorListSetItem(input_handle=tf.identity(handle), index=1, item=b)
    element = {"element_shape": [SIZE, SIZE], "element_dtype": tf.float32}
    stacked = raw_ops.TensorListStack(input_handle=handle, num_elements=2, **element)
    return stacked[1] + raw_ops.TensorListGetItem(input_handle=handle, index=0, **element)


def _pushed(a, b):
    handle = raw_ops.EmptyTensorList(element_shape=[SIZE, SIZE], max_num_elements=4, element_dtype=tf.float32)
    for item in (a, b):
        handle = raw_ops.TensorListPushBack(input_handle=handle, tensor=item)
    return raw_ops.TensorListPopBack(input_handle=handle, element_shape=[SIZE, SIZE], element_dtype=tf.float32).tensor


def _array(a, b):
    array = tf.TensorArray(tf.float32, 2).write(0, a).write(1, b)
    return array.stack()[0]


def _stack(a, b):
    handle = raw_ops.StackV2(max_size=2, elem_type=tf.float32)
    pushed = raw_ops.StackPushV2(handle=handle, elem=a)
    with tf.control_dependencies([pushed]):
        return tf.reshape(raw_ops.StackPopV2(handle=handle, elem_type=tf.float32), [SIZE, SIZE]) + b


def _losses(a, b):
    return tf.nn.softmax_cross_entropy_with_logits(labels=tf.nn.softmax(b), logits=a) + tf.zeros([SIZE, SIZE])


def _through_float16(a, b):
    return tf.cast(tf.nn.relu(tf.cast(a, tf.float16)), tf.float32)


def _reference(a, b):
    variable = tf.get_variable("v%d" % len(tf.global_variables()), [SIZE, SIZE], use_resource=False)
    return tf.matmul(a, variable) if len(tf.global_variables()) % 2 else a + variable


def _resource(a, b):
    variable = tf.get_variable("v%d" % len(tf.global_variables()), [SIZE, SIZE], use_resource=True)
    return tf.nn.relu(variable) + a


def _cond(a, b):
    return tf.cond(tf.reduce_sum(b) > 0, lambda: tf.matmul(a, b), lambda: tf.nn.relu(a))


# what one step makes of two matrices
OPS = {
    "MatMul": lambda a, b: tf.matmul(a, b),
    "Conv2D": _convolution,
    "BatchMatMul": lambda a, b: _matrix(tf.matmul(a[None], b[None])),
    "Einsum": lambda a, b: tf.einsum("ij,kj->ki", a, b),
    "Add": lambda a, b: a + b,
    "Mul": lambda a, b: a * b,
    "AddN": lambda a, b: tf.add_n([a, b, a]),
    "BiasAdd": lambda a, b: tf.nn.bias_add(a, b[0]),
    "Tanh": lambda a, b: tf.tanh(a),
    "Softmax": lambda a, b: tf.nn.softmax(a),
    "Log": lambda a, b: tf.log(a),
    "Relu": lambda a, b: tf.nn.relu(a),
    "Identity": lambda a, b: tf.identity(a),
    "IdentityN": lambda a, b: tf.identity_n([a, b])[1],
    "Transpose": lambda a, b: tf.transpose(a),
    "Concat": lambda a, b: tf.concat([a, b], 0)[:SIZE],
    "Pack": lambda a, b: tf.unstack(tf.stack([a, b]))[1],
    "Split": lambda a, b: tf.concat(tf.split(a, 2, 1), 1),
    "Maximum": lambda a, b: tf.maximum(a, b),
    "Select": lambda a, b: tf.where(a > b, a, b),
    "ArgMax": lambda a, b: tf.cast(tf.argmax(a, 0), tf.float32) + b,
    "ZerosLike": lambda a, b: tf.fill(tf.shape(a), 2.0) + tf.zeros_like(b),
    "MaxPool": lambda a, b: _matrix(tf.nn.max_pool2d(_image(a), 1, 1, "SAME")),
    "Exp": lambda a, b: tf.exp(a),
    "Pow": lambda a, b: tf.pow(a, b),
    "Sum": lambda a, b: tf.reduce_sum(a, 0, keepdims=True) + b,
    "Mean": lambda a, b: tf.reduce_mean(a) * b,
    "Losses": _losses,
    "Square": lambda a, b: tf.square(a),
    "Rsqrt": lambda a, b: tf.rsqrt(a),
    "Cumsum": lambda a, b: tf.cumsum(a),
    "float16": _through_float16,
    "mask": lambda a, b: tf.matmul(tf.cast(tf.cast(a, tf.int32), tf.float32), b),
    "double": lambda a, b: tf.cast(tf.cast(a, tf.float64) * 2, tf.float32),
    "FusedBatchNorm": _batch_norm(""),
    "FusedBatchNormV2": _batch_norm("V2"),
    "FusedBatchNormV3": _batch_norm("V3"),
    "reference": _reference,
    "resource": _resource,
    "TensorArray": _array,
    "Stack": _stack,
    "TensorList": _list_of,
    "pushed": _pushed,
    "cond": _cond,
    "const": lambda a, b: tf.constant(2.0, shape=[SIZE, SIZE]),
}
NAMES = sorted(OPS)
DEVICES = (
    "", "", "", "", "/device:GPU:0", "/device:CPU:0", "/job:localhost/replica:0/task:0/device:GPU:0", "/job:localhost",
)  # fmt: skip

NUMBERS = st.integers(0, 63)
PLAIN = st.tuples(st.sampled_from(NAMES), NUMBERS, NUMBERS, st.just(()))
INNER = st.lists(PLAIN, min_size=1, max_size=5).map(tuple)
LOOP = st.tuples(st.sampled_from(["while", "while", "swap"]), NUMBERS, NUMBERS, INNER)
NESTED = st.tuples(st.just("while"), NUMBERS, NUMBERS, st.lists(st.one_of(PLAIN, LOOP), min_size=1, max_size=4))
STEPS = st.lists(
    st.one_of(PLAIN, PLAIN, PLAIN, PLAIN, LOOP, NESTED, st.tuples(st.just("gradient"), NUMBERS, NUMBERS, st.just(()))),
    min_size=1,
    max_size=14,
)
PLACES = st.lists(st.sampled_from(DEVICES), min_size=1, max_size=5)


def build(steps, places, fetched):
    """Builds a drawn graph.

    Args:
        steps: drawn from STEPS.
        places: drawn from PLACES; step k is on the k-th of them, counted round and round.
        fetched: numbers; each names a tensor that is fetched besides the last one.

    Returns:
        (GraphDef, names of the fetches).
    """
    with tf.Graph().as_default() as graph:
        tensors = [tf.placeholder(tf.float32, [SIZE, SIZE], "x"), tf.constant(0.5, shape=[SIZE, SIZE], name="c")]
        _run(steps, tensors, places)
        fetches = sorted({tensors[number % len(tensors)].name for number in [*fetched, len(tensors) - 1]})
    return graph.as_graph_def(), fetches


def _run(steps, tensors, places=("",)):
    for number, (name, first, second, inner) in enumerate(steps):
        a, b = (tensors[k % len(tensors)] for k in (-1 - first, -1 - second))
        with tf.device(places[number % len(places)]):
            tensors.append(_step(name, a, b, inner))


def _step(name, a, b, inner):
    if name == "gradient":
        gradients = [g for g in tf.gradients(b, [a]) if g is not None]
        return tf.convert_to_tensor(gradients[0]) if gradients else a
    if name not in ("while", "swap"):
        return OPS[name](a, b)

    def body(i, x, y):
        tensors = [y, x]
        _run(inner, tensors)
        x, y = tensors[-1], tensors[-2]
        return (i + 1, y, x) if name == "swap" else (i + 1, x, y)

    return tf.while_loop(lambda i, x, y: i < 3, body, [tf.constant(0), a, b])[1]
