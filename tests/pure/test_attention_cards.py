"""The attention kernels compiled for cards that are not there. Needs JAX, and an interpreter with its CUDA plugin."""

import dataclasses

import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")

from npu_shim.pjrt import arrays, manifest  # noqa: E402
from npu_shim.pjrt.attention.spec import Spec  # noqa: E402
from npu_shim.pjrt.cost import cards, compiling, hlo, kernels  # noqa: E402
from npu_shim.pjrt.manifest import Manifest, Tensor  # noqa: E402

pytestmark = pytest.mark.nightly


def specs():
    """Every dtype and width of the tables of blocks, with and without dropout, bias and lengths that blocks divide."""
    for dtype, widths in (("bfloat16", (64, 80, 128, 256)), ("float16", (64,)), ("float32", (32, 64, 128, 256))):
        for width in widths:
            batch, queries, keys = (2, 512, 512) if width % 64 == 0 else (3, 200, 77)
            forward = Spec(
                "forward", (batch, 4, queries, width), (batch, 4, keys, width), (batch, 4, keys, width), dtype,
                scale=0.1, bias=(batch, 1, 1, keys) if width % 128 else (1, 4, queries, keys), bias_dtype="float32",
                rate=0.0 if width == 32 else 0.1,
            )  # fmt: skip
            yield forward
            yield dataclasses.replace(forward, kind="backward", bias_slope=1.0 if width in (80, 128) else None)


def written(folder, wanted):
    """Writes a program that calls a function for each Spec, which computes something else; returns the Manifest."""
    given = [(spec, argument) for spec in wanted for argument in spec.arguments]
    results = [(spec, result) for spec in wanted for result in spec.results]
    described = Manifest(
        *(
            tuple(
                Tensor(kind, "%s/%s:0" % (spec.name, result.name), result.shape, result.dtype) for spec, result in pairs
            )
            for kind, pairs in (("feed", given), ("fetch", results))
        ),
        attention={spec.name: spec.as_json() for spec in wanted},
    )

    def function(spec):
        def run(*operands):
            total = sum(operand.astype("float32").sum() for operand in operands)
            return [jax.numpy.full(result.shape, total, arrays.dtype_of(result.dtype)) for result in spec.results]

        run.__name__ = run.__qualname__ = spec.name
        return jax.jit(run)

    def step(*operands):
        left, results = list(operands), []
        for spec in wanted:
            results += function(spec)(*(left.pop(0) for _ in spec.arguments))
        return results

    avals = [jax.ShapeDtypeStruct(result.shape, arrays.dtype_of(result.dtype)) for _, result in given]
    artifact = jax.export.export(jax.jit(step), platforms=["cuda"])(*avals).mlir_module_serialized
    return manifest.write(str(folder), artifact, described)


@pytest.mark.parametrize("name", ["h100", "a100", "rtx4090", "b200"])
def test_kernels_are_compiled_for_a_card(name, plugin, tmp_path):
    wanted = list(specs())
    described = written(tmp_path / "step", wanted)
    compiled = compiling.compiled(str(tmp_path / "step"), cards.card(name), plugin)
    assert compiled.attention == dict.fromkeys(described.attention, "kernel")
    kernels_found = kernels.Kernels(hlo.parse(compiled.after))
    launched = 3 * len(wanted) // 2 + sum(spec.bias_gradient for spec in wanted)
    assert [kernel.kind for kernel in kernels_found.all].count("attention") == launched
    assert not kernels_found.notes


def test_a_card_before_ampere_keeps_what_the_graph_has(plugin, tmp_path):
    described = written(tmp_path / "step", list(specs())[:2])
    compiled = compiling.compiled(str(tmp_path / "step"), cards.card("t4"), plugin)
    why = "kernels are for compute capability 8.0 and later, 'Tesla T4' has 7.5"
    assert compiled.attention == dict.fromkeys(described.attention, why)
