"""Functions: calls, and the branches and loops of TensorFlow 2, which name functions."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any, Callable, Iterator, Mapping, Sequence

import jax.numpy as jnp
import numpy as np

from npu_shim.step.containers import lists, optionals
from npu_shim.step.control_flow import ahead, counted, traced_loops, trips
from npu_shim.step.control_flow.partial import returned
from npu_shim.step.frames import value_source
from npu_shim.step.graph import CONTROL, Callee, Graph, Node
from npu_shim.step.refusals import Refusal, Unbounded, Unsupported
from npu_shim.step.rules.table import Effect
from npu_shim.step.values import HANDLES, KNOWN, is_known, traced

UNROLLED = 256  # iterations that are unrolled at most
DEEPEST = 64  # calls within calls: beyond, a function calls itself


def activated(scope: Any, node: Node, name: str, arguments: Sequence[Any]) -> Any:
    """A scope for a call of a function, not yet interpreted."""
    body = body_of(scope, name)
    if scope.path.count("//") >= DEEPEST:
        raise Unsupported("function '%s' calls itself" % name)
    given = dict(zip(body.arguments, arguments))
    inner = type(scope)(scope.run, scope.run.schedule_of(body), given, "%s%s//" % (scope.path, node.name))
    inner.predicates, inner.around = dict(scope.predicates), scope.guard(node.name)
    inner.most, inner.is_unrolled = scope.most, scope.is_unrolled
    inner.serial, inner.total, inner.bounding = scope.serial, scope.total, scope.bounding
    inner.is_certain, inner.caller = scope.is_certain, (scope, node)
    inner.settles = inner.settles or bool(inner.around)
    return inner


def body_of(scope: Any, name: str) -> Graph:
    """A function; Unsupported if the program has none of this name."""
    body = scope.run.program.functions.get(name)
    if body is None:
        raise Unsupported("function '%s' is not in the graph" % name)
    return body  # type: ignore[no-any-return]


def results(scope: Any) -> list[Any]:
    """What an interpreted body returns, handles and references too."""
    return [scope.raw(source) for source in scope.schedule.graph.results.values() if source[1] != CONTROL]


def _interpreted(scope: Any) -> list[Any]:
    scope.interpret(scope.schedule.items)
    return results(scope)


def as_outputs(values: Sequence[Any]) -> Any:
    """The outputs of a node: a tuple, one value as itself."""
    return values[0] if len(values) == 1 else tuple(values)


def call(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    """PartitionedCall, StatefulPartitionedCall, and a node whose op is a function."""
    callee = node.attrs.get("f")
    name = callee.name if isinstance(callee, Callee) and node.op not in scope.run.program.functions else node.op
    return as_outputs(_interpreted(activated(scope, node, name, inputs)))


def _is_true(value: Any) -> Any:
    """What TensorFlow takes for true: a scalar that is not zero, a tensor that is not empty."""
    if np.ndim(value):
        return np.bool_(np.size(value) > 0)
    return value if value.dtype == bool else value != np.zeros((), value.dtype)


def if_(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    """If and StatelessIf."""
    predicate = _is_true(scope.value(inputs[0]))
    names = [node.attrs[side].name for side in ("else_branch", "then_branch")]
    if is_known(predicate):
        return as_outputs(_interpreted(activated(scope, node, names[bool(predicate)], inputs[1:])))
    return _branched(scope, node, predicate, names, inputs[1:])


def case(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    """Case and StatelessCase: an index out of range takes the last branch."""
    index, names = scope.value(inputs[0]), [branch.name for branch in node.attrs["branches"]]
    if is_known(index):
        at = int(index) if 0 <= int(index) < len(names) else len(names) - 1
        return as_outputs(_interpreted(activated(scope, node, names[at], inputs[1:])))
    index = jnp.where((index < 0) | (index >= len(names)), np.int32(len(names) - 1), index.astype(np.int32))
    return _branched(scope, node, index, names, inputs[1:])


def _branched(scope: Any, node: Node, predicate: Any, names: Sequence[str], arguments: Sequence[Any]) -> Any:
    given: list[list[Any]] = [[] for _ in names]

    def branch(number: int) -> Any:
        inner = activated(scope, node, names[number], [optionals.on_branch(raw, number) for raw in arguments])
        inner.is_certain = False
        values = _interpreted(inner)
        given[number] = [value if isinstance(value, (*HANDLES, *KNOWN)) else None for value in values]
        return [np.int32(0) if isinstance(value, HANDLES) else value for value in values]

    branches = [functools.partial(branch, number) for number in range(len(names))]
    computed = traced_loops.branched(scope.run, predicate, branches)
    return as_outputs([_in_all(*values) for values in zip(computed, *given)])


def _in_all(computed: Any, first: Any, *others: Any) -> Any:
    """What a conditional gives: `first` where all branches give the same variable or known value."""
    if any(isinstance(value, HANDLES) for value in (first, *others)):
        if any(other != first for other in others):
            raise Unsupported("its branches give different variables")
        return first
    is_same = is_known(first, *others) and all(_is_equal(first, other) for other in others)
    return first if is_same else computed


def _is_equal(one: Any, other: Any) -> bool:
    return bool(one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes())


def while_(scope: Any, node: Node, inputs: Sequence[Any]) -> Any:
    """While and StatelessWhile."""
    condition, body = (node.attrs[part].name for part in ("cond", "body"))
    graphs = body_of(scope, condition), body_of(scope, body)
    functions = scope.run.program.functions
    start = [raw if isinstance(raw, HANDLES) else scope.value(raw) for raw in inputs]
    constant = _constant(graphs[1], start)
    counted = [None if isinstance(value, HANDLES) else value for value in start]
    count = trips.of_functions(*graphs, counted, scope.table, functions, constant)
    loop = _While(scope, node, condition, body, start, constant, count)
    can_unroll = count.is_exact and count.most is not None and count.most <= UNROLLED and not scope.guard(node.name)
    if can_unroll and (count.most or 0) <= 1:
        return as_outputs(loop.unrolled())
    return as_outputs(_first_that_does(scope, node, loop, can_unroll))


def _first_that_does(scope: Any, node: Node, loop: _While, can_unroll: bool) -> Any:
    """What the first of the ways to interpret a loop gives that is not refused; the last reason if none does."""
    cells, facts, reasons = dict(scope.run.cells), dict(scope.run.facts), list[Exception]()
    for way in loop.ways(can_unroll):
        try:
            return way()
        except Unbounded as reason:
            raise scope.refusal(node, str(reason), loop.bounding()) from None
        except (Refusal, Unsupported) as reason:
            reasons.append(reason)
            scope.run.cells, scope.run.facts = dict(cells), dict(facts)
    raise reasons[-1]


def _grows_by_places(value: Any) -> bool:
    return isinstance(value, lists.List) and value.is_set and not is_known(value.length)


def _constant(body: Graph, start: Sequence[Any]) -> frozenset[int]:
    """Numbers of the loop variables that a body returns as they are."""
    same = (n for n, source in enumerate(returned(body)) if value_source(source, body.nodes) == (body.arguments[n], 0))
    return frozenset(same)


class _While:
    """A loop of functions, as one traced loop or unrolled."""

    def __init__(
        self, scope: Any, node: Node, condition: str, body: str, start: list[Any], constant: frozenset[int],
        count: trips.Trips,
    ) -> None:  # fmt: skip
        self._scope, self._node, self._condition, self._body = scope, node, condition, body
        self._start, self._constant, self._count = start, constant, count
        self._changing = [number for number in range(len(start)) if number not in constant]
        self._is_hasty = False  # whether it took the elements of a list for known before all else was settled

    def _activated(self, name: str, values: Sequence[Any], number: Any) -> Any:
        arguments = list(self._start)
        for at, value in zip(self._changing, values):
            arguments[at] = value
        inner = activated(self._scope, self._node, name, arguments)
        inner.counts(number, self._count.most)
        inner.is_certain = inner.is_certain and self._count.is_exact
        inner.bounding = self.bounding()
        return inner

    def bounding(self) -> tuple[str, ...]:
        """The feeds of whole numbers that say how often it and the loops around it run, where that is not known."""
        scope = self._scope
        if self._count.most is not None:
            return scope.bounding  # type: ignore[no-any-return]
        graphs = body_of(scope, self._condition), body_of(scope, self._body)
        behind = (scope.integers_behind(self._node.inputs[at][0]) for at in sorted(trips.deciding_arguments(*graphs)))
        return tuple(dict.fromkeys((*scope.bounding, *itertools.chain.from_iterable(behind))))

    def ways(self, can_unroll: bool) -> Iterator[Callable[[], list[Any]]]:
        """The functions that may give the last values, each for where the one before it refuses."""
        yield self.traced
        if self._is_hasty:
            yield functools.partial(self.traced, is_patient=True)
        if can_unroll:
            yield self.unrolled

    def traced(self, is_patient: bool = False) -> list[Any]:
        """The last values; `is_patient`: elements of its lists are known only if they are when all else is settled."""
        changing = [self._start[at] for at in self._changing]
        if any(isinstance(value, HANDLES) for value in changing):
            raise Unsupported("a handle changes from iteration to iteration")

        def condition(values: Any, number: Any) -> Any:
            return _is_true(_interpreted(self._activated(self._condition, values, number))[0])

        finals = counted.ranges_of_body(body_of(self._scope, self._body), self._start, self._count)

        def body(values: Any, number: Any) -> Any:
            inner = self._activated(self._body, values, number)
            inner.finals = finals
            new = _interpreted(inner)
            return [self._scope.value(new[at]) for at in self._changing]

        most, added = self._count.most, list[Any]()

        def fitted(start: Any, result: Any) -> Any:
            added.extend(map(lists.added, start, result))  # those of the first call are of the loop's own first values
            new = lists.fitted(start, result, most)
            others = [one if lists.is_fixed(other) else other for one, other in zip(start, new)]
            if traced_loops.shaped(traced(others)) == traced_loops.shaped(start):
                return new
            self._is_hasty = self._is_hasty or any(map(lists.is_fixed, new))
            return others if is_patient else new

        changing = ahead.tied(self._scope, {self._node.name: self._node}, changing)
        last = traced_loops.while_loop(self._scope.run, changing, condition, body, self._count, fitted)
        last = [self._of_set_length(*one, finals) for one in zip(self._changing, changing, last)]
        if self._count.is_exact and (most or 0) <= UNROLLED and any(map(_grows_by_places, last)):
            raise Unsupported("how long its lists become is known where each iteration is traced by itself")
        whole = self._whole([self._of_known_length(*one) for one in zip(changing, last, added)])
        known = {} if self._scope.guard(self._node.name) else self._count.last
        return [known.get(number, value) for number, value in enumerate(whole)]

    def _of_set_length(self, at: int, before: Any, after: Any, finals: Mapping[str, counted.Range]) -> Any:
        """A list that each iteration sets at the place that a counter says is as long as the last of these says."""
        body = body_of(self._scope, self._body)
        node = body.nodes[value_source(returned(body)[at], body.nodes)[0]]
        if not _grows_by_places(after) or not is_known(before.length) or node.op != "TensorListSetItem":
            return after
        held, (index, _) = (value_source(source, body.nodes) for source in node.inputs[:2])
        places = finals.get(index, counted.NO_RANGE)
        if held != (body.arguments[at], 0) or not places.is_exact or places.last is None:
            return after
        return dataclasses.replace(after, length=np.int32(max(int(before.length), places.last + 1)))

    def _of_known_length(self, before: Any, after: Any, added: int | None) -> Any:
        """A list to which each iteration adds as many elements has its length when the count is known."""
        if added is None or not self._count.is_exact or after.is_set:
            return after
        return dataclasses.replace(after, length=before.length + np.int32(added * (self._count.most or 0)))

    def unrolled(self) -> list[Any]:
        """The last values."""
        values = [self._start[at] for at in self._changing]
        for number in range(self._count.most or 0):
            inner = self._activated(self._body, values, number)
            new = _interpreted(inner)
            values = [new[at] for at in self._changing]
        return self._whole(values)

    def _whole(self, values: Sequence[Any]) -> list[Any]:
        whole = list(self._start)
        for at, value in zip(self._changing, values):
            whole[at] = value
        return whole


RULES = {
    "PartitionedCall": Effect(call, writes=True),
    "StatefulPartitionedCall": Effect(call, writes=True),
    "If": Effect(if_, writes=True),
    "StatelessIf": Effect(if_),
    "Case": Effect(case, writes=True),
    "StatelessCase": Effect(case),
    "While": Effect(while_, writes=True),
    "StatelessWhile": Effect(while_),
}
