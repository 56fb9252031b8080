"""A step exported by any TensorFlow through an interpreter with JAX: its losses there, without TensorFlow, its cost."""

import os

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from test_export import CLOSE, FETCHES, MIX, digits, shapes, under_jax

from npu_shim.export import cost, export
from npu_shim.options import engine
from npu_shim.xla.sources import Source

JAX = os.environ.get("NPU_SHIM_JAX")
pytestmark = [
    pytest.mark.skipif(not JAX, reason="no JAX, and NPU_SHIM_JAX names none"),
    pytest.mark.skipif(engine.has_jax(), reason="this interpreter has JAX itself"),
]


def test_losses_under_jax_are_the_sessions(tmp_path):
    graph, feeds = digits()
    folder = str(tmp_path / "step")
    with tf.Session(graph=graph) as session:
        session.run("init")
        export(session, FETCHES, shapes(feeds), folder)
        expected = [float(session.run(FETCHES, feeds)[0]) for _ in range(3)]
    np.savez(folder + ".npz", **feeds)
    CLOSE(under_jax(JAX, [folder], tmp_path / "site", 3)[0], expected)


def test_the_cost_of_a_graph():
    graph, feeds = digits()
    plain, mixed = cost.of_graph(Source.of(graph), FETCHES, shapes(feeds), MIX)
    assert plain.products == {"float32": mixed.products["float16"]}
    assert plain.moved > plain.state["parameter"] > 0
    assert "JAX" in plain.compiled_for
