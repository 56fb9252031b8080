"""Finds the casts to insert: one for each tensor and dtype that a consumer needs, shared by all its consumers.

Four cases need none: a consumer of an up-cast reads the input of the up-cast; a consumer of an integer's cast to
float32 gets the integer cast to the low dtype; a fetched tensor's up-cast keeps the fetched name and serves the float32
consumers too; a constant is written in the low dtype (`folded`). The first two do not hold for
a Cast that copies a variable: see references.py.
"""

from bisect import bisect_right
from itertools import chain
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from ..graph.emulation import Running, Way
from ..graph.folding import known
from ..graph.graph_view import GraphView, Node, Port
from ..graph.references import NO_READINGS, Readings
from ..tables.dtypes import FLOAT32, FLOATS, LOW
from ..tables.dtypes import name as dtype_name

Consumer = Tuple[int, int]  # node position, data input number
Path = Tuple[int, ...]  # the dtypes that a tensor is cast to, one after the other; float16, float32 rounds
Needs = Dict[Tuple[Port, Path], List[Consumer]]
Narrowed = Tuple[int, int]  # slot whose inputs are rounded first, and the low dtype that they are rounded to
RENAMED = "-in-"  # a fetched node x that is lowered is called x-in-float16
INTEGERS = frozenset({"bool", "int8", "uint8", "int16", "uint16", "int32", "int64"})


class CastEdit(NamedTuple):
    """One Cast to insert: `tensor` (its name for people) is read from `source` as `source_dtype` and given as `dtype`.

    `source` is an output port, or the name of another inserted Cast. `consumers` are rewired to it. For one that is
    `folded` the value is known, and a Const is inserted; if it is `clamped`, that stops at the largest finite number of
    its dtype, see clamping.py. It waits for the nodes in `before`.
    """

    name: str
    tensor: str
    source: object
    source_dtype: int
    dtype: int
    device: str
    consumers: Tuple[Consumer, ...]
    folded: bool = False
    before: Tuple[int, ...] = ()
    clamped: bool = False


class Boundary(NamedTuple):
    """A fed or fetched node: it is renamed to `renamed`, and the op that restores its dtypes takes its name.

    `casts` has one entry per output: the name of the inserted Cast that restores it, or None if its dtype has not
    changed. With one output the Cast itself takes the name.
    """

    node: int
    renamed: str
    casts: Tuple[Optional[str], ...]


class Edits(NamedTuple):
    """All structural edits. `reconnections` lead a consumer to another existing port."""

    casts: Tuple[CastEdit, ...] = ()
    reconnections: Mapping[Consumer, Port] = {}
    boundaries: Tuple[Boundary, ...] = ()


class Decided(NamedTuple):
    """The decisions for a graph; slot k of node n is entry `first[n] + k` of a list over the slots.

    Attributes:
        view: the graph.
        first: position of each node's first slot.
        becomes: the dtype of the values as their readers see them.
        running: the dtypes that nodes run in.
        narrowed: node position -> (slot, low dtype): its inputs are rounded to the low dtype, then taken as float32.
    """

    view: GraphView
    first: Sequence[int]
    becomes: Sequence[int]
    running: Running
    narrowed: Mapping[int, Narrowed]

    def given(self, port: Port) -> int:
        """The dtype of an output as its readers see it."""
        slot = self.view.nodes[port.node].layout.outputs[port.port]
        return self.becomes[self.first[port.node] + slot] if slot >= 0 else ~slot

    def gives(self, port: Port) -> int:
        """The dtype that comes out of an output."""
        slot = self.view.nodes[port.node].layout.outputs[port.port]
        return self.running.runs[self.first[port.node] + slot] if slot >= 0 else ~slot

    def path(self, port: Port, want: int, low: int = 0) -> Path:
        """The dtypes that an output is cast to, one after the other, for a reader that takes `want`.

        Args:
            port: the output.
            want: dtype number.
            low: the low dtype whose values the reader takes in float32, 0 for one that takes what comes.
        """
        have, given = self.gives(port), self.given(port)
        if want not in FLOATS or have not in FLOATS:
            return ()
        carried = self.running.ways.get(port.node) is Way.CARRIED
        path = [have] if have == given or carried else [have, given]
        if low and path[-1] != low and not (carried and given == low) and not self._is_upcast(port, low):
            path.append(low)
        if path[-1] != want:
            path.append(want)
        return tuple(path[1:])

    def input_path(self, port: Port, position: int, number: int) -> Tuple[Path, bool]:
        """`path` of what a node reads, and whether it must be just this one, since it rounds."""
        node = self.view.nodes[position]
        slot = node.layout.inputs[number]
        if slot < 0:
            return self.path(port, ~slot), False
        want, seen = self.running.runs[self.first[position] + slot], self.becomes[self.first[position] + slot]
        if want == seen:
            rounded, low = self.narrowed.get(position, (-1, 0))
            return self.path(port, want, low if slot == rounded else 0), slot == rounded
        if node.op == "Cast":  # it is the rounding
            return (), True
        return self.path(port, want, seen), True

    def agrees(self, port: Port, position: int, number: int) -> bool:
        """Whether a node takes just the dtype that an output gives, as its readers see it: then `path` is empty."""
        given = self.view.nodes[port.node].layout.outputs[port.port]
        taken = self.view.nodes[position].layout.inputs[number]
        if given < 0 or taken < 0 or position in self.narrowed:
            return False
        given, taken, runs = given + self.first[port.node], taken + self.first[position], self.running.runs
        return self.becomes[given] == runs[given] == runs[taken] == self.becomes[taken]

    def _is_upcast(self, port: Port, low: int) -> bool:
        """Whether a tensor already holds values of the low dtype, so that a second rewrite adds no casts."""
        node = self.view.nodes[port.node]
        return node.op == "Cast" and port not in self.view.fed and self.given(node.inputs[0]) == low


def find_edits(decided: Decided, consumers: Sequence[Sequence[int]], read: Readings = NO_READINGS) -> Edits:
    """Finds the casts for decided slots.

    Args:
        decided: the decisions.
        consumers: positions of the nodes that read each node's outputs.
        read: how the graph reads its reference variables.
    """
    nodes = decided.view.nodes
    changed = {*changed_nodes(nodes, decided.first, decided.running.runs), *decided.running.ways}
    needs: Needs = {}
    reconnections: Dict[Consumer, Port] = {}
    # between two nodes that keep their dtypes no cast is needed
    for position in sorted({*changed, *decided.narrowed, *(r for giver in changed for r in consumers[giver])}):
        for number, port in enumerate(nodes[position].inputs):
            if decided.agrees(port, position, number):
                continue
            path, rounds = decided.input_path(port, position, number)
            if not path:
                continue
            copied = port.node in read.copies
            behind = None if rounds or copied else _written_upcast(decided, port, path[-1])
            origin = behind or port
            if behind is not None:
                path, _ = decided.input_path(behind, position, number)
            elif not rounds and not copied:
                origin = _integer_behind(decided, port, path[-1])
            if path:
                needs.setdefault((origin, path), []).append((position, number))
            else:
                reconnections[position, number] = origin
    names = {node.name for node in nodes}
    boundaries = _boundaries(decided, names)
    casts = sorted(_casts(decided, needs, boundaries, names), key=lambda cast: cast.name)
    return waiting(Edits(tuple(casts), reconnections, boundaries), read.before)


def waiting(edits: Edits, before: Mapping[int, Tuple[int, ...]]) -> Edits:
    """Lets Casts of what a node gives wait for what `before` has for the node, as in `find_edits`."""
    casts = (
        cast._replace(before=before[cast.source.node])
        if isinstance(cast.source, Port) and cast.source.node in before
        else cast
        for cast in edits.casts
    )
    return edits._replace(casts=tuple(casts))


def changed_nodes(nodes: Sequence[Node], first: Sequence[int], becomes: Sequence[int]) -> List[int]:
    """Positions of the nodes that get other dtypes than they have, ascending; parameters as of `find_edits`."""
    was = chain.from_iterable([node.dtypes for node in nodes])
    slots = [slot for slot, (one, other) in enumerate(zip(was, becomes)) if one != other]
    return sorted({bisect_right(first, slot) - 1 for slot in slots})  # nodes without slots stand before, not behind


def _written_upcast(decided: Decided, port: Port, want: int) -> Optional[Port]:
    """The low-precision tensor behind an existing up-cast, when `want` is just that dtype."""
    node = decided.view.nodes[port.node]
    if node.op != "Cast" or node.controls or port in decided.view.fed:
        return None
    return node.inputs[0] if decided.given(node.inputs[0]) == want else None


def _boundaries(decided: Decided, names: Set[str]) -> Tuple[Boundary, ...]:
    nodes = decided.view.nodes
    boundaries = []
    for position in sorted(decided.view.preserved, key=lambda p: nodes[p].name):
        node = nodes[position]
        ports = [Port(position, number) for number in range(len(node.layout.outputs))]
        changed = [_restores(decided, port) != () for port in ports]
        if any(changed):
            low = next(dtype_name(decided.given(port)) for port in ports if changed[port.port])
            renamed = reserve_name(node.name + RENAMED + low, names)
            if len(changed) == 1:
                restored: Tuple[Optional[str], ...] = (node.name,)
            else:
                usual = [cast_name(node, number, node.output_dtype(number)) for _, number in ports]
                restored = tuple(reserve_name(name, names) if new else None for name, new in zip(usual, changed))
            boundaries.append(Boundary(position, renamed, restored))
    return tuple(boundaries)


def _restores(decided: Decided, port: Port) -> Path:
    """The path that gives an output its old dtype."""
    return decided.path(port, decided.view.nodes[port.node].output_dtype(port.port))


def _casts(decided: Decided, needs: Needs, boundaries: Tuple[Boundary, ...], names: Set[str]) -> List[CastEdit]:
    nodes = decided.view.nodes
    named: Dict[Tuple[Port, Path], str] = {}
    for boundary in boundaries:
        for number, name in enumerate(boundary.casts):
            if name is not None:
                port = Port(boundary.node, number)
                named[port, _restores(decided, port)] = name
    for port, path in [*needs, *named]:
        for length in range(1, len(path) + 1):
            needs.setdefault((port, path[:length]), [])
    casts = []
    for port, path in sorted(needs, key=lambda k: (nodes[k[0].node].name, k[0].port, len(k[1]), k[1])):
        node, dtype = nodes[port.node], path[-1]
        consumers = tuple(sorted(needs[port, path], key=lambda c: (nodes[c[0]].name, c[1])))
        tensor = node.name if port.port == 0 else "%s:%d" % (node.name, port.port)
        rounded = dtype == FLOAT32 and len(path) > 1
        usual = cast_name(node, port.port, path[-2]) + "-rounded" if rounded else cast_name(node, port.port, dtype)
        name = named.get((port, path)) or reserve_name(usual, names)
        named[port, path] = name
        if len(path) == 1:
            folded = dtype in LOW and known(decided.view, port)
            casts.append(CastEdit(name, tensor, port, decided.gives(port), dtype, node.device, consumers, folded))
        else:
            source = named[port, path[:-1]]
            casts.append(CastEdit(name, tensor, source, path[-2], dtype, node.device, consumers))
    return casts


def _integer_behind(decided: Decided, port: Port, want: int) -> Port:
    """The tensor to cast: the integer or boolean behind an existing Cast to float32, or the tensor itself."""
    node = decided.view.nodes[port.node]
    if node.op == "Cast" and want in LOW and not node.controls and port not in decided.view.fed:
        return node.inputs[0] if dtype_name(decided.given(node.inputs[0])) in INTEGERS else port
    return port


def cast_name(node: Node, port: int, dtype: int) -> str:
    """The name of a Cast of a node's output."""
    return "%s-%d-to-%s" % (node.name, port, dtype_name(dtype))


def reserve_name(name: str, names: Set[str]) -> str:
    """Returns `name`, numbered if it is taken, and reserves it."""
    free, number = name, 1
    while free in names:
        free, number = "%s-%d" % (name, number), number + 1
    names.add(free)
    return free
