"""What a program of an attention kernel sees of its operands, and how it loads and stores parts of them. Needs JAX.

A program works on a block of queries ("s"), of keys ("t"), or on one of each ("st"), of one head of one batch; or it
goes through all heads or all batches itself, then that axis is the looped one.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Callable, Sequence

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from npu_shim.pjrt.attention.blocks import Blocks, partial_shape, power_of_two
from npu_shim.pjrt.attention.spec import Spec

# how operands and results lie in memory: batch, head, s: query, t: key, d: width of a head, e: of its values
AXES = {
    "q": "bshd", "k": "bthd", "v": "bthe", "out": "bshe", "d_out": "bshe", "dq": "bshd", "dk": "bthd", "dv": "bthe",
    "bias": "bhst", "hidden": "bhst", "dbias": "bhst", "most": "bhs", "sums": "bhs", "total": "bhs",
}  # fmt: skip
WORDS = {"seed": 2, "first": 1}  # operands that every program sees as a whole: how many numbers
BROADCAST = ("bias", "hidden")  # operands that may have an axis once for all


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

    def blocks_of(self, axis: str) -> int:
        """The number of blocks along an axis."""
        return int(pl.cdiv(self.sizes[axis], self.counts[axis]))

    def shape(self, name: str) -> tuple[int, ...]:
        """Of an operand or result of a kernel, in the order of `AXES`."""
        if name in BROADCAST:
            return getattr(self.spec, name) or ()
        return partial_shape(self.spec) if name == "dbias" else tuple(self.sizes[axis] for axis in AXES[name])


@dataclass(frozen=True)
class Grid:
    """The programs of a kernel.

    Attributes:
        along: the axes of which a program has one block: "s", "t" or "st".
        looped: "b" or "h" if a program goes through all of that axis, "" if it has one batch and one head.
    """

    along: str
    looped: str = ""

    def counts(self, setting: Setting) -> tuple[int, ...]:
        """Programs: blocks, heads, batches."""
        blocks = 1
        for axis in self.along:
            blocks *= setting.blocks_of(axis)
        return (blocks, *(1 if axis == self.looped else setting.sizes[axis] for axis in "hb"))

    def places(self, setting: Setting, block: Any, head: Any, batch: Any) -> dict[str, Any]:
        """Axis -> the number of a program's block, head and batch."""
        if len(self.along) == 1:
            return {self.along: block, "h": head, "b": batch}
        columns = setting.blocks_of("t")
        return {"s": block // columns, "t": block % columns, "h": head, "b": batch}

    def seen(self, setting: Setting, name: str) -> Any:
        """What a program sees of an operand: its block of the axes along which it works, all of others."""
        if name in WORDS:
            return pl.BlockSpec((WORDS[name],), lambda block, head, batch: (0,))
        axes, shape = AXES[name], setting.shape(name)

        def seen(axis: str, size: int) -> Any:
            if axis in "bh":
                return size if self._goes_through(axis, size) else None
            if name in BROADCAST and size == 1:
                return 1
            if size != setting.sizes[axis]:  # of a partial sum: one for each block
                return 1
            count = setting.counts[axis]
            return count if axis in self.along else pl.cdiv(size, count) * count

        def place(block: Any, head: Any, batch: Any) -> tuple[Any, ...]:
            numbers = self.places(setting, block, head, batch)
            return tuple(
                0 if size == 1 or axis == self.looped else numbers.get(axis, 0) for axis, size in zip(axes, shape)
            )

        return pl.BlockSpec(tuple(map(seen, axes, shape)), place)

    def at(self, setting: Setting, refs: Any, number: Any) -> Any:
        """The refs at one position of the looped axis."""
        if not self.looped:
            return refs
        chosen = dict(vars(refs), **{{"b": "batch", "h": "head"}[self.looped]: number})
        for name, axes in AXES.items():
            if name in chosen and self._goes_through(self.looped, setting.shape(name)[axes.index(self.looped)]):
                before = [axis for axis in axes[: axes.index(self.looped)] if axis not in "bh"]
                chosen[name] = _Part(chosen[name], len(before), number)
        return SimpleNamespace(**chosen)

    def _goes_through(self, axis: str, size: int) -> bool:
        return axis == self.looped and size > 1


@dataclass(frozen=True)
class _Part:
    """A ref at one position of an axis, which `load` takes as it takes a ref."""

    ref: Any
    axis: int
    number: Any

    @property
    def at(self) -> _Part:
        return self

    def __getitem__(self, places: tuple[Any, ...]) -> Any:
        return self.ref.at[(*places[: self.axis], self.number, *places[self.axis :])]


# -- parts of axes -----------------------------------------------------------------------------------------------------


def own(setting: Setting, axis: str, refs: Any) -> Span:
    """The block of a program, which sees no more of the axis."""
    count = setting.counts[axis]
    return Span(refs.blocks[axis] * count, count, setting.sizes[axis], 0)


def part(setting: Setting, axis: str, number: Any) -> Span:
    """A block of an axis of which a program sees all."""
    start = number * setting.counts[axis]
    return Span(start, setting.counts[axis], setting.sizes[axis], start)


def whole(setting: Setting, axis: str) -> Span:
    """All of an axis."""
    return Span(0, setting.counts[axis], setting.sizes[axis], 0)


def loop(setting: Setting, axis: str, step: Callable[[Any, Any], Any], carried: Any) -> Any:
    """What a step makes of what is carried, block by block of an axis."""
    return lax.fori_loop(0, setting.blocks_of(axis), step, carried)


def zeros(*spans: Span) -> Any:
    """Zeros in float32 for parts of axes."""
    return jnp.zeros([span.count for span in spans], jnp.float32)


# -- loads and stores --------------------------------------------------------------------------------------------------


def load(ref: Any, *spans: Span, other: float = 0.0) -> Any:
    """Loads a block, with `other` where it goes beyond the array."""
    mask = _mask(spans)
    return triton.load(ref.at[_place(spans)], mask=mask, other=None if mask is None else other)


def store(ref: Any, value: Any, *spans: Span) -> None:
    """Stores a block, as far as it is in the array."""
    triton.store(ref.at[_place(spans)], value.astype(ref.dtype), mask=_mask(spans))


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
