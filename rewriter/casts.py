"""Where casts stand: one for each tensor and dtype that somebody needs, shared by all consumers.

Four ways to do without one: a consumer of an up-cast takes what was cast; a consumer of an integer's cast to float32
gets the integer cast to the low dtype; a fetched tensor's up-cast keeps the fetched name and serves the float32
consumers too; a constant is written in the low dtype (`folded`).
"""

from bisect import bisect_right
from itertools import chain
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from .dtypes import FLOAT32, FLOATS, LOW, REF
from .dtypes import name as dtype_name
from .folding import known
from .graph_view import GraphView, Node, Port

Consumer = Tuple[int, int]  # node position, data input number
Needs = Dict[Tuple[Port, int, int], List[Consumer]]  # (tensor, dtype, by way of a low dtype or 0) -> who needs it
Narrowed = Tuple[int, int]  # slot whose inputs are rounded first, and the low dtype that they are rounded to
Given = Callable[[Port], int]  # the decided dtype of an output
INTEGERS = frozenset({"bool", "int8", "uint8", "int16", "uint16", "int32", "int64"})


class CastEdit(NamedTuple):
    """One Cast to insert: `tensor` (its name for people) is read from `source` as `source_dtype` and given as `dtype`.

    `source` is an output port, or the name of another inserted Cast. `consumers` are rewired to it. For one that is
    `folded` the value is known, and a Const is inserted. It waits for the nodes in `before`.
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


class Boundary(NamedTuple):
    """A node that is known outside: it moves to `renamed`, and its name goes to what restores its dtypes.

    `casts` has one entry an output: the name of the inserted Cast that restores it, or None where its dtype has not
    changed. With one output the Cast itself carries the name.
    """

    node: int
    renamed: str
    casts: Tuple[Optional[str], ...]


class Edits(NamedTuple):
    """All structural edits. `reconnections` lead a consumer to another existing port."""

    casts: Tuple[CastEdit, ...] = ()
    reconnections: Mapping[Consumer, Port] = {}
    boundaries: Tuple[Boundary, ...] = ()


def find_edits(
    view: GraphView,
    first: Sequence[int],
    becomes: Sequence[int],
    narrowed: Mapping[int, Narrowed],
    consumers: Sequence[Sequence[int]],
    before: Mapping[int, Tuple[int, ...]],
) -> Edits:
    """Finds the casts for decided slots.

    Args:
        view: the graph.
        first: position of each node's first slot in `becomes`.
        becomes: the decided dtypes; slot k of node n is `becomes[first[n] + k]`.
        narrowed: node position -> (slot, low dtype): its inputs are rounded to the low dtype, then taken as float32.
        consumers: positions of the nodes that read each node's outputs.
        before: node position -> what a Cast of its outputs waits for besides.
    """
    nodes = view.nodes
    changed = changed_nodes(nodes, first, becomes)

    def given(port: Port) -> int:
        slot = nodes[port.node].layout.outputs[port.port]
        return becomes[first[port.node] + slot] if slot >= 0 else ~slot

    needs: Needs = {}
    reconnections: Dict[Consumer, Port] = {}
    # between two nodes that keep their dtypes no cast is needed
    for position in sorted({*changed, *narrowed, *(reader for giver in changed for reader in consumers[giver])}):
        node, start = nodes[position], first[position]
        rounded, low = narrowed.get(position, (-1, 0))
        for number, (port, slot) in enumerate(zip(node.inputs, node.layout.inputs)):
            want = becomes[start + slot] if slot >= 0 else ~slot
            source, output = port
            slot_given = nodes[source].layout.outputs[output]
            have = becomes[first[source] + slot_given] if slot_given >= 0 else ~slot_given
            if want == have and slot != rounded:
                continue
            narrow = slot == rounded and have != low and not _is_rounded(view, port, low, given)
            if not narrow and (want == have or want not in FLOATS or have % REF not in FLOATS or have > REF):
                continue
            bypass = None if narrow else _written_upcast(view, port, want, given)
            if bypass is None:
                origin = port if narrow else _integer_behind(view, port, want, given)
                needs.setdefault((origin, want, low if narrow else 0), []).append((position, number))
            else:
                reconnections[position, number] = bypass
    names = {node.name for node in nodes}
    boundaries = _boundaries(view, given, names)
    casts = [
        cast._replace(before=before[cast.source.node])
        if isinstance(cast.source, Port) and cast.source.node in before
        else cast
        for cast in _casts(view, given, needs, boundaries, names)
    ]
    return Edits(tuple(sorted(casts, key=lambda cast: cast.name)), reconnections, boundaries)


def changed_nodes(nodes: Sequence[Node], first: Sequence[int], becomes: Sequence[int]) -> List[int]:
    """Positions of the nodes that get other dtypes than they have, ascending; parameters as of `find_edits`."""
    was = chain.from_iterable([node.dtypes for node in nodes])
    slots = [slot for slot, (one, other) in enumerate(zip(was, becomes)) if one != other]
    return sorted({bisect_right(first, slot) - 1 for slot in slots})  # nodes without slots stand before, not behind


def _is_rounded(view: GraphView, port: Port, low: int, given: Given) -> bool:
    """Whether a tensor holds values of the low dtype already: another rewrite of the same graph adds no casts."""
    node = view.nodes[port.node]
    return node.op == "Cast" and port not in view.fed and given(node.inputs[0]) == low


def _written_upcast(view: GraphView, port: Port, want: int, given: Given) -> Optional[Port]:
    """The low-precision tensor behind an existing up-cast, when `want` is just that dtype."""
    node = view.nodes[port.node]
    if node.op != "Cast" or node.controls or port in view.fed:
        return None
    return node.inputs[0] if given(node.inputs[0]) == want else None


def _boundaries(view: GraphView, given: Given, names: Set[str]) -> Tuple[Boundary, ...]:
    found = []
    for position in sorted(view.preserved, key=lambda p: view.nodes[p].name):
        node = view.nodes[position]
        outputs = range(len(node.layout.outputs))
        changed = [given(Port(position, number)) != node.output_dtype(number) for number in outputs]
        if any(changed):
            low = next(dtype_name(given(Port(position, n))) for n in outputs if changed[n])
            renamed = unused(node.name + "-in-" + low, names)
            if len(changed) == 1:
                restored: Tuple[Optional[str], ...] = (node.name,)
            else:
                restored = tuple(
                    unused(cast_name(node, n, node.output_dtype(n)), names) if changed[n] else None for n in outputs
                )
            found.append(Boundary(position, renamed, restored))
    return tuple(found)


def _casts(
    view: GraphView, given: Given, needs: Needs, boundaries: Tuple[Boundary, ...], names: Set[str]
) -> List[CastEdit]:
    named: Dict[Tuple[Port, int], str] = {}
    for boundary in boundaries:
        for number, name in enumerate(boundary.casts):
            if name is not None:
                port = Port(boundary.node, number)
                key = (port, view.nodes[boundary.node].output_dtype(number))
                named[key] = name
                needs.setdefault((*key, 0), [])
    casts: Dict[str, CastEdit] = {}
    for port, want, low in sorted(needs, key=lambda k: (view.nodes[k[0].node].name, k[0].port, k[1], k[2])):
        node = view.nodes[port.node]
        consumers = tuple(sorted(needs[port, want, low], key=lambda c: (view.nodes[c[0]].name, c[1])))
        tensor = node.name if port.port == 0 else "%s:%d" % (node.name, port.port)
        if low:  # float32 -> low -> float32: the values that a low-precision input would have had
            down = named.get((port, low)) or unused(cast_name(node, port.port, low), names)
            named[port, low] = down  # a plain cast to `low`, if there is one, comes later and takes its place
            casts.setdefault(down, CastEdit(down, tensor, port, given(port), low, node.device, ()))
            name = unused(cast_name(node, port.port, low) + "-rounded", names)
            casts[name] = CastEdit(name, tensor, down, low, FLOAT32, node.device, consumers)
            continue
        name = named.get((port, want)) or unused(cast_name(node, port.port, want), names)
        named[port, want] = name
        folded = want in LOW and known(view, port)
        casts[name] = CastEdit(name, tensor, port, given(port), want, node.device, consumers, folded)
    return list(casts.values())


def _integer_behind(view: GraphView, port: Port, want: int, given: Given) -> Port:
    """What to cast: the integer or boolean behind an existing Cast to float32, or the tensor itself."""
    node = view.nodes[port.node]
    if node.op == "Cast" and want in LOW and not node.controls and port not in view.fed:
        return node.inputs[0] if dtype_name(given(node.inputs[0])) in INTEGERS else port
    return port


def cast_name(node: Node, port: int, dtype: int) -> str:
    """The name of a Cast of a node's output."""
    return "%s-%d-to-%s" % (node.name, port, dtype_name(dtype))


def unused(name: str, names: Set[str]) -> str:
    """`name`, or with the first free number behind it; taken from now on."""
    free, number = name, 1
    while free in names:
        free, number = "%s-%d" % (name, number), number + 1
    names.add(free)
    return free
