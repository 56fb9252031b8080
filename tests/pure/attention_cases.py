"""Attention in float64 numpy, random cases of it, and how far from it a kernel may be."""

import dataclasses

import ml_dtypes
import numpy as np

from npu_shim.pjrt.attention import draws
from npu_shim.pjrt.attention.spec import Spec

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def random_case(number):
    """Returns (forward Spec, dict of operands by name, the gradient of out) of a case that its number decides."""
    random = np.random.RandomState(number)
    pick = lambda *values: values[random.randint(len(values))]  # noqa: E731
    batch, heads = random.randint(1, 4, 2)
    queries = pick(1, 7, 16, 33, 64, 100, 130)
    keys = pick(queries, 1, 5, 16, 48, 64, 90, 150)
    width = pick(8, 16, 24, 32, 64, 80)
    value_width = pick(width, width, 16, 40)
    full = [batch, heads, queries, keys]
    bias = pick(None, "keys", "causal", "random", "random")
    shape = None
    if bias == "keys":
        shape = (batch, 1, 1, keys)
    elif bias == "causal":
        shape = (1, 1, queries, keys)
    elif bias == "random":
        shape = tuple(size if random.randint(2) else 1 for size in full)
    dtype = pick("float32", "float16", "bfloat16")
    spec = Spec(
        "forward", (batch, heads, queries, width), (batch, heads, keys, width), (batch, heads, keys, value_width),
        dtype, scale=float(width) ** -0.5, bias=shape, bias_dtype=pick("float32", dtype) if shape else "",
        rate=pick(0.0, 0.0, 0.1, 0.5),
    )  # fmt: skip
    if spec.rate and pick(True, False):
        drawn = tuple(size if random.randint(2) else 1 for size in full[:3])
        spec = dataclasses.replace(spec, mask=(*drawn, keys))
    operands = {tensor.name: random.normal(size=tensor.shape).astype(DTYPES[dtype]) for tensor in spec.given[:3]}
    if shape:
        operands["bias"] = np.asarray(_bias(random, bias, shape), DTYPES[spec.bias_dtype])
    if spec.rate:
        operands["seed"] = random.randint(-(2**31), 2**31, 2).astype(np.int32)
    return spec, operands, random.normal(size=spec.out).astype(DTYPES[dtype])


def _bias(random, kind, shape):
    if kind == "keys":  # as BERT hides what is padding
        return np.where(np.arange(shape[3]) < random.randint(1, shape[3] + 1, [shape[0], 1, 1, 1]), 0.0, -10000.0)
    if kind == "causal":
        return np.where(np.tril(np.ones(shape[2:], bool)), 0.0, -np.inf)[None, None]
    return random.normal(size=shape)


def reference(spec, operands, d_out):
    """Returns (name of a result -> float64 array, name -> how far from it one may be)."""
    q, k, v, d_out = (np.asarray(array, np.float64) for array in (*(operands[n] for n in "qkv"), d_out))
    logits = spec.scale * np.einsum("bhsd,bhtd->bhst", q, k) + np.asarray(operands.get("bias", 0.0), np.float64)
    most = logits.max(-1, keepdims=True)
    lse = most + np.log(np.exp(logits - most).sum(-1, keepdims=True))
    p = np.exp(logits - lse)
    scaled = draws.kept(operands["seed"], spec.drawn, spec.rate) / (1.0 - spec.rate) if spec.rate else 1.0
    out = (p * scaled) @ v
    dp, total = (d_out @ v.swapaxes(-1, -2)) * scaled, (d_out * out).sum(-1, keepdims=True)
    ds = p * (dp - total) * spec.scale
    results = {
        "out": out, "lse": lse[..., 0], "dq": ds @ k, "dk": ds.swapaxes(-1, -2) @ q,
        "dv": (p * scaled).swapaxes(-1, -2) @ d_out, "dbias": _summed(spec, p * (dp - total)),
    }  # fmt: skip
    # operands of products and results are rounded to the dtype, sums and logits to float32
    finite = np.abs(logits[p > 1e-30]).max()  # of those that count
    wide = (sum(spec.scores[2:]) + 4 * spec.q[3] + 8 * finite) * 2.0**-24
    near = 4 * (float(ml_dtypes.finfo(DTYPES[spec.dtype]).eps) + wide)
    p_of = p * np.abs(scaled)
    of = np.abs(ds) + p * spec.scale * (np.abs(dp) + (np.abs(d_out) * np.abs(out)).sum(-1, keepdims=True))
    sizes = {
        "out": p_of @ np.abs(v), "dq": of @ np.abs(k), "dk": of.swapaxes(-1, -2) @ np.abs(q),
        "dv": p_of.swapaxes(-1, -2) @ np.abs(d_out), "dbias": _summed(spec, of / spec.scale),
    }  # fmt: skip
    tiny = 2.0**-24  # float16's smallest number
    apart = {name: near * size + tiny for name, size in sizes.items()}
    if spec.bias:
        added, own = np.prod(spec.scores) / np.prod(spec.bias), float(ml_dtypes.finfo(DTYPES[spec.bias_dtype]).eps)
        apart["dbias"] += added * 2.0**-24 * sizes["dbias"] + own * np.abs(results["dbias"])
    return results, dict(apart, lse=4 * wide * np.ones_like(results["lse"]))


def _summed(spec, slope):
    """Scores' gradient, added up along what the bias is broadcast along."""
    along = tuple(axis for axis, size in enumerate(spec.bias or ()) if size == 1)
    return slope.sum(along, keepdims=True)


def wrong(actual, results, apart):
    """Returns a line for each result that is farther from the reference than it may be."""
    lines = []
    for name, value in actual.items():
        error = np.abs(np.asarray(value, np.float64) - results[name])
        beyond = error - apart[name]
        if not (beyond <= 0).all():
            at = np.unravel_index(np.nanargmax(np.where(np.isnan(beyond), np.inf, beyond)), beyond.shape)
            lines.append("%s%s is off by %g, may be by %g" % (name, list(at), error[at], apart[name][at]))
    return lines
