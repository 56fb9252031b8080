"""The planner's view of a graph: an immutable value, independent of TensorFlow.

The unit of a decision is the type slot: a node's type attribute, or one entry of its list attribute. A `Layout` says
which slot governs which port; nodes of the same shape share one.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import chain
from typing import (
    Any,
    Callable,
    Dict,
    FrozenSet,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    TypeVar,
)

# attributes that scopes put on nodes
KEEP, TO_FLOAT = "_keep_dtype", "_npu_shim_to_float"
KEEP_WITH_GRADIENTS = 2  # the value of KEEP whose gradient ops get it too; the vendor's scope writes 1
MOVED = "_npu_shim_moved"  # attribute of what placement.py lowered
UNSCALES = "_npu_shim_unscales"  # attribute of what takes a loss scale out of gradients; see factors.py


class Slot(NamedTuple):
    """A type attribute of an op; `index` counts within an attribute of kind list(type) and is None otherwise."""

    attr: str
    index: Optional[int] = None  # type: ignore[assignment]  # hides tuple.index, which nobody needs here


class Layout(NamedTuple):
    """Which slot governs which port, for one op type and one set of list lengths.

    Attributes:
        op: the op type that this is the definition of: the node's own, or a newer form of it that splits a slot in two
            (FusedBatchNormV2 of FusedBatchNorm, so that statistics can stay float32); a lowered node takes that form.
        slots: the type slots.
        inputs: one number a data input: a position in `slots`, or `~dtype` (negative) where the definition fixes the
            dtype.
        outputs: the same for the outputs.
        admits: one entry a slot: the dtypes that the definition admits, None for all.
        ref_inputs: data inputs that take a reference.
        ref_outputs: outputs that give a reference.
    """

    op: str
    slots: Tuple[Slot, ...]
    inputs: Tuple[int, ...]
    outputs: Tuple[int, ...]
    admits: Tuple[Optional[FrozenSet[int]], ...]
    ref_inputs: FrozenSet[int] = frozenset()
    ref_outputs: FrozenSet[int] = frozenset()


class Port(NamedTuple):
    """An output of a node: the node's position in `GraphView.nodes`, and the number of the output."""

    node: int
    port: int


class Node(NamedTuple):
    """One operation. `dtypes` has one dtype number a slot of its layout; `inputs` are data inputs in the op's order."""

    name: str
    op: str
    device: str
    layout: Layout
    dtypes: Tuple[int, ...]
    inputs: Tuple[Port, ...]
    controls: Tuple[int, ...]
    kept: bool = False  # carries the attribute _keep_dtype of keep_dtype_scope
    asked: int = 0  # dtype number in the attribute _npu_shim_to_float of to_float, 0 for none
    rounded: int = 0  # low dtype that an earlier rewrite had it stand for, 0 for none; see emulation.py
    moved: bool = False  # an earlier rewrite moved a cast in front of it: what it gives is neutral; see placement.py
    unscales: bool = False  # carries the attribute _npu_shim_unscales

    def input_dtype(self, number: int) -> int:
        """Dtype that this node wants at data input `number`."""
        slot = self.layout.inputs[number]
        return self.dtypes[slot] if slot >= 0 else ~slot

    def output_dtype(self, number: int) -> int:
        """Dtype that this node gives at output `number`."""
        slot = self.layout.outputs[number]
        return self.dtypes[slot] if slot >= 0 else ~slot


Answer = TypeVar("Answer")


@dataclass(frozen=True)
class GraphView:
    """A graph and its interface.

    `fed` are output ports whose value the caller supplies; `preserved` are positions of nodes that must keep their name
    and dtypes because somebody outside the graph knows them (fetches, targets, saver ops); `functions` are the names of
    library functions; `sizes` are the numbers of elements of the float32 Consts, by position. What else can be told of
    tensors before they are computed is asked of `facts.Facts`.

    What is found out by looking at all nodes is found out once; callers must not change it.
    """

    nodes: Tuple[Node, ...]
    fed: FrozenSet[Port] = frozenset()
    preserved: FrozenSet[int] = frozenset()
    functions: FrozenSet[str] = frozenset()
    sizes: Mapping[int, int] = field(default_factory=dict)
    _answers: Dict[Callable[..., Any], Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def forget(self) -> None:
        """Forgets what was found out, which takes as much memory as the nodes."""
        self._answers.clear()

    def positions(self) -> Dict[str, int]:
        """Position of every node by its name."""
        return self._computed_once(_positions)

    def consumers(self) -> List[List[int]]:
        """What `consumers_of` gives for the nodes."""
        return self._computed_once(_consumers)

    def kinds(self) -> List[List[int]]:
        """Positions of the nodes of each op type, layout and dtypes: what their op says of one, it says of all."""
        return self._computed_once(_kinds)

    def of_ops(self, ops: Iterable[str]) -> List[int]:
        """Positions of the nodes of these op types, ascending."""
        by_op = self._computed_once(_positions_by_op)
        return sorted(chain.from_iterable(by_op[op] for op in ops if op in by_op))

    def references(self) -> List[int]:
        """Positions of the nodes that take or give a reference, ascending."""
        return self._computed_once(_references)

    def _computed_once(self, find: Callable[["GraphView"], Answer]) -> Answer:
        if find not in self._answers:
            self._answers[find] = find(self)
        return self._answers[find]  # type: ignore[no-any-return]


def _positions(view: GraphView) -> Dict[str, int]:
    return {node.name: position for position, node in enumerate(view.nodes)}


def _consumers(view: GraphView) -> List[List[int]]:
    return consumers_of(view.nodes)


def _kinds(view: GraphView) -> List[List[int]]:
    positions: Dict[Tuple[str, int, int], List[int]] = defaultdict(list)
    for position, node in enumerate(view.nodes):  # by identity, since to hash a layout costs more than all else
        positions[node.op, id(node.layout), id(node.dtypes)].append(position)
    return list(positions.values())


def _references(view: GraphView) -> List[int]:
    layouts = ((kind, view.nodes[kind[0]].layout) for kind in view.kinds())
    return sorted(chain.from_iterable(kind for kind, layout in layouts if layout.ref_inputs or layout.ref_outputs))


def _positions_by_op(view: GraphView) -> Dict[str, List[int]]:
    positions: Dict[str, List[int]] = defaultdict(list)
    for kind in view.kinds():
        positions[view.nodes[kind[0]].op] += kind
    return positions


def is_border(node: Node) -> bool:
    """Whether a node stands for a value that goes into or out of a function, as inlining.py names it: call[in0]."""
    return is_border_name(node.name)


def is_border_name(name: str) -> bool:
    """As `is_border`, by the name of a node."""
    return name.endswith("]")


def consumers_of(nodes: Sequence[Node]) -> List[List[int]]:
    """Positions of the nodes that read the outputs of each node, once for each data input that does."""
    consumers: List[List[int]] = [[] for _ in nodes]
    for position, node in enumerate(nodes):
        for source, _ in node.inputs:
            consumers[source].append(position)
    return consumers


def waiting_of(nodes: Sequence[Node]) -> Dict[int, List[int]]:
    """Positions of the nodes that wait for a node by a control input; nodes that nobody waits for are left out."""
    waiting: Dict[int, List[int]] = {}
    for position, node in enumerate(nodes):
        for control in node.controls:
            waiting.setdefault(control, []).append(position)
    return waiting


def topological_order(nodes: Sequence[Node], consumers: Sequence[Sequence[int]]) -> List[int]:
    """Positions of the nodes, each after its data inputs; edges out of NextIteration, which close a loop, do not count.

    Nodes on any other cycle (which TensorFlow would reject) come last, in their own order.

    Args:
        nodes: the nodes of a graph.
        consumers: what `consumers_of` gives for them.
    """
    missing = [len(node.inputs) for node in nodes]
    closing = {position for position, node in enumerate(nodes) if node.op in ("NextIteration", "RefNextIteration")}
    for position in closing:
        for consumer in consumers[position]:
            missing[consumer] -= 1
    order = [position for position, count in enumerate(missing) if not count]
    for position in order:  # grows while it is read
        if position in closing:
            continue
        for consumer in consumers[position]:
            missing[consumer] -= 1
            if not missing[consumer]:
                order.append(consumer)
    if len(order) < len(nodes):
        done = set(order)
        order += [position for position in range(len(nodes)) if position not in done]
    return order
