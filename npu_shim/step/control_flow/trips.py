"""How often a loop runs, as far as its condition is known: the condition itself is evaluated, iteration by iteration.

So the count is that of the loop's own arithmetic, in its own dtypes. Where a part of a condition is not known of whose
parts all must hold (a LogicalAnd, i < minimum(a, b)), the known part bounds the loop.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Callable, Collection, Mapping, NamedTuple

import jax
import numpy as np

from npu_shim.step.control_flow.partial import UNKNOWN, Partial, deciding, of_body, returned
from npu_shim.step.graph import Graph, Source
from npu_shim.step.schedule import Loop
from npu_shim.step.values import is_known

LONGEST = 1_000_000  # iterations that are counted
LARGEST_SHAPE = 16  # elements
LONGEST_BOUND = 20_000  # where a part of the condition is not known


class Trips(NamedTuple):
    """How often a loop runs.

    Attributes:
        most: at most so often, None if that is not known.
        is_exact: whether it runs as often.
        last: if that is exact, the last values of its variables as far as they are known, by what names them.
        is_rounded: whether it is counted in floating point, where XLA may round otherwise than TensorFlow's kernels.
    """

    most: int | None
    is_exact: bool
    last: Mapping[Any, Any] = MappingProxyType({})
    is_rounded: bool = False


OPEN = Trips(None, False)


def of_frame(loop: Loop, scope: Any, start: Mapping[str, Any], rules: Mapping[str, Any]) -> Trips:
    """The trips of a loop of TensorFlow 1; `start` maps the Merges of its variables to their first values."""
    following = {variable.merge: variable.following for variable in loop.variables}
    chosen = deciding(loop.nodes, loop.condition.name, following)
    following = {merge: source for merge, source in following.items() if merge in chosen}
    condition = (loop.condition.name, 0)
    return _counted(
        {merge: value if is_known(value) else UNKNOWN for merge, value in start.items() if merge in chosen},
        lambda state: _iteration(loop, scope, state, rules).condition(condition),
        lambda state: _next(_iteration(loop, scope, state, rules), following),
    )


def settled(loop: Loop, scope: Any, start: Mapping[str, Any], rules: Mapping[str, Any]) -> dict[str, Any]:
    """Merge of a variable -> the value that it has after the first iteration, and keeps: shapes of gradients."""
    values = {}
    for variable in loop.variables:
        first = start[variable.merge]
        if is_known(first) and first.dtype.kind in "bi" and first.size <= LARGEST_SHAPE:
            second = _iteration(loop, scope, {variable.merge: first}, rules)(variable.following)
            if second is not UNKNOWN:
                third = _iteration(loop, scope, {variable.merge: second}, rules)(variable.following)
                if third is not UNKNOWN and np.array_equal(second, third):
                    values[variable.merge] = second
    return values


def _iteration(loop: Loop, scope: Any, state: Mapping[str, Any], rules: Mapping[str, Any]) -> Partial:
    """An iteration, of which these loop variables are known and no others."""
    fixed = {variable.merge for variable in loop.constant}
    unknown = {variable.merge for variable in loop.variables}
    entered = {node.name for node in loop.enters}

    def given(name: str) -> Any:
        if name in state:
            return (state[name], UNKNOWN)
        is_outside = name not in loop.nodes or name in fixed or name in entered
        return UNKNOWN if name in unknown else scope.values.get(name, UNKNOWN) if is_outside else None

    return Partial(scope.nodes, given, rules, scope.run.program.functions)


def _next(partial: Partial, following: Mapping[Any, Source]) -> dict[Any, Any]:
    return {name: partial(source) for name, source in following.items()}


def of_functions(
    condition: Graph, body: Graph, start: list[Any], rules: Mapping[str, Any], functions: Mapping[str, Graph],
    constant: Collection[int] = (),
) -> Trips:  # fmt: skip
    """The trips of a While with these first values, known or anything else; `last` is by number.

    Args:
        condition: its function of that name.
        body: the other one.
        start: the first values.
        rules: op -> row.
        functions: name -> Graph.
        constant: the numbers of the variables that the body hands on as they are.
    """
    shaped = {at: start[at] for at in constant if isinstance(start[at], jax.Array)}  # of which the shape is known

    def listed(state: Mapping[Any, Any]) -> list[Any]:
        return [shaped.get(number, state.get(number, UNKNOWN)) for number in range(len(start))]

    (result,) = returned(condition)
    sources = returned(body)
    chosen = deciding_arguments(condition, body)
    return _counted(
        {at: start[at] if is_known(start[at]) else UNKNOWN for at in chosen},
        lambda state: of_body(condition, listed(state), rules, functions).condition(result),
        lambda state: _next(of_body(body, listed(state), rules, functions), {at: sources[at] for at in chosen}),
    )


def deciding_arguments(condition: Graph, body: Graph) -> set[int]:
    """Numbers of the loop variables that a condition depends on, in this iteration or through later ones."""
    (result,) = returned(condition)
    asked = deciding(condition.nodes, result[0], {name: (name, 0) for name in condition.arguments})
    numbers = {condition.arguments.index(name) for name in asked}
    sources, itself = returned(body), {name: (name, 0) for name in body.arguments}
    while True:
        more = {body.arguments.index(name) for at in numbers for name in deciding(body.nodes, sources[at][0], itself)}
        if more <= numbers:
            return numbers
        numbers |= more


def _counted(
    state: Mapping[Any, Any],
    goes_on: Callable[[Any], tuple[Any, bool]],
    following: Callable[[Any], dict[Any, Any]],
) -> Trips:
    is_exact = True
    for count in range(LONGEST):
        go, may_end = goes_on(state)
        if go is not UNKNOWN and not np.all(go):
            last = {name: value for name, value in state.items() if value is not UNKNOWN}
            is_rounded = any(value.dtype.kind not in "biu" for value in last.values())
            return Trips(count, is_exact, last if is_exact else {}, is_rounded)
        is_exact = is_exact and go is not UNKNOWN
        if not may_end or (not is_exact and count > LONGEST_BOUND):
            return OPEN
        state = following(state)
    return OPEN
