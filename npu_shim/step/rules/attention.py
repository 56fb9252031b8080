"""Attention as calls of functions, for which a program for a GPU gets kernels; here they compute what `spec` says.

    func @npu_shim_attention_forward_0123456789abcdef(q, k, v, ..)      see pjrt.attention.substitution

They round as the plan's own nodes do, but between the products, where all but the sum with a bias is `wide`.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from npu_shim.pjrt.attention import draws
from npu_shim.pjrt.attention.spec import CALL, FORWARD, Spec
from npu_shim.step.platforms import product_of
from npu_shim.step.rules.table import Attrs, Rule
from npu_shim.step.unpacking import dtype_of

WORDS = draws.Words(
    lax.add, lax.bitwise_xor, lax.bitwise_or, lambda word, bits: lax.shift_left(word, np.uint32(bits)),
    lambda word, bits: lax.shift_right_logical(word, np.uint32(bits)), np.uint32,
)  # fmt: skip
Given = Mapping[str, Any]


def called(attrs: Attrs, *operands: Any) -> Any:
    """A call of the function of a Spec, forward or backward: its results."""
    return _function(attrs["spec"])(*operands)


@functools.lru_cache(maxsize=256)
def _function(text: str) -> Callable[..., Any]:
    """The function of a Spec, under the name by which kernels are put in its place."""
    spec = Spec.from_json(text)
    compute = _forward if spec.kind == FORWARD else _backward

    def function(*operands: Any) -> tuple[Any, ...]:
        given = {argument.name: jnp.asarray(operand) for argument, operand in zip(spec.arguments, operands)}
        return tuple(compute(spec, given))

    function.__name__ = function.__qualname__ = spec.name
    return jax.jit(function)  # type: ignore[no-any-return]


def _forward(spec: Spec, given: Given) -> Sequence[Any]:
    scores = _scores(spec, given)
    weights = _dropped(spec, jax.nn.softmax(scores, -1), given)
    out = _product("bhst,bhte->bhse", weights.astype(dtype_of(spec.dtype)), given["v"])
    scores = scores.astype(np.float32)
    most = jnp.max(scores, -1)
    base = jnp.where(most == -np.inf, np.float32(0), most)  # of a row in which all is masked
    return out, most, jnp.sum(jnp.exp(scores - base[..., None]), -1)


def _backward(spec: Spec, given: Given) -> Sequence[Any]:
    low = dtype_of(spec.dtype)
    shares = jax.nn.softmax(_scores(spec, given), -1)
    weights = _dropped(spec, shares, given).astype(low)
    gradient = _product("bhse,bhte->bhst", given["d_out"], given["v"]).astype(shares.dtype)
    gradient = _dropped(spec, gradient, given)
    slope = (gradient - jnp.sum(gradient * shares, -1, keepdims=True)) * shares
    inside = _where_hidden(spec, given, 0.0, slope)
    changed = (inside * _number(spec.product_slope, inside)).astype(low)
    gradients = [
        _product("bhst,bhtd->bhsd", changed, given["k"]),
        _product("bhst,bhsd->bhtd", changed, given["q"]),
        _product("bhst,bhse->bhte", weights, given["d_out"]),
    ]
    if spec.bias_slope is not None and spec.bias is not None:
        slope = slope if spec.bias_over else inside
        along = tuple(axis for axis, (one, whole) in enumerate(zip(spec.bias, spec.scores)) if one != whole)
        total = jnp.sum(slope * _number(spec.bias_slope, slope), along, keepdims=True)
        gradients.append(total.astype(dtype_of(spec.bias_dtype)))
    return gradients


def _product(letters: str, x: Any, y: Any) -> Any:
    """A batched product, summed in float32 or wider, of the dtype of its operands."""
    return jnp.einsum(letters, x, y, preferred_element_type=product_of(x.dtype)).astype(x.dtype)


def _number(number: float, like: Any) -> Any:
    return np.array(number, like.dtype)


def _scores(spec: Spec, given: Given) -> Any:
    scores = _product("bhsd,bhtd->bhst", given["q"], given["k"]).astype(dtype_of(spec.wide))
    scores = scores if spec.scale == 1 else scores * _number(spec.scale, scores)
    scores = scores if spec.bias_over else _with_bias(spec, given, scores)
    scores = scores if spec.after == 1 else scores * _number(spec.after, scores)
    scores = _where_hidden(spec, given, spec.fill, scores)
    return _with_bias(spec, given, scores) if spec.bias_over else scores


def _with_bias(spec: Spec, given: Given, scores: Any) -> Any:
    if spec.bias is None:
        return scores
    biased = scores + given["bias"].astype(scores.dtype)
    return biased.astype(dtype_of(spec.rounded)).astype(scores.dtype) if spec.rounded else biased


def _where_hidden(spec: Spec, given: Given, number: float, scores: Any) -> Any:
    """Scores, or their gradient, with a number where they are hidden."""
    return scores if spec.hidden is None else jnp.where(given["hidden"] != np.int8(0), _number(number, scores), scores)


def _dropped(spec: Spec, shares: Any, given: Given) -> Any:
    """Probabilities, or their gradient, with dropout."""
    if not spec.rate:
        return shares
    keep = _kept(given["seed"], spec.drawn, spec.rate)
    return jnp.where(keep, shares * _number(spec.kept_times, shares), _number(0, shares))


def _kept(seed: Any, shape: Sequence[int], rate: float) -> Any:
    """`pjrt.attention.draws.kept` of a traced seed, int32 [2]."""
    *rows, columns = shape
    key = lax.bitcast_convert_type(seed, np.uint32)
    row = lax.iota(np.uint32, int(np.prod(rows)))[:, None]
    column = lax.iota(np.uint32, -(-columns // draws.PER_VALUE))[None, :]
    values = jnp.stack(draws.threefry(WORDS, (key[0], key[1]), jnp.broadcast_arrays(row, column)), -1)
    halves = jnp.stack([values & np.uint32(0xFFFF), values >> np.uint32(draws.BITS)], -1)
    return (halves.reshape(*rows, -1)[..., :columns]) < np.uint32(draws.threshold(rate))


RULES = {CALL: Rule(called)}
