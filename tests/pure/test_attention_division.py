"""Kernels of which each device computes a part: the numbers of one device, and no exchange but sums. Needs JAX."""

import concurrent.futures
import multiprocessing
import re

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")

from jax.interpreters import mlir  # noqa: E402

from npu_shim.pjrt import arrays, artifacts, jax_compat, placement  # noqa: E402
from npu_shim.pjrt.attention import division, kernels, substitution  # noqa: E402
from npu_shim.pjrt.attention.spec import Spec  # noqa: E402

GIVEN = {"q": (4, 1, 16, 16), "k": (4, 1, 16, 16), "v": (4, 1, 16, 16), "dtype": "float32", "scale": 0.25}
# what each device has a part of, and what all share: a bias and its gradient, a mask, draws of dropout
SPECS = [
    Spec("forward", **GIVEN, rate=0.3, mask=(4, 1, 1, 16), hidden=(4, 1, 16, 16), fill=-1e9),
    Spec("backward", **GIVEN, rate=0.3, bias=(1, 1, 16, 16), bias_dtype="bfloat16", bias_slope=0.5),
]
DEVICES = 2
EXCHANGE = re.compile(r"= (\w+)\[([\d,]*)\]\S* (all-\w+|collective-permute|reduce-scatter)\(")


def operand(argument):
    if argument.name == "seed":
        return np.array([3, 4], np.int32)
    numbers = np.abs(np.random.RandomState(1).normal(size=argument.shape)) + 30 * (argument.name == "sums")
    return (numbers < 0.4 if argument.name == "hidden" else numbers).astype(arrays.dtype_of(argument.dtype))


def program_of(spec, given):
    """(a program that calls the function of that name, which a kernel replaces, shapes and dtypes of its results)."""
    results = [(result.shape, arrays.dtype_of(result.dtype)) for result in spec.results]

    def wrong(*operands):
        return tuple(jax.numpy.zeros(*of) + sum(x.sum() for x in operands).astype(of[1]) for of in results)

    wrong.__name__ = wrong.__qualname__ = spec.name
    called = jax.jit(wrong)
    exported = jax.export.export(jax.jit(lambda *operands: called(*operands)), platforms=["cpu"])(*given)
    return exported.mlir_module_serialized, results


def computed():
    """[(what is said, largest difference from one device, exchanges)] for SPECS, of a process with several devices."""
    jax.config.update("jax_num_cpu_devices", DEVICES)
    placed, outcomes = placement.of(jax, DEVICES), []
    for spec in SPECS:
        given = [operand(argument) for argument in spec.arguments]
        artifact, results = program_of(spec, given)
        artifact, said = substitution.substituted(artifact, {spec.name: spec.as_json()}, True, "cpu", DEVICES)
        one = jax.jit(kernels.attention(spec, True, True))(*given)
        with jax.enable_x64(True):
            put = [
                jax.device_put(value, placed.of_feed(value.shape) if value.ndim > 1 else placed.whole)
                for value in given
            ]
            rows = [(value.shape, value.dtype) for value in given]
            program = jax.jit(jax_compat.function(jax, artifact, rows, results, "cpu")).lower(*put).compile()
            many = program(*put)
        off = max(float(np.abs(np.asarray(a, "f") - np.asarray(b, "f")).max()) for a, b in zip(many, one))
        outcomes.append((said[spec.name], off, EXCHANGE.findall(program.as_text())))
    return outcomes


@pytest.mark.nightly  # 20 s, most of it to compile interpreted kernels
def test_each_device_computes_its_batches_as_one_device_computes_all():
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
        outcomes = alone.submit(computed).result(300)
    assert [said for said, *_ in outcomes] == ["kernel"] * 2
    assert max(off for _, off, _ in outcomes) < 1e-3  # one more sum of sums, of numbers up to 100
    assert [exchanges for *_, exchanges in outcomes] == [[], [("f32", "1,16,16", "all-reduce")]]


def test_batches_that_do_not_divide_are_named():
    assert division.refused(SPECS[0], 3) == "3 devices cannot divide its 4 batches"
    assert not division.refused(SPECS[0], 4)
    artifact, _ = program_of(SPECS[0], [operand(argument) for argument in SPECS[0].arguments])
    table = {SPECS[0].name: SPECS[0].as_json()}
    told = dict.fromkeys(table, "3 devices cannot divide its 4 batches")
    assert substitution.substituted(artifact, table, True, "cpu", 3) == (artifact, told)


def test_a_program_for_gpus_says_which_part_each_has():
    artifact, _ = program_of(SPECS[1], [operand(argument) for argument in SPECS[1].arguments])
    artifact, said = substitution.substituted(artifact, {SPECS[1].name: SPECS[1].as_json()}, True, "cuda", DEVICES)
    assert set(said.values()) == {"kernel"}
    with mlir.make_ir_context():
        text = str(artifacts.parsed(artifact))
    assert text.count('sdy.mesh @mesh = <["batch"=2]>') == text.count("sdy.manual_computation(") == 1
    assert "tensor<2x1x16x16xf32>" in text
