"""Cuts a training step in three: the feeding part, the program, and the reading part. No TensorFlow.

    IteratorGetNext  |  Cast -> MatMul -> .. -> ApplyAdam  |  ScalarSummary -> MergeSummary
         feed        |              program                |            read

Host ops stay in the session. A host op whose results the program needs runs before it, with everything upstream. A host
op downstream of the program runs after it. If a host op is both, the step is not cut.
"""

import enum
from collections import deque
from dataclasses import dataclass, field
from typing import Callable, Collection, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from npu_shim.rewriter.graph.arguments import source_of, tensor_of

ENOUGH = 64  # floating-point ops, without a product, that make a program worthwhile


class Place(enum.Enum):
    """Where a node runs."""

    FEED = "feed"  # in the session, before the program
    PROGRAM = "program"
    READ = "read"  # in the session, after the program


@dataclass(frozen=True)
class Node:
    """A node's properties that the cut depends on.

    Attributes:
        name, op: as in the GraphDef.
        inputs: as in the GraphDef, without the tensors that the user feeds.
        host: why the session must run it, None where the program can.
        writes: the variables that it writes to.
        variable: whether it is a variable or takes one.
        learned: whether its result depends on a variable's value.
        product: whether it is a matrix product, a convolution or a recurrent network.
        computes: whether it computes in floating point.
        repeats: whether the same inputs give the same result, so that it may run in two places.
        handle: whether it returns the handle of a resource that lives in the session.
        report: whether it is a print or an assertion.
        forwards: whether a report's result is its first input.
    """

    name: str
    op: str
    inputs: Tuple[str, ...] = ()
    host: Optional[str] = None
    writes: FrozenSet[str] = frozenset()
    variable: bool = False
    learned: bool = False
    product: bool = False
    computes: bool = False
    repeats: bool = True
    handle: bool = False
    report: bool = False
    forwards: bool = False

    @property
    def essential(self) -> bool:
        """Whether it always belongs to the program."""
        return self.product or bool(self.writes)

    @property
    def shared(self) -> bool:
        """Whether it may run in several places."""
        return self.repeats or self.handle


@dataclass(frozen=True)
class Cut:
    """A step in three parts.

    Attributes:
        refusal: why the step cannot be cut, None if it can; the other fields are empty then.
        places: name of a node -> Place, for each decided node; constants and handles run wherever they are needed.
        reasons: name of a host node -> why it is one.
        fed: tensors that the session gives to the program.
        shown: tensors of the program that the session reads.
        carried: tensors that the feeding part gives to the reading part.
        runs: Place -> names of the nodes that run there for their effect.
        silent: names of the reports that are not run: in loops and conditionals, and assertions about the results.
    """

    refusal: Optional[str] = None
    places: Mapping[str, Place] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    fed: Tuple[str, ...] = ()
    shown: Tuple[str, ...] = ()
    carried: Tuple[str, ...] = ()
    runs: Mapping[Place, Tuple[str, ...]] = field(default_factory=dict)
    silent: Tuple[str, ...] = ()

    def place(self, tensor: str) -> Place:
        """Where a fetched tensor comes from."""
        return self.places.get(source_of(tensor), Place.PROGRAM)


def why_no_step(nodes: Mapping[str, Node]) -> Optional[str]:
    """Returns why a run is not a training step, None if it is one.

    A training step writes to variables, and the written values depend on a variable through a product or ENOUGH other
    floating-point ops.

    Args:
        nodes: name -> Node, for all nodes that the run needs.
    """
    writers = [node.name for node in nodes.values() if node.writes]
    if not writers:
        return "it writes no variable"
    learned = _forward(nodes, [node.name for node in nodes.values() if node.learned])
    worked = [name for name in learned if nodes[name].product]
    if worked and not _forward(nodes, worked).isdisjoint(writers):
        return None
    count = sum(nodes[name].computes for name in learned)  # an initializer copies variables beside much random work
    if learned.isdisjoint(writers) or count < ENOUGH:
        return "it holds little work: no product in front of what it writes, and %d floating-point ops" % count
    return None


def plan(nodes: Mapping[str, Node], fetches: Sequence[str], targets: Sequence[str]) -> Cut:
    """Returns the Cut of a training step.

    Args:
        nodes: name -> Node, for all nodes that the run needs.
        fetches: names of the fetched tensors that are not fed.
        targets: names of the operations that are run.
    """
    return _Cutting(nodes, fetches, targets).result()


class _Cutting:
    """One step's cut: the nodes upstream and downstream of the essential ones, and the tensors that cross."""

    def __init__(self, nodes: Mapping[str, Node], fetches: Sequence[str], targets: Sequence[str]) -> None:
        self._nodes, self._fetches, self._targets = nodes, fetches, targets
        self._depth = depths(nodes)
        self._silent = {n.name for n in nodes.values() if n.report and self._depth[n.name] > 0}
        self._needed = self._without_silent()
        essential = [name for name in self._needed if nodes[name].essential and not nodes[name].host]
        self._before = self._backward(essential)
        self._consumers = _consumers(self._subset(), controls=False)
        self._behind = _forward(self._subset(), essential, start=False)
        self._anywhere = self._never_behind(lambda n: n.essential or n.variable or not n.shared)

    def result(self) -> Cut:
        hosts = [self._nodes[name] for name in sorted(self._needed) if self._is_decided(name)]
        refusal = next(filter(None, map(self._refusal, hosts)), None)
        if refusal:
            return Cut(refusal)
        feeding = {n.name for n in hosts if n.name in self._before and n.name not in self._behind}
        reading = {n.name for n in hosts if n.name not in feeding and not self._is_silenced(n)}
        self._silent |= {n.name for n in hosts if n.name not in feeding and n.name not in reading}
        self._feed = self._backward(feeding)
        once = [name for name in self._feed if name in feeding or not self._nodes[name].shared]
        self._cut_off = _forward(self._subset(), once) & self._feed
        self._read = self._after(reading)
        places = {**dict.fromkeys(self._cut_off, Place.FEED), **dict.fromkeys(self._read, Place.READ)}
        places.update((name, Place.READ) for name in self._fetched_from_host() if name not in places)
        shown, carried, waits = self._taken_by_readers()
        program, fed = self._program(places, shown, waits)
        places.update((name, Place.PROGRAM) for name in program)
        made = Cut(
            None, places, {n.name: n.host for n in hosts if n.host}, tuple(sorted(fed)), tuple(sorted(shown)),
            tuple(sorted(carried)), self._effects(places, waits), tuple(sorted(self._silent)),
        )  # fmt: skip
        wrong = self._crossing_in_control_flow(made) or self._program_run_twice(made)
        return Cut(wrong) if wrong else made

    def _is_decided(self, name: str) -> bool:
        """Whether a host node has one place: it is not just a constant or handle that other host nodes use."""
        if not self._nodes[name].host or name in self._silent:
            return False
        consumers = self._consumers.get(name, ())
        return name not in self._anywhere or any(not self._nodes[consumer].host for consumer in consumers)

    def _fetched_from_host(self) -> List[str]:
        return [source_of(t) for t in self._fetches if self._nodes[source_of(t)].host]

    def _refusal(self, node: Node) -> Optional[str]:
        if node.report:
            return None
        what = "node '%s' (%s) must run in the session (%s)" % (node.name, node.op, node.host)
        if self._depth[node.name]:
            return what + " and is inside of a loop or tf.cond"
        if node.writes:
            return what + " and writes variable '%s'" % min(node.writes)
        if node.name in self._before and node.name in self._behind:
            return what + " in the middle of the step"
        return None

    def _is_silenced(self, node: Node) -> bool:
        """Whether a report is not run: it asserts a result of the program, when the state is already updated."""
        return node.report and node.op == "Assert" and node.name in self._behind

    def _without_silent(self) -> Set[str]:
        """Names of the nodes that the step needs if silent reports read only what they forward."""
        return self._backward([*map(source_of, self._fetches), *self._targets])

    def _inputs(self, name: str) -> Sequence[str]:
        node = self._nodes[name]
        if name not in self._silent:
            return node.inputs
        data = [text for text in node.inputs if text[0] != "^"]
        return [*data[: node.forwards], *(text for text in node.inputs if text[0] == "^")]

    def _subset(self) -> Dict[str, Node]:
        return {name: self._nodes[name] for name in self._needed}

    def _backward(self, names: Iterable[str]) -> Set[str]:
        return _upstream(names, self._inputs)

    def _never_behind(self, wrong: Callable[[Node], bool]) -> Set[str]:
        subset = self._subset()
        return set(subset) - _forward(subset, [node.name for node in subset.values() if wrong(node)])

    def _after(self, reading: Collection[str]) -> Set[str]:
        """The reading nodes and everything downstream of them."""
        found, pending = set(reading), deque(reading)
        while pending:
            for name in self._consumers.get(pending.popleft(), ()):
                if name not in found:
                    found.add(name)
                    pending.append(name)
        return found

    def _taken_by_readers(self) -> Tuple[Set[str], Set[str], Set[str]]:
        """(tensors of the program, tensors of the feeding part, nodes of the program) that the reading part needs."""
        shown: Set[str] = set()
        carried: Set[str] = set()
        waits: Set[str] = set()
        self._printed = {n for n in self._needed if self._nodes[n].forwards} - self._silent - self._feed - self._read
        for name in [*self._read, *self._printed]:
            for text in self._nodes[name].inputs:
                source = source_of(text)
                if source in self._read or source in self._anywhere:
                    continue
                if text[0] == "^":
                    waits.add(source)
                elif source in self._cut_off:
                    carried.add(tensor_of(text))
                else:
                    shown.add(tensor_of(text))
        return shown, carried, {name for name in waits if name not in self._feed}

    def _program(
        self, places: Mapping[str, Place], shown: Collection[str], waits: Collection[str]
    ) -> Tuple[Set[str], Set[str]]:
        """(names of the program's nodes, tensors that are fed to it)."""
        roots = [t for t in [*map(tensor_of, self._fetches), *shown] if source_of(t) not in places]
        pending = [*map(source_of, roots), *waits, *(name for name in self._targets if name not in places)]
        found: Set[str] = set()
        fed: Set[str] = set()
        while pending:
            name = pending.pop()
            if name in found:
                continue
            found.add(name)
            for text in self._inputs_of_program(name):
                place = places.get(source_of(text))
                if place is Place.FEED and text[0] != "^":
                    fed.add(tensor_of(text))
                elif place is None and (text[0] != "^" or not self._stays(source_of(text))):
                    pending.append(source_of(text))
        return found, fed

    def _stays(self, name: str) -> bool:
        """Whether a node stays in the session if the program only waits for it."""
        return bool(self._nodes[name].host) and name not in self._silent

    def _inputs_of_program(self, name: str) -> Sequence[str]:
        """Inputs of a node in the program, where a print only forwards its first input; the session prints."""
        if name in self._printed:
            data = [text for text in self._nodes[name].inputs if text[0] != "^"]
            return [data[0], *(text for text in self._nodes[name].inputs if text[0] == "^")]
        return self._inputs(name)

    def _effects(self, places: Mapping[str, Place], waits: Set[str]) -> Dict[Place, Tuple[str, ...]]:
        runs = {place: {n for n in self._targets if places.get(n) is place} for place in Place}
        runs[Place.PROGRAM] |= waits
        for name, place in places.items():
            if place is not Place.PROGRAM and self._nodes[name].host and not self._nodes[name].shared:
                runs[place].add(name)
        for name in self._read:
            if self._nodes[name].report:
                runs[Place.READ].add(name)
        runs[Place.READ] |= self._printed
        runs[Place.FEED] |= {n for n in places if places[n] is Place.FEED and self._nodes[n].report}
        return {place: tuple(sorted(names)) for place, names in runs.items()}

    def _crossing_in_control_flow(self, made: Cut) -> Optional[str]:
        for tensor in (*made.fed, *made.shown, *made.carried):
            if self._depth[source_of(tensor)]:
                return "tensor '%s', which host and program share, is inside of a loop or tf.cond" % tensor
        return None

    def _program_run_twice(self, made: Cut) -> Optional[str]:
        """Why the reading part, which the session runs from the unchanged graph, would run the program again."""
        known = {*made.shown, *made.carried}
        seen: Set[str] = set()
        pending = [*made.runs[Place.READ]]
        pending += [source_of(t) for t in self._fetches if made.places.get(source_of(t)) is Place.READ]
        while pending:
            name = pending.pop()
            if name in seen:
                continue
            seen.add(name)
            node = self._nodes[name]
            if node.essential or (made.places.get(name) is Place.FEED and node.host):
                return "node '%s' (%s), which the session must run, waits for another part of the step" % (
                    next((n for n in sorted(self._read | self._printed)), name), node.op)  # fmt: skip
            pending += [source_of(text) for text in node.inputs if text[0] == "^" or tensor_of(text) not in known]
        return None


def upstream(nodes: Mapping[str, Node], names: Iterable[str]) -> Set[str]:
    """Returns the names of nodes and of all that they need.

    Args:
        nodes: name -> Node.
        names: of some of them.
    """
    return _upstream(names, lambda name: nodes[name].inputs)


def _upstream(names: Iterable[str], inputs_of: Callable[[str], Iterable[str]]) -> Set[str]:
    found: Set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += [source_of(text) for text in inputs_of(name)]
    return found


def depths(nodes: Mapping[str, Node]) -> Dict[str, int]:
    """Returns name -> number of version 1 loops and conditionals around a node."""
    consumers = _consumers(nodes)
    depth = {name: 0 for name, node in nodes.items() if not node.inputs}
    pending = deque(depth)
    while pending:
        name = pending.popleft()
        for consumer in consumers.get(name, ()):
            found = _depth(nodes, consumer, depth)
            if found > depth.get(consumer, -1):
                depth[consumer] = found
                if nodes[consumer].op not in ("NextIteration", "RefNextIteration"):
                    pending.append(consumer)
    return {name: depth.get(name, 0) for name in nodes}


def _depth(nodes: Mapping[str, Node], name: str, known: Mapping[str, int]) -> int:
    """Depth by the inputs whose depth is known; a loop's Switch and Merge have the depth of its Enter."""
    op = nodes[name].op.replace("Ref", "")
    sources = [source_of(text) for text in nodes[name].inputs]
    around = max((known.get(source, 0) for source in sources), default=0)
    if op == "Enter":
        return around + 1
    if op == "Exit":
        return max(around - 1, 0)
    if op == "Switch":
        return around + (not any(nodes[source].op == "LoopCond" for source in sources))
    if op == "Merge":
        return max(around - (not any("NextIteration" in nodes[source].op for source in sources)), 0)
    return around


def _forward(nodes: Mapping[str, Node], names: Collection[str], start: bool = True) -> Set[str]:
    """Names of all nodes downstream of `names`, with `names` themselves, or only those reached from another one."""
    consumers = _consumers(nodes)
    found, pending = set(names) if start else set(), deque(names)
    while pending:
        for consumer in consumers.get(pending.popleft(), ()):
            if consumer not in found:
                found.add(consumer)
                pending.append(consumer)
    return found


def _consumers(nodes: Mapping[str, Node], controls: bool = True) -> Dict[str, List[str]]:
    found: Dict[str, List[str]] = {}
    for node in nodes.values():
        for source in {source_of(text) for text in node.inputs if controls or text[0] != "^"}:
            found.setdefault(source, []).append(node.name)
    return found
