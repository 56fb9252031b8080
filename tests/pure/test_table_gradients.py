"""Gradients of tables on several devices: the numbers of one device, one exchange, and in which dtype. Needs JAX."""

import concurrent.futures
import multiprocessing
import re

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")

from jax import numpy as jnp  # noqa: E402

from npu_shim.pjrt import jax_compat, placement, ranks, table_gradients  # noqa: E402
from npu_shim.pjrt.manifest import Tensor  # noqa: E402

ROWS, WORDS, WIDTH, DEVICES = 16, 7, 3, 4
EXCHANGE = re.compile(r"= \(?(\w+)\[([\d,]*)\]\S* (all-\w+|collective-permute|reduce-scatter)\(")
ARGUMENTS = [
    Tensor("state", "table", (WORDS, WIDTH), "float32", "parameter"),
    Tensor("feed", "ids", (ROWS,), "int32"),
    Tensor("feed", "x", (ROWS, WIDTH), "float32"),
]


def step(low):
    """The function of a step that looks a table up, casts the rows to a dtype, and reads their gradient twice."""

    def of(table, ids, x):
        rows = jnp.take(table, ids, axis=0).astype(low).reshape(ROWS // 2, 2, WIDTH)
        given = (rows.reshape(ROWS, WIDTH).astype("f") - x) * 0.3
        first, second = (jnp.zeros_like(table).at[ids].add(given) for _ in range(2))
        return table - 0.1 * first - 0.01 * second * second

    return of


def operands():
    rng = np.random.RandomState(0)
    return [
        rng.randn(WORDS, WIDTH).astype("f"),
        rng.randint(0, WORDS, ROWS).astype("i"),
        rng.randn(ROWS, WIDTH).astype("f"),
    ]


def artifact_of(low):
    exported = jax.export.export(jax.jit(step(low)), platforms=["cpu"])(*operands())
    return exported.mlir_module_serialized


def computed():
    """[(difference from one device, sums of rows, whether one is rounded, exchanges)] of a process with devices."""
    jax.config.update("jax_num_cpu_devices", DEVICES)
    placed, outcomes = placement.of(jax, DEVICES), []
    for low in ("bfloat16", "float32", "float16"):
        artifact = table_gradients.for_devices(artifact_of(low), ARGUMENTS, placed)
        one = jax.jit(step(low))(*operands())
        with jax.enable_x64(True):
            where = [placed.whole, placed.of_feed((ROWS,)), placed.of_feed((ROWS, WIDTH))]
            put = [jax.device_put(value, at) for value, at in zip(operands(), where)]
            described = [(value.shape, value.dtype) for value in put]
            function = jax_compat.function(jax, artifact, described, described[:1], "cpu")
            lowered = jax.jit(function).lower(*put)
            program = lowered.compile()
            off = float(np.abs(np.asarray(program(*put)[0]) - np.asarray(one)).max())
        text = lowered.as_text()
        said = text.count('"stablehlo.scatter"('), "7x3xbf16" in text, len(EXCHANGE.findall(program.as_text()))
        outcomes.append((off, *said))
    return [*outcomes, of_ranks()]


def of_ranks():
    """The same of two ranks with two devices each: one rank's part of a program of both."""
    rows = jax.devices()[: DEVICES // 2], jax.devices()[DEVICES // 2 :]
    placed = placement.Placement(tuple(rows[0]), ranks=2)
    both = ranks.Ranks(jax, tuple(map(tuple, rows)), placed)
    artifact = table_gradients.for_devices(artifact_of("bfloat16"), ARGUMENTS, placed)
    with jax.enable_x64(True):
        where = [placed.whole, placed.of_feed((ROWS,)), placed.of_feed((ROWS, WIDTH))]
        put = [jax.device_put(np.concatenate([v, v]), both.sharding(at)) for v, at in zip(operands(), where)]
        own = [jax.ShapeDtypeStruct(v.shape, v.dtype, sharding=at) for v, at in zip(operands(), where)]
        described = [(value.shape, value.dtype) for value in own]
        function = jax_compat.function(jax, artifact, described, described[:1], "cpu")
        lowered = jax.jit(both.around(function, own)).lower(*put)
        program = lowered.compile()
        off = np.abs(np.asarray(program(*put)[0]).reshape(2, WORDS, WIDTH) - jax.jit(step("bfloat16"))(*operands()))
    return float(off.max()), "7x3xbf16" in lowered.as_text(), ranks.met(program.as_text(), 2)


def test_rows_are_added_up_once_and_travel_in_bfloat16_where_layers_take_them_so():
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
        *outcomes, (off, is_rounded, exchanges) = alone.submit(computed).result(300)
    assert [off < bound for (off, *_), bound in zip(outcomes, (2e-3, 1e-6, 1e-6))] == [True] * 3
    assert [said for _, *said in outcomes] == [[1, True, 1], [1, False, 1], [1, False, 1]]
    assert (off < 2e-3, is_rounded, exchanges) == (True, True, ())
