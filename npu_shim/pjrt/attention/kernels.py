"""Attention as Pallas kernels: forward, and backward in two or three, for GPUs by Triton or interpreted on a CPU.

Needs JAX.

    logits    S = scale Q K' + bias, masked as spec.py says, of a batch and a head; never in memory
    forward   P = softmax(S), O = drop(P) V, M = max(S), Z = sum(exp(S - M)) of each row
    backward  P = exp(S - M) / Z, D = sum(dO O) of each row, dP = drop(dO V'), dS = P (dP - D)
              dQ = slope dS K                      a program for each block of queries
              dV = drop(P)' dO, dK = slope dS' Q   a program for each block of keys
              dbias = sums of dS                   a program for each block of both, through all batches or all heads

Dao et al., "FlashAttention", NeurIPS 2022. Products take operands of the Spec's dtype and sum in float32, all else
is float32. What dropout keeps is drawn anew in each kernel, see draws.py. No two programs write to the same place, so
that a step repeats itself bit for bit. Models make heads of [b, s, h, d] by a transpose: the kernels read and write
that order, so that XLA leaves the transposes out.

Of what there is (November 2026), tokamax's kernels (openxla/tokamax) take a bias and these dtypes, but the mask of
dropout from memory, [b, h, s, t] as the probabilities are; cuDNN's draw it from a seed that is a constant of the
program; JAX's own have neither bias nor dropout. Pallas calls its way to Triton deprecated: what it offers instead,
Mosaic, has no Ampere.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Callable, NamedTuple, Sequence

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from npu_shim.pjrt.attention import draws
from npu_shim.pjrt.attention.blocks import blocks, looped, partial_shape
from npu_shim.pjrt.attention.spec import FORWARD, PREFIX, Spec
from npu_shim.pjrt.attention.tiles import AXES, ONE, Grid, Setting, Span, load, loop, own, part, store, whole, zeros

SWAPPED = (0, 2, 1, 3)  # [b, h, s, d] from [b, s, h, d] and back
WORDS = draws.Words(
    jnp.add, jnp.bitwise_xor, jnp.bitwise_or, lambda word, bits: word << jnp.uint32(bits),
    lambda word, bits: word >> jnp.uint32(bits), jnp.uint32,
)  # fmt: skip
INFINITY = float("inf")
BITS = {"bfloat16": (8, 7), "float16": (5, 10)}  # of exponent and fraction


def attention(
    spec: Spec, highest: bool = False, interpret: bool = False, more: Sequence[str] = (), sums: str = ""
) -> Callable[..., tuple[Any, ...]]:
    """Returns the function of jax arrays that a Spec describes: it takes `spec.arguments`, and returns `spec.results`.

    Args:
        spec: Spec that `blocks.refused` does not refuse.
        highest: whether float32 products are computed in full, not in TF32.
        interpret: whether to run on a CPU, slowly.
        more: names of operands behind those of the Spec: "first", int32 [1], is the number of the first batch where
            these are a part of all that dropout draws for.
        sums: dtype of the bias's gradient, "" for that of the Spec.
    """
    setting = Setting(spec, blocks(spec), highest, interpret)

    def run(*operands: Any) -> tuple[Any, ...]:
        named = dict(zip([*(argument.name for argument in spec.arguments), *more], operands))
        if spec.rate:
            named["seed"] = lax.bitcast_convert_type(named["seed"], jnp.uint32)
        dtypes = {result.name: result.dtype for result in spec.results}
        if sums:
            dtypes["dbias"] = sums
        if spec.kind == FORWARD:
            return _call(_forward, "forward", setting, Grid("s"), named, dtypes)
        out, d_out = (named[name].astype(jnp.float32) for name in ("out", "d_out"))
        named["total"] = jnp.sum(out * d_out, 3)
        del named["out"]  # read for that alone
        of_queries = _call(_of_queries, "backward_queries", setting, Grid("s"), named, {"dq": dtypes["dq"]})
        wanted = {name: dtypes[name] for name in ("dk", "dv")}
        of_keys = _call(_of_keys, "backward_keys", setting, Grid("t"), named, wanted)
        return (*of_queries, *of_keys, *(_bias_gradient(setting, named, dtypes) if spec.bias_gradient else ()))

    return run


def _bias_gradient(setting: Setting, named: dict[str, Any], dtypes: dict[str, str]) -> tuple[Any, ...]:
    """The gradient of the bias: a kernel's partial sums, added up."""
    spec, grid = setting.spec, Grid("st", looped(setting.spec))
    dims = partial_shape(spec)
    left = tuple(axis for axis, (size, wanted) in enumerate(zip(dims, spec.bias or ())) if size != wanted)
    kind = {"dbias": "float32" if left else dtypes["dbias"]}
    (sums,) = _call(lambda *given: _of_bias(grid, *given), "backward_bias", setting, grid, named, kind)
    return (jnp.sum(sums, left, keepdims=True).astype(dtypes["dbias"]) if left else sums,)


def _call(
    kernel: Callable[..., None],
    name: str,
    setting: Setting,
    grid: Grid,
    operands: dict[str, Any],
    results: dict[str, str],
) -> tuple[Any, ...]:
    """Runs the programs of a kernel."""
    names = [*operands, *results]

    def run(*refs: Any) -> None:
        block, head, batch = map(pl.program_id, range(3))  # loops cannot ask, if interpreted
        places = grid.places(setting, block, head, batch)
        kernel(setting, SimpleNamespace(**dict(zip(names, refs)), head=head, batch=batch, blocks=places))

    run.__name__ = PREFIX + name  # in profiles, and for `pjrt.cost`
    given = [_swapped(value, operand) for value, operand in operands.items()]
    results_of_call: Sequence[Any] = pl.pallas_call(
        run,
        out_shape=[jax.ShapeDtypeStruct(setting.shape(operand), dtype) for operand, dtype in results.items()],
        grid=grid.counts(setting),
        in_specs=[grid.seen(setting, operand) for operand in operands],
        out_specs=[grid.seen(setting, operand) for operand in results],
        compiler_params=triton.CompilerParams(num_warps=setting.blocks.warps, num_stages=setting.blocks.stages),
        interpret=setting.interpret,
        name=PREFIX + name,
    )(*given)
    return tuple(_swapped(operand, result) for operand, result in zip(results, results_of_call))


def _swapped(name: str, array: Any) -> Any:
    """An operand or result in the order of `AXES` from that of the Spec, and back."""
    return lax.transpose(array, SWAPPED) if AXES.get(name, "").endswith(("d", "e")) else array


def _product(setting: Setting, left: Any, right: Any, axes: str) -> Any:
    """A matrix product with float32 sums; `axes` says which axis of each operand is summed: "10" is left @ right."""
    summed = ((int(axes[0]),), (int(axes[1]),))
    precision = lax.Precision.HIGHEST if setting.highest else lax.Precision.DEFAULT
    return lax.dot_general(left, right, (summed, ((), ())), precision, jnp.float32)


def _logits(setting: Setting, refs: Any, q: Any, k: Any, rows: Span, columns: Span) -> tuple[Any, Any]:
    """Returns the scores, float32 [rows, columns], and which of them are hidden, None for none.

    They are minus infinity for keys that there are not.
    """
    spec, hidden = setting.spec, None
    logits = _product(setting, q, k, "11") * spec.scale
    if spec.bias and not spec.bias_over:
        logits = _with_bias(setting, refs, logits, rows, columns)
    if spec.after != 1:
        logits *= spec.after
    if spec.hidden:
        hidden = load(refs.hidden, *_spans(spec.hidden, rows, columns), other=0) != 0
        logits = jnp.where(hidden, spec.fill, logits)
    if spec.bias and spec.bias_over:
        logits = _with_bias(setting, refs, logits, rows, columns)
    return _where_there(logits, columns, -INFINITY), hidden


def _where_there(values: Any, columns: Span, other: float) -> Any:
    """[rows, columns], with another number for keys that there are not."""
    if columns.is_inside:
        return values
    column = columns.first + lax.broadcasted_iota(jnp.int32, values.shape, 1)
    return jnp.where(column < columns.size, values, other)


def _with_bias(setting: Setting, refs: Any, logits: Any, rows: Span, columns: Span) -> Any:
    """A sum, rounded as the plan's."""
    sums = logits + load(refs.bias, *_spans(setting.spec.bias, rows, columns)).astype(jnp.float32)
    if not setting.spec.rounded:
        return sums
    if setting.interpret:  # XLA leaves out two conversions in a row, Triton does not
        return lax.reduce_precision(sums, *BITS[setting.spec.rounded])
    return sums.astype(setting.spec.rounded).astype(jnp.float32)


def _spans(shape: Any, rows: Span, columns: Span) -> list[Span]:
    """The spans of an operand that may have an axis once for all."""
    return [span if size > 1 else ONE for span, size in zip((rows, columns), shape[2:])]


def _dropout(setting: Setting, refs: Any, rows: Span, columns: Span) -> Callable[[Any], Any]:
    """Returns what sets the dropped ones of [rows, columns] to zero and scales the kept ones."""
    rate, sizes = setting.spec.rate, setting.spec.drawn
    if not rate:
        return lambda values: values
    inside = rows.first + lax.broadcasted_iota(jnp.int32, (rows.count, 1), 0)
    places = [place if size > 1 else 0 for place, size in zip((refs.batch, refs.head), sizes)]
    if hasattr(refs, "first"):
        places[0] += refs.first[0]
    row = (places[0] * sizes[1] + places[1]) * sizes[2] + (inside if sizes[2] > 1 else jnp.zeros_like(inside))
    value = lax.broadcasted_iota(jnp.int32, (1, columns.count // draws.PER_VALUE), 1)
    counter = row, columns.first // draws.PER_VALUE + value
    words = draws.threefry(WORDS, (refs.seed[0], refs.seed[1]), [word.astype(jnp.uint32) for word in counter])
    both = _interleaved(*words)
    halves = _interleaved(both & jnp.uint32(0xFFFF), both >> jnp.uint32(draws.BITS))
    kept = halves.astype(jnp.int32) < draws.threshold(rate)
    return lambda values: jnp.where(kept, values * setting.spec.kept_times, 0.0)


def _interleaved(first: Any, second: Any) -> Any:
    """Two [m, n] as [m, 2n], the columns of the first at even places."""
    return jnp.stack([first, second], -1).reshape(first.shape[0], 2 * first.shape[1])


def _forward(setting: Setting, refs: Any) -> None:
    width, value_width = whole(setting, "d"), whole(setting, "e")
    rows = own(setting, "s", refs)
    q = load(refs.q, rows, width)

    def step(number: Any, carried: Any) -> Any:
        total, most, out = carried
        columns = part(setting, "t", number)
        logits, _ = _logits(setting, refs, q, load(refs.k, columns, width), rows, columns)
        new = jnp.maximum(most, jnp.max(logits, 1))
        finite = jnp.where(new == -INFINITY, 0.0, new)  # so far all is masked
        p, shrunk = jnp.exp(logits - finite[:, None]), jnp.exp(most - finite)
        v = load(refs.v, columns, value_width)
        dropped = _dropout(setting, refs, rows, columns)(p).astype(v.dtype)
        out = out * shrunk[:, None] + _product(setting, dropped, v, "10")
        return total * shrunk + jnp.sum(p, 1), new, out

    carried = zeros(rows), zeros(rows) - INFINITY, zeros(rows, value_width)
    total, most, out = loop(setting, "t", step, carried)
    store(refs.out, out / total[:, None], rows, value_width)
    store(refs.most, most, rows)
    store(refs.sums, total, rows)


# -- backward ----------------------------------------------------------------------------------------------------------


class _Queries(NamedTuple):
    """A block of queries, and what the backward pass takes with them."""

    span: Span
    q: Any
    d_out: Any
    most: Any
    sums: Any
    total: Any


class _Keys(NamedTuple):
    """A block of keys and their values."""

    span: Span
    k: Any
    v: Any


def _queries(setting: Setting, refs: Any, span: Span) -> _Queries:
    q, d_out = load(refs.q, span, whole(setting, "d")), load(refs.d_out, span, whole(setting, "e"))
    most = load(refs.most, span, other=INFINITY)  # queries that there are not have no probabilities
    return _Queries(span, q, d_out, most, load(refs.sums, span, other=1.0), load(refs.total, span))


def _keys(setting: Setting, refs: Any, span: Span) -> _Keys:
    return _Keys(span, load(refs.k, span, whole(setting, "d")), load(refs.v, span, whole(setting, "e")))


class _Slope(NamedTuple):
    """What a block of queries and one of keys make of each other, float32 [queries, keys].

    Attributes:
        scores: the gradient of the scores.
        product: the same, 0 where they are hidden.
        dropped: the probabilities that dropout has left.
    """

    scores: Any
    product: Any
    dropped: Any


def _slope(setting: Setting, refs: Any, of: _Queries, to: _Keys) -> _Slope:
    logits, hidden = _logits(setting, refs, of.q, to.k, of.span, to.span)
    p = jnp.exp(logits - of.most[:, None]) * (1.0 / of.sums)[:, None]
    drop = _dropout(setting, refs, of.span, to.span)
    slope = p * (drop(_product(setting, of.d_out, to.v, "11")) - of.total[:, None])
    slope = _where_there(slope, to.span, 0.0)  # it is NaN there in a row that has nothing but minus infinity
    return _Slope(slope, slope if hidden is None else jnp.where(hidden, 0.0, slope), drop(p))


def _of_queries(setting: Setting, refs: Any) -> None:
    rows, width = own(setting, "s", refs), whole(setting, "d")
    of = _queries(setting, refs, rows)

    def step(number: Any, dq: Any) -> Any:
        to = _keys(setting, refs, part(setting, "t", number))
        slope = _slope(setting, refs, of, to).product
        return dq + _product(setting, slope.astype(to.k.dtype), to.k, "10")

    dq = loop(setting, "t", step, zeros(rows, width))
    store(refs.dq, dq * setting.spec.product_slope, rows, width)


def _of_keys(setting: Setting, refs: Any) -> None:
    columns, width, value_width = own(setting, "t", refs), whole(setting, "d"), whole(setting, "e")
    to = _keys(setting, refs, columns)

    def step(number: Any, carried: Any) -> Any:
        dk, dv = carried
        of = _queries(setting, refs, part(setting, "s", number))
        slope = _slope(setting, refs, of, to)
        dv += _product(setting, slope.dropped.astype(of.d_out.dtype), of.d_out, "00")
        return dk + _product(setting, slope.product.astype(of.q.dtype), of.q, "00"), dv

    dk, dv = loop(setting, "s", step, (zeros(columns, width), zeros(columns, value_width)))
    store(refs.dk, dk * setting.spec.product_slope, columns, width)
    store(refs.dv, dv, columns, value_width)


def _of_bias(grid: Grid, setting: Setting, refs: Any) -> None:
    rows, columns = own(setting, "s", refs), own(setting, "t", refs)

    def step(number: Any, total: Any) -> Any:
        here = grid.at(setting, refs, number)
        slope = _slope(setting, here, _queries(setting, here, rows), _keys(setting, here, columns))
        return total + (slope.scores if setting.spec.bias_over else slope.product)

    total = lax.fori_loop(0, setting.sizes.get(grid.looped, 1), step, zeros(rows, columns))
    spans = [rows, columns]
    for axis, letter in enumerate("st"):
        if setting.shape("dbias")[2 + axis] != setting.sizes[letter]:
            total, spans[axis] = jnp.sum(total, axis, keepdims=True), ONE
    store(refs.dbias, total * (setting.spec.bias_slope or 0.0), *spans)
