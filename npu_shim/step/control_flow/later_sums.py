"""Sums of a loop that are made after it: one product of what all iterations give.

The loop of a recurrent layer's gradient adds a product to the gradient of the weights in each iteration, so that each
reads and writes all of that gradient, which is larger than what the iteration computes of its batch:

    s = s + a^T d, in each iteration    becomes    rows_a[i] = a, rows_d[i] = d; after the loop s = s + rows_a^T rows_d

A sum is made later if a row of its factors takes no more memory than the sum, and all rows together no more than what
the forward pass keeps for the loop. Of several devices each has its part of a batch, and so of a row. A factor that is
kept anyway, for another sum, takes none, so that the bias's sum follows the weights'. Sums come in another order, and
16-bit factors are summed in float32 and rounded once, so that results differ in their last digits. On several devices
the sum crosses them once, not in each iteration.

It is found in the loop's program (a jaxpr), which is the same for loops of both versions of TensorFlow.
"""

from __future__ import annotations

import collections
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

ADDS = ("add", "add_any")
CAST = "convert_element_type"


@dataclass(frozen=True)
class Term:
    """What an iteration adds to a sum.

    Attributes:
        factors: variables of the loop's program: two of a product, one of a sum over its leading dimensions.
        dtype: in which it is summed.
        finish: function of the factors of all iterations, each with a dimension in front, that gives the whole term.
    """

    factors: tuple[Any, ...]
    dtype: Any
    finish: Callable[..., Any]


@dataclass(frozen=True)
class Sum:
    """A loop variable to which each iteration only adds.

    Attributes:
        at: its number among what the loop carries.
        bytes: its size.
        terms: what is added.
    """

    at: int
    bytes: int
    terms: tuple[Term, ...]

    @property
    def factors(self) -> set[Any]:
        """Those of its terms."""
        return {factor for term in self.terms for factor in term.factors}


@dataclass(frozen=True)
class Body:
    """A loop's body without its later sums.

    Attributes:
        sums: its Sums.
        kept: the factors of which each iteration keeps a row.
        most: iterations at most.
        run: function of the carried leaves that gives the next ones, the sums as they are, and the rows.
    """

    sums: tuple[Sum, ...]
    kept: tuple[Any, ...]
    most: int
    run: Callable[[Sequence[Any]], tuple[list[Any], list[Any]]]

    def buffers(self) -> list[Any]:
        """Room for the rows of all iterations."""
        return [jnp.zeros((self.most, *var.aval.shape), var.aval.dtype) for var in self.kept]

    def total(self, one: Sum, start: Any, rows: Sequence[Any]) -> Any:
        """What a loop variable ends with, given what it starts with and the rows of all iterations."""
        held = dict(zip(self.kept, rows))
        for term in one.terms:
            start = start + term.finish(*(held[factor] for factor in term.factors)).astype(start.dtype)
        return start


def while_loop(
    goes_on: Callable[[Any], Any], step: Callable[[Any], Any], first: Any, most: int | None, devices: int = 1
) -> Any:
    """lax.while_loop, with the sums that pay made after it.

    Args:
        goes_on: function of what is carried, as of lax.while_loop.
        step: likewise.
        first: what is carried at first, a pytree of arrays, of which the first leaf is the number of the iteration.
        most: how often the loop runs at most, None if that is not known: then no sum is made later.
        devices: how many run it together.
    """
    leaves, tree = jax.tree.flatten(first)
    flat = jax.make_jaxpr(lambda *given: jax.tree.leaves(step(jax.tree.unflatten(tree, given))))(*leaves)
    sums = _sums(flat.jaxpr) if most else []
    loop = _planned(flat, sums, goes_on, leaves, tree, int(most or 0), devices) if sums else None
    if loop is None or not loop.sums:
        compute = jaxpr_as_fun(flat)
        return lax.while_loop(
            goes_on, lambda carried: jax.tree.unflatten(tree, compute(*jax.tree.leaves(carried))), first
        )

    def within(carried: Any) -> Any:
        given, rows = carried
        new, added = loop.run(given)
        return new, [lax.dynamic_update_index_in_dim(buffer, row, given[0], 0) for buffer, row in zip(rows, added)]

    start = leaves, loop.buffers()
    last, rows = lax.while_loop(lambda carried: goes_on(jax.tree.unflatten(tree, carried[0])), within, start)
    for one in loop.sums:
        last[one.at] = loop.total(one, leaves[one.at], rows)
    return jax.tree.unflatten(tree, last)


def _planned(
    flat: Any, sums: Sequence[Sum], goes_on: Callable[[Any], Any], leaves: Sequence[Any], tree: Any, most: int,
    devices: int,
) -> Body:  # fmt: skip
    """The Body of a loop, with those of its sums that pay."""
    asked = _asked(jax.make_jaxpr(lambda *given: goes_on(jax.tree.unflatten(tree, given)))(*leaves).jaxpr)
    stored = [value for value in (*flat.consts, *leaves) if jnp.shape(value)[:1] == (most,)]
    room = sum(value.size * value.dtype.itemsize for value in stored) // most
    sums = _paying([one for one in sums if one.at not in asked], room, devices)
    kept = tuple(dict.fromkeys(factor for one in sums for term in one.terms for factor in term.factors))
    return Body(tuple(sums), kept, most, _without(flat, sums, kept))


def _asked(jaxpr: Any) -> set[int]:
    """Numbers of the arguments that a program needs."""
    used = {var for eqn in jaxpr.eqns for var in eqn.invars if not isinstance(var, Literal)}
    used.update(var for var in jaxpr.outvars if not isinstance(var, Literal))
    return {number for number, var in enumerate(jaxpr.invars) if var in used}


def _without(closed: Any, sums: Sequence[Sum], kept: Sequence[Any]) -> Callable[[Sequence[Any]], Any]:
    """The `run` of a Body: XLA leaves out what only the sums have needed."""
    jaxpr, count = closed.jaxpr, len(closed.jaxpr.outvars)
    results = list(jaxpr.outvars)
    for one in sums:
        results[one.at] = jaxpr.invars[one.at]
    without = jaxpr.replace(outvars=[*results, *kept], debug_info=jaxpr.debug_info._replace(result_paths=None))
    compute = jaxpr_as_fun(ClosedJaxpr(without, closed.consts))

    def run(leaves: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        values = compute(*leaves)
        return values[:count], values[count:]

    return run


class _Uses:
    """Who gives and who takes each variable of a program."""

    def __init__(self, jaxpr: Any) -> None:
        self.given = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
        self.taken = collections.Counter(
            var for eqn in jaxpr.eqns for var in eqn.invars if not isinstance(var, Literal)
        )
        self.taken.update(var for var in jaxpr.outvars if not isinstance(var, Literal))

    def by(self, var: Any, names: Sequence[str]) -> Any:
        """The equation that gives a variable, if it is one of these and nothing else takes it; else None."""
        eqn = None if isinstance(var, Literal) else self.given.get(var)
        return eqn if eqn is not None and eqn.primitive.name in names and self.taken[var] == 1 else None


def _sums(jaxpr: Any) -> list[Sum]:
    uses, several = _Uses(jaxpr), []
    for at, (var, result) in enumerate(zip(jaxpr.invars, jaxpr.outvars)):
        is_float = jnp.issubdtype(var.aval.dtype, jnp.floating) and var.aval.ndim > 0
        add = uses.by(result, ADDS) if is_float and uses.taken[var] == 1 else None
        if add is None:
            continue
        terms = _added(add, var, uses)
        if terms and all(term.dtype.itemsize >= var.aval.dtype.itemsize for term in terms):
            several.append(Sum(at, _bytes([var]), tuple(terms)))
    return several


def _added(add: Any, var: Any, uses: _Uses) -> list[Term]:
    """What a tree of additions adds to a variable; empty if there is anything else in it, or not the variable."""
    terms: list[Term] = []
    pending, is_there = list(add.invars), False
    while pending:
        one = pending.pop()
        if one is var:
            is_there = True
            continue
        inner = uses.by(one, ADDS)
        if inner is not None:
            pending += inner.invars
            continue
        term = _term(one, uses)
        if term is None:
            return []
        terms.append(term)
    return terms if is_there else []


def _term(var: Any, uses: _Uses) -> Term | None:
    """The Term that a variable is, behind casts: what is rounded in each iteration is rounded once."""
    while True:
        cast = uses.by(var, (CAST,))
        if cast is None:
            break
        var = cast.invars[0]
        if not jnp.issubdtype(var.aval.dtype, jnp.floating):
            return None
    product = uses.by(var, ("dot_general",))
    if product is not None:
        return _product(product, uses)
    total = uses.by(var, ("reduce_sum",))
    return None if total is None or isinstance(total.invars[0], Literal) else _total(total, uses)


def _product(eqn: Any, uses: _Uses) -> Term | None:
    (left, right), (batch, _) = eqn.params["dimension_numbers"]
    if batch or any(isinstance(var, Literal) for var in eqn.invars):
        return None
    factors, casts = zip(*(_factor(var, uses) for var in eqn.invars))
    dims = ((0, *(axis + 1 for axis in left)), (0, *(axis + 1 for axis in right))), ((), ())
    wide, precision = _wide(eqn.outvars[0].aval.dtype), eqn.params["precision"]

    def finish(x: Any, y: Any) -> Any:
        given = (value.astype(dtype) for value, dtype in zip((x, y), casts))
        return lax.dot_general(*given, dims, precision=precision, preferred_element_type=wide)

    return Term(factors, wide, finish)


def _total(eqn: Any, uses: _Uses) -> Term:
    (factor, cast), axes = _factor(eqn.invars[0], uses), tuple(axis + 1 for axis in eqn.params["axes"])
    wide = _wide(cast)
    return Term((factor,), wide, lambda rows: jnp.sum(rows.astype(cast).astype(wide), (0, *axes)))


def _wide(dtype: Any) -> Any:
    """The dtype in which values are summed."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


def _factor(var: Any, uses: _Uses) -> tuple[Any, Any]:
    """(A factor as narrow as it was before it was cast, the dtype to which it was)."""
    dtype = var.aval.dtype
    eqn = uses.given.get(var)
    while eqn is not None and eqn.primitive.name == CAST and _widens(eqn) and not isinstance(eqn.invars[0], Literal):
        var = eqn.invars[0]
        eqn = uses.given.get(var)
    return var, dtype


def _widens(eqn: Any) -> bool:
    """Whether a cast is exact."""
    before, after = eqn.invars[0].aval.dtype, eqn.outvars[0].aval.dtype
    both_float = jnp.issubdtype(before, jnp.floating) and jnp.issubdtype(after, jnp.floating)
    return bool(both_float and before.itemsize < after.itemsize)


def _paying(sums: Sequence[Sum], room: int, devices: int) -> list[Sum]:
    """Those of which an iteration keeps no more than it would add to, the largest first; `room`: bytes for its rows.

    A device keeps its part of a row, and adds to all of a sum.
    """
    chosen: list[Sum] = []
    kept: set[Any] = set()
    for one in sorted(sums, key=lambda one: -one.bytes):
        if _bytes(one.factors - kept) <= one.bytes * devices and _bytes(one.factors | kept) <= room:
            chosen.append(one)
            kept |= one.factors
    return chosen


def _bytes(variables: Iterable[Any]) -> int:
    return sum(var.aval.size * var.aval.dtype.itemsize for var in variables)
