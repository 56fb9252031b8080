"""A loss scale that a script takes out of its gradients by hand is taken out in float32."""

import logging

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim

SCALE, SMALL = 8192.0, 2.5e-9  # an unscaled gradient of 2e-9, which is zero in float16
BY_HAND = {
    "division": lambda g, s: g / s,
    "product": lambda g, s: g * (1 / s),
    "reciprocal": lambda g, s: tf.scalar_mul(tf.reciprocal(s), g),
    "clipped": lambda g, s: tf.clip_by_value(g / s, -1.0, 1.0),
    "reshaped": lambda g, s: tf.reshape(tf.reshape(g, [-1]) / s, g.shape),
    "towers": lambda g, s: tf.add_n([g, g]) / (2.0 * s),
    "in parts": lambda g, s: tf.add_n([g / 64.0, g / 64.0]) * (32.0 / s),
    "goes on": lambda g, s: g / s * 0.5 * 2.0,
    "no nan": lambda g, s: tf.div_no_nan(g, s) if tf.is_tensor(s) else tf.div_no_nan(g, [s]),
    "power": lambda g, s: g * tf.pow(tf.convert_to_tensor(s), -1.0),
    "function": lambda g, s: tf.function(tf.truediv, autograph=False)(g, tf.convert_to_tensor(s)),
}


def trained(way, scale):
    """Returns the op that trains w from 1 to 0.976 in a step, the unscaled gradient, and w."""
    x = tf.placeholder_with_default(np.full([8, 4], 0.1, np.float32), [8, 4])
    w = tf.get_variable("w", [4, 2], initializer=tf.ones_initializer())
    loss = SMALL * tf.reduce_sum(tf.matmul(x, w))
    optimizer = tf.train.GradientDescentOptimizer(0.024 / (SMALL * 0.8))
    unscaled = [(BY_HAND[way](g, scale), v) for g, v in optimizer.compute_gradients(loss * scale, [w])]
    return optimizer.apply_gradients(unscaled), tf.identity(unscaled[0][0], "unscaled"), w


KINDS = ("constant", "variable", "placeholder")
PLAIN = [(way, kind) for way in ("division", "product", "reciprocal", "clipped", "reshaped") for kind in KINDS]
OTHERS = [
    ("towers", "constant"), ("towers", "variable"), ("in parts", "constant"), ("goes on", "constant"),
    ("no nan", "constant"), ("power", "variable"), ("function", "variable"), ("function", "placeholder"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("profile", "cases"), [("ascend910", PLAIN), ("gpu", PLAIN[:1] + OTHERS)], ids=["plain", "others"]
)
def test_weights_move_by_gradients_that_float16_has_not(patched, profile, cases):
    config = sessions.config(precision_mode="allow_mix_precision", npu_shim_profile=profile)
    with tf.Graph().as_default():
        built = {}
        for way, kind in cases:
            if kind == "constant" and way == "reciprocal":
                continue
            with tf.variable_scope(("%s_%s" % (way, kind)).replace(" ", "_")), tf.name_scope(kind):
                built[way, kind] = trained(way, {
                    "constant": lambda: SCALE,
                    "variable": lambda: tf.get_variable("scale", initializer=SCALE, trainable=False),
                    "placeholder": lambda: tf.placeholder_with_default(SCALE, []),
                }[kind]())  # fmt: skip
        with tf.Session(config=config) as session:
            session.run(tf.global_variables_initializer())
            session.run([train for train, _, _ in built.values()])
            weights = session.run({"%s %s" % case: w for case, (_, _, w) in built.items()})
    for case, value in weights.items():
        np.testing.assert_allclose(value, 0.976, rtol=2e-4, err_msg=case)


def reasons(graph, fetches):
    _, plan = npu_shim.rewrite(graph.as_graph_def(), fetches, precision_mode="allow_mix_precision")
    return {decision.node: (decision.becomes, decision.reason.name) for decision in plan.decisions()}


def test_the_plan_says_why_and_does_not_depend_on_the_optimizer():
    with tf.Graph().as_default() as graph:
        train, unscaled, _ = trained("division", SCALE)
    alone, whole = reasons(graph, [unscaled.op.name]), reasons(graph, [train.name, unscaled.op.name])
    [name] = [name for name, (_, reason) in whole.items() if reason == "UNSCALES"]
    assert graph.get_operation_by_name(name).type == "RealDiv"
    assert alone == {name: whole[name] for name in alone}


def test_a_scale_that_nothing_takes_out_is_told(patched, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("npu_shim"), "propagate", True)
    for takes_out in (lambda g: g / SCALE, lambda g: g * tf.exp(tf.constant(-np.log(SCALE), tf.float32))):
        assert not [text for text in caplog.messages if "as by a loss scale" in text]
        with tf.Graph().as_default():
            loss = tf.reduce_sum(tf.matmul(tf.ones([8, 4]), tf.get_variable("w", [4, 4]))) * SCALE
            optimizer = tf.train.GradientDescentOptimizer(0.1)
            train = optimizer.apply_gradients([(takes_out(g), v) for g, v in optimizer.compute_gradients(loss)])
            with sessions.started(sessions.config(precision_mode="allow_mix_precision")) as session:
                session.run(train)
    assert len([text for text in caplog.messages if "is multiplied by 8192, as by a loss scale" in text]) == 1


def test_what_is_no_loss_scale_is_lowered_as_before():
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [8, 4])
        w = tf.get_variable("w", [4, 4])
        h = tf.matmul(x * 8.0, w)  # the first scales what is no start of a backward pass
        h = tf.matmul(h / 8.0, w) * 0.25
        h -= tf.reduce_mean(tf.reshape(h, [1, 32]), 1)  # its gradient is divided by 2 * 16, and goes on to a product
        ones = tf.ones([8, 4]) * 3.0  # one that nobody takes out again
        loss = tf.reduce_mean(tf.matmul(h + tf.matmul(ones, w), w) * 2.0) * 16.0
        tf.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
    assert not [name for name, (_, reason) in reasons(graph, ["train"]).items() if reason == "UNSCALES"]
    assert reasons(graph, ["train"])["truediv"][0] == tf.float16.as_datatype_enum
