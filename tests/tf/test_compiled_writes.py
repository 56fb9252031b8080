"""Compiled steps whose writes come between a forward pass and its gradient, go to a slice, or may be skipped."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf
from compiled_steps import assert_as_in_a_session

import npu_shim
from npu_shim.loss_scale import ExponentialUpdateLossScaleManager, LossScaleOptimizer

pytestmark = [*sessions.COMPILED, pytest.mark.usefixtures("control_flow_of_version_1")]
STARTS = np.arange(16, dtype=np.float32).reshape(4, 4)


def read_in_a_branch(v, x, p):
    """The gradient's If read v anew, after the write."""
    y = tf.cond(p, lambda: x * x * v, lambda: x + tf.gather(v, [0, 1, 1, 2]) * x * x)
    return written_before_its_gradient(y, v, x)


def read_in_a_branch_of_a_branch(v, x, p):
    y = tf.cond(p, lambda: tf.cond(x[0, 0] > 1.0, lambda: x * x * v, lambda: v * x), lambda: x * x)
    return written_before_its_gradient(y, v, x)


def written_before_its_gradient(y, v, x):
    with tf.control_dependencies([y]):
        written = tf.assign(v, x)
    with tf.control_dependencies([written]):
        return [tf.gradients(tf.reduce_sum(y * y + tf.identity(v)), x)[0]]


def slice_of_what_it_was(v, x, p):
    """XLA read in place what it had written."""
    return seen_after(v, v[1:3].assign(tf.clip_by_value(v - x, -4.0, 4.0)[:2]))


def row_in_a_branch(v, x, p):
    return seen_after(
        v, tf.cond(p, lambda: tf.group(v[1].assign(v[2] * 2.0)), lambda: tf.group(v[:, 1:3].assign(v[:, :2])))
    )


def slices_with_every_mask(v, x, p):
    with tf.control_dependencies([v[::2, tf.newaxis].assign(tf.ones([2, 1, 4]) * x[0, 1])]):
        return seen_after(v, v[..., 0].assign(x[0]))


def row_of_an_array(v, x, p):
    """XLA added the gradient of one row to all of them."""
    array = tf.TensorArray(tf.float32, 4, clear_after_read=False).unstack(x * x)
    y = tf.reduce_sum(array.gather([0]) * v[:1]) + tf.reduce_sum(array.stack() * v)
    y += tf.reduce_sum(array.gather(tf.range(tf.shape(x[:1])[0]))) + tf.reduce_sum(array.gather([2]) * 3.0)
    return [y, tf.gradients(y, x)[0]]


def row_in_front_of_others(v, x, p):
    array = tf.TensorArray(tf.float32, 3, clear_after_read=False).unstack(x[None])
    array = tf.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, a.write(i, x * 2.0)), [1, array])[1]
    return [array.stack()]


def seen_after(v, written):
    with tf.control_dependencies([written]):
        return [v.read_value() + 0.0]


BUILDS = [
    read_in_a_branch, read_in_a_branch_of_a_branch, slice_of_what_it_was, row_in_a_branch, slices_with_every_mask,
    row_of_an_array, row_in_front_of_others,
]  # fmt: skip


def test_a_step_gives_what_a_session_gives():
    """Each of these, with both kinds of variables: one step."""
    with tf.Graph().as_default() as graph:
        x, p, fetches = tf.placeholder(tf.float32, [4, 4]), tf.placeholder(tf.bool, []), []
        for build in BUILDS:
            for use_resource in (False, True):
                with tf.variable_scope("%s%d" % (build.__name__, use_resource)):
                    v = tf.get_variable("v", initializer=tf.constant(STARTS), use_resource=use_resource)
                    fetches += build(v, x, p)
        init = tf.global_variables_initializer()
    batches = [{x: np.random.RandomState(n).randint(-2, 3, (4, 4)), p: n == 0} for n in range(2)]
    assert_as_in_a_session(graph, fetches, batches, init, 0, 0)


def test_rows_in_one_branch_and_all_in_the_other():
    """Regression: an error named a Merge of TensorFlow's."""
    with tf.Graph().as_default() as graph:
        v = tf.get_variable("v", initializer=tf.constant(STARTS), use_resource=True)
        p = tf.placeholder(tf.bool, [])
        loss = tf.cond(p, lambda: tf.reduce_sum(tf.gather(v, [0, 2])), lambda: tf.reduce_sum(v * 0.5))
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
        init = tf.global_variables_initializer()
    assert_as_in_a_session(graph, [train], [{p: True}, {p: False}], init)


@pytest.mark.parametrize(("scale", "use_resource"), [(2.0**10, True), (2.0**34, False)], ids=["applied", "skipped"])
def test_updates_that_a_loss_scale_skips(scale, use_resource):
    """A table and a product, and a moving average that skipped steps leave alone."""
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(1)
        ids, x = tf.placeholder(tf.int32, [6], "ids"), tf.placeholder(tf.float32, [6, 8], "x")
        draw = tf.random_normal_initializer(0, 0.5, seed=3)
        table = tf.get_variable("table", [9, 8], initializer=draw, use_resource=use_resource)
        kernel = tf.get_variable("kernel", [8, 8], initializer=draw, use_resource=use_resource)
        loss = tf.reduce_mean(tf.square(tf.matmul(x + tf.gather(table, ids), kernel)), name="loss")
        manager = ExponentialUpdateLossScaleManager(scale, 4, 2, 2.0, 0.5)
        optimizer = LossScaleOptimizer(tf.train.AdamOptimizer(0.1), manager, on_stuck="ignore")
        train = optimizer.minimize(loss, tf.train.get_or_create_global_step())
        average = tf.train.ExponentialMovingAverage(0.9)
        with tf.control_dependencies([train]):
            train = tf.group(optimizer.when_finite(lambda: average.apply([kernel])))
        init = tf.global_variables_initializer()
    draw = np.random.RandomState(0)
    large = 1.0 if scale < 2**20 else 1e30
    batches = [
        {ids: draw.randint(0, 9, 6), x: draw.randn(6, 8).astype("f") * (large if n < 4 else 1)} for n in range(8)
    ]
    step = assert_as_in_a_session(graph, [train], batches, init, 1e-3, 1e-4)
    assert (step.state()["global_step"] == 8) == (scale < 2**20)


@pytest.mark.parametrize(
    ("feeds", "message"),
    [([1.0], "feeds are list, expected a dict"), ({"x:0": [[1.0], [2.0, 3.0]]}, "feed 'x:0' is not an array")],
)
def test_feeds_that_are_no_feeds_are_named(feeds, message):
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [2, 2], "x")
        doubled = x * 2.0
    with pytest.raises(npu_shim.ConfigError, match=message):
        npu_shim.compile_step(graph, doubled, [x])(feeds)


@pytest.mark.parametrize("second", [{"container": "B"}, {"container": "A"}, {}], ids=["B", "the same", "none"])
def test_a_variable_is_its_name_in_its_container(second, tmp_path):
    """A second handle by the same name is another variable in another container, and the same one in the same."""
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [4, 4], "x")
        with tf.container("A"):
            v = tf.Variable(np.ones([4, 4], "f"), use_resource=True, name="v")
            alone = tf.Variable(np.ones([4, 4], "f"), use_resource=True, name="alone")
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[4, 4], shared_name="v", name="other", **second)
        start = tf.raw_ops.AssignVariableOp(resource=handle, value=5 * tf.ones([4, 4]))
        read = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
        with tf.control_dependencies([alone.assign_add(tf.matmul(x, v + read))]):
            update = tf.raw_ops.AssignAddVariableOp(resource=handle, value=tf.matmul(x, alone.read_value()) * 0.01)
        with sessions.started() as session:
            session.run(start)
            step = npu_shim.compile_step(session, [update], [x])
            for _ in range(2):
                session.run(update, {x: STARTS})
                step({x: STARTS})
            wanted, actual = session.run([v, read, alone]), step.state()
            names = ["v@A" if "v@A" in actual else "v", "v" if second != {"container": "B"} else "v@B", "alone"]
            assert set(actual) == set(names)
            for name, value in zip(names, wanted):
                np.testing.assert_allclose(actual[name], value, rtol=1e-5, err_msg=name)
            saver = tf.train.Saver([alone])
            session.run(alone.initializer)
            saver.restore(session, step.save(str(tmp_path / "step")))  # by its plain name
            np.testing.assert_allclose(session.run(alone), wanted[2], rtol=1e-5)


def test_a_checkpoint_of_a_step_has_the_graphs_variable_of_a_container_under_its_name(tmp_path):
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4], "x")
        with tf.container("A"):
            v = tf.Variable(np.ones(4, "f"), use_resource=True, name="v")
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[4], shared_name="v", container="B")
        start = tf.raw_ops.AssignVariableOp(resource=handle, value=tf.fill([4], 5.0))
        tf.group(v.initializer, start, name="init")
        step = npu_shim.compile_step(graph, [v.assign_add(x).op], [x], initializer="init")
        step({x: np.ones(4)})
        path = step.save(str(tmp_path / "step"))
        saved = tf.train.load_checkpoint(path)
        assert "v@A" not in saved.get_variable_to_shape_map()
        np.testing.assert_array_equal(saved.get_tensor("v"), np.full(4, 2.0))
        step({x: np.ones(4)})
        step.load(path)
        np.testing.assert_array_equal(step.state()["v@A"], np.full(4, 2.0))


def test_a_checkpoint_of_a_step_has_the_graphs_variable_not_its_namesake_of_a_container(tmp_path):
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4], "x")
        v = tf.Variable(np.ones(4, "f"), use_resource=True, name="v")
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[4], shared_name="v", container="B")
        start = tf.raw_ops.AssignVariableOp(resource=handle, value=tf.fill([4], 5.0))
        tf.group(v.initializer, start, name="init")
        update = tf.raw_ops.AssignAddVariableOp(resource=handle, value=x)  # v has no part in the step
        step = npu_shim.compile_step(graph, [update], [x], initializer="init")
        step({x: np.ones(4)})
        np.testing.assert_array_equal(step.state()["v@B"], np.full(4, 6.0))
        saved = tf.train.load_checkpoint(step.save(str(tmp_path / "step")))
        np.testing.assert_array_equal(saved.get_tensor("v"), np.ones(4))
