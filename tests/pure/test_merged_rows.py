"""Rows merged of [time, batch, ...] on several devices: none is gathered, numbers are one device's. Needs JAX."""

import concurrent.futures
import multiprocessing
import re

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")

from jax import numpy as jnp  # noqa: E402

from npu_shim.pjrt import jax_compat, merged_rows, placement  # noqa: E402
from npu_shim.pjrt.manifest import Tensor  # noqa: E402

TIME, BATCH, WIDTH, WORDS, DEVICES = 3, 8, 4, 5, 4
MOVED = re.compile(r"= \(?(\w+)\[([\d,]*)\]\S* (all-gather|all-to-all|collective-permute)\(")
SHAPES = [(BATCH, TIME, WIDTH), (BATCH, TIME), (WIDTH, WORDS), (WORDS,)]
ARGUMENTS = [
    Tensor("feed", "x", SHAPES[0], "float32"),
    Tensor("feed", "labels", SHAPES[1], "int32"),
    Tensor("state", "kernel", SHAPES[2], "float32", "parameter"),
    Tensor("state", "bias", SHAPES[3], "float32", "parameter"),
]


def language_model(x, labels, kernel, bias):
    """The loss, the kernel's gradient and that of x, of a network that has its time first."""

    def loss(kernel, bias, x):
        rows = jnp.transpose(jnp.tanh(x), (1, 0, 2)).reshape(TIME * BATCH, WIDTH)
        scores = jax.nn.log_softmax(rows @ kernel + bias)
        wanted = labels.T.reshape(-1)[:, None] == np.arange(WORDS, dtype="i")
        return -jnp.mean(jnp.sum(jnp.where(wanted, scores, 0.0), 1))

    return jax.value_and_grad(loss, (0, 2))(kernel, bias, x)


def numbered(x, labels, kernel, bias):
    """Something that knows rows by their number: each has its own weight."""
    rows = jnp.transpose(x, (1, 0, 2)).reshape(TIME * BATCH, WIDTH) @ kernel
    return jnp.sum(rows * jnp.arange(TIME * BATCH, dtype="f")[:, None]), bias, labels[0]


def fetched(x, labels, kernel, bias):
    """Rows that are a result."""
    return jnp.transpose(x, (1, 0, 2)).reshape(TIME * BATCH, WIDTH) @ kernel, bias, labels[0]


def operands():
    rng = np.random.RandomState(0)
    x, _, kernel, bias = (rng.randn(*shape).astype("f") for shape in SHAPES)
    return [x, rng.randint(0, WORDS, SHAPES[1]).astype("i"), kernel, bias]


def computed():
    """[(whether a program is another one, difference from one device, what is gathered)], of several devices."""
    jax.config.update("jax_num_cpu_devices", DEVICES)
    placed, outcomes = placement.of(jax, DEVICES), []
    for step in (language_model, numbered, fetched):
        given, one = operands(), jax.tree.leaves(jax.jit(step)(*operands()))
        exported = jax.export.export(jax.jit(step), platforms=["cpu"])(*given)
        artifact = merged_rows.for_devices(exported.mlir_module_serialized, ARGUMENTS, placed)
        with jax.enable_x64(True):
            put = [jax.device_put(v, placed.of_feed(v.shape) if v.shape[0] == BATCH else placed.whole) for v in given]
            shapes = [[(value.shape, value.dtype) for value in values] for values in (put, one)]
            program = jax.jit(jax_compat.function(jax, artifact, *shapes, "cpu")).lower(*put).compile()
            off = max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in zip(program(*put), one))
        outcomes.append((artifact != exported.mlir_module_serialized, off, MOVED.findall(program.as_text())))
    return outcomes


def test_rows_stand_batch_by_batch_unless_something_knows_them_by_their_number():
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
        by_batch, by_number, as_result = alone.submit(computed).result(300)
    assert [by_batch[0], by_batch[1] < 1e-6, by_batch[2]] == [True, True, []]
    assert [by_number[0], as_result[0]] == [False, False]
