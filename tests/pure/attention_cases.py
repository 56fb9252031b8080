"""Attention in numpy, random cases of it, and how far from it a kernel may be: scores float32, all else float64."""

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


# how masks are written: what the Spec has beside a plain one, and the number of what is masked
FORMS = {
    "added -1e4": ({"bias": True}, -1e4),
    "added -1e9": ({"bias": True}, -1e9),
    "added -1e9, then halved": ({"bias": True, "after": 0.5}, -1e9),
    "added -1e4 in bfloat16": ({"bias": True, "rounded": "bfloat16"}, -1e4),
    "added -6e4 in float16, then a third": ({"bias": True, "rounded": "float16", "after": 1 / 3}, -6e4),
    "where -1e4": ({"hidden": True}, -1e4),
    "where -1e9 of a sum": ({"hidden": True, "bias": True, "after": 0.5}, -1e9),
    "where -1e9, and a bias behind": ({"hidden": True, "bias": True, "bias_over": True}, -1e9),
    "where -1e4, and a bias behind in float16": (
        {"hidden": True, "bias": True, "bias_over": True, "rounded": "float16"}, -1e4),
    "where -inf": ({"hidden": True}, -np.inf),
    "where 0": ({"hidden": True}, 0.0),
}  # fmt: skip

BY_DAY = ("added -6e4 in float16, then a third", "where -1e9 of a sum", "where -1e9, and a bias behind", "where -inf")


def masked_case(form, number):
    """Returns (Spec, operands, gradient of out) with rows that are masked as a whole; products are exact in float32."""
    changes, low = FORMS[form]
    random = np.random.RandomState(1000 + number)
    spec, _, _ = random_case(random.randint(10**6))
    scores = (*spec.scores[:2], max(spec.scores[2], 5), max(spec.scores[3], 5))
    q, k = ((*scores[:2], size, spec.q[3]) for size in scores[2:])
    masked = random.uniform(size=[scores[0], 1, *scores[2:]]) < 0.3
    masked[:, :, ::3] = True
    masked[:, :, 1, 0] = False  # and one that is not
    bias = (masked.shape if not changes.get("hidden") else (1, *scores[1:])) if changes.get("bias") else None
    hidden = masked.shape if changes.get("hidden") else None
    changes = dict(changes, bias=bias, hidden=hidden, fill=low if hidden else 0.0, bias_dtype="float32" if bias else "")
    spec = dataclasses.replace(spec, q=q, k=k, v=(*k[:3], spec.v[3]), scale=0.25, mask=None, **changes)
    dtype = DTYPES[spec.dtype]
    operands = {"q": random.randint(-4, 5, q) / 4, "k": random.randint(-4, 5, k) / 4, "v": random.normal(size=spec.v)}
    operands = {name: value.astype(dtype) for name, value in operands.items()}
    if bias:
        operands["bias"] = (random.normal(size=bias) if hidden else np.where(masked, low, 0.0)).astype("f")
    if hidden:
        operands["hidden"] = masked.astype(np.int8)
    if spec.rate:
        operands["seed"] = random.randint(-(2**31), 2**31, 2).astype(np.int32)
    return spec, operands, random.normal(size=spec.out).astype(dtype)


def _scores(spec, operands):
    """As the Spec says them, each step rounded to float32, and which are hidden."""
    q, k = (np.asarray(operands[name], np.float64) for name in "qk")
    scores = (spec.scale * np.einsum("bhsd,bhtd->bhst", q, k)).astype("f")
    added = lambda: (scores + np.asarray(operands["bias"], "f")).astype(DTYPES[spec.rounded or "float32"])  # noqa: E731
    if spec.bias and not spec.bias_over:
        scores = added().astype("f")
    scores = scores * np.float32(spec.after)
    hidden = np.broadcast_to(operands.get("hidden", np.int8(0)) != 0, scores.shape)
    scores = np.where(hidden, np.float32(spec.fill), scores)
    if spec.bias and spec.bias_over:
        scores = added().astype("f")
    return scores.astype(np.float64), hidden


def reference(spec, operands, d_out, is_exact=False):
    """Returns (name of a result -> float64 array, name -> how far from it one may be).

    Of the gradient of the bias half, see test_attention_kernels.py. If products are exact in float32, so are scores.
    """
    with np.errstate(invalid="ignore"):  # rows of nothing but minus infinity
        return _reference(spec, operands, d_out, is_exact)


def _reference(spec, operands, d_out, is_exact):
    q, k, v, d_out = (np.asarray(array, np.float64) for array in (*(operands[n] for n in "qkv"), d_out))
    logits, hidden = _scores(spec, operands)
    most = logits.max(-1, keepdims=True)
    shares = np.exp(logits - most)
    p = shares / shares.sum(-1, keepdims=True)
    kept = 1.0 / (1.0 - spec.rate) if spec.kept is None else spec.kept
    scaled = draws.kept(operands["seed"], spec.drawn, spec.rate) * kept if spec.rate else 1.0
    out = (p * scaled) @ v
    dp, total = (d_out @ v.swapaxes(-1, -2)) * scaled, (d_out * out).sum(-1, keepdims=True)
    slope = p * (dp - total)
    inside = np.where(hidden, 0.0, slope)
    ds, dbias = inside * spec.scale * spec.after, 0.5 * (slope if spec.bias_over else inside)
    sums = np.exp(logits - np.where(most == -np.inf, 0.0, most)).sum(-1)
    results = {
        "out": out, "most": most[..., 0], "sums": sums, "dq": ds @ k, "dk": ds.swapaxes(-1, -2) @ q,
        "dv": (p * scaled).swapaxes(-1, -2) @ d_out, "dbias": _summed(spec, dbias),
    }  # fmt: skip
    # operands of products and results are rounded to the dtype, sums and logits to float32
    finite = 4.0 if is_exact else np.abs(logits[p > 1e-30]).max()  # of those that count
    wide = (sum(spec.scores[2:]) + 4 * spec.q[3] + 8 * finite) * 2.0**-24
    near = 4 * (float(ml_dtypes.finfo(DTYPES[spec.dtype]).eps) + wide)
    p_of = p * np.abs(scaled)
    of = np.abs(slope) + p * (np.abs(dp) + (np.abs(d_out) * np.abs(out)).sum(-1, keepdims=True))
    of_product = np.where(hidden, 0.0, of) * abs(spec.scale * spec.after)
    sizes = {
        "out": p_of @ np.abs(v), "dq": of_product @ np.abs(k), "dk": of_product.swapaxes(-1, -2) @ np.abs(q),
        "dv": p_of.swapaxes(-1, -2) @ np.abs(d_out), "dbias": _summed(spec, of),
    }  # fmt: skip
    tiny = 2.0**-24  # float16's smallest number
    apart = {name: near * size + tiny for name, size in sizes.items()}
    if spec.bias:
        added, own = np.prod(spec.scores) / np.prod(spec.bias), float(ml_dtypes.finfo(DTYPES[spec.bias_dtype]).eps)
        apart["dbias"] += added * 2.0**-24 * sizes["dbias"] + own * np.abs(results["dbias"])
    return results, dict(apart, most=4 * wide * np.ones_like(sums), sums=4 * wide * sums + tiny)


def _summed(spec, slope):
    """Scores' gradient, added up along what the bias is broadcast along."""
    along = tuple(axis for axis, size in enumerate(spec.bias or ()) if size == 1)
    return slope.sum(along, keepdims=True)


def wrong(actual, results, apart):
    """Returns a line for each result that is farther from the reference than it may be."""
    lines = []
    for name, value in actual.items():
        value, expected = np.asarray(value, np.float64), results[name]
        same = (value == expected) | (np.isnan(value) & np.isnan(expected))
        error = np.where(same, 0.0, np.abs(value - np.where(same, 0.0, expected)))
        beyond = error - np.where(np.isnan(apart[name]), 0.0, apart[name])
        if not (beyond <= 0).all():
            at = np.unravel_index(np.nanargmax(np.where(np.isnan(beyond), np.inf, beyond)), beyond.shape)
            lines.append("%s%s is off by %g, may be by %g" % (name, list(at), error[at], apart[name][at]))
    return lines
