"""Real training graphs exported and run under JAX, without TensorFlow: the losses of the session and of the step."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from test_compiled_graphs import Real
from test_compiled_resnet import NIGHTLY, slim, thin
from test_export import MIX, interpreter_with_jax, shapes, under_jax

import npu_shim
from npu_shim.export import export

pytestmark = [pytest.mark.slow, pytest.mark.nightly]  # test_export_apart.py has a small step by day
STEPS = 20


def graph_of(real):
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(real.graph_def, name="")
    return graph


def losses(run, fed, steps):
    return [float(run(fed)[0]) for _ in range(steps)]


@pytest.mark.parametrize("name", ["bert_tiny_train", "lstm_lm_train"])
def test_twenty_steps_under_jax_are_those_here(tmp_path, name):
    jax, real = interpreter_with_jax(), Real(name)
    # the lengths of a sequence mask without maxlen are a shape, which XLA must know
    constants = {feed: value for feed, value in real.fed.items() if "lengths" in feed}
    fed = {feed: value for feed, value in real.fed.items() if feed not in constants}
    with tf.Session(graph=graph_of(real)) as session:
        session.run(real.init)
        for mode, options in (("float32", {}), ("mixed", MIX)):
            folder = str(tmp_path / mode)
            export(session, real.fetches, shapes(fed), folder, constants, jax=jax, **options)
            np.savez(folder + ".npz", **fed)
        mixed = npu_shim.compile_step(session, real.fetches, shapes(fed), constants=constants, **MIX)
        expected = losses(lambda _: session.run(real.fetches, real.fed), fed, STEPS)
    actual = under_jax(jax, [str(tmp_path / "float32"), str(tmp_path / "mixed")], tmp_path / "site", STEPS)
    # sums of some hundred products a layer; Adam makes more of them where gradients are small
    np.testing.assert_allclose(actual[0], expected, rtol=1000 * 2**-23)
    # the compilers of two releases round float16 values that nothing but the next op reads at different places
    np.testing.assert_allclose(actual[1], losses(mixed, fed, STEPS), rtol=16 * 2**-11)
    assert np.ptp(expected) > 100 * np.max(np.abs(np.subtract(actual[0], expected)))


def test_resnets_first_steps_under_jax_are_those_here(tmp_path):
    jax, (graph, fetches, fed) = interpreter_with_jax(), slim() if NIGHTLY else thin()
    folder = str(tmp_path / "step")
    with tf.Session(graph=graph) as session:
        session.run("init")
        export(session, fetches, shapes(fed), folder, jax=jax)
        np.savez(folder + ".npz", **fed)
        expected = losses(lambda _: session.run(fetches, fed), fed, 2)
    (actual,) = under_jax(jax, [folder], tmp_path / "site", 2)
    assert np.isclose(actual[0], expected[0], rtol=1000 * 2**-23)
    # the second step starts from an update that is some percent away, see test_compiled_resnet
    assert abs(actual[1] - expected[1]) < 0.05 * abs(expected[0] - expected[1])
