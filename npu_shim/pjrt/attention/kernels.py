"""Attention as Pallas kernels: forward, and backward in two, for GPUs by Triton or interpreted on a CPU. Needs JAX.

    logits    S = scale Q K' + bias, of a batch and a head; never in memory
    forward   P = softmax(S), O = drop(P) V, L = log(sum(exp(S))) of each row
    backward  P = exp(S - L), D = sum(dO O) of each row, dP = drop(dO V'), dS = P (dP - D)
              dQ = scale dS K                      a program for each block of queries
              dV = drop(P)' dO, dK = scale dS' Q   a program for each block of keys

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

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Callable, Sequence

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from npu_shim.pjrt.attention import draws
from npu_shim.pjrt.attention.blocks import Blocks, blocks, power_of_two
from npu_shim.pjrt.attention.spec import FORWARD, PREFIX, Spec

# how operands and results lie in memory: batch, head, s: query, t: key, d: width of a head, e: of its values
AXES = {
    "q": "bshd", "k": "bthd", "v": "bthe", "out": "bshe", "d_out": "bshe", "dq": "bshd", "dk": "bthd", "dv": "bthe",
    "bias": "bhst", "lse": "bhs", "total": "bhs",
}  # fmt: skip
SWAPPED = (0, 2, 1, 3)  # [b, h, s, d] from [b, s, h, d] and back
WORDS = draws.Words(
    jnp.add, jnp.bitwise_xor, jnp.bitwise_or, lambda word, bits: word << jnp.uint32(bits),
    lambda word, bits: word >> jnp.uint32(bits), jnp.uint32,
)  # fmt: skip
INFINITY = float("inf")


@dataclass(frozen=True)
class Span:
    """A part of an axis that a kernel loads at a time, which may go beyond the axis's end.

    Attributes:
        first: its first position in the axis.
        count: positions in it, a power of two.
        size: of the axis.
        offset: of the first position in what the program sees of the axis.
    """

    first: Any
    count: int
    size: int
    offset: Any

    @property
    def is_inside(self) -> bool:
        """Whether no part of the axis goes beyond its end."""
        return self.size % self.count == 0


ONE = Span(0, 1, 1, 0)  # an axis along which an operand is broadcast


@dataclass(frozen=True)
class Setting:
    """What a kernel computes, and how.

    Attributes:
        spec: Spec.
        blocks: Blocks.
        highest: whether float32 products are computed in full, not in TF32.
        interpret: whether it runs on a CPU.
    """

    spec: Spec
    blocks: Blocks
    highest: bool = False
    interpret: bool = False

    @property
    def sizes(self) -> dict[str, int]:
        """Of the axes, by the letters of `AXES`."""
        return dict(zip("bhstde", (*self.spec.scores, self.spec.q[3], self.spec.v[3])))

    @property
    def counts(self) -> dict[str, int]:
        """Positions of an axis that are loaded at a time: a power of two."""
        widths = {axis: power_of_two(self.sizes[axis]) for axis in "de"}
        return dict(widths, s=self.blocks.rows, t=self.blocks.columns)


def attention(spec: Spec, highest: bool = False, interpret: bool = False) -> Callable[..., tuple[Any, ...]]:
    """Returns the function of jax arrays that a Spec describes: it takes `spec.arguments`, and returns `spec.results`.

    Args:
        spec: Spec that `blocks.refused` does not refuse.
        highest: whether float32 products are computed in full, not in TF32.
        interpret: whether to run on a CPU, slowly.
    """
    setting = Setting(spec, blocks(spec), highest, interpret)

    def run(*operands: Any) -> tuple[Any, ...]:
        named = {argument.name: operand for argument, operand in zip(spec.arguments, operands)}
        if spec.rate:
            named["seed"] = lax.bitcast_convert_type(named["seed"], jnp.uint32)
        dtypes = {result.name: result.dtype for result in spec.results}
        if spec.kind == FORWARD:
            return _call(_forward, "forward", setting, "s", named, dtypes)
        out, d_out = (named[name].astype(jnp.float32) for name in ("out", "d_out"))
        named["total"] = jnp.sum(out * d_out, 3)
        del named["out"]  # read for that alone
        of_queries = _call(_of_queries, "backward_queries", setting, "s", named, {"dq": dtypes.pop("dq")})
        return (*of_queries, *_call(_of_keys, "backward_keys", setting, "t", named, dtypes))

    return run


def _call(
    kernel: Callable[..., None],
    name: str,
    setting: Setting,
    along: str,
    operands: dict[str, Any],
    results: dict[str, str],
) -> tuple[Any, ...]:
    """Runs a kernel: a program for each block of queries ("s") or keys ("t") of each head of each batch."""
    sizes, names = setting.sizes, [*operands, *results]

    def run(*refs: Any) -> None:
        numbers = zip(("block", "head", "batch"), map(pl.program_id, range(3)))  # loops cannot ask, if interpreted
        kernel(setting, SimpleNamespace(**dict(zip(names, refs)), **dict(numbers)))

    run.__name__ = PREFIX + name  # in profiles, and for `pjrt.cost`
    shapes = {each: tuple(sizes[axis] for axis in AXES[each]) for each in results}
    given = [_swapped(each, operand) for each, operand in operands.items()]
    made: Sequence[Any] = pl.pallas_call(
        run,
        out_shape=[jax.ShapeDtypeStruct(shapes[each], dtype) for each, dtype in results.items()],
        grid=(pl.cdiv(sizes[along], setting.counts[along]), sizes["h"], sizes["b"]),
        in_specs=[_seen(setting, along, each) for each in operands],
        out_specs=[_seen(setting, along, each) for each in results],
        compiler_params=triton.CompilerParams(num_warps=setting.blocks.warps, num_stages=setting.blocks.stages),
        interpret=setting.interpret,
        name=PREFIX + name,
    )(*given)
    return tuple(_swapped(each, result) for each, result in zip(results, made))


def _swapped(name: str, array: Any) -> Any:
    """An operand or result in the order of `AXES` from that of the Spec, and back."""
    return lax.transpose(array, SWAPPED) if AXES.get(name, "").endswith(("d", "e")) else array


def _seen(setting: Setting, along: str, name: str) -> Any:
    """What a program sees of an operand: its batch, its head, its block of the axis that it works along, else all."""
    if name == "seed":
        return pl.BlockSpec((2,), lambda block, head, batch: (0,))
    axes = AXES[name]
    sizes = dict(zip(axes, setting.spec.bias or ())) if name == "bias" else setting.sizes

    def seen(axis: str) -> Any:
        if axis in "bh":
            return None
        if name == "bias" and sizes[axis] == 1:
            return 1
        count = setting.counts[axis]
        return count if axis == along else pl.cdiv(sizes[axis], count) * count

    def place(block: Any, head: Any, batch: Any) -> tuple[Any, ...]:
        numbers = {"b": batch, "h": head, along: block}
        return tuple(0 if sizes[axis] == 1 else numbers.get(axis, 0) for axis in axes)

    return pl.BlockSpec(tuple(seen(axis) for axis in axes), place)


def _own(setting: Setting, axis: str, refs: Any) -> Span:
    """The block of a program, which sees no more of the axis."""
    count = setting.counts[axis]
    return Span(refs.block * count, count, setting.sizes[axis], 0)


def _part(setting: Setting, axis: str, number: Any) -> Span:
    """A block of an axis of which a program sees all."""
    start = number * setting.counts[axis]
    return Span(start, setting.counts[axis], setting.sizes[axis], start)


def _all(setting: Setting, axis: str) -> Span:
    return Span(0, setting.counts[axis], setting.sizes[axis], 0)


def _loop(setting: Setting, axis: str, step: Callable[[Any, Any], Any], carried: Any) -> Any:
    return lax.fori_loop(0, pl.cdiv(setting.sizes[axis], setting.counts[axis]), step, carried)


def _zeros(*spans: Span) -> Any:
    return jnp.zeros([span.count for span in spans], jnp.float32)


def _place(spans: Sequence[Span]) -> tuple[Any, ...]:
    return tuple(pl.ds(span.offset, span.count) for span in spans)


def _mask(spans: Sequence[Span]) -> Any:
    """Which positions are inside the axes, bool of the spans' counts; None for all."""
    shape, mask = tuple(span.count for span in spans), None
    for axis, span in enumerate(spans):
        if not span.is_inside:
            inside = span.first + lax.broadcasted_iota(jnp.int32, shape, axis) < span.size
            mask = inside if mask is None else mask & inside
    return mask


def _load(ref: Any, *spans: Span, other: float = 0.0) -> Any:
    """Loads a block, with `other` where it goes beyond the array."""
    mask = _mask(spans)
    return triton.load(ref.at[_place(spans)], mask=mask, other=None if mask is None else other)


def _store(ref: Any, value: Any, *spans: Span) -> None:
    triton.store(ref.at[_place(spans)], value.astype(ref.dtype), mask=_mask(spans))


def _product(setting: Setting, left: Any, right: Any, axes: str) -> Any:
    """A matrix product with float32 sums; `axes` says which axis of each operand is summed: "10" is left @ right."""
    summed = ((int(axes[0]),), (int(axes[1]),))
    precision = lax.Precision.HIGHEST if setting.highest else lax.Precision.DEFAULT
    return lax.dot_general(left, right, (summed, ((), ())), precision, jnp.float32)


def _logits(setting: Setting, refs: Any, q: Any, k: Any, rows: Span, columns: Span) -> Any:
    """Scaled and biased products, float32 [rows, columns]; minus infinity for keys that there are not."""
    logits, bias = _product(setting, q, k, "11") * setting.spec.scale, setting.spec.bias
    if bias:
        spans = (span if size > 1 else ONE for span, size in zip((rows, columns), bias[2:]))
        logits += _load(refs.bias, *spans).astype(jnp.float32)
    if columns.is_inside:
        return logits
    column = columns.first + lax.broadcasted_iota(jnp.int32, logits.shape, 1)
    return jnp.where(column < columns.size, logits, -INFINITY)


def _dropout(setting: Setting, refs: Any, rows: Span, columns: Span) -> Callable[[Any], Any]:
    """Returns what sets the dropped ones of [rows, columns] to zero and scales the kept ones."""
    rate, sizes = setting.spec.rate, setting.sizes
    if not rate:
        return lambda values: values
    before = (refs.batch * sizes["h"] + refs.head) * sizes["s"] + rows.first
    row = before + lax.broadcasted_iota(jnp.int32, (rows.count, 1), 0)
    value = lax.broadcasted_iota(jnp.int32, (1, columns.count // draws.PER_VALUE), 1)
    counter = row, columns.first // draws.PER_VALUE + value
    words = draws.threefry(WORDS, (refs.seed[0], refs.seed[1]), [each.astype(jnp.uint32) for each in counter])
    both = _interleaved(*words)
    halves = _interleaved(both & jnp.uint32(0xFFFF), both >> jnp.uint32(draws.BITS))
    kept = halves.astype(jnp.int32) < draws.threshold(rate)
    return lambda values: jnp.where(kept, values * (1.0 / (1.0 - rate)), 0.0)


def _interleaved(first: Any, second: Any) -> Any:
    """Two [m, n] as [m, 2n], the columns of the first at even places."""
    return jnp.stack([first, second], -1).reshape(first.shape[0], 2 * first.shape[1])


def _forward(setting: Setting, refs: Any) -> None:
    width, value_width = _all(setting, "d"), _all(setting, "e")
    rows = _own(setting, "s", refs)
    q = _load(refs.q, rows, width)

    def step(number: Any, carried: Any) -> Any:
        total, most, out = carried
        columns = _part(setting, "t", number)
        logits = _logits(setting, refs, q, _load(refs.k, columns, width), rows, columns)
        new = jnp.maximum(most, jnp.max(logits, 1))
        finite = jnp.where(new == -INFINITY, 0.0, new)  # so far all is masked
        p, shrunk = jnp.exp(logits - finite[:, None]), jnp.exp(most - finite)
        v = _load(refs.v, columns, value_width)
        dropped = _dropout(setting, refs, rows, columns)(p).astype(v.dtype)
        out = out * shrunk[:, None] + _product(setting, dropped, v, "10")
        return total * shrunk + jnp.sum(p, 1), new, out

    carried = _zeros(rows), _zeros(rows) - INFINITY, _zeros(rows, value_width)
    total, most, out = _loop(setting, "t", step, carried)
    _store(refs.out, out / total[:, None], rows, value_width)
    _store(refs.lse, most + jnp.log(total), rows)


def _of_queries(setting: Setting, refs: Any) -> None:
    width, value_width = _all(setting, "d"), _all(setting, "e")
    rows = _own(setting, "s", refs)
    q, d_out = _load(refs.q, rows, width), _load(refs.d_out, rows, value_width)
    lse, total = _load(refs.lse, rows), _load(refs.total, rows)

    def step(number: Any, dq: Any) -> Any:
        columns = _part(setting, "t", number)
        k, v = _load(refs.k, columns, width), _load(refs.v, columns, value_width)
        p = jnp.exp(_logits(setting, refs, q, k, rows, columns) - lse[:, None])
        dp = _dropout(setting, refs, rows, columns)(_product(setting, d_out, v, "11"))
        d_logits = (p * (dp - total[:, None])).astype(k.dtype)
        return dq + _product(setting, d_logits, k, "10")

    dq = _loop(setting, "t", step, _zeros(rows, width))
    _store(refs.dq, dq * setting.spec.scale, rows, width)


def _of_keys(setting: Setting, refs: Any) -> None:
    width, value_width = _all(setting, "d"), _all(setting, "e")
    columns = _own(setting, "t", refs)
    k, v = _load(refs.k, columns, width), _load(refs.v, columns, value_width)

    def step(number: Any, carried: Any) -> Any:
        dk, dv = carried
        rows = _part(setting, "s", number)
        q, d_out = _load(refs.q, rows, width), _load(refs.d_out, rows, value_width)
        lse = _load(refs.lse, rows, other=INFINITY)  # queries that there are not have no probabilities
        p = jnp.exp(_logits(setting, refs, q, k, rows, columns) - lse[:, None])
        drop = _dropout(setting, refs, rows, columns)
        dv += _product(setting, drop(p).astype(d_out.dtype), d_out, "00")
        dp = drop(_product(setting, d_out, v, "11"))
        d_logits = (p * (dp - _load(refs.total, rows)[:, None])).astype(q.dtype)
        return dk + _product(setting, d_logits, q, "00"), dv

    dk, dv = _loop(setting, "s", step, (_zeros(columns, width), _zeros(columns, value_width)))
    _store(refs.dk, dk * setting.spec.scale, columns, width)
    _store(refs.dv, dv, columns, value_width)
