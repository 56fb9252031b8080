"""What a step's rules compute on which platform: GPUs have kernels of low precision that CPUs lack. Needs JAX."""

import re

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")

from jax.interpreters import mlir  # noqa: E402

from npu_shim.pjrt import artifacts  # noqa: E402
from npu_shim.step import platforms  # noqa: E402
from npu_shim.step.rules import convolutions, products  # noqa: E402

ATTRS = {"strides": (1, 1, 1, 1), "padding": "SAME", "data_format": "NHWC"}


def operands_of(platform, dtype):
    """The dtypes of the operands of all convolutions in a convolution and its gradients."""
    image, kernel = (jax.ShapeDtypeStruct(shape, dtype) for shape in ((2, 8, 8, 3), (3, 3, 3, 5)))

    def step(x, w):
        rules = convolutions.RULES
        y = rules["Conv2D"].apply(ATTRS, x, w)
        of_input = rules["Conv2DBackpropInput"].apply(ATTRS, np.int32([2, 8, 8, 3]), w, y)
        return y, of_input, rules["Conv2DBackpropFilter"].apply(ATTRS, x, np.int32([3, 3, 3, 5]), y)

    with platforms.traced_for(platform):
        text = jax.export.export(jax.jit(step), platforms=[platform])(image, kernel).mlir_module()
    operands = re.findall(r"convolution\(.*?: \(tensor<[\dx]*(\w+)>, tensor<[\dx]*(\w+)>\)", text)
    assert len(operands) == 3
    return {dtype for pair in operands for dtype in pair}


@pytest.mark.parametrize(("dtype", "short"), [("float16", "f16"), ("bfloat16", "bf16"), ("float32", "f32")])
def test_convolutions_are_of_their_dtype_on_gpus_and_of_float32_on_cpus(dtype, short):
    assert operands_of("cuda", dtype) == {short}
    assert operands_of("cpu", dtype) == {"f32"}


def results_of(platform, dtype):
    """The dtypes of what a product of matrices gives, before and behind its rounding."""
    given = jax.ShapeDtypeStruct((4, 4), dtype)
    with platforms.traced_for(platform):
        program = jax.make_jaxpr(lambda x: products.product(x, x, (1, 0)))(given)
    return [eqn.outvars[0].aval.dtype.name for eqn in program.jaxpr.eqns]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_products_are_rounded_by_gpus_kernels_and_behind_cpus(dtype):
    """XLA merges no products on GPUs behind which a rounding is, and keeps twice the bytes (JAX 0.12)."""
    assert results_of("gpu", dtype) == [dtype]
    assert results_of("cpu", dtype) == ["float32", dtype]


def test_a_program_with_what_jax_has_for_gpus_alone_is_written_again_as_when_kernels_are_put_into_it():
    """A cumulative sum is a composite with a region, which StableHLO's own writer does not take (JAX 0.12)."""
    given = jax.ShapeDtypeStruct((4096,), np.int32)
    exported = jax.export.export(jax.jit(jax.numpy.cumsum), platforms=["cuda"])(given)
    with mlir.make_ir_context() as context, context:
        module = artifacts.parsed(exported.mlir_module_serialized)
        assert str(artifacts.parsed(artifacts.portable(module, artifacts.newest()))) == str(module)
