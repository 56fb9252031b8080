"""What ranks with several devices each add up: each device sends a part, and the numbers are the same. Needs JAX."""

import concurrent.futures
import multiprocessing

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")

from npu_shim.pjrt import exchanges, jax_compat, placement, rank_sums, ranks  # noqa: E402

RANKS, DEVICES, COUNT = 2, 2, 5001  # a number that two devices do not divide


def step(x, weights):
    """What a rank does with its batch: its gradient is added up with the other's."""
    summed = exchanges.all_reduce(x.T @ x[:, :1] * weights, "Add", [0, 1], RANKS, DEVICES)
    return weights - summed, exchanges.all_reduce(weights[:3], "Max", [0, 1], RANKS, DEVICES)


def computed():
    """(difference from NumPy, a part of the largest number; what ranks exchange) of a process with four devices."""
    jax.config.update("jax_num_cpu_devices", RANKS * DEVICES)
    rows = tuple(tuple(jax.devices()[at : at + DEVICES]) for at in (0, DEVICES))
    placed = placement.Placement(rows[0], ranks=RANKS)
    both, rng = ranks.Ranks(jax, rows, placed), np.random.RandomState(0)
    batches, weights = rng.randn(RANKS, 4, COUNT).astype("f"), rng.randn(COUNT, 1).astype("f")
    given = [jax.ShapeDtypeStruct(array.shape, "float32") for array in (batches[0], weights)]
    with jax.enable_x64(True):
        artifact = jax.export.export(jax.jit(step), platforms=["cpu"])(*given).mlir_module_serialized
        artifact = rank_sums.for_devices(artifact, placed)
        results = [((COUNT, 1), np.dtype("f")), ((3, 1), np.dtype("f"))]
        function = jax_compat.function(jax, artifact, [(one.shape, one.dtype) for one in given], results, "cpu")
        own = [placed.of_feed(batches[0].shape), placed.whole]
        described = [jax.ShapeDtypeStruct(one.shape, one.dtype, sharding=at) for one, at in zip(given, own)]
        put = [jax.device_put(np.concatenate(v), both.sharding(at)) for v, at in zip((batches, [weights] * 2), own)]
        program = jax.jit(both.around(function, described), out_shardings=both.sharding(placed.whole))
        program = program.lower(*put).compile()
        new = np.asarray(program(*put)[0]).reshape(RANKS, COUNT, 1)
    expected = weights - sum(batch.T @ batch[:, :1] * weights for batch in batches)
    return float(np.abs(new - expected).max() / np.abs(expected).max()), ranks.met(program.as_text(), DEVICES)


def test_each_device_sends_its_part_of_what_is_large():
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
        off, exchanged = alone.submit(computed).result(300)
    assert off < 2.0**-21
    assert sorted(text.partition("{")[0] for text in exchanged) == ["f32[2501,1]", "f32[3,1]"]
