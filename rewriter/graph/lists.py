"""TensorLists: which ops work on one list. A list is a variant that every op hands on as a new value.

    TensorListReserve -> While(... TensorListSetItem ...) -> TensorListStack

Variants that meet in an op, a loop or a branch belong together, and with lists of lists the inner with the outer. One
that an op reads or gives which is not known here (a data set, a function that is left as written, a fetch) is out of
our sight: its lists stay as they are. So is an outer list with inner ones of several dtypes. That several outer lists
begin as one that is empty ties nothing: Grappler makes one of equal ops, such as those of all accumulators of a loop.
"""

from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from ..tables.dtypes import NUMBERS
from .graph_view import GraphView, Node, Port

VARIANT = NUMBERS["variant"]
# TensorList op -> number of the input that it writes (None: it reads, or only knows the dtype); slot 0 is element_dtype
LISTS: Mapping[str, Optional[int]] = {
    "EmptyTensorList": None,
    "TensorListReserve": None,
    "TensorListFromTensor": 0,
    "TensorListScatter": 0,
    "TensorListScatterV2": 0,
    "TensorListSplit": 0,
    "TensorListSetItem": 2,
    "TensorListPushBack": 1,
    "TensorListPushBackBatch": 1,
    "TensorListScatterIntoExistingList": 1,
    "TensorListConcatLists": None,
    "TensorListGetItem": None,
    "TensorListPopBack": None,
    "TensorListStack": None,
    "TensorListConcat": None,
    "TensorListConcatV2": None,
    "TensorListGather": None,
}
# ops that hand lists on, add them up or measure them, whatever is in them
CARRIERS = frozenset({
    "Identity", "Enter", "Exit", "Switch", "_SwitchN", "Merge", "NextIteration", "AddN", "ZerosLike",
    "TensorListResize", "TensorListLength", "TensorListElementShape",
})  # fmt: skip
EACH = "IdentityN"  # hands on every input by itself
EMPTY = frozenset({"EmptyTensorList", "TensorListReserve"})
PASSES = frozenset({"Identity", "Enter", "Switch", EACH})  # ops that give what they read


def tensor_lists(view: GraphView) -> Iterator[List[Tuple[int, Optional[int]]]]:
    """For each list, or lists that belong together: (position, number of the input that is written) of its ops."""
    if not view.of_ops(LISTS):
        return
    together = _Together()
    out_of_sight: List[Port] = []
    members: List[Tuple[int, Port]] = []
    fed = {port.node for port in view.fed}
    for position, node in enumerate(view.nodes):
        ports = _variants(view, position)
        if not ports:
            continue
        if not _tie_ports(together, position, node, ports):
            out_of_sight += ports
        if position in fed or (position in view.preserved and _gives_lists_only(node)):
            out_of_sight += [port for port in ports if port.node == position]
        if node.op in LISTS and node.dtypes[0] != VARIANT:
            members.append((position, ports[0]))
    hidden = {together.root(port) for port in out_of_sight}
    by_root: Dict[Port, List[int]] = {}
    for position, port in members:
        by_root.setdefault(together.root(port), []).append(position)
    for root, positions in by_root.items():
        if root not in hidden and len({view.nodes[position].dtypes[0] for position in positions}) == 1:
            yield [(position, LISTS[view.nodes[position].op]) for position in positions]


def _tie_ports(together: "_Together", position: int, node: Node, ports: List[Port]) -> bool:
    """Notes what belongs together by one op; False for an op that is not known here."""
    if node.op == EACH:
        for given in (port for port in ports if port.node == position):
            together.join([port for port in (given, node.inputs[given.port]) if port in ports])
    elif node.op in LISTS or node.op in CARRIERS:
        together.join(ports)
    else:
        return False
    return True


def _variants(view: GraphView, position: int) -> List[Port]:
    """The variants that a node reads and gives, but for empty lists of lists that it reads."""
    node = view.nodes[position]
    layout, dtypes = node.layout, node.dtypes
    given = [Port(position, k) for k, s in enumerate(layout.outputs) if (dtypes[s] if s >= 0 else ~s) == VARIANT]
    read = [node.inputs[k] for k, s in enumerate(layout.inputs) if (dtypes[s] if s >= 0 else ~s) == VARIANT]
    return given + [port for port in read if not _is_empty_outer_list(view.nodes, port)]


def _is_empty_outer_list(nodes: Sequence[Node], port: Port) -> bool:
    for _ in nodes:  # not for ever around a cycle
        node = nodes[port.node]
        if node.op not in PASSES or not node.inputs:
            return node.op in EMPTY and node.dtypes[0] == VARIANT
        port = node.inputs[port.port if node.op == EACH else 0]
    return False


def _gives_lists_only(node: Node) -> bool:
    """Whether who fetches a node means its lists: of TensorListPopBack it is the tensor that is fetched."""
    return all(node.output_dtype(number) == VARIANT for number in range(len(node.layout.outputs)))


class _Together:
    """Union-find over output ports."""

    def __init__(self) -> None:
        self._parent: Dict[Port, Port] = {}

    def root(self, port: Port) -> Port:
        """The port that stands for all that belong together with this one."""
        parent = self._parent
        while parent.setdefault(port, port) != port:
            parent[port] = parent[parent[port]]
            port = parent[port]
        return port

    def join(self, ports: List[Port]) -> None:
        """Makes ports belong together; always under the smallest, so that the outcome depends on the graph alone."""
        roots: Set[Port] = {self.root(port) for port in ports}
        first = min(roots)
        for root in roots:
            self._parent[root] = first
