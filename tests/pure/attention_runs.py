"""What the attention kernels compute of the cases of `attention_cases`, interpreted on a CPU or on a GPU. Needs JAX."""

import dataclasses

import jax

from npu_shim.pjrt.attention import kernels


def backward_of(spec):
    """With the gradient of the bias, where there is one."""
    return dataclasses.replace(spec, kind="backward", bias_slope=0.5 if spec.bias else None)


def forward(spec, operands, interpret=True):
    given = [operands[tensor.name] for tensor in spec.given]
    results = jax.jit(kernels.attention(spec, highest=True, interpret=interpret))(*given)
    return dict(zip(("out", "most", "sums"), results))


def backward(spec, operands, out, most, sums, d_out, interpret=True):
    spec = backward_of(spec)
    given = [*(operands[tensor.name] for tensor in spec.given), out, most, sums, d_out]
    results = jax.jit(kernels.attention(spec, highest=True, interpret=interpret))(*given)
    return {tensor.name: result for tensor, result in zip(spec.results, results)}


def computed(spec, operands, d_out, interpret=True):
    """What the kernels compute: name -> array."""
    results = forward(spec, operands, interpret)
    return dict(results, **backward(spec, operands, d_out=d_out, interpret=interpret, **results))
