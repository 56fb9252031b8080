"""What a parameter's cast becomes in a program whose parameters are divided among devices."""

import numpy as np
import pytest

pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")

import jax
from jax import export
from jax import numpy as jnp

from npu_shim.pjrt import jax_compat, narrow_gathers


def step(x, cast, twice, wide, both):
    """New values of four parameters, of which the first two are taken in bfloat16 alone."""
    low = x.astype(jnp.bfloat16)
    net = low @ cast.astype(jnp.bfloat16) + low @ twice.astype(jnp.bfloat16) * twice.astype(jnp.bfloat16)
    net = net.astype(jnp.float32) + x @ wide + x @ both + (low @ both.astype(jnp.bfloat16)).astype(jnp.float32)
    return tuple(old - 0.1 * old - net for old in (cast, twice, wide, both))


def test_the_cast_of_a_parameter_with_no_other_use_than_its_update_is_an_argument():
    rng = np.random.RandomState(0)
    given = [rng.randn(4, 4).astype("f") for _ in range(5)]
    expected = jax.jit(step)(*given)
    artifact = export.export(jax.jit(step), platforms=["cpu"])(*given).mlir_module_serialized
    changed, added = narrow_gathers.split(artifact, [1, 2, 3, 4])
    assert added == [(1, "bfloat16"), (2, "bfloat16")]
    described = [((4, 4), np.dtype("f"))] * 5
    low = [((4, 4), jnp.bfloat16)] * 2
    with jax.enable_x64(True):
        program = jax_compat.function(jax, changed, described + low, described[:4], "cpu")
        got = jax.jit(program)(*given, *(jnp.asarray(value, jnp.bfloat16) for value in given[1:3]))
    for value, right in zip(got, expected):
        np.testing.assert_allclose(value, right, rtol=1e-6)
    assert narrow_gathers.split(artifact, [3, 4]) == (artifact, [])
    assert narrow_gathers.split(artifact, []) == (artifact, [])
