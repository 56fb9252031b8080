"""Gradients of weights in loops of TensorFlow 1: one product behind the loop, where that moves fewer bytes."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

jax = pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")
from step_runs import compared, fed, program_of  # noqa: E402

from npu_shim.step import interpreter  # noqa: E402


def bodies(jaxpr):
    """The shapes that products in the bodies of a program's loops give."""
    shapes = set()
    for equation in jaxpr.eqns:
        if equation.primitive.name == "while":
            inner = equation.params["body_jaxpr"].jaxpr.eqns
            shapes |= {one.outvars[0].aval.shape for one in inner if one.primitive.name == "dot_general"}
    return shapes


def test_gradients_of_weights_are_summed_behind_the_loop():
    was = tf.control_flow_v2_enabled()
    tf.disable_control_flow_v2()
    with tf.Graph().as_default() as graph:
        x, value = fed(np.linspace(-1, 1, 2 * 16).reshape(2, 16).astype(np.float32))
        wide = tf.constant(np.random.RandomState(0).randn(16, 16).astype(np.float32) * 0.3)
        narrow = tf.constant(np.random.RandomState(1).randn(16, 1).astype(np.float32))  # smaller than a step's factors

        def step(i, y):
            h = tf.tanh(tf.matmul(y, wide))
            return i + 1, h + tf.matmul(tf.matmul(h, narrow), narrow, transpose_b=True) * 0.1

        ends = [lambda i, y: i < 5, lambda i, y: (i < 7) & (tf.reduce_sum(y) < 3.0)]  # the second is only bounded
        losses = [tf.reduce_sum(tf.while_loop(end, step, [0, x])[1] ** 2) for end in ends]
        gradients = tf.gradients(losses, [x, wide, narrow])
        compared([*losses, *gradients], {x: value}, tolerance=1e-4)
        program = program_of(graph, [*losses, *gradients], [x])
    with interpreter.traced_as_tensorflow():
        traced = jax.make_jaxpr(interpreter.function(program))({}, {x.name: value})
    inside = bodies(traced.jaxpr)
    assert (16, 1) in inside
    assert (16, 16) not in inside
    if was:
        tf.enable_control_flow_v2()
