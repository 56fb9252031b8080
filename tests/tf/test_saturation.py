"""npu_shim_saturate: float16 stops at 65504; and the warning about a fixed loss scale beyond it."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.loss_scale import ExponentialUpdateLossScaleManager, FixedLossScaleManager, NPULossScaleOptimizer
from npu_shim.options import engine
from npu_shim.rewriter.graphdef import saturating

pytestmark = pytest.mark.usefixtures("activated")
EYE = np.eye(3, dtype=np.float32)
X = np.array([[1000.0, -1000.0, 1.0], [np.nan, 1.0, 1.0], [60.0, 0.0, -70000.0]], np.float32)
FIRST = tf.__version__.startswith("1.")


def product(x):
    """Overflows where a product is rounded to float16."""
    return tf.matmul(tf.matmul(x, 1000.0 * EYE), EYE)


def cast(x):
    """Overflows where a feed is cast to float16."""
    return tf.matmul(x, EYE)


def elements(x):
    """Overflows where an element is multiplied, added or squared in float16."""
    y = tf.matmul(x, EYE)
    return tf.matmul(tf.matmul(y * y + tf.abs(y), EYE) * 900.0, EYE)


def constant(x):
    """A constant that float16 does not hold."""
    return tf.matmul(tf.matmul(x, EYE) * 1e6, EYE)


def loop(x):
    return tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.matmul(y, 100.0 * EYE)), [0, x])[1]


def branch(x):
    return tf.cond(tf.reduce_all(x[2] < 100.0), lambda: product(x), lambda: x)


def called(x):
    return tf.function(product)(x)


BUILDERS = [product, cast, elements, constant, loop, branch, called]


def exact(build, x):
    """What float32 gives, with each result stopped at 65504 and rounded."""
    low = lambda values: np.clip(values, -65504, 65504).astype(np.float16).astype(np.float32)  # noqa: E731
    y = low(x)
    with np.errstate(all="ignore"):
        if build in (product, branch, called):
            y = low(y @ (1000 * EYE))
        elif build is elements:
            y = low(low(low(low(y) * low(y)) + abs(y)) * 900)
        elif build is constant:
            y = low(y * 65504)
        elif build is loop:
            for _ in range(3):
                y = low(y @ (100 * EYE))
        return low(y @ EYE)


def options(saturates=True, **more):
    return {"precision_mode": "allow_mix_precision", "npu_shim_saturate": saturates, **more}


def values(build, config):
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        x = tf.placeholder(tf.float32, [3, 3], "x")
        return session.run(tf.identity(build(x), name="out"), {x: X})


@pytest.mark.parametrize("build", BUILDERS, ids=lambda build: build.__name__)
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("xla", ["off", "on"])
def test_float16_stops_at_65504(build, version, xla):
    if FIRST and (version == 2 or xla == "on"):
        pytest.skip("sessions of TensorFlow 1.15 on a CPU: control flow of version 1, no clusters")
    with sessions.control_flow(version):
        given = values(build, sessions.config(**options(npu_shim_xla=xla)))
        without = values(build, sessions.config(**options(False, npu_shim_xla=xla)))
    np.testing.assert_array_equal(given, exact(build, X))
    assert np.isnan(given[1]).all(), "NaN stays NaN"
    assert not np.isfinite(without[[0, 2]]).all()


def without_clamps(graph_def):
    """The graph that was saturated: what is marked is taken out, and its readers read what it reads."""
    for nodes, returned in [(graph_def.node, {}), *((f.node_def, f.ret) for f in graph_def.library.function)]:
        clamps = {node.name: node.input[2] for node in nodes if saturating.MARK in node.attr and node.op == "SelectV2"}
        kept = [node for node in nodes if saturating.MARK not in node.attr]
        for node in kept:
            node.input[:] = [clamps.get(text.partition(":")[0], text) for text in node.input]
        for name, text in list(returned.items()):
            returned[name] = clamps.get(text.partition(":")[0], text)
        for node in kept:
            assert not any("saturated" in text for text in node.input)
        copies = [tf.NodeDef.FromString(node.SerializeToString()) for node in kept]
        del nodes[:]
        nodes.extend(copies)
    return graph_def


def trained():
    """A convolution, batch norm, a loop and Adam under a loss scale: the graph of a training step."""
    x = tf.placeholder(tf.float32, [2, 8, 8, 3], "x")
    y = tf.layers.conv2d(x, 4, 3, activation=tf.nn.relu, use_bias=True)
    y = tf.layers.batch_normalization(y, training=True)
    y = tf.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, tf.nn.relu(y * 2.0)), [0, tf.reduce_mean(y, [1, 2])])[1]
    loss = tf.reduce_mean(tf.square(tf.layers.dense(y, 5)))
    NPULossScaleOptimizer(tf.train.AdamOptimizer(), FixedLossScaleManager(1024.0)).minimize(loss, name="train")
    return loss


@pytest.mark.parametrize("build", [*BUILDERS, None], ids=lambda build: build.__name__ if build else "training")
@pytest.mark.parametrize("version", [1, 2])
def test_only_clamps_are_added(build, version):
    if FIRST and version == 2:
        pytest.skip("control flow of version 2 in TensorFlow 1.15")
    with tf.Graph().as_default() as graph, sessions.control_flow(version):
        fetches = ["out"] if build else ["out", "train"]
        tf.identity(build(tf.placeholder(tf.float32, [3, 3], "x")) if build else trained(), name="out")
    plain, _ = npu_shim.rewrite(graph.as_graph_def(), fetches, precision_mode="allow_mix_precision")
    result, plan = npu_shim.rewrite(graph.as_graph_def(), fetches, precision_mode="allow_mix_precision", saturate=True)
    added = sum(saturating.MARK in node.attr for node in result.node)
    assert added or any(saturating.MARK in n.attr for f in result.library.function for n in f.node_def)
    assert any("npu_shim_saturate: float16 results stop at 65504" in text for text in plan.warnings)
    assert saturating.saturated(result) is result, "idempotent"

    def numbered(node):
        node.input[:] = [text[:-2] if text.endswith(":0") and text.count(":") == 1 else text for text in node.input]
        return node

    stripped = without_clamps(result)
    assert [*map(numbered, stripped.node)] == [*map(numbered, plain.node)]
    assert stripped.library == plain.library


def test_what_would_compute_a_fed_float16_tensor_does_not_run():
    x = tf.placeholder(tf.float16, [3, 3], "x")
    y = tf.matmul(x, EYE.astype(np.float16))
    z = tf.cast(y, tf.float32) + 1.0
    with tf.Session(config=sessions.config(**options())) as session:
        np.testing.assert_array_equal(session.run(z, {y: 2 * EYE}), 2 * EYE + 1)  # nothing is fed for x


def test_a_graph_without_float16_stays_as_it_is():
    with tf.Graph().as_default() as graph:
        tf.add(tf.placeholder(tf.float32, [3, 3], "x"), EYE, name="out")
    for mode in ("force_fp32", "allow_mix_precision_bf16"):
        result, _ = npu_shim.rewrite(graph.as_graph_def(), ["out"], precision_mode=mode, saturate=True)
        assert not any(saturating.MARK in node.attr for node in result.node)


@pytest.mark.skipif(FIRST, reason="compile_step needs TensorFlow 2.15")
def test_compiled_steps_saturate(control_flow_of_version_1):
    for build in (product, cast, elements, loop, branch):
        with tf.Graph().as_default(), tf.Session() as session:
            tf.identity(build(tf.placeholder(tf.float32, [3, 3], "x")), name="out")
            step = npu_shim.compile_step(session, ["out:0"], ["x"], precision_mode="allow_mix_precision", saturate=True)
            np.testing.assert_array_equal(step({"x:0": X})[0], exact(build, X), err_msg=build.__name__)


def step_of(scaled):
    """A regression whose gradients are about 1; returns (loss, training op, placeholder)."""
    x = tf.placeholder(tf.float32, [8, 16])
    w = tf.get_variable("w", [16, 4], initializer=tf.constant_initializer(0.5))
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w)))
    return loss, scaled(loss), x


def by_hand(scale):
    def apply(loss):
        optimizer = tf.train.GradientDescentOptimizer(0.01)
        pairs = optimizer.compute_gradients(loss * scale)
        return optimizer.apply_gradients([(gradient / scale, variable) for gradient, variable in pairs])

    return apply


def clipped(scale):
    def apply(loss):
        optimizer = tf.train.AdamOptimizer(0.01)
        gradients, variables = zip(*optimizer.compute_gradients(loss * scale))
        gradients, _ = tf.clip_by_global_norm([gradient * (1.0 / scale) for gradient in gradients], 1.0)
        return optimizer.apply_gradients(zip(gradients, variables))

    return apply


def tensorflows(scale):
    return lambda loss: tf.train.experimental.MixedPrecisionLossScaleOptimizer(
        tf.train.MomentumOptimizer(0.01, 0.9), scale
    ).minimize(loss)


def managers(scale):
    return lambda loss: NPULossScaleOptimizer(
        tf.train.GradientDescentOptimizer(0.01), FixedLossScaleManager(scale, enable_overflow_check=False)
    ).minimize(loss)


SCALERS = [by_hand, clipped, tensorflows, managers]


def losses(scaled, **more):
    with tf.Graph().as_default(), tf.Session(config=sessions.config(**options(**more))) as session:
        loss, step, x = step_of(scaled)
        session.run(tf.global_variables_initializer())
        return [session.run([loss, step], {x: np.ones((8, 16))})[0] for _ in range(4)]


def said(caplog):
    records = [r for r in caplog.records if "a fixed loss scale of" in r.getMessage() and r.levelname == "WARNING"]
    return [record.getMessage() for record in records]


@pytest.mark.parametrize("scaler", SCALERS, ids=lambda scaler: scaler.__name__)
@pytest.mark.parametrize("resource", [False, True])
def test_a_fixed_scale_beyond_float16_is_a_warning(scaler, resource, caplog, control_flow_of_version_1):
    before = tf.resource_variables_enabled()
    (tf.enable_resource_variables if resource else tf.disable_resource_variables)()
    try:
        assert np.isnan(losses(scaler(2.0**32), saturates=False)[-1])
    finally:
        (tf.enable_resource_variables if before else tf.disable_resource_variables)()
    (text,) = said(caplog)
    assert "a fixed loss scale of 4.29497e+09" in text
    assert "beyond 65504" in text


@pytest.mark.parametrize("scaler", SCALERS, ids=lambda scaler: scaler.__name__)
def test_a_scale_that_fits_is_none(scaler, caplog, control_flow_of_version_1):
    assert np.isfinite(losses(scaler(2.0**10), saturates=False)).all()
    assert not said(caplog)


def decayed(loss):
    weights = tf.trainable_variables()
    return tf.train.AdamOptimizer(1e-6).minimize(loss + 1e-6 * tf.nn.l2_loss(weights[0]))


def falling(loss):
    manager = ExponentialUpdateLossScaleManager(2.0**32, 1000, 1, decr_ratio=0.5)
    return NPULossScaleOptimizer(tf.train.AdamOptimizer(0.01), manager).minimize(loss)


@pytest.mark.parametrize("apply", [decayed, falling], ids=lambda apply: apply.__name__)
def test_weight_decay_and_scales_that_fall_are_none(apply, caplog, control_flow_of_version_1):
    losses(apply, saturates=False)
    assert not said(caplog)


def test_a_fixed_scale_beyond_float16_trains_where_float16_saturates(caplog, control_flow_of_version_1):
    """The gradients stop at 65504, and are unscaled in float32: smaller steps than without the scale, and no NaN."""
    seen = losses(managers(2.0**17))
    assert np.isfinite(seen).all()
    assert sorted(seen, reverse=True) == seen
    assert seen[-1] < seen[0]
    assert not said(caplog)
    assert "npu_shim_saturate: float16 results stop at 65504" in caplog.text


@pytest.mark.skipif(not (engine.has_jax() or engine.interpreter()), reason="no JAX, and NPU_SHIM_JAX names none")
@pytest.mark.skipif(FIRST, reason="the engine needs TensorFlow 2.15 or later")
def test_steps_of_the_engine_saturate(patched, control_flow_of_version_1):
    session, pjrt = (losses(managers(2.0**17), npu_shim_engine=kind) for kind in ("session", "pjrt"))
    np.testing.assert_allclose(pjrt, session, rtol=2.0**-9)
    assert pjrt[-1] < pjrt[0]
