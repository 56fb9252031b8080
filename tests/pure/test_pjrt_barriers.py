"""Barriers in programs for CPUs: code that grows with the steps of an unrolled loop alone. Needs JAX."""

import numpy as np
import pytest

from npu_shim.pjrt import barriers, jax_compat

jax = pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")


def unrolled(steps):
    """The forward pass of a cell whose state is read by the next step and by an output, as Python writes it out."""

    def run(x, w):
        state, results = x, []
        for number in range(steps):
            state = state * jax.nn.sigmoid(x + number) + jax.nn.sigmoid(x - number) * jax.numpy.tanh(x * number)
            results.append(jax.numpy.tanh(state) @ w)
        return (sum(results),)

    return run


def nested(steps):
    """The same in the body of a loop."""
    return lambda x, w: (jax.lax.fori_loop(0, 2, lambda _, y: unrolled(steps)(y * 0.1, w)[0], x),)


GIVEN = [np.linspace(-1, 1, 24, dtype="f").reshape(4, 6), np.linspace(-1, 1, 36, dtype="f").reshape(6, 6)]


def artifact_of(function):
    return jax.export.export(jax.jit(function), platforms=["cpu"])(*GIVEN).mlir_module_serialized


def compiled(artifact, platform="cpu"):
    with jax.enable_x64(True):
        rows = [(array.shape, array.dtype) for array in GIVEN]
        called = jax_compat.function(jax, artifact, rows, [((4, 6), np.dtype("f"))], platform)
        return jax.jit(called).lower(*GIVEN).compile()


def size(artifact):
    return compiled(artifact).as_text().count(" = ")


@pytest.mark.parametrize("kind", [unrolled, nested])
def test_code_grows_with_the_steps_and_not_with_their_square(kind, monkeypatch):
    short, long = artifact_of(kind(6)), artifact_of(kind(20))
    monkeypatch.setattr(barriers, "MOST", 8)
    assert size(long) < 4 * size(short)
    monkeypatch.setattr(barriers, "MOST", 10**9)
    assert size(long) > 4 * size(short)  # else XLA has learnt it, and nothing of this is needed


def test_results_stay(monkeypatch):
    function = unrolled(10)
    monkeypatch.setattr(barriers, "MOST", 8)
    actual = compiled(artifact_of(function))(*GIVEN)
    np.testing.assert_allclose(actual[0], jax.jit(function)(*GIVEN)[0], rtol=1e-5, atol=1e-5)


def test_a_program_that_needs_none_stays_as_it_is_and_so_does_one_for_a_gpu(monkeypatch):
    small = artifact_of(unrolled(2))
    assert barriers.placed(small) == small
    large = artifact_of(unrolled(40))
    assert barriers.placed(large) != large
    monkeypatch.setattr(barriers, "placed", None)  # whoever called it would fail
    with jax.enable_x64(True):
        jax_compat.function(jax, large, [(x.shape, x.dtype) for x in GIVEN], [((4, 6), np.dtype("f"))], "gpu")
