"""Whether a loop goes on is decided in float32 where all else is float16, which counts to 2048."""

import pytest
import tensorflow.compat.v1 as tf
from test_functions import Case

END = 2603.0


def loop(body, *values, more=lambda count, *_: count < END):
    return [tf.identity(value) for value in tf.nest.flatten(tf.while_loop(more, body, list(values)))]


def where(x):
    return loop(lambda i: tf.where(i >= 0.0, i + 1.0, i), 0.0)


def branch(x):
    return loop(lambda i: tf.cond(i >= 0.0, lambda: i + 1.0, lambda: i), 0.0)


def printed(x):
    return loop(lambda i: tf.Print(i + 1.0, [i], first_n=1), 0.0)


def product(x):
    return loop(lambda i: i * 1.0003, 1000.0)


def through_integers(x):
    return loop(lambda i: tf.cast(tf.cast(i, tf.int32) + 1, tf.float32), 0.0)


def vector(x):
    ends = tf.constant([END, END + 2.0])
    return loop(lambda i: tf.where(i < ends, i + 1.0, i), tf.zeros([2]), more=lambda i: tf.reduce_any(i < ends))


def one_behind(x):
    return loop(lambda i, j: (i + 1.0, i * 1.0), 0.0, 0.0, more=lambda _, j: j < END)


def packed(x):
    return loop(lambda i: tf.stack([i[0] + 1.0, i[1]]), tf.zeros([2]), more=lambda i: i[0] < END)


def root(x):
    return loop(lambda y: (y + 2.0 / y) / 2.0, 1.0, more=lambda y: tf.abs(y * y - 2.0) > 1e-5)


def told(x):
    return loop(
        lambda i, _: (tf.maximum(i + 1.0, 0.0), i + 1.0 >= END), 0.0, False, more=lambda _, done: tf.logical_not(done)
    )


def loop_in_loop(x):
    inner = lambda j, k: (tf.maximum(j + 1.0, 0.0), k + 1)  # noqa: E731
    return loop(lambda i: tf.while_loop(lambda _, k: k < 3, inner, [i, 0])[0], 0.0)


def array(x):
    return loop(lambda i: tf.TensorArray(tf.float32, 2).unstack(tf.stack([i, i + 1.0])).read(1), 0.0)


def variable(x):
    count = tf.get_variable("count", [], initializer=tf.zeros_initializer(), use_resource=True)

    def body(_):
        with tf.control_dependencies([count.assign(tf.minimum(count + 1.0, 5000.0))]):
            return count.read_value()

    return loop(body, 0.0)


def flag(x):
    def body(i, _):
        return tf.cond(i >= 0.0, lambda: i + 1.0, lambda: i), tf.cond(i + 1.0 >= END, lambda: 1, lambda: 0)

    return loop(body, 0.0, 0, more=lambda _, done: tf.equal(done, 0))


def left(x):
    ends = tf.constant([END, END + 2.0])
    more = lambda i: tf.size(tf.boolean_mask(i, i < ends)) > 0  # noqa: E731
    return loop(lambda i: tf.where(i < ends, i + 1.0, i), tf.zeros([2]), more=more)


def largest(x):
    step = lambda i: tf.nn.top_k(tf.sort(i + tf.constant([1.0, 0.5])), 2)[0]  # noqa: E731
    return loop(step, tf.zeros([2]), more=lambda i: i[0] < END)


COUNTS = [
    where, branch, printed, product, through_integers, vector, one_behind, packed, root, told, loop_in_loop, array,
    variable, flag, left, largest,
]  # fmt: skip


def agrees(build):
    done = Case(build, "force_fp16")
    assert values(done, done.rewritten) == values(done, done.graph_def)


def values(done, graph_def):
    """What a graph gives; a loop that does not end is an error."""
    config = tf.ConfigProto(operation_timeout_in_ms=20000)
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        tf.import_graph_def(graph_def, name="")
        session.run(done.init)
        return [value.tolist() for value in session.run(done.fetches)]


@pytest.mark.parametrize("build", COUNTS)
def test_a_loop_ends_where_it_would_in_float32(build):
    agrees(build)


@pytest.mark.usefixtures("control_flow_of_version_2")
@pytest.mark.parametrize("build", COUNTS)
def test_a_loop_of_version_2_ends_where_it_would_in_float32(build):
    agrees(build)


def test_products_beside_a_count_and_before_a_condition_are_float16():
    def build(x):
        grown = lambda i, h: (tf.maximum(i + 1.0, 0.0), tf.matmul(h, h) * 0.5)  # noqa: E731
        return loop(grown, 0.0, x, more=lambda i, h: tf.logical_and(i < 3.0, tf.reduce_sum(h) > -100.0))

    done = Case(build, "force_fp16", device="GPU")
    assert done.dtypes("MatMul", "BatchMatMulV2") == {tf.float16.as_datatype_enum}
