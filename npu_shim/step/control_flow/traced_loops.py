"""One lax.while_loop for loops of both versions, with what its body touches of the state among what it carries."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun

from npu_shim.step.containers import rooms, stacks
from npu_shim.step.control_flow import joining, later_sums
from npu_shim.step.control_flow.trips import OPEN, Trips
from npu_shim.step.refusals import Unsupported
from npu_shim.step.values import traced

Carried = Any  # a pytree of arrays


def while_loop(
    run: Any,
    start: Carried,
    condition: Callable[[Carried, Any], Any],
    body: Callable[[Carried, Any], Carried],
    count: Trips = OPEN,
    fitted: Callable[[Carried, Any], Carried] | None = None,
) -> Carried:
    """Runs a loop whose functions read and write `run.cells`.

    A loop never runs more often than `count` says; where its own condition would go on, or the room of what it fills
    was not enough, `rooms` notes it.

    Args:
        run: the Run.
        start: a pytree of first values.
        condition: function of (carried, number of the iteration) that gives a traced bool; it must not write.
        body: the same, which gives what is carried next.
        count: how often it runs, as far as that is known.
        fitted: function of first values and the shapes of the next ones, which gives first values of these shapes.

    Raises:
        Unsupported: what is carried changes its shape or dtype.
    """
    start = traced(start)
    start, touched = _touched(run, start, body, fitted or (lambda values, result: values))
    _make_cells(run, touched)
    outside, asked = dict(run.cells), list[str]()

    def within(function: Callable[[Carried, Any], Any], carried: Any) -> tuple[Any, dict[str, Any]]:
        number, values, cells = carried
        run.cells = {**outside, **cells}
        result, new = function(values, number), run.cells
        run.cells = dict(outside)
        return result, new

    def goes_on(carried: Any) -> Any:
        result, new = within(condition, carried)
        before = {**outside, **carried[2]}
        changed = {key for key, value in new.items() if value is not before.get(key)}
        if changed - {rooms.KEY}:
            raise Unsupported("its condition writes to the state")
        if changed:  # it reads what must be in range: the loop ends where that is not, and `rooms` is told behind it
            asked.extend(changed)
            result = jnp.logical_and(result, new[rooms.KEY])
        return jnp.reshape(jnp.asarray(result), ())

    def go(carried: Any) -> Any:
        if count.most is None:
            return goes_on(carried)
        is_left = carried[0] < np.int32(count.most)
        return is_left if count.is_exact else jnp.logical_and(goes_on(carried), is_left)

    def step(carried: Any) -> Any:
        result, new = within(body, carried)
        return carried[0] + 1, traced(result), {key: traced(new[key]) for key in touched}

    first = (jnp.int32(0), start, {key: traced(run.cells[key]) for key in touched})
    try:
        last = later_sums.while_loop(go, step, first, count.most, run.ranks.devices)
        is_over = None if count.most is None or count.is_rounded else jnp.logical_not(goes_on(last))
    finally:
        run.cells = outside
    if asked:
        is_over = jnp.logical_and(within(condition, last)[1][rooms.KEY], True if is_over is None else is_over)
    return _left(run, last, is_over)


def _make_cells(run: Any, touched: dict[str, Any]) -> None:
    """Makes the cells that a body makes, which are seen from outside afterwards."""
    for key, like in touched.items():
        if key not in run.cells:
            run.cells[key] = jax.tree.map(lambda part: jnp.zeros(part.shape, part.dtype), like)


def _left(run: Any, last: Any, is_over: Any) -> Carried:
    """What a loop has carried last; notes that it was over by itself, and kept to the room that it had."""
    _, values, cells = last
    run.cells.update(cells)
    if is_over is not None:
        rooms.require(run, is_over)
    rooms.require_all(run, cells, values)
    return values


def _touched(
    run: Any, start: Carried, body: Callable[[Carried, Any], Carried], fitted: Callable[[Carried, Any], Carried]
) -> tuple[Carried, dict[str, Any]]:
    """(First values, key -> shapes and dtypes of the cells that a body changes); both keep theirs in each iteration.

    Where a first pass finds a list that grows, it is repeated.
    """
    for _ in range(6):
        touched, result = _probed(run, start, body)
        for key in touched.keys() & run.cells.keys():
            run.cells[key] = traced(stacks.buffered(run.cells[key]))
        for key in touched.keys() & run.cells.keys():
            require_same(shaped(run.cells[key]), touched[key])
        new = traced(fitted(start, result))
        if shaped(new) == shaped(start):
            require_same(shaped(start), result)
            return start, touched
        start = new
    raise Unsupported("what it keeps changes its shape from iteration to iteration")


def _probed(run: Any, start: Carried, body: Callable[[Carried, Any], Carried]) -> tuple[dict[str, Any], Any]:
    before = dict(run.cells)
    touched: dict[str, Any] = {}

    def probe(values: Carried) -> Any:
        run.cells = dict(before)
        result = traced(body(values, jnp.int32(0)))
        new = {key: value for key, value in run.cells.items() if value is not before.get(key)}
        touched.update((key, shaped(traced(value))) for key, value in new.items())
        return result

    try:
        result = jax.eval_shape(probe, start)
    finally:
        run.cells = before
    return touched, shaped(result)


def shaped(value: Any) -> Any:
    """The shapes and dtypes of a pytree."""
    return jax.tree.map(lambda part: jax.ShapeDtypeStruct(jnp.shape(part), part.dtype), value)


def require_same(before: Any, after: Any) -> None:
    """Raises Unsupported if two pytrees of shapes differ."""
    if jax.tree.structure(before) == jax.tree.structure(after):
        pairs = list(zip(jax.tree.leaves(before), jax.tree.leaves(after)))
        if all((one.shape, one.dtype) == (other.shape, other.dtype) for one, other in pairs):
            return
        differing = next((a, b) for a, b in pairs if (a.shape, a.dtype) != (b.shape, b.dtype))
        raise Unsupported("a loop variable of shape %s and dtype %s becomes one of %s and %s" % (
            differing[0].shape, differing[0].dtype, differing[1].shape, differing[1].dtype))  # fmt: skip
    raise Unsupported("a loop variable changes what it is: %s becomes %s" % (
        jax.tree.structure(before), jax.tree.structure(after)))  # fmt: skip


def branched(
    run: Any,
    predicate: Any,
    branches: Sequence[Callable[[], Any]],
    joined: Callable[[Sequence[Any]], Any] = joining.joined,
    filled: Callable[[Any, Any], Any] = joining.filled,
) -> Any:
    """Runs one of two or more branches, which read and write `run.cells`: lax.cond, or lax.switch of an index.

    Args:
        run: the Run.
        predicate: traced bool ([false, true] are the branches), or int32 index.
        branches: functions without arguments that give pytrees; each is called once.
        joined: function of what all of them give that makes of it what one of them would give; shapes and dtypes.
        filled: function of what a branch gives and what `joined` made, which gives it in that form.

    Raises:
        Unsupported: they give other shapes or dtypes.
    """
    before = dict(run.cells)
    recorded = [_recorded(run, branch) for branch in branches]
    shapes = [result for _, (result, _) in recorded]
    touched = {key: like for _, (_, cells) in recorded for key, like in cells.items()}
    like = joined(shapes)
    for other in shapes:
        require_same_results(like, jax.eval_shape(lambda given: filled(given, like), other))
    for key, cell in touched.items():
        if key not in before:
            before[key] = jax.tree.map(lambda part: jnp.zeros(part.shape, part.dtype), cell)
        before[key] = traced(stacks.buffered(before[key]))
        require_same(shaped(before[key]), cell)

    def within(compute: Callable[[], Any]) -> Callable[[], Any]:
        def call() -> Any:
            result, cells = compute()
            return traced(filled(result, like)), {key: cells.get(key, before[key]) for key in touched}

        return call

    calls = [within(compute) for compute, _ in recorded]
    if jnp.asarray(predicate).dtype == bool:
        result, cells = jax.lax.cond(predicate, calls[1], calls[0])
    else:
        result, cells = jax.lax.switch(predicate, calls)
    run.cells = {**before, **cells}
    return result


def _recorded(run: Any, branch: Callable[[], Any]) -> tuple[Callable[[], Any], Any]:
    """(A function that computes what a branch gives and the cells that it changes, their shapes and dtypes)."""
    before = run.cells

    def call() -> Any:
        run.cells = dict(before)
        result = traced(branch())
        return result, {key: traced(value) for key, value in run.cells.items() if value is not before.get(key)}

    try:
        program, shapes = jax.make_jaxpr(call, return_shape=True)()
    finally:
        run.cells = before
    compute, tree = jaxpr_as_fun(program), jax.tree.structure(shapes)
    return lambda: jax.tree.unflatten(tree, compute()), shapes


def require_same_results(one: Any, other: Any) -> None:
    """Raises Unsupported if two branches give other shapes."""
    pairs = list(zip(jax.tree.leaves(one), jax.tree.leaves(other)))
    same = jax.tree.structure(one) == jax.tree.structure(other)
    if not same or any((a.shape, a.dtype) != (b.shape, b.dtype) for a, b in pairs):
        raise Unsupported("its branches give %s and %s" % (_sizes(one), _sizes(other)))


def _sizes(value: Any) -> str:
    return ", ".join("%s%s" % (part.dtype, list(part.shape)) for part in jax.tree.leaves(value))
