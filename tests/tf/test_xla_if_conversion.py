"""Updates that may be skipped, in compiled steps: always run, with the same bits, skipped or not."""

from dataclasses import replace

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.loss_scale import ExponentialUpdateLossScaleManager, LossScaleOptimizer
from npu_shim.xla import pipeline
from npu_shim.xla.passes.resources import random_ops

pytestmark = [
    pytest.mark.skipif(tf.__version__.startswith("1."), reason="compile_step needs TensorFlow 2.15"),
    pytest.mark.usefixtures("control_flow_of_version_1"),
]
SCALES = {"applied": 2.0**10, "skipped": 2.0**34}


def built(scale, use_resource):
    """A table and a product, dynamic loss scaling, and a moving average that skipped steps leave alone."""
    graph = tf.Graph()
    with graph.as_default():
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
        tf.group(train, optimizer.when_finite(lambda: average.apply([kernel])), name="train")
        tf.global_variables_initializer()
    return graph


def trained(scale, use_resource, steps=8):
    with tf.Session(graph=built(scale, use_resource)) as session:
        session.run("init")
        options = {"precision_mode": "allow_mix_precision"}
        step = npu_shim.compile_step(session, ["loss:0", "train"], ["ids", "x"], **options)
        draw = np.random.RandomState(0)
        feeds = [{"ids": draw.randint(0, 9, 6), "x": draw.randn(6, 8).astype("f")} for _ in range(steps)]
        losses = [step(feed)[0] for feed in feeds]
        state = {name: value for name, value in step.state().items() if name != random_ops.STATE}
        nodes = step._prepared.for_shapes([[6], [6, 8]]).graph_def.node
    return losses, state, [node.name for node in nodes if node.op in ("If", "StatelessIf", "SelectV2")]


@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
@pytest.mark.parametrize("kind", SCALES)
def test_an_update_that_always_runs_has_the_bits_of_one_that_is_skipped(kind, use_resource, monkeypatch):
    losses, state, ifs = trained(SCALES[kind], use_resource)
    assert {name.partition("/")[0] for name in ifs if "finite" in name} == {"apply_if_finite"}  # no sum of squares
    assert not [name for name in ifs if "finite" in name and name.endswith("Merge_if")]
    with monkeypatch.context() as patch:
        others = tuple(step for step in pipeline.SHAPES.passes if step.name != "predicate-updates")
        assert len(others) == len(pipeline.SHAPES.passes) - 1
        patch.setattr(pipeline, "SHAPES", replace(pipeline.SHAPES, passes=others))
        expected, before, kept = trained(SCALES[kind], use_resource)
    assert {name for name in kept if "finite" in name} >= {"all_finite/cond/Merge_if", "apply_if_finite/Merge_if"}
    np.testing.assert_array_equal(losses, expected)
    assert state.keys() == before.keys()
    for name, value in state.items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)
    # the case is what it is called
    assert (state["global_step"] == 8) == (kind == "applied")


def replaced(build):
    """The ops of a step with a tf.cond that `build` makes of (v, x), in place of which an update runs always."""
    graph = tf.Graph()
    with graph.as_default():
        x = tf.placeholder(tf.float32, [4], "x")
        v = tf.get_variable("v", [4], initializer=tf.zeros_initializer(), use_resource=True)
        w = tf.get_variable("w", [4, 4], initializer=tf.ones_initializer(), use_resource=True)
        tf.group(build(v, w, x), name="train")
        tf.global_variables_initializer()
    with tf.Session(graph=graph) as session:
        session.run("init")
        step = npu_shim.compile_step(session, ["train"], ["x"])
        return [node.op for node in step._prepared.for_shapes([[4]]).graph_def.node]


def add(v, x):
    return lambda: tf.group(v.assign_add(x))


CONDITIONALS = {
    "finite": (lambda v, w, x: tf.cond(tf.reduce_all(tf.is_finite(x)), add(v, x), tf.no_op), False),
    "not nan": (lambda v, w, x: tf.cond(tf.logical_not(tf.reduce_any(tf.is_nan(x))), add(v, x), tf.no_op), False),
    "positive": (lambda v, w, x: tf.cond(tf.reduce_all(x > 0), add(v, x), tf.no_op), True),
    "either way": (
        lambda v, w, x: tf.cond(tf.reduce_all(tf.is_finite(x)), add(v, tf.ones([4])), lambda: tf.group(v.assign(x))),
        True,
    ),
    "rows": (
        lambda v, w, x: tf.cond(
            tf.reduce_all(tf.is_finite(x)), lambda: tf.group(tf.scatter_add(w, [1], x[None, :])), tf.no_op
        ),
        True,
    ),
    "product": (
        lambda v, w, x: tf.cond(
            tf.reduce_all(tf.is_finite(x)), lambda: tf.group(v.assign(tf.matmul(w, x[:, None])[:, 0])), tf.no_op
        ),
        True,
    ),
}


@pytest.mark.parametrize("kind", CONDITIONALS)
def test_only_cheap_updates_under_a_test_of_finiteness_always_run(kind):
    """Another test may fail often; a product costs, and so does choosing all rows of a table of which one is written;
    a write on either side would be two."""
    build, stays = CONDITIONALS[kind]
    assert ("If" in replaced(build)) == stays
