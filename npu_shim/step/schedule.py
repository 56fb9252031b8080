"""The order in which a graph's nodes are interpreted: what an executor of TensorFlow's may do, made one order.

    data and control edges first; where these leave it open:
    1. A node that writes to a variable runs after every node that reads it and does not follow the write.
    2. Nodes that write run as late as they can.
    3. Each update of a variable counts, unless one read serves several: what sets the variable to something made of its
       own value reads after the updates before it, and those behind it wait for what it sets (`own_updates`).
    4. A counter, Assign(v, v + 1) of a reference variable that waits for nothing, counts at once: the executor goes on
       with it on the thread that has read v (three of four runs of TensorFlow 2.15.1 and 1.15.5, on two cores).
    5. Otherwise nodes run in the order in which they become ready, as a session's do.

A loop of TensorFlow 1 is one unit, and so is what a conditional computes at once (`branches`). A read of a reference
variable happens when its consumer runs (see `state`).
"""

from __future__ import annotations

import collections
import functools
import heapq
from dataclasses import dataclass, field
from typing import Any, Callable, Collection, Iterable, Iterator, Mapping, Union

from npu_shim.step import branches, early, frames, own_updates
from npu_shim.step.branches import Conditional
from npu_shim.step.frames import ENTERS, EXITS, MERGES, NEXTS, SWITCHES, Path
from npu_shim.step.graph import ARGUMENT, CONTROL, Graph, Node, Source
from npu_shim.step.order import reached, users_of
from npu_shim.step.refusals import Refusal

VARIABLES = frozenset(["VariableV2", "Variable", "VarHandleOp", "TemporaryVariable"])
HANDS_ON = frozenset([  # the first output is the first input, or an alias of its memory
    "Identity", "RefIdentity", "Switch", "RefSwitch", "Enter", "RefEnter", "Exit", "RefExit", "Merge", "RefMerge",
    "NextIteration", "RefNextIteration", "Reshape", "Squeeze", "ExpandDims", "StopGradient", "PreventGradient",
    "Snapshot", "CheckNumerics", "EnsureShape", "Bitcast",
])  # fmt: skip
VALUED = frozenset([  # they set a variable to, or by, their second input
    "Assign", "AssignVariableOp", "AssignAdd", "AssignAddVariableOp", "AssignSub", "AssignSubVariableOp",
])  # fmt: skip
READS = frozenset(["ReadVariableOp"])
MEMORY = frozenset(["VariableV2", "Variable", "Identity", "RefIdentity"])


@dataclass(frozen=True)
class Loop:
    """A loop of TensorFlow 1.

    Attributes:
        frame: its name.
        nodes: name -> Node, those of inner loops too.
        enters, exits: Nodes.
        idle: names of Enters with whose values nothing is computed, and which are not among `enters`.
        variables: the loop variables that change.
        constant: those that do not.
        condition: where the value of its LoopCond comes from.
        items: what stands inside, in order.
        head: the part of `items` that the condition needs.
        tail: the part of `items` that the exits need after the last iteration.
    """

    frame: str
    nodes: Mapping[str, Node]
    enters: tuple[Node, ...]
    exits: tuple[Node, ...]
    idle: tuple[str, ...]
    variables: tuple[frames.Variables, ...]
    constant: tuple[frames.Variables, ...]
    condition: Node
    items: tuple[Item, ...]
    head: tuple[Item, ...]
    tail: tuple[Item, ...]


Item = Union[Node, Loop, Conditional]


@dataclass(frozen=True)
class Schedule:
    """A graph's nodes in order.

    Attributes:
        graph: the Graph.
        items: Nodes, and Loops and Conditionals in the place of their nodes.
        afresh: name of a node -> the ReadVariableOps in whose place it reads their variable itself.
        has_branches: whether there are conditionals of TensorFlow 1.
        users: name of a node -> names of the nodes that take an output of it.
    """

    graph: Graph
    items: tuple[Item, ...]
    afresh: Mapping[str, frozenset[str]]
    has_branches: bool
    users: Mapping[str, list[str]]


def schedule(
    graph: Graph, writes: Callable[[Node], Collection[int]], is_costly: Callable[[str], bool],
    is_light: Callable[[Node], bool],
) -> Schedule:  # fmt: skip
    """Puts a graph in order.

    Args:
        graph: a program's, or a function's body.
        writes: the numbers of a node's inputs through which it may write to a variable.
        is_costly: whether an op on the side of a conditional that is not taken is worth skipping.
        is_light: as of `seldom.is_skipped_seldom`.

    Raises:
        Refusal: there is no such order.
    """
    return _Scheduler(graph, writes, is_costly, is_light).whole()


@dataclass
class _Level:
    """The units of one frame: nodes by name, inner loops by their frame's name in parentheses."""

    members: dict[str, list[str]] = field(default_factory=lambda: collections.defaultdict(list))
    inner: dict[str, Path] = field(default_factory=dict)


class _Scheduler:
    def __init__(
        self, graph: Graph, writes: Callable[[Node], Collection[int]], is_costly: Callable[[str], bool],
        is_light: Callable[[Node], bool],
    ) -> None:  # fmt: skip
        self._graph, self._nodes, self._writes, self._is_costly = graph, graph.nodes, writes, is_costly
        self._is_light = is_light
        self._before = frames.before_each(graph)
        self._order = frames.in_order(graph, self._before)
        self._lives = branches.lives(self._order, self._nodes)
        self._paths = frames.paths(self._order, self._before)
        self._levels: dict[Path, _Level] = collections.defaultdict(_Level)
        for node in self._order:
            self._place(node)
        self._afresh: dict[str, frozenset[str]] = {}
        self._idle: set[str] = set()  # see Loop
        self._variables = self._variables_of()
        self._users: dict[str, list[str]] = collections.defaultdict(list)
        for node in self._order:
            for source in {name for name, _ in node.inputs}:
                self._users[source].append(node.name)

    def whole(self) -> Schedule:
        items = tuple(self._items(()))
        conditions = {node.name for node in self._order if node.op == "LoopCond"}
        has = any(node.op in SWITCHES and node.inputs[1][0] not in conditions for node in self._order)
        return Schedule(self._graph, items, self._afresh, has, self._users)

    def _place(self, node: Node) -> None:
        path = self._paths[node.name]
        if not path:
            self._levels[path].members[node.name].append(node.name)
            return
        for depth in range(len(path) + 1):
            at, below = path[:depth], path[: depth + 1]
            unit = node.name if depth == len(path) else "(%s)" % path[depth]
            self._levels[at].members[unit].append(node.name)
            if depth < len(path):
                self._levels[at].inner[unit] = below

    def _variables_of(self) -> dict[str, frozenset[str]]:
        """Name of a node -> the variables whose handle or memory its outputs may be."""
        variables: dict[str, frozenset[str]] = {}
        nothing: frozenset[str] = frozenset()
        for node in self._order:
            if node.op in VARIABLES:
                variables[node.name] = frozenset([node.attrs.get("shared_name") or node.name])
            elif node.op == ARGUMENT and node.attrs.get("T") == "resource":
                variables[node.name] = frozenset([node.name])
            elif node.op in MERGES:
                variables[node.name] = nothing.union(*(variables.get(name, nothing) for name, _ in node.inputs))
            elif node.inputs and (node.op in HANDS_ON or self._writes(node)):  # what writes hands on its reference
                variables[node.name] = variables.get(node.inputs[0][0], nothing)
        return {name: taken for name, taken in variables.items() if taken}

    # -- one level -----------------------------------------------------------------------------------------------------

    def _items(self, path: Path) -> Iterable[Item]:
        level = self._levels[path]
        unit_of = {name: unit for unit, names in level.members.items() for name in names}
        before: dict[str, set[str]] = {}
        for unit, names in level.members.items():
            sources = set[str]().union(*map(self._before.__getitem__, names))
            before[unit] = {unit_of[source] for source in sources if source in unit_of} - {unit}
        loops = {unit: level.members[unit] for unit in level.inner}
        is_timed = lambda node: node.op in READS or bool(self._writes(node))  # noqa: E731
        self._idle |= early.Units(before, loops, self._nodes, self._users, is_timed).released()
        written, read = self._accesses(level)
        for name, variable in own_updates.put_in_order(before, self._updates(level, before)):
            own = self._reads_of([self._nodes[name]], frozenset([variable]))
            self._afresh[name] = self._afresh.get(name, frozenset()) | own
            read[variable].add(name)
        urgent = self._counters(level)
        late = {unit: variables for unit, variables in written.items() if unit not in urgent}
        soft = _readers_first(before, late, read)
        order = list(_ordered(before, late, soft, urgent, lambda unit: self._nodes[level.members[unit][0]]))
        for unit, other in branches.in_conflict(order, written, read):
            before[unit].add(other)
        return branches.Level(
            before, level.members, functools.partial(self._item, level), self._lives, self._users,
            {name for name, output in self._graph.results.values() if output != CONTROL}, self._nodes, self._is_costly,
            self._writes, self._is_light,
        ).arranged(order, self._around(path))  # fmt: skip

    def _item(self, level: _Level, unit: str) -> Item:
        return self._loop(level.inner[unit], level.members[unit]) if unit in level.inner else self._nodes[unit]

    def _around(self, path: Path) -> frozenset[Source]:
        """The predicates of the conditionals around a loop."""
        entered = (node.name for node in self._order if path and node.op in ENTERS and self._paths[node.name] == path)
        return frozenset(key for name in entered for key in self._lives.nodes[name])

    def _accesses(self, level: _Level) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
        """(Unit -> variables that it writes to, variable -> units that read it)."""
        written: dict[str, set[str]] = collections.defaultdict(set)
        read: dict[str, set[str]] = collections.defaultdict(set)
        for unit, names in level.members.items():
            for name in names:
                node = self._nodes[name]
                taken = [self._variables.get(source, ()) for source, _ in node.inputs]
                if not any(taken):
                    continue
                if self._writes(node):
                    written[unit].update(*taken)
                    taken = taken[1:]
                if node.op not in HANDS_ON or node.op in READS:
                    for variable in {variable for variables in taken for variable in variables}:
                        read[variable].add(unit)
        return written, read

    def _updates(self, level: _Level, before: Mapping[str, set[str]]) -> dict[str, list[own_updates.Update]]:
        """Variable -> its updates."""
        updates: dict[str, list[own_updates.Update]] = collections.defaultdict(list)
        for unit, names in level.members.items():
            setters = {variable: self._nodes[name] for name in names for variable in self._set_by(self._nodes[name])}
            for variable, node in setters.items():
                updates[variable].append(self._update(node, unit, frozenset([variable]), before))
        return updates

    def _set_by(self, node: Node) -> frozenset[str]:
        """The variables that a node may set."""
        if not self._writes(node):
            return frozenset()
        taken = (self._variables.get(node.inputs[number][0], frozenset()) for number in self._writes(node))
        return frozenset[str]().union(*taken)

    def _update(self, node: Node, unit: str, own: frozenset[str], before: Mapping[str, set[str]]) -> own_updates.Update:
        is_valued = unit == node.name and node.op in VALUED
        reads = self._own_reads(node, own, before) if is_valued else []
        return own_updates.Update(node, unit, tuple(read.name for read in reads), self._reads_of(reads, own))

    def _own_reads(self, node: Node, own: frozenset[str], before: Mapping[str, set[str]]) -> list[Node]:
        """What an update reads; what makes its value directly is one of them even if it serves others."""
        makes = self._nodes[node.inputs[1][0]]
        if own & self._variables.get(makes.name, frozenset()):
            return []  # it reads memory when it sets it
        chain, pending, reads = {node.name, makes.name}, [makes], []
        while pending:
            at = pending.pop()
            if at.name not in before or self._writes(at):
                continue
            if own & self._read_by(at):
                reads.append(at)
                continue
            sources = {name for name, _ in at.inputs if chain.issuperset(self._users[name])} - chain
            chain |= sources
            pending += map(self._nodes.__getitem__, sorted(sources))
        return reads

    def _counters(self, level: _Level) -> set[str]:
        """The nodes of counters: each Assign, and what makes its value."""
        urgent = set()
        for name in level.members:
            node = self._nodes.get(name)
            if node is None or node.op != "Assign" or node.controls:
                continue
            makes = self._nodes[node.inputs[1][0]]
            own = self._variables.get(node.inputs[0][0], frozenset())
            others = [source for source, _ in makes.inputs if self._nodes[source].op != "Const"]
            reads = [self._nodes[source] for source in others]
            is_alone = not makes.controls and not any(read.controls for read in reads)
            if is_alone and own and own == self._read_by(makes) and all(read.op in MEMORY for read in reads):
                urgent |= {name, makes.name}
        return urgent

    def _read_by(self, node: Node) -> frozenset[str]:
        """The variables whose values a node takes directly."""
        taken: frozenset[str] = frozenset()
        for source in self._behind(node):
            name = source.inputs[0][0] if source.op in READS else source.name
            taken |= self._variables.get(name, frozenset())
        return taken

    def _reads_of(self, nodes: Iterable[Node], own: frozenset[str]) -> frozenset[str]:
        """The names of a variable's ReadVariableOps in front of nodes; references have none, memory is read late."""
        reads = (read for node in nodes for read in (node, *self._behind(node)) if read.op in READS)
        return frozenset(read.name for read in reads if own & self._variables.get(read.inputs[0][0], frozenset()))

    def _behind(self, node: Node) -> Iterator[Node]:
        """What a node's inputs come from, behind Identities and Switches of values that have been read."""
        for source, _ in node.inputs:
            yield self._nodes[behind(source, self._nodes)]

    # -- loops ---------------------------------------------------------------------------------------------------------

    def _loop(self, path: Path, members: list[str]) -> Loop:
        nodes = {name: self._nodes[name] for name in members}
        own = [node for node in nodes.values() if self._paths[node.name] == path]
        conditions = {node.name for node in own if node.op == "LoopCond"}
        enters = tuple(node for node in own if node.op in ENTERS and node.name not in self._idle)
        if len(conditions) != 1:
            raise Refusal(own[0], "its loop '%s' has %d conditions, expected one" % (path[-1], len(conditions)))
        variables = frames.loop_variables(self._nodes, [node.name for node in own])
        constant = [variable for variable in variables if frames.stays(variable, self._nodes, conditions)]
        changing = [variable for variable in variables if variable not in constant]
        exits = tuple(node for node in own if node.op in EXITS)
        held = {variable.merge for variable in variables}
        apart = held.union(node.name for node in own if node.op in (*ENTERS, *EXITS))
        items = tuple(item for item in self._items(path) if not isinstance(item, Node) or item.name not in apart)
        condition = self._nodes[next(iter(conditions))]
        return Loop(
            path[-1], nodes, enters, exits, tuple(self._idle & nodes.keys()), tuple(changing), tuple(constant),
            condition, items,
            tuple(_needed(items, [condition.name])), tuple(_needed(items, [node.inputs[0][0] for node in exits])),
        )  # fmt: skip


def _needed(items: Iterable[Item], names: Iterable[str]) -> list[Item]:
    """The part of items that some nodes need."""
    items, pending, needed = list(items), set(names), list[Item]()
    for item in reversed(items):
        inside = {item.name} if isinstance(item, Node) else set(item.nodes)
        if inside & pending:
            needed.append(item)
            sources = item.sources() if isinstance(item, Node) else _sources_of(item)
            pending.update(sources)
    return needed[::-1]


def _sources_of(item: Loop | Conditional) -> Iterable[str]:
    return (source for node in item.nodes.values() for source in node.sources() if source not in item.nodes)


def _readers_first(
    before: Mapping[str, set[str]], written: Mapping[str, set[str]], read: Mapping[str, set[str]]
) -> dict[str, set[str]]:
    """Unit that writes -> the units that read one of its variables and do not follow it."""
    bits = {unit: 1 << number for number, unit in enumerate(unit for unit in written if written[unit])}
    if not bits:
        return {}
    follows = reached(before, bits)
    return {
        unit: {
            reader for variable in written[unit] for reader in read.get(variable, ())
            if reader != unit and not follows[reader] & bits[unit]
        }
        for unit in bits
    }  # fmt: skip


def _ordered(
    before: Mapping[str, set[str]],
    written: Mapping[str, set[str]],
    soft: Mapping[str, set[str]],
    urgent: set[str],
    node_of: Callable[[str], Node],
) -> Iterable[str]:
    """Yields the units in the order that the module's docstring gives."""
    users = users_of(before)
    waiting: dict[str, list[str]] = collections.defaultdict(list)  # reader -> what it should precede
    for unit, readers in soft.items():
        for reader in readers:
            waiting[reader].append(unit)
    left = {unit: len(sources) for unit, sources in before.items()}
    pending = {unit: len(readers) for unit, readers in soft.items()}
    number = {unit: at for at, unit in enumerate(before)}
    queue = _Queue(left, pending, written, number, urgent)
    done = 0
    while True:
        ready = queue.next()
        if ready is None:
            break
        done += 1
        yield ready
        for user in users[ready]:
            left[user] -= 1
            queue.offer(user)
        for writer in waiting[ready]:
            pending[writer] -= 1
            queue.offer(writer)
    if done < len(before):
        stuck = next(unit for unit, count in left.items() if count > 0)
        raise Refusal(node_of(stuck), "it waits for what waits for it, as a loop is one unit")


class _Queue:
    """Units that are ready: first those that write nothing, then what no reader is left for, then other writers."""

    def __init__(self, left: Any, pending: Any, written: Any, number: Any, urgent: set[str]) -> None:
        self._urgent = urgent
        self._left, self._pending, self._written, self._number = left, pending, written, number
        self._plain: collections.deque[str] = collections.deque()
        self._free: list[tuple[int, str]] = []
        self._others: list[tuple[int, str]] = []
        self._taken: set[str] = set()
        for unit in left:
            self.offer(unit)

    def offer(self, unit: str) -> None:
        """Takes a unit up if it is ready, and again when its last reader has run."""
        if self._left[unit] or unit in self._taken:
            return
        if not self._written.get(unit):
            self._taken.add(unit)
            if unit in self._urgent:
                self._plain.appendleft(unit)
            else:
                self._plain.append(unit)
        elif self._pending.get(unit, 0):
            heapq.heappush(self._others, (self._number[unit], unit))
        else:
            heapq.heappush(self._free, (self._number[unit], unit))

    def next(self) -> str | None:
        """The next unit, None if none is ready."""
        if self._plain:
            return self._plain.popleft()
        for heap in (self._free, self._others):
            while heap:
                _, unit = heapq.heappop(heap)
                if unit not in self._taken:
                    self._taken.add(unit)
                    return unit
        return None


def behind(name: str, nodes: Mapping[str, Node]) -> str:
    """The node behind Identities, and behind Switches of what a ReadVariableOp gave.

    Args:
        name: of a node.
        nodes: by name.
    """
    first = passed = name
    while nodes[passed].op in ("Identity", "RefIdentity", *SWITCHES):
        passed = nodes[passed].inputs[0][0]
        if nodes[first].op not in SWITCHES:
            first = passed
    return passed if nodes[passed].op in READS else first


def sources_behind(graph: Graph, node: Node, among: Iterable[str]) -> list[str]:
    """The names of `among` that a node is computed of, by data edges, in their order."""
    pending, seen = [node.name], {node.name}
    while pending:
        for source, _ in graph.nodes[pending.pop()].inputs:
            if source not in seen:
                seen.add(source)
                pending.append(source)
    return [name for name in among if name in seen]


__all__ = ["Conditional", "Item", "Loop", "NEXTS", "Schedule", "schedule", "sources_behind"]
