"""Loop variables of TensorFlow 1 that count, and what is known of them where the number of iterations is only bounded.

A loop's gradient runs as often as the loop has: the loop counts upwards from 0, and the gradient's loop downwards to 1
from that count, or from one of many that a Stack keeps. So it runs at most as often as the loop may have.

How often a loop runs that ends by whole numbers that are fed, as a decoder does by the lengths of sentences, the
session can count: it computes the last value of a counter of that loop, and nothing else of it.
"""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Sequence

import numpy as np

from npu_shim.step.control_flow.partial import returned
from npu_shim.step.control_flow.trips import OPEN, Trips
from npu_shim.step.frames import ENTERS, NEXTS, SWITCHES, Variables, value_source
from npu_shim.step.graph import Graph, Node, Source
from npu_shim.step.packing import DRAWING
from npu_shim.step.refusals import UNBOUNDED
from npu_shim.step.schedule import Loop
from npu_shim.step.values import Handle, is_known, whole

HANDS_ON = frozenset(["Identity", *NEXTS, *SWITCHES])
SHAPES = frozenset(["Shape", "ShapeN", "Size", "Rank"])
KEEPS = frozenset(["StackPushV2", "TensorArrayWriteV3"])


def behind(loop: Loop, source: Source) -> Source:
    """Where what stands on an edge comes from in an iteration."""
    while source[0] in loop.nodes and loop.nodes[source[0]].op in HANDS_ON:
        source = loop.nodes[source[0]].inputs[0]
    return source


def _step(scope: Any, loop: Loop, variable: Variables, ops: tuple[str, ...]) -> int | None:
    """What each iteration adds to a variable, or takes from it, by one of these ops; None for anything else."""
    node = scope.nodes[behind(loop, variable.following)[0]]
    if node.op not in ops or behind(loop, node.inputs[0]) != (variable.merge, 0):
        return None
    step = _known(scope, loop, node.inputs[1])
    return whole(step) if step is not None and step.dtype.kind == "i" else None


def _known(scope: Any, loop: Loop, source: Source) -> Any:
    """The value of a scalar that is the same in each iteration, None if it is not known."""
    node = scope.nodes[source[0]]
    value = node.attrs["value"] if node.op == "Const" else scope.values.get(node.name) if node.op in ENTERS else None
    return value if value is not None and is_known(value) and not np.ndim(value) else None


def last(scope: Any, loop: Loop, start: Mapping[str, Any], most: int) -> dict[str, Any]:
    """Merge of a variable that counts upwards -> its value after so many iterations."""
    values = {}
    for variable in loop.variables:
        first = start[variable.merge]
        step = _step(scope, loop, variable, ("Add", "AddV2")) if is_known(first) and not np.ndim(first) else None
        if step is not None and step > 0:
            values[variable.merge] = np.asarray(whole(first) + most * step).astype(first.dtype)
    return values


class Range(NamedTuple):
    """The values in a loop's iterations of a variable that counts upwards.

    Attributes:
        first, last: the least and the largest, None if that is not known.
        is_exact: whether it comes to the largest one.
    """

    first: int | None
    last: int | None
    is_exact: bool


NO_RANGE = Range(None, None, False)


def ranges(scope: Any, loop: Loop, start: Mapping[str, Any], count: Trips) -> dict[str, Range]:
    """Merge of a variable that counts upwards -> its Range."""
    if not count.most:
        return {}
    values = last(scope, loop, start, count.most - 1)
    return {merge: Range(whole(start[merge]), whole(value), count.is_exact) for merge, value in values.items()}


def ranges_of_body(body: Graph, start: Sequence[Any], count: Trips) -> dict[str, Range]:
    """The same of a While: argument of its body -> Range."""
    if not count.most:
        return {}
    counters = {}
    for name, first, source in zip(body.arguments, start, returned(body)):
        step = _added(body, name, source) if is_known(first) and not np.ndim(first) and first.dtype.kind == "i" else 0
        if step > 0:
            counters[name] = Range(whole(first), whole(first) + (count.most - 1) * step, count.is_exact)
    return counters


def _added(body: Graph, name: str, source: Source) -> int:
    """The whole number that a body adds to an argument, 0 for anything else."""
    node = body.nodes[value_source(source, body.nodes)[0]]
    if node.op not in ("Add", "AddV2") or value_source(node.inputs[0], body.nodes) != (name, 0):
        return 0
    step = body.nodes[value_source(node.inputs[1], body.nodes)[0]]
    return whole(step.attrs["value"]) if step.op == "Const" and np.size(step.attrs["value"]) == 1 else 0


def values_of(scope: Any, source: Source, index: Any) -> Range:
    """The values that an index has in the iterations of the loop around it, as far as they are known."""
    if is_known(index) and np.size(index) == 1:
        return Range(whole(index), whole(index), True)
    name = source[0]
    while scope.nodes[name].op in HANDS_ON:
        name = scope.nodes[name].inputs[0][0]
    return scope.finals.get(name, NO_RANGE)  # type: ignore[no-any-return]


def told(scope: Any, loop: Loop, start: Mapping[str, Any], has_bound: bool) -> Trips | None:
    """How often a loop runs, where the last value of a counter of it is told; None where it is not.

    Raises:
        Refusal: nobody has been asked for it.
    """
    if scope.run.told is None or scope.path or scope.serial is not None:
        return None
    steps = {merge: whole(value) - whole(start[merge]) for merge, value in last(scope, loop, start, 1).items()}
    leaving = {_leaving(loop, merge): merge for merge in steps}
    for name, merge in leaving.items():
        if name in scope.run.told:
            return Trips(max(0, (scope.run.told[name] - whole(start[merge])) // steps[merge]), True)
    if leaving and _keeps(scope, loop, has_bound) and _is_fed(scope, loop):
        raise scope.refusal(loop.condition, UNBOUNDED, scope.integers_behind(loop.condition.name), leaving)
    return None


def _leaving(loop: Loop, merge: str) -> str:
    """The Switch by which a variable leaves its loop."""
    return next(name for name, node in loop.nodes.items() if node.op == "Switch" and node.inputs[0] == (merge, 0))


def _keeps(scope: Any, loop: Loop, has_bound: bool) -> bool:
    """Whether its iterations keep values for which a bound would not do: those of an array that grows."""
    if not has_bound and any(node.op in KEEPS for node in loop.nodes.values()):
        return True
    writes = (node for node in loop.nodes.values() if node.op == "TensorArrayWriteV3")
    return any(_grows(scope, loop, node.inputs[0][0]) for node in writes)


def _grows(scope: Any, loop: Loop, name: str) -> bool:
    """Whether a handle that enters a loop is that of an array that grows."""
    while name in loop.nodes and name not in scope.values and loop.nodes[name].inputs:
        name = loop.nodes[name].inputs[0][0]
    value = scope.values.get(name)
    handle = value[0] if type(value) is tuple else value
    return bool(isinstance(handle, Handle) and scope.run.facts[handle.key].grows)


def _is_fed(scope: Any, loop: Loop) -> bool:
    """Whether nothing but whole numbers that are fed, constants and shapes says when a loop ends."""
    pending, seen = [loop.condition.name], {loop.condition.name}
    while pending:
        node = scope.nodes[pending.pop()]
        if node.op in SHAPES or _is_fed_whole(scope, node):
            continue
        if node.op in DRAWING or (not node.inputs and node.op != "Const"):
            return False
        sources = {name for name, _ in node.inputs} - seen
        pending += sources
        seen |= sources
    return True


def _is_fed_whole(scope: Any, node: Node) -> bool:
    dtype = node.attrs.get("dtype")
    return node.name in scope.run.program.feeds and isinstance(dtype, np.dtype) and dtype.kind in "iub"


def note(scope: Any, loop: Loop, values: Mapping[str, Any]) -> None:
    """Notes that Exits give at most these values."""
    for node in loop.exits:
        merge, _ = behind(loop, node.inputs[0])
        if merge in values:
            scope.bounds[node.name] = whole(values[merge])


def bound(scope: Any, source: Source) -> int | None:
    """What stands on an edge at most, None if that is not known."""
    name = source[0]
    while name not in scope.bounds and scope.nodes[name].op in (*HANDS_ON, *ENTERS):
        name = scope.nodes[name].inputs[0][0]
    return scope.bounds.get(name)  # type: ignore[no-any-return]


def keep(scope: Any, node: Node, key: str) -> None:
    """Notes the bound of what a node pushes to a Stack."""
    most, facts = bound(scope, node.inputs[1]), scope.run.facts
    before = facts.get((key, "bound"), 0)
    facts[key, "bound"] = None if most is None or before is None else max(most, before)


def take(scope: Any, node: Node, key: str) -> None:
    """Notes the bound of what a node pops of a Stack."""
    most = scope.run.facts.get((key, "bound"))
    if most is not None:
        scope.bounds[node.name] = most


def downwards(scope: Any, loop: Loop) -> Trips:
    """How often a loop runs at most that counts downwards from what is bounded; OPEN for another loop."""
    test = scope.nodes[loop.condition.inputs[0][0]]
    if test.op not in ("Greater", "GreaterEqual"):
        return OPEN
    merge, least = behind(loop, test.inputs[0])[0], _known(scope, loop, test.inputs[1])
    for variable in loop.variables:
        first = bound(scope, variable.start) if variable.merge == merge else None
        step = _step(scope, loop, variable, ("Sub",)) if first is not None and least is not None else None
        if first is not None and step is not None and step > 0:
            over = first - whole(least) + (test.op == "GreaterEqual")  # the first values with which it goes on
            return Trips(max(0, -(-over // step)), False)
    return OPEN
