"""What graphs of TensorFlow 1 have beside arithmetic: queues, py_func, summaries, strings, references, controls."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

pytestmark = pytest.mark.usefixtures("patched")
MIX = {"precision_mode": "allow_mix_precision"}
EYE = np.eye(4, dtype=np.float32)


def eye():
    """A fed identity: a product of constants would be folded before it is lowered."""
    return tf.placeholder(tf.float32, [4, 4], "x")


FED = {"x:0": EYE}


def run(build, feeds=None, low=frozenset({"float16"})):
    """The result of a graph in mixed precision; the dtypes that its matrix products ran in are checked as well."""
    with tf.Graph().as_default():
        fetches = build()
        with sessions.started(config=sessions.config(**MIX)) as session:
            ran = sessions.Ran(session, fetches, feeds)
    if low:
        assert ran.dtypes("MatMul")
        assert set(ran.dtypes("MatMul").values()) <= low
    return ran.values


def test_a_reference_variable_is_read_where_the_graph_reads_it():
    """Read, cast and Enter in this order would give the value from before the loop in every iteration."""

    def build():
        tf.disable_control_flow_v2()
        v = tf.get_variable("v", [4, 4], initializer=tf.zeros_initializer(), use_resource=False)

        def body(i, total):
            with tf.control_dependencies([tf.assign_add(v, EYE)]):
                now = tf.identity(v)
            return i + 1, total + tf.matmul(now, EYE)

        return tf.while_loop(lambda i, _: i < 3, body, [0, tf.zeros([4, 4])], parallel_iterations=1)[1]

    np.testing.assert_array_equal(run(build, low=set()), 6 * EYE)  # 1 + 2 + 3


@pytest.mark.parametrize("use_resource", [False, True])
def test_reads_before_and_after_an_assignment(use_resource):
    def build():
        v = tf.get_variable("v", initializer=EYE, use_resource=use_resource)
        before = tf.matmul(tf.identity(v.read_value()), EYE)
        with tf.control_dependencies([before]):
            assigned = tf.assign(v, 3 * EYE)
        with tf.control_dependencies([assigned]):
            after = tf.matmul(v.read_value(), EYE)
        return before, after

    before, after = run(build)
    np.testing.assert_array_equal(before, EYE)
    np.testing.assert_array_equal(after, 3 * EYE)


def test_what_comes_out_of_a_queue_is_what_went_in():
    def build():
        queue = tf.FIFOQueue(3, [tf.float32, tf.int32, tf.string], [[4, 4], [], []])
        with tf.control_dependencies([queue.enqueue((tf.matmul(2 * EYE, EYE), 7, "seven"))]):
            product, number, text = queue.dequeue()
        return product, tf.matmul(product, EYE), number, text

    product, again, number, text = run(build)
    assert product.dtype == np.float32
    np.testing.assert_array_equal(product, 2 * EYE)
    np.testing.assert_array_equal(again, 2 * EYE)
    assert (number, text) == (7, b"seven")


def test_python_functions_see_float32():
    seen = []

    def double(x):
        seen.append(x.dtype)
        return 2 * x

    def build():
        return tf.matmul(tf.py_func(double, [tf.matmul(eye(), EYE)], tf.float32, stateful=False), EYE)

    np.testing.assert_array_equal(run(build, FED), 2 * EYE)
    assert seen == [np.float32]


def test_summaries_and_strings_show_float32():
    def build():
        product = tf.matmul(eye(), 0.5 * EYE)
        tf.summary.scalar("mean", tf.reduce_mean(product))
        tf.summary.histogram("values", product)
        return tf.summary.merge_all(), tf.as_string(product), tf.argmax(product, 1), tf.equal(product, 0.5)

    summary, text, places, equal = run(build, FED)
    values = {value.tag.rpartition("/")[2].partition("_")[0]: value for value in tf.Summary.FromString(summary).value}
    assert values["mean"].simple_value == 0.125
    assert values["values"].histo.num == 16
    assert text[0, 0] == b"0.500000"
    assert places.tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(equal, EYE == 1)


def test_a_placeholder_is_fetched_as_it_is_fed():
    def build():
        x = tf.placeholder(tf.float32, [4, 4], "x")
        return x, tf.matmul(x, x)

    fed = EYE * np.float32(1 / 3)
    x, product = run(build, {"x:0": fed})
    np.testing.assert_array_equal(x, fed)
    np.testing.assert_allclose(product, fed @ fed, rtol=2e-3)


def test_a_low_tensor_can_be_fed_and_what_it_is_made_of_not():
    def build():
        h = tf.matmul(tf.placeholder(tf.float32, [4, 4], "x"), EYE, name="h")
        return tf.matmul(tf.nn.relu(h), EYE)

    # TensorFlow 1.15 does not call Grappler where what is fed is not a placeholder
    low = {"float32"} if tf.__version__ < "2" else {"float16"}
    np.testing.assert_array_equal(run(build, {"h:0": 5 * EYE}, low), 5 * EYE)


def test_colocation_and_control_inputs_survive():
    """The low node of a fetched tensor has a new name; who names it in `_class` or waits for it must still find one."""

    def build():
        first = tf.matmul(eye(), EYE, name="first")
        with tf.colocate_with(first), tf.control_dependencies([first]):
            second = tf.matmul(2 * EYE, EYE, name="second")
        return first, second

    first, second = run(build, FED)
    np.testing.assert_array_equal(second, 2 * first)


def test_a_partial_run_of_a_graph_with_an_unknown_rank():
    def build():
        x = tf.placeholder(tf.float32, None, "x")
        flat = tf.reshape(x, [4, 4])
        return tf.matmul(flat, EYE), tf.shape(x), tf.rank(x), tf.size(flat)

    product, shape, rank, size = run(build, {"x:0": np.ones([2, 8])})
    np.testing.assert_array_equal(product, np.ones([4, 4]))
    assert (shape.tolist(), rank, size) == ([2, 8], 2, 16)
