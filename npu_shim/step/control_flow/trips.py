"""How often a loop runs, as far as its condition is known: the condition itself is evaluated, iteration by iteration.

So the count is that of the loop's own arithmetic, in its own dtypes. Where a part of a LogicalAnd is not known, the
known part bounds the loop.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping, NamedTuple

import numpy as np

from npu_shim.step.control_flow.partial import UNKNOWN, Partial, evaluated
from npu_shim.step.graph import Graph
from npu_shim.step.schedule import Loop

LONGEST = 1_000_000  # iterations that are counted


class Trips(NamedTuple):
    """How often a loop runs: at most `most` times (None if that is not known), and as often if `is_exact`."""

    most: int | None
    is_exact: bool


OPEN = Trips(None, False)


def of_frame(loop: Loop, scope: Any, start: Mapping[str, Any], rules: Mapping[str, Any]) -> Trips:
    """The trips of a loop of TensorFlow 1; `start` maps the Merges of its variables to their first values."""
    following = {variable.merge: variable.following for variable in loop.variables}
    fixed = {variable.merge for variable in loop.constant}

    def partial(state: Mapping[str, Any]) -> Partial:
        def given(name: str) -> Any:
            if name in state:
                return (state[name], UNKNOWN)
            is_outside = name not in loop.nodes or name in fixed
            return scope.values.get(name, UNKNOWN) if is_outside or name in entered else None

        return Partial(loop.nodes, given, rules, scope.run.program.functions)

    entered = {node.name for node in loop.enters}
    condition = (loop.condition.name, 0)
    return _counted(start, lambda state: partial(state)(condition), lambda state: _next(partial(state), following))


def _next(partial: Partial, following: Mapping[str, Any]) -> dict[str, Any]:
    return {name: partial(source) for name, source in following.items()}


def of_functions(
    condition: Graph, body: Graph, start: list[Any], rules: Mapping[str, Any], functions: Mapping[str, Graph]
) -> Trips:
    """The trips of a While with these first values, known or anything else."""
    known = {number: value if isinstance(value, (np.ndarray, np.generic)) else UNKNOWN
             for number, value in enumerate(start)}  # fmt: skip

    def listed(state: Mapping[Any, Any]) -> list[Any]:
        return [state[number] for number in range(len(start))]

    return _counted(
        known,
        lambda state: evaluated(condition, listed(state), rules, functions)[0],
        lambda state: dict(enumerate(evaluated(body, listed(state), rules, functions))),
    )


def _counted(
    state: Mapping[Any, Any], goes_on: Callable[[Any], Any], following: Callable[[Any], dict[Any, Any]]
) -> Trips:
    is_exact = True
    for count in range(LONGEST):
        go = goes_on(state)
        if go is not UNKNOWN and not np.all(go):
            return Trips(count, is_exact)
        if go is UNKNOWN:
            is_exact = False
        new = following(state)
        if go is UNKNOWN and not _changes(state, new):
            return OPEN
        state = new
    return OPEN


def _changes(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> bool:
    """Whether anything that is known changes: else what is not known decides alone."""
    return any(
        value is not UNKNOWN and (old[name] is UNKNOWN or not np.array_equal(old[name], value))
        for name, value in new.items()
    )
