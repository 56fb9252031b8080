"""Kernels in the place of a program's functions for attention. Needs JAX."""

import dataclasses
import types

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")

from npu_shim.pjrt import artifacts, jax_compat, manifest  # noqa: E402
from npu_shim.pjrt.attention import lowering, substitution  # noqa: E402
from npu_shim.pjrt.attention.spec import Spec  # noqa: E402
from npu_shim.pjrt.manifest import Manifest, Tensor  # noqa: E402
from npu_shim.pjrt.placement import Placement  # noqa: E402
from npu_shim.pjrt.program import Program  # noqa: E402

SPEC = Spec("forward", (2, 2, 40, 16), (2, 2, 24, 16), (2, 2, 24, 16), "float32", scale=0.25)
TABLE = {SPEC.name: SPEC.as_json()}
RANDOM = np.random.RandomState(0)
GIVEN = [RANDOM.normal(size=argument.shape).astype("f") for argument in SPEC.arguments]


def composite(q, k, v):
    logits = SPEC.scale * jax.numpy.einsum("bhsd,bhtd->bhst", q, k)
    most = logits.max(-1)
    p = jax.numpy.exp(logits - most[..., None])
    return (p @ v) / p.sum(-1)[..., None], most, p.sum(-1)


def wrong(q, k, v):
    """What no attention computes: it shows that the kernel is in its place."""
    nothing = 0 * (q + k.sum() + v.sum())
    return nothing, nothing[..., 0], nothing[..., 0]


def artifact_of(function, name=SPEC.name, given=GIVEN):
    """A program that calls the function by that name, twice, and uses what it returns."""
    function = types.FunctionType(function.__code__, function.__globals__, name)
    function.__qualname__ = name
    called = jax.jit(function)

    def step(q, k, v):
        out, most, sums = called(q * 2, k, v)
        out, more, others = called(out, k, v)
        return out, most + more, sums + others

    return jax.export.export(jax.jit(step), platforms=["cpu"])(*given).mlir_module_serialized


def run(artifact):
    rows = [(given.shape, given.dtype) for given in GIVEN]
    results = [(result.shape, np.dtype(result.dtype)) for result in SPEC.results]
    with jax.enable_x64(True):
        return jax.jit(jax_compat.function(jax, artifact, rows, results, "cpu"))(*GIVEN)


def text_of(artifact):
    from jax.interpreters import mlir

    with mlir.make_ir_context():
        return str(artifacts.parsed(artifact))


def test_a_kernel_computes_what_the_composite_does():
    replaced, said = substitution.substituted(artifact_of(wrong), TABLE, True, "cpu")
    assert said == {SPEC.name: "kernel"}
    for actual, expected in zip(run(replaced), run(artifact_of(composite))):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_a_program_for_a_gpu_has_triton_in_it():
    replaced, said = substitution.substituted(artifact_of(composite), TABLE, False, "cuda")
    assert said == {SPEC.name: "kernel"}
    text = text_of(replaced)
    assert text.count("stablehlo.custom_call @__gpu$xla.gpu.triton") == 1
    assert text.count("call @%s" % SPEC.name) == 2
    assert "stablehlo.exponential" not in text


def test_what_hides_scores_and_how_sums_are_rounded_is_lowered_for_a_gpu():
    spec = dataclasses.replace(
        SPEC, kind="backward", dtype="bfloat16", hidden=(2, 1, 40, 24), fill=float("-inf"), bias=(1, 2, 1, 24),
        bias_dtype="float32", bias_slope=0.5, bias_over=True, rounded="float16", rate=0.1, kept=1.0,
    )  # fmt: skip
    text = lowering.module(spec, False, "cuda")
    assert text.count("xla.gpu.triton") == 3  # queries, keys, and the bias


@pytest.mark.parametrize(("table", "reason"), [
    ({"npu_shim_attention_forward_00": SPEC.as_json()}, "the program does not call it"),
    ({SPEC.name: dataclasses.replace(SPEC, q=(2, 2, 40, 512), k=(2, 2, 24, 512)).as_json()},
     "heads of 512, the kernel takes 256 at most"),
    ({SPEC.name: dataclasses.replace(SPEC, dtype="float64").as_json()},
     "products of float64, the kernel has bfloat16, float16, float32"),
    ({SPEC.name: dataclasses.replace(SPEC, kind="backward", q=(2, 60000, 300, 16), k=(2, 60000, 300, 16),
                                     bias_slope=1.0, bias=(1, 1, 300, 300), bias_dtype="float32").as_json()},
     "an operand of 5400000000 elements, the kernel takes 2147483647 at most"),
    ({SPEC.name: dataclasses.replace(SPEC, q=(70000, 2, 40, 16)).as_json()},
     "70000 batches or heads, the kernel takes 65535 at most"),
    ({SPEC.name: SPEC.as_json().replace("}", ', "bias_gradient": false}')},
     "another release of npu_shim exported it: export it again"),
    ({SPEC.name: dataclasses.replace(SPEC, q=(7000, 7000, 40, 16)).as_json()},
     "an operand of 31360000000 elements, the kernel takes 2147483647 at most"),
])  # fmt: skip
def test_what_has_no_kernel_stays_and_says_why(table, reason):
    artifact = artifact_of(composite)
    assert substitution.substituted(artifact, table, True, "cuda") == (artifact, dict.fromkeys(table, reason))


def test_a_function_of_other_types_stays():
    table = {SPEC.name: dataclasses.replace(SPEC, v=(2, 2, 24, 32)).as_json()}
    artifact = artifact_of(composite)
    replaced, said = substitution.substituted(artifact, table, True, "cuda")
    assert replaced == artifact
    assert said[SPEC.name].startswith("the kernel is (tensor<2x2x40x16xf32>, tensor<2x2x24x16xf32>, tensor<2x2x24x32x")


def test_a_release_of_jax_that_cannot_lower_it(monkeypatch):
    def fail(*_):
        raise NotImplementedError("no such primitive\nmore")

    monkeypatch.setattr(lowering, "module", fail)
    artifact = artifact_of(composite)
    replaced, said = substitution.substituted(artifact, TABLE, True, "cuda")
    assert replaced == artifact
    assert said == {SPEC.name: "this JAX cannot lower the kernel: NotImplementedError: no such primitive"}


@pytest.mark.parametrize(("platform", "capability", "reason"), [
    ("cpu", None, "kernels are for GPUs, this is 'cpu'"),
    ("gpu", None, "kernels are for NVIDIA GPUs, this is 'Card'"),
    ("gpu", "gfx90a", "kernels are for NVIDIA GPUs, this is 'Card'"),
    ("cuda", "7.5", "kernels are for compute capability 8.0 and later, 'Card' has 7.5"),
    ("cuda", "8.0", ""),
    ("gpu", "12.0", ""),
])  # fmt: skip
def test_devices(platform, capability, reason):
    device = types.SimpleNamespace(platform=platform, compute_capability=capability, device_kind="Card")
    assert substitution.unfit(device) == reason


def test_a_loaded_program_says_what_it_has(tmp_path):
    arguments = tuple(
        Tensor("feed", argument.name + ":0", argument.shape, argument.dtype) for argument in SPEC.arguments
    )
    results = tuple(Tensor("fetch", result.name + ":0", result.shape, result.dtype) for result in SPEC.results)
    artifact = artifact_of(composite)
    manifest.write(str(tmp_path / "step"), artifact, Manifest(arguments, results, attention=TABLE))
    described = manifest.read(str(tmp_path / "step"))
    assert described.attention == TABLE
    program = Program(jax, described, artifact, Placement((jax.devices("cpu")[0],)))
    program.compile()
    assert program.attention == {SPEC.name: "kernels are for GPUs, this is 'cpu'"}
