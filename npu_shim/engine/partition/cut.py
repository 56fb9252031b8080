"""Cuts a training step: the feeding part, the program, and the reading part. No TensorFlow.

    IteratorGetNext  |  Cast -> MatMul -> .. -> ApplyAdam  |  ScalarSummary -> MergeSummary
         feed        |              program                |            read

Host ops stay in the session. A host op whose results the program needs runs before it, with everything upstream. A host
op downstream of the program runs after it. A host op that is both stands between two programs:

    IteratorGetNext  |  MatMul  |  PyFunc  |  MatMul -> .. -> ApplyAdam  |  ScalarSummary
         feed        | program  |  middle  |            program          |      read

A program leaves on the device what later ones take of it, and computes again what cannot leave it (in loops, shapes).
Only the last one writes variables, so a host op that fails leaves the state as it was.
"""

import enum
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Collection, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from npu_shim.engine.partition import conditionals, fallback, guards
from npu_shim.engine.partition import nodes as walks
from npu_shim.engine.partition.nodes import Node
from npu_shim.rewriter.graph.arguments import source_of, tensor_of
from npu_shim.rewriter.graph.walks import reached

IN_PLACE = ("InplaceUpdate", "InplaceAdd", "InplaceSub")  # others may read the memory that they write into
CONTAINERS = ("TensorArray", "Stack")  # beginnings of op types that hold values inside of one program


class Place(enum.Enum):
    """Where a node runs."""

    FEED = "feed"  # in the session, before the first program
    PROGRAM = "program"
    MIDDLE = "middle"  # in the session, between two programs
    READ = "read"  # in the session, after the last program


@dataclass(frozen=True)
class Program:
    """One program of a step, and the session's part behind it.

    Attributes:
        nodes: names of its nodes.
        fed: tensors that the session gives to it.
        taken: tensors that an earlier program has left on the device for it.
        passed: tensors that it leaves on the device.
        shown: tensors that the session reads.
        runs: names of the nodes that run for their effect.
        hosts: names of the host ops behind it.
        needs: tensors from other parts that they take.
        effects: names of those that run for their effect.
        again: tensor in a conditional of theirs -> the one of `needs` whose value it is given.
    """

    nodes: FrozenSet[str]
    fed: Tuple[str, ...] = ()
    taken: Tuple[str, ...] = ()
    passed: Tuple[str, ...] = ()
    shown: Tuple[str, ...] = ()
    runs: Tuple[str, ...] = ()
    hosts: FrozenSet[str] = frozenset()
    needs: Tuple[str, ...] = ()
    effects: Tuple[str, ...] = ()
    again: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Cut:
    """A step in its parts.

    Attributes:
        refusal: why the step cannot be cut, None if it can; the other fields are empty then.
        places: name of a node -> Place, for each decided node; constants and handles run wherever they are needed.
        reasons: name of a host node -> why it is one.
        carried: tensors that one part of the session gives to a later one.
        feeding: names of the nodes that run in the feeding part for their effect.
        programs: the programs in order; several if a host op is in the middle of the step.
        stages: name of a node before the last program, or of a host op behind one -> its number.
        silent: names of the reports that are not run: in loops, in conditionals (but for those of guards.py),
            and assertions about the results but for those of `conditions`.
        conditions: name of an assertion of results -> the tensor that it asserts, which the session knows before the
            first program; where it is false, the session runs the step.
        waiting: for each program the names of the constants that wait for host ops in front of it; a session that runs
            the rest of the step, because that program cannot be compiled, is given them.
    """

    refusal: Optional[str] = None
    places: Mapping[str, Place] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    carried: Tuple[str, ...] = ()
    feeding: Tuple[str, ...] = ()
    programs: Tuple[Program, ...] = ()
    stages: Mapping[str, int] = field(default_factory=dict)
    silent: Tuple[str, ...] = ()
    conditions: Mapping[str, str] = field(default_factory=dict)
    waiting: Tuple[Tuple[str, ...], ...] = ()

    def place(self, tensor: str) -> Place:
        """Where a fetched tensor comes from."""
        return self.places.get(source_of(tensor), Place.PROGRAM)

    def stage(self, tensor: str) -> int:
        """Number of the program that computes a tensor, or behind which the session does."""
        return self.stages.get(source_of(tensor), len(self.programs) - 1)

    @property
    def fed(self) -> Tuple[str, ...]:
        """Tensors that the session gives to programs."""
        return tuple(sorted({tensor for program in self.programs for tensor in program.fed}))

    @property
    def shown(self) -> Tuple[str, ...]:
        """Tensors of programs that the session reads."""
        return tuple(sorted({tensor for program in self.programs for tensor in program.shown}))


def plan(nodes: Mapping[str, Node], fetches: Sequence[str], targets: Sequence[str]) -> Cut:
    """Returns the Cut of a training step.

    Args:
        nodes: name -> Node, for all nodes that the run needs.
        fetches: names of the fetched tensors that are not fed.
        targets: names of the operations that are run.
    """
    try:
        return _Cutting(nodes, fetches, targets).result()
    except _Refused as reason:
        return Cut(str(reason))


class _Refused(Exception):
    """Why a step cannot be cut."""


class _Cutting:
    """One step's cut: the nodes upstream and downstream of the essential ones, and the tensors that cross."""

    def __init__(self, nodes: Mapping[str, Node], fetches: Sequence[str], targets: Sequence[str]) -> None:
        self._fetches, self._targets, self._depth = fetches, targets, walks.depths(nodes)
        self._nodes = nodes = guards.with_checks_of_results(nodes, self._depth)
        self._guards = guards.ends(nodes, self._depth)
        self._guarding = walks.upstream(nodes, self._guards)
        inside = {n.name for n in nodes.values() if n.report and self._depth[n.name] > 0}
        self._silent = inside - self._guards.keys()
        needed = self._backward([*map(source_of, fetches), *targets])  # silent reports read only what they forward
        self._subset = {name: nodes[name] for name in needed}
        essential = [name for name in needed if nodes[name].essential and not nodes[name].host]
        self._before = self._backward(essential)
        self._consumers = walks.consumers_of(self._subset, controls=False)
        self._behind = walks.downstream(self._subset, essential, start=False)
        wrong = [n.name for n in self._subset.values() if n.essential or n.variable or not n.shared]
        self._anywhere = needed - walks.downstream(self._subset, wrong)
        self._apart = conditionals.around_effects(self._subset, self._depth, self._before)
        self._guards.update((name, conditional.end) for name, conditional in self._apart.items())
        self._inside = {name for conditional in self._apart.values() for name in conditional.inside}
        self._again = {t: given for conditional in self._apart.values() for t, given in conditional.given.items()}

    def result(self) -> Cut:
        hosts = [self._nodes[name] for name in sorted(self._subset) if self._is_decided(name)]
        for node in hosts:
            self._require_cuttable(node)
        for node in self._subset.values():
            if node.op in IN_PLACE:
                text = "node '%s' (%s) writes into the memory of its input, which a program does not share"
                raise _Refused(text % (node.name, node.op))
        middle = {n.name for n in hosts if n.name in self._before and n.name in self._behind and not n.report}
        feeding = {n.name for n in hosts if n.name in self._before and n.name not in self._behind}
        feeding |= {self._guards[name] for name in feeding & self._guards.keys()}
        asserted = self._conditions()
        feeding |= {source_of(tensor) for tensor in asserted.values()} & self._subset.keys()
        reading = {n.name for n in hosts if n.name not in feeding | middle and not self._is_silenced(n)}
        self._silent |= {n.name for n in hosts if n.name not in feeding | middle | reading}
        reading |= self._inside.union(conditional.end for conditional in self._apart.values())
        self._feed = self._backward(feeding)
        once = [name for name in self._feed if name in feeding or not self._nodes[name].shared]
        self._cut_off = walks.downstream(self._subset, once) & self._feed
        self._read = self._after(reading)
        self._printed = {n for n in self._subset if self._nodes[n].forwards} - self._silent - self._feed - self._read
        places = {**dict.fromkeys(self._cut_off, Place.FEED), **dict.fromkeys(self._read, Place.READ)}
        places.update((name, Place.READ) for name in self._fetched_from_host() if name not in places)
        places.update(dict.fromkeys(middle, Place.MIDDLE))
        self._places, self._stages = places, self._staged(middle)
        programs = self._with_programs([*self._groups(middle), self._read])
        places.update((name, Place.PROGRAM) for program in programs for name in program.nodes if name not in places)
        crossing = {tensor for program in programs for tensor in program.needs}
        cut = Cut(
            None, places, {n.name: n.host for n in hosts if n.host},
            tuple(sorted(t for t in crossing if places.get(source_of(t)) in (Place.FEED, Place.MIDDLE))),
            tuple(sorted(self._effects(Place.FEED, self._cut_off))), programs, self._stages,
            tuple(sorted(self._silent - asserted.keys())), asserted,
        )  # fmt: skip
        self._require_no_crossing_in_control_flow(cut)
        for program in programs:
            self._require_programs_run_once(program)
        return replace(cut, waiting=tuple(tuple(sorted(self._waiting(cut, n))) for n in range(len(programs))))

    def _conditions(self) -> Dict[str, str]:
        """Name of an assertion that does not run -> what it asserts, where that is known before the step."""
        silent = [n for n in self._subset.values() if n.name in self._silent or self._is_silenced(n) or not n.report]
        conditions = guards.conditions(self._nodes, [n.name for n in silent if n.asserts], self._depth)
        unused = self._nodes.keys() - self._subset.keys()
        return {name: tensor for name, tensor in conditions.items() if source_of(tensor) not in unused}

    def _waiting(self, plan: Cut, number: int) -> Set[str]:
        """The constants that wait for what the session runs in front of a program, see `fallback.waiting`."""
        before = {name for name, place in self._places.items() if place is Place.FEED}
        before |= {name for program in plan.programs[:number] for name in program.hosts}
        once = {name for name in before if not self._nodes[name].shared and not self._nodes[name].report}
        given = {tensor for tensor in (*plan.fed, *plan.carried, *self._fetches) if source_of(tensor) in before}
        left = [name for name in fallback.ungrouped(self._nodes, self._targets) if name not in before]
        waiting, problem = fallback.waiting(self._nodes, self._fetches, left, given, once)
        if problem:
            raise _Refused(problem)
        return waiting

    def _is_decided(self, name: str) -> bool:
        """Whether a host node has one place: it is not just a constant or handle that other host nodes use."""
        if not self._nodes[name].host or name in self._silent:
            return False
        consumers = self._consumers.get(name, ())
        return name not in self._anywhere or any(not self._nodes[consumer].host for consumer in consumers)

    def _fetched_from_host(self) -> List[str]:
        return [source_of(t) for t in self._fetches if self._nodes[source_of(t)].host]

    def _require_cuttable(self, node: Node) -> None:
        settled = node.report or node.name in self._inside or (node.shared and node.name in self._guarding)
        if self._depth[node.name] and not settled:
            raise _Refused(self._why(node.name) + " and is inside of a loop or tf.cond")
        if node.writes and not node.report:
            raise _Refused("%s and writes variable '%s'" % (self._why(node.name), min(node.writes)))

    def _why(self, name: str) -> str:
        return "node '%s' (%s) must run in the session (%s)" % (name, self._nodes[name].op, self._nodes[name].host)

    def _is_silenced(self, node: Node) -> bool:
        """Whether a report is not run: it asserts a result of the program, when the state is already updated."""
        return node.report and node.op == "Assert" and node.name in self._behind

    def _inputs(self, name: str) -> Sequence[str]:
        node = self._nodes[name]
        if name not in self._silent:
            return node.inputs
        data = [text for text in node.inputs if text[0] != "^"]
        return [*data[: node.forwards], *(text for text in node.inputs if text[0] == "^")]

    def _backward(self, names: Iterable[str]) -> Set[str]:
        return walks.upstream_by(names, self._inputs)

    def _after(self, reading: Collection[str]) -> Set[str]:
        """The reading nodes, what stands between two of them, and everything that takes results of these.

        An order may be given by what the program could compute: a Const waits for one host op, the next one takes the
        Const. In the program it would wait for nothing.
        """
        between = walks.downstream(self._subset, reading, start=False) & self._backward(reading)
        left = between - self._before - self._feed - self._anywhere
        after = set(reached([*reading, *left], lambda name: self._consumers.get(name, ())))
        return after.difference(*(conditional.unused for conditional in self._apart.values()))

    def _staged(self, middle: Collection[str]) -> Dict[str, int]:
        """Name of a node before the last program, or of a host op in the middle -> number of its program.

        A host op stands behind program n if the way to it leads through n other host ops with programs in between.
        Variables, which each program reads, have none.
        """
        level, pending, consumers = dict.fromkeys(self._subset, 0), deque(middle), walks.consumers_of(self._subset)
        while pending:
            name = pending.popleft()
            for consumer in consumers.get(name, ()):
                least = level[name] + (name in middle and consumer not in middle)
                if least > level[consumer]:
                    level[consumer] = least
                    pending.append(consumer)
        stages = {name: level[name] for name in middle}
        for host in sorted(middle, key=lambda name: level[name]):
            for name in self._backward([host]) - self._cut_off - self._anywhere:
                if self._nodes[name].writes:
                    written = min(self._nodes[name].writes)
                    raise _Refused("%s and waits until variable '%s' is written" % (self._why(host), written))
                if not self._nodes[name].variable:
                    stages.setdefault(name, level[host])
        return stages

    def _groups(self, middle: Collection[str]) -> List[Set[str]]:
        """The host ops behind each program but the last."""
        count = 1 + max((self._stages[name] for name in middle), default=-1)
        return [{name for name in middle if self._stages[name] == number} for number in range(count)]

    def _with_programs(self, behind: Sequence[Set[str]]) -> Tuple[Program, ...]:
        """The programs in front of these groups of nodes of the session, the last of which is the reading part."""
        last = len(behind) - 1
        needs = [*map(self._taken_by, behind[:last]), self._taken_by(behind[last] | self._printed)]
        shown: List[Set[str]] = [set() for _ in behind]
        for number, (tensors, _) in enumerate(needs):
            for tensor in tensors:
                if source_of(tensor) not in self._places:
                    shown[min(number, self._stages.get(source_of(tensor), last))].add(tensor)
        roots = [set(map(source_of, tensors)) for tensors in shown]
        for tensor in map(tensor_of, self._fetches):
            if source_of(tensor) not in self._places:
                roots[self._stages.get(source_of(tensor), last)].add(source_of(tensor))
        waits = needs[last][1]
        roots[last] |= waits | {name for name in self._targets if name not in self._places}
        passed: List[Set[str]] = [set() for _ in behind]
        programs = []
        for number in reversed(range(len(behind))):
            program = self._program(number, roots[number] | set(map(source_of, passed[number])))
            for tensor in program.taken:
                passed[self._stages[source_of(tensor)]].add(tensor)
            targets = {name for name in self._targets if name not in self._places} | waits if number == last else ()
            place = Place.READ if number == last else Place.MIDDLE
            programs.append(replace(
                program, passed=tuple(sorted(passed[number])), shown=tuple(sorted(shown[number])),
                runs=tuple(sorted(targets)), hosts=frozenset(behind[number]), needs=tuple(sorted(needs[number][0])),
                effects=tuple(sorted(self._effects(place, behind[number]))),
                again=self._again if number == last else {},
            ))  # fmt: skip
        return tuple(reversed(programs))

    def _taken_by(self, names: Collection[str]) -> Tuple[Set[str], Set[str]]:
        """(tensors, nodes of programs that are waited for) that a part of the session needs from other parts."""
        tensors: Set[str] = set()
        waits: Set[str] = set()
        for name in names:
            for text in self._nodes[name].inputs:
                source = source_of(text)
                if (source in names and source not in self._printed) or source in self._anywhere:
                    continue
                if text[0] != "^":
                    tensors.add(self._again.get(tensor_of(text), tensor_of(text)))
                elif source not in self._feed and source not in self._places:
                    waits.add(source)
        return tensors, waits

    def _program(self, number: int, roots: Iterable[str]) -> Program:
        """The program of that number, with what it is fed and what it takes from earlier ones."""
        pending = list(roots)
        inside: Set[str] = set()
        fed: Set[str] = set()
        taken: Set[str] = set()
        while pending:
            name = pending.pop()
            if name in inside:
                continue
            inside.add(name)
            for text in self._inputs_of_program(name):
                source, waits = source_of(text), text[0] == "^"
                if source in self._places:
                    if not waits and self._places[source] is not Place.READ:
                        fed.add(tensor_of(text))
                elif self._stages.get(source, number) < number:
                    if self._can_pass(source):
                        taken.update(() if waits else [tensor_of(text)])
                    elif not waits:
                        self._require_again(source)
                        pending.append(source)
                elif not waits or not self._stays(source):
                    pending.append(source)
        return Program(frozenset(inside), tuple(sorted(fed)), tuple(sorted(taken)))

    def _can_pass(self, name: str) -> bool:
        """Whether a program takes a node's results from the device; sizes must be known when XLA compiles."""
        return self._nodes[name].floating and not self._depth[name]

    def _require_again(self, name: str) -> None:
        """Raises _Refused for a node that two programs would compute with different results."""
        node = self._nodes[name]
        if not node.shared and not node.op.startswith(CONTAINERS):
            problem = "draws anew each time, and is needed before and after what must run in the session"
            raise _Refused("node '%s' (%s) %s" % (name, node.op, problem))

    def _stays(self, name: str) -> bool:
        """Whether a node stays in the session if the program only waits for it."""
        return bool(self._nodes[name].host) and name not in self._silent

    def _inputs_of_program(self, name: str) -> Sequence[str]:
        """Inputs of a node in the program, where a print only forwards its first input; the session prints."""
        if name in self._printed:
            data = [text for text in self._nodes[name].inputs if text[0] != "^"]
            return [*data[:1], *(text for text in self._nodes[name].inputs if text[0] == "^")]
        return self._inputs(name)

    def _effects(self, place: Place, names: Collection[str]) -> Set[str]:
        """The nodes of a part of the session that run for their effect."""
        effects = {n for n in self._targets if self._places.get(n) is place and (n in names or place is Place.READ)}
        alone = {n for n in names if self._nodes[n].host and not self._nodes[n].shared}
        effects |= {self._guards.get(n, n) for n in alone | {n for n in names if self._nodes[n].report}}
        return effects | (self._printed if place is Place.READ else set())

    def _require_no_crossing_in_control_flow(self, plan: Cut) -> None:
        for tensor in (*plan.fed, *plan.shown, *plan.carried):
            if self._depth[source_of(tensor)]:
                raise _Refused("tensor '%s', which host and program share, is inside of a loop or tf.cond" % tensor)

    def _require_programs_run_once(self, program: Program) -> None:
        """Raises _Refused if a part of the session, run from the unchanged graph, would run another part again."""
        given = {*program.needs, *program.again}

        def before(name: str) -> Iterable[str]:
            inputs = self._nodes[name].inputs
            return [source_of(t) for t in inputs if t[0] == "^" or tensor_of(t) not in given]

        fetched = (source_of(t) for t in self._fetches if source_of(t) in program.hosts)
        for name in reached([*program.effects, *fetched], before):
            node = self._nodes[name]
            elsewhere = self._places.get(name) in (Place.FEED, Place.MIDDLE) and name not in program.hosts
            if node.essential or (elsewhere and node.host):
                first = min(program.hosts | self._printed)
                text = "node '%s' (%s), which the session must run, waits for another part of the step"
                raise _Refused(text % (first, self._nodes[first].op))
