"""The interpreter: a program as a function of its state and feeds, which `jax.jit` traces.

    step = function(program)
    new_state, fetched = step(state, feeds)        under `jax.jit`, `traced_as_tensorflow` around its trace

It goes through a graph's nodes in the order of `schedule` and applies each op's row of `rules.TABLE`. Each function
body and each loop is a Scope of its own, of one Run.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable, Collection, Iterable, Iterator, Mapping, Sequence

import jax
import numpy as np

from npu_shim.step import (
    assumed,
    beside,
    checks,
    eithers,
    grids,
    guards,
    merged,
    present,
    row_slices,
    rows,
    schedule,
    sizes,
    state,
    told,
    turned,
    writers,
)
from npu_shim.step.containers import rooms
from npu_shim.step.containers.lists import List
from npu_shim.step.control_flow import conditionals, loops
from npu_shim.step.control_flow.counted import Range
from npu_shim.step.counters import ROWS, state_name
from npu_shim.step.graph import CONTROL, Graph, Node, Program, Source, Text
from npu_shim.step.masks import array_of
from npu_shim.step.meeting import ALONE, Ranks
from npu_shim.step.ops import TABLE
from npu_shim.step.random import draws
from npu_shim.step.refusals import Refusal, Unbounded, Unknown, Unsupported, why
from npu_shim.step.rules.table import ALL, IDS, Attrs, Effect, Rule, Update
from npu_shim.step.schedule import Conditional, Item, Loop, Schedule
from npu_shim.step.state import VIEWS
from npu_shim.step.values import (
    DEAD,
    HANDLES,
    TENSORS,
    Dims,
    Either,
    Grid,
    Handle,
    Reference,
    Rows,
    Turned,
    is_known,
)  # fmt: skip

State = Mapping[str, Any]
# ops that look at more than their rules say, of tensors too: slices, equal masks, and numbers of segments
CAREFUL = frozenset([*row_slices.OPS, *rows.MASKS, *IDS])


def function(
    program: Program, ranks: Ranks = ALONE, told: Mapping[str, Any] | None = None
) -> Callable[[State, Mapping[str, Any]], tuple[dict[str, Any], dict[str, Any]]]:
    """Returns a program as a function of (state, feeds) that gives (new state, fetches); all are dicts by name.

    The new state has the variables that the step writes to. Call it within `traced_as_tensorflow`.

    Args:
        program: a Program.
        ranks: those that run it together.
        told: what is asked for (`refusals.Refusal`) -> int; of a tensor np.ndarray; None where nobody can be asked.
    """

    def step(given_state: State, feeds: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        run = Run(program, given_state, ranks, told)
        given = {name: feeds[fed] for name, fed in program.feeds.items() if name in program.graph.nodes}
        scope = Scope(run, run.schedule_of(program.graph), given)
        draws.opened(run)
        scope.interpret(scope.schedule.items)
        draws.closed(run)
        fetched = _fetched(scope, program.graph.results)
        new = {name: run.cells[name] for name, value in given_state.items() if run.cells[name] is not value}
        return checks.kept(run, new, given_state), checks.told(run, rooms.told(run, fetched))

    return step


def _fetched(scope: Scope, results: Mapping[str, Source]) -> dict[str, Any]:
    """What is fetched by name; of what has as many rows as data says the most that it may have, and last the number."""
    values = {name: scope.tensor(source) for name, source in results.items() if source[1] != CONTROL}
    counts = {ROWS + name: value.count for name, value in values.items() if isinstance(value, Rows)}
    return {**{name: array_of(value) for name, value in values.items()}, **counts}


@contextlib.contextmanager
def traced_as_tensorflow() -> Iterator[None]:
    """Context for traces: 64-bit integers, no promotion of dtypes, no warnings of numpy where values overflow."""
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"), np.errstate(all="ignore"):
        yield


class Run:
    """One interpretation of a program.

    Attributes:
        program: the Program.
        cells: key -> value of what is read and written: variables by name, Stacks and arrays by keys of their own.
        before: the variables as they were.
        facts: key -> what is known of a Stack or array without being traced, see `containers`.
        draws: (place or "", node) -> the number of a random op that has a state.
        counters: key of that state.
        ranks: the Ranks that run it together.
        told: as of `function`.
    """

    def __init__(
        self, program: Program, given: State, ranks: Ranks = ALONE, told: Mapping[str, Any] | None = None
    ) -> None:
        self.program, self.before, self.ranks, self.told = program, dict(given), ranks, told
        self.cells: dict[str, Any] = {**given, rooms.KEY: rooms.HOLDS, checks.KEY: rooms.HOLDS}
        self.facts: dict[str, Any] = {}
        self.draws = {(graph, node): at for at, (graph, node, *_) in enumerate(program.draws)}
        self.counters = state_name(program.draws)
        self._schedules: dict[int, Schedule] = {}
        self._writers = writers.among(program.functions)
        self._names = {id(graph): name for name, graph in program.functions.items()}

    def name_of(self, graph: Graph) -> str:
        """The name of a function, "" for the program's graph."""
        return self._names.get(id(graph), "")

    def schedule_of(self, graph: Graph) -> Schedule:
        """The order of a graph, made once."""
        if id(graph) not in self._schedules:
            written = {name: self._writes(node) for name, node in graph.nodes.items()}
            self._schedules[id(graph)] = schedule.schedule(
                graph, lambda node: written[node.name], writers.is_costly, writers.is_light
            )
        return self._schedules[id(graph)]

    def _writes(self, node: Node) -> Sequence[int]:
        return writers.writes(node, self.program.functions.keys(), self._writers)


class Scope:
    """An activation of a graph, of a function's body, or of a loop within one.

    Args:
        run: the Run.
        order: the Schedule of its graph.
        given: name of a node -> its value, in place of what the node would give.
        path: what distinguishes it from other activations of the same graph, in keys of cells.

    Attributes:
        values: name of a node -> what it gives, a tuple for several outputs.
        guards: name of a node, or (name, output) of a Switch -> `guards.Guard` under which it lives.
        predicates: the traced predicates that guards name.
        decided: those of them whose sides it is on.
        is_certain: whether it is computed whenever the step is: not on a side, nor in a loop that may not run.
        caller: of a function's body: the scope and the node that call it.
        bounds: name of a node -> what its count is at most, see `control_flow.counted`.
        around: the guard of the call that it is.
        settles: whether it asks `guards` before each node.
        most: how often the loop around it runs at most, None outside of loops or where that is not known.
        bounding: the feeds that say how often the loops around it run, where that is not known.
        is_unrolled: whether the innermost loop around it is unrolled.
        may_unroll: whether that will be unrolled where it refuses.
        serial: number of the iteration, over all traced loops around it (int32), None outside of them.
        total: how many iterations all loops around it have at most, None if that is not known.
        finals: Merge of a counter of the loop around it -> its `counted.Range`; empty on a side of a conditional.
        places: key of `rows.same_places` -> (the values, what was made of them).
        left: (id of a number of rows, what is made of it) -> (that number, the new one), see `row_slices`, `merged`.
        ahead: names of the nodes that are tied to a loop behind them, see `control_flow.ahead`.
        table: op -> row.
    """

    def __init__(self, run: Run, order: Schedule, given: Mapping[str, Any], path: str = "") -> None:
        self.run, self.schedule, self.path = run, order, path
        self.nodes = order.graph.nodes
        self.values: dict[str, Any] = dict(given)
        self.given = frozenset(given)
        self.guards: dict[Any, guards.Guard] = {}
        self.predicates: dict[Source, Any] = {}
        self.decided: dict[Source, bool] = {}
        self.bounds: dict[str, int] = {}
        self.around: guards.Guard = ()
        self.settles = order.has_branches
        self.most: int | None = None
        self.bounding: tuple[str, ...] = ()
        self.is_unrolled = self.may_unroll = False
        self.serial: Any = None
        self.total: int | None = 1
        self.finals: Mapping[str, Range] = {}
        self.is_certain = True
        self.caller: tuple[Scope, Node] | None = None
        self.left: dict[tuple[int, Any], tuple[Any, Any]] = {}
        self.places: dict[Any, tuple[Any, Any]] = {}
        self.ahead = set[str]()
        self.table = TABLE

    def inner(self, values: Mapping[str, Any]) -> Scope:
        """A scope for an iteration of a loop: it sees what this one has, and these values."""
        scope = Scope(self.run, self.schedule, {}, self.path)
        scope.values, scope.given = {**self.values, **values}, self.given
        scope.guards, scope.predicates, scope.around = dict(self.guards), dict(self.predicates), self.around
        scope.decided, scope.bounds = dict(self.decided), dict(self.bounds)
        scope.most, scope.is_unrolled, scope.settles = self.most, self.is_unrolled, self.settles
        scope.serial, scope.total, scope.bounding = self.serial, self.total, self.bounding
        scope.is_certain, scope.caller, scope.may_unroll = self.is_certain, self.caller, self.may_unroll
        return scope

    def guard(self, name: str) -> guards.Guard:
        """The guard under which a node lives."""
        return self.guards.get(name, self.around)

    def counts(self, number: Any, most: int | None) -> None:
        """Notes which iteration of a loop this scope is, and how often that runs at most.

        Args:
            number: int of an unrolled loop, whose iterations have paths of their own; traced int32 of another one.
            most: None if that is not known.
        """
        self.most, self.is_unrolled = most, isinstance(number, int)
        self.total = None if most is None or self.total is None else self.total * most
        if self.is_unrolled:
            self.path = "%s#%d/" % (self.path, number)
        else:
            self.serial = number if self.serial is None else self.serial * np.int32(most or 0) + number

    # -- values --------------------------------------------------------------------------------------------------------

    def raw(self, source: Source) -> Any:
        """What stands on an edge, handles and references too."""
        value = self.values[source[0]]
        return value[source[1]] if type(value) is tuple else value

    def value(self, raw: Any) -> Any:
        """What a node that computes takes from an edge: of a reference the variable's value now."""
        if isinstance(raw, Reference):
            now = self.run.cells[raw.key]
            return now if raw.view is None else raw.view(now)
        return raw

    def tensor(self, source: Source) -> Any:
        """What is fetched, which may be Rows; Refusal if it is no tensor."""
        if source[0] not in self.values:
            raise self.refusal(self.nodes[source[0]], "it is fetched, and it is inside of a loop")
        value = eithers.as_tensor(sizes.as_tensor(self.value(self.raw(source))))
        if isinstance(value, Handle) and value.kind == "variable":
            value = self.run.cells[value.key]
        if isinstance(value, (Turned, Grid)):
            raise self.refusal(self.nodes[source[0]], "it is fetched, and %s" % turned.WHY)
        if isinstance(value, (Text, Either, *HANDLES)) or value is DEAD:
            kind = "is not taken by the step's branch" if value is DEAD else "is no array"
            raise self.refusal(self.nodes[source[0]], "it is fetched, and %s" % kind)
        return value

    def carried(self, source: Source) -> Any:
        """What a loop hands on to its next iteration: no handle, but rows and lists too."""
        value = eithers.as_tensor(sizes.as_tensor(self.value(self.raw(source))))
        if isinstance(value, (Text, Turned, Grid, Either, *HANDLES)) or value is DEAD:
            raise self.refusal(self.nodes[source[0]], "it gives %s to the next iteration" % _described(value))
        return value

    def read(self, key: str) -> Any:
        """The value of a variable now."""
        return self.run.cells[key]

    def write(self, key: str, value: Any, guard: guards.Guard = ()) -> None:
        """Sets a variable; under a guard only where that holds."""
        old = self.run.cells[key]
        self.run.cells[key] = guards.chosen(self.predicates, guard, value, old) if guard else value

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def interpret(self, items: Sequence[Item]) -> None:
        """Goes through items in order; Refusal where one cannot be computed."""
        for item in items:
            if isinstance(item, Loop):
                loops.run(self, item)
            elif isinstance(item, Conditional):
                conditionals.run(self, item)
            elif item.name not in self.given:
                self._node(item)

    def _node(self, node: Node) -> None:
        if node.op in self.run.program.functions:
            row: Any = self.table["PartitionedCall"]
        else:
            row = self.table.get(node.op)
        if row is None:
            raise self.refusal(node, "this op has no rule")
        if self.settles and guards.settle(self, node):
            return
        try:
            with jax.named_scope(node.name):  # the program's ops are called after it
                self.values[node.name] = told.known(self, node, self._applied(row, node))
        except Refusal:
            raise
        except Unbounded as reason:
            raise self.refusal(node, str(reason), self.bounding) from None
        except Unknown as reason:
            raise self._not_known(node, reason) from None
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as reason:
            raise self.refusal(node, why(reason)) from reason

    def _applied(self, row: Any, node: Node) -> Any:
        inputs = [self.raw(source) for source in node.inputs]
        if node.name in self.schedule.afresh:
            reads = self.schedule.afresh[node.name]
            inputs = [self._afresh(source, raw, reads) for source, raw in zip(node.inputs, inputs)]
        if isinstance(row, Effect):
            return row.apply(self, node, inputs)
        if isinstance(row, Update):
            return self._updated(row, node, inputs)
        if node.op in VIEWS and isinstance(inputs[0], Reference):
            return self._view(row, node, inputs)
        values = [self.value(raw) if type(raw) is Reference else raw for raw in inputs]
        if node.op not in CAREFUL and _are_tensors(values):
            return self._of_tensors(row, node, node.attrs, values)
        present.require(self, node, values)
        return eithers.computed(functools.partial(self._of_values, row, node), values)

    def _of_values(self, row: Rule, node: Node, values: Sequence[Any]) -> Any:
        if row_slices.is_open(node, values):
            return row_slices.taken(self, node, values)
        return self.computed(row, node, values)

    def _afresh(self, source: Source, raw: Any, reads: Collection[str]) -> Any:
        """The value of a variable now, in the place of what its ReadVariableOp gave, if that is one of `reads`."""
        name = schedule.behind(source[0], self.nodes)
        return self.run.cells[state.key_of(self.raw(self.nodes[name].inputs[0]))] if name in reads else raw

    def _view(self, row: Rule, node: Node, inputs: Sequence[Any]) -> Reference:
        """A view of a reference variable's memory."""
        first, *others = inputs
        values = [self.value(raw) for raw in others]
        before = first.view or (lambda now: now)
        return Reference(first.key, lambda now: self.computed(row, node, [before(now), *values]))

    def computed(self, row: Rule, node: Node, values: Sequence[Any]) -> Any:
        """What a rule gives for these values; Unsupported if it does not take them."""
        key = rows.same_places(node, values)
        if key is None:
            return self._computed(row, node, values)
        if key not in self.places:
            self.places[key] = values, self._computed(row, node, values)
        return self.places[key][1]

    def _computed(self, row: Rule, node: Node, values: Sequence[Any]) -> Any:
        kinds = {type(value) for value in values}
        if Grid in kinds:
            return grids.computed(node, values)
        if Turned in kinds:
            return self._of_turned(row, node, values)
        if Dims in kinds:
            if sizes.may_move(node.op, values):
                return sizes.moved(row, node.op, node.attrs, values)
            if node.op in rows.SIZED and (row.rows != "each" or not kinds & {Rows, Turned}):
                values = assumed.settled(self, node, values)
                return assumed.filled(self, node, values, rows.SIZED[node.op](node.attrs, *values))
            values = list(map(sizes.as_tensor, values))
        if Rows in kinds or Turned in kinds:
            return self._of_rows(row, node, beside.settled(self, node, row, values))
        attrs = told.attrs(self, node, values)
        for value in values:
            is_other = (isinstance(value, Text) and not row.text) or (isinstance(value, List) and not row.lists)
            if isinstance(value, Handle) or is_other:
                raise Unsupported("it takes %s, of which its rule knows nothing" % _described(value))
        return self._of_tensors(row, node, attrs, values)

    def _of_tensors(self, row: Rule, node: Node, attrs: Attrs, values: Sequence[Any]) -> Any:
        """What a rule gives for known and traced values, or what else it takes."""
        if row.known:
            _require_known(row.known, values)
        result = row.apply(attrs, *values)
        return result if row.places is None and not row.lists else self._in_range(row, node, attrs, values, result)

    def _of_turned(self, row: Rule, node: Node, values: Sequence[Any]) -> Any:
        if node.op != "Reshape":
            return turned.computed(row, node, values)
        x, shape = values
        parts = merged.reshaped(self, x, shape)
        return self._computed(row, node, [turned.as_rows(x), shape]) if parts is None else parts

    def _of_rows(self, row: Rule, node: Node, values: Sequence[Any]) -> Any:
        if not any(isinstance(value, (Rows, Turned)) for value in values):
            return self._computed(row, node, values)
        if node.op in rows.OF_ROWS:
            assumed.stitched(self, node, values)
            return assumed.parted(self, node, values, rows.OF_ROWS[node.op](node.attrs, *values))
        _require_known(row.known, values)
        return beside.row_by_row(row, told.attrs(self, node, values), values)

    def _in_range(self, row: Rule, node: Node, attrs: Attrs, values: Sequence[Any], result: Any) -> Any:
        """What a rule has given, with a note of what it must not write or read."""
        if row.places is not None:
            rooms.require_within(self, node, *row.places(attrs, values, result))
        if row.lists:
            rooms.require_list(self, node, result)
        return result

    def _updated(self, row: Update, node: Node, inputs: Sequence[Any]) -> Any:
        keys = [state.key_of(raw) for raw in inputs[: row.handles]]
        values = [self.value(raw) for raw in inputs[row.handles :]]
        if any(isinstance(value, Either if row.rows else (Rows, Either)) for value in values):
            raise Unsupported("its rule takes no tensor whose rows depend on data")
        old = [self.run.cells[key] for key in keys]
        _require_known(row.known, [*old, *values])
        guard = self.guard(node.name)
        if guard and row.places is not None and np.ndim(array_of(values[row.places])):
            values[row.places] = guards.kept(self.predicates, guard, values[row.places])
            guard = ()
        new = row.apply(node.attrs, *old, *values)
        for key, before, value in zip(keys, old, new if type(new) is tuple else (new,)):
            if value is not None:
                self.write(key, _like(value, before), guard)
        return inputs[0]

    # -- refusals ------------------------------------------------------------------------------------------------------

    def refusal(self, node: Node, why: str, feeds: Sequence[str] = (), asked: Iterable[str] = ()) -> Refusal:
        """A Refusal that names a node, and the feeds by the user's names."""
        return Refusal(node, why, feeds, asked)

    def _not_known(self, node: Node, reason: Unknown) -> Refusal:
        """A Refusal that names the feeds that an input is computed of."""
        source = node.inputs[reason.number]
        return self.refusal(node, str(reason), self.feeds_behind(source[0]), told.asked(self, node, source))

    def feeds_behind(self, name: str) -> list[str]:
        """The feeds, by the user's names, that a node is computed of: of a function's, through its arguments."""
        graph, feeds = self.schedule.graph, self.run.program.feeds
        if self.caller is None:
            return [feeds[fed] for fed in schedule.sources_behind(graph, self.nodes[name], feeds)]
        scope, node = self.caller
        arguments = schedule.sources_behind(graph, self.nodes[name], graph.arguments)
        first = len(node.inputs) - len(graph.arguments)  # behind the predicate of an If, or the index of a Case
        behind = (scope.feeds_behind(node.inputs[first + graph.arguments.index(at)][0]) for at in arguments)
        return list(dict.fromkeys(feed for several in behind for feed in several))

    def integers_behind(self, name: str) -> list[str]:
        """The feeds of integers, by the user's names, that a node is computed of."""
        named = {shown: fed for fed, shown in self.run.program.feeds.items()}
        nodes = self.run.program.graph.nodes
        kinds = {feed: nodes[named[feed]].attrs["dtype"] for feed in self.feeds_behind(name)}
        return [feed for feed, dtype in kinds.items() if isinstance(dtype, np.dtype) and dtype.kind in "iub"]


def _are_tensors(values: Sequence[Any]) -> bool:
    """Whether all values are known or traced; asked for each node, most of which take nothing else."""
    return False not in [isinstance(value, TENSORS) for value in values]


def _require_known(numbers: Sequence[int], values: Sequence[Any]) -> None:
    for number in range(len(values)) if ALL in numbers else numbers:
        at = number if number >= 0 else len(values) + number
        if at < len(values) and not is_known(values[at]):
            raise Unknown(at)


def _like(value: Any, before: Any) -> Any:
    """A variable's new value, in its dtype: what a rule gives in another one would be a fault of the rule."""
    if (value.dtype, value.shape) != (before.dtype, before.shape):
        text = "it gives %s%s to a variable of %s%s"
        raise Unsupported(text % (value.dtype, list(value.shape), before.dtype, list(before.shape)))
    return value


def _described(value: Any) -> str:
    kinds = {Text: "text", List: "a list", Handle: "a handle", Reference: "a reference", Rows: "rows", Turned: "rows",
             Grid: "rows", Either: "one of two shapes"}  # fmt: skip
    return kinds.get(type(value), "a value")
