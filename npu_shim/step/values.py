"""What flows along the edges of a graph while it is interpreted.

    known     np.ndarray: its elements are known when the step is traced; shapes, axes and lengths must be
    traced    jax.Array: XLA computes it
    rows      Rows: an array and how many of its first rows there are, where that depends on data
    turned    Turned: rows of which the counted dimension is another than the first
    grid      Grid: rows of which another dimension is counted too
    either    Either: one of two values, of several shapes, as a traced predicate says
    dims      Dims: a shape, or paddings, with such a number in it
    handle    Reference, Handle, ...: what a variable, Stack or TensorArray is called; its value is in the state
    list      lists.List: an immutable list of tensors
    text      graph.Text: strings, with which nothing is computed
    DEAD      the output of a side of a conditional that is not taken

A known value that meets a traced one becomes traced. Nothing is promoted: TensorFlow's ops have one dtype.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Rows(NamedTuple):
    """A tensor whose first dimension depends on data.

    Attributes:
        array: [most, ...]; what stands behind the last row is not to be used, and is finite.
        count: int32, number of rows.
    """

    array: Any
    count: Any

    @property
    def axis(self) -> int:
        """The number of the dimension, as of Turned."""
        return 0

    @property
    def counts(self) -> dict[int, Any]:
        """Number of each dimension that depends on data -> how many elements it has."""
        return {0: self.count}


class Size(NamedTuple):
    """A number of rows.

    Attributes:
        count: how many there are, traced int32.
        most, least: how many there may be.
        rest: (a, count of b, c) of what is left of `a` (int or Size) without `b` and `c`; None for other numbers.
        fills: of what is left of so many, or a sum with it: how many these are, which rows most likely become.
    """

    count: Any
    most: int
    least: int = 0
    rest: tuple[Any, Any, int] | None = None
    fills: int | None = None


class Dims(NamedTuple):
    """A tensor of sizes, with one that depends on data: a shape, one of its sizes, or paddings. See `sizes`.

    Attributes:
        sizes: int or Size, in row-major order.
        dtype, shape: of the tensor that it stands for.
    """

    sizes: tuple[Any, ...]
    dtype: Any
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Turned:
    """A tensor of which another dimension than the first depends on data.

    Attributes:
        array: what stands behind the last element of the axis is not to be used, and is finite.
        count: int32, number of elements of the axis.
        axis: number of the dimension, 1 or more.
    """

    array: Any
    count: Any
    axis: int

    @property
    def counts(self) -> dict[int, Any]:
        """As of Rows."""
        return {self.axis: self.count}


@dataclass(frozen=True)
class Grid:
    """A tensor of which the first dimension and another one depend on data.

    Attributes:
        array: what stands behind the last row, or the last element of the axis, is not to be used.
        count: int32, number of rows.
        columns: int32, number of elements of the axis.
        axis: number of the other dimension, 1 or more.
    """

    array: Any
    count: Any
    columns: Any
    axis: int

    @property
    def counts(self) -> dict[int, Any]:
        """As of Rows."""
        return {0: self.count, self.axis: self.columns}


@dataclass(frozen=True)
class Either:
    """What a conditional gives whose sides have several shapes; see `eithers`.

    Attributes:
        predicate: traced bool.
        sides: the value where it does not hold, and where it does.
    """

    predicate: Any
    sides: tuple[Any, Any]


class Handle(NamedTuple):
    """A resource variable, or another thing of the state that is read and written by ops of its own.

    Attributes:
        kind: "variable", "stack", "array", ...
        key: its key among the cells of the state.
        instance: of one made in a loop and kept over its iterations: which of them (int32); None for one alone.
    """

    kind: str
    key: str
    instance: Any = None


class Reference(NamedTuple):
    """The memory of a reference variable, which is read when its consumer runs.

    Attributes:
        key: of the variable.
        view: makes the tensor of the variable's value, None for the value itself: Reshape and the like alias it.
    """

    key: str
    view: Callable[[Any], Any] | None = None


class _Dead:
    def __repr__(self) -> str:
        return "DEAD"


DEAD = _Dead()
KNOWN = (np.ndarray, np.generic)
TENSORS = (*KNOWN, jax.Array)
HANDLES = (Handle, Reference)


def is_known(*values: Any) -> bool:
    """Whether the elements of all these are known when the step is traced."""
    return False not in [isinstance(value, KNOWN) for value in values]  # asked for each node: quicker than a generator


def is_tensor(value: Any) -> bool:
    """Whether a value is known or traced."""
    return isinstance(value, TENSORS)


def xp(*values: Any) -> Any:
    """The library that computes with these: numpy where all are known, else jax.numpy."""
    return np if is_known(*values) else jnp


def traced(value: Any) -> Any:
    """A value as XLA takes it: of a known one a constant; inside of lists and rows too."""
    return value if isinstance(value, jax.Array) else jax.tree.map(jnp.asarray, value)


def guarded(x: Any) -> Any:
    """What is summed up over windows, hidden from XLA's simplifications.

    XLA folds padding into such sums, and takes one row between zeros for a row in each window (jaxlib 0.12).
    """
    return jax.lax.optimization_barrier(traced(x))


def ints(value: Any) -> tuple[int, ...]:
    """The elements of a known shape, permutation, ... as ints: of a scalar one."""
    return tuple(np.atleast_1d(value).tolist())


def whole(value: Any) -> int:
    """The one element of a known scalar, as an int."""
    return int(np.asarray(value).reshape(()))
