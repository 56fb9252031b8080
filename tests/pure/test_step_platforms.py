"""What a step's rules compute on which platform: GPUs have kernels of low precision that CPUs lack. Needs JAX."""

import re

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")

from npu_shim.step.rules import convolutions  # noqa: E402

ATTRS = {"strides": (1, 1, 1, 1), "padding": "SAME", "data_format": "NHWC"}


def operands_of(platform, dtype):
    """The dtypes of the operands of all convolutions in a convolution and its gradients."""
    image, kernel = (jax.ShapeDtypeStruct(shape, dtype) for shape in ((2, 8, 8, 3), (3, 3, 3, 5)))

    def step(x, w):
        y = convolutions.convolution(ATTRS, x, w)
        of_input = convolutions.convolution_input(ATTRS, np.int32([2, 8, 8, 3]), w, y)
        return y, of_input, convolutions.convolution_filter(ATTRS, x, np.int32([3, 3, 3, 5]), y)

    text = jax.export.export(jax.jit(step), platforms=[platform])(image, kernel).mlir_module()
    operands = re.findall(r"convolution\(.*?: \(tensor<[\dx]*(\w+)>, tensor<[\dx]*(\w+)>\)", text)
    assert len(operands) == 3
    return {dtype for pair in operands for dtype in pair}


@pytest.mark.parametrize(("dtype", "short"), [("float16", "f16"), ("bfloat16", "bf16"), ("float32", "f32")])
def test_convolutions_are_of_their_dtype_on_gpus_and_of_float32_on_cpus(dtype, short):
    assert operands_of("cuda", dtype) == {short}
    assert operands_of("cpu", dtype) == {"f32"}
