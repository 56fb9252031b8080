"""Emulation: lowered ops whose low-precision kernel is too slow, or refuses, run float32's kernel on rounded values.

    what is decided                x -> MatMul (float16) -> Relu (float16) -> MatMul (float16) -> Tanh (float16)
    on a CPU it runs as            x -> [Casts] -> MatMul -> [Casts] -> Relu -> MatMul (all float32) -> [Cast] -> Tanh

Low inputs, float32 sums, a low result: that is what matrix units compute. The decisions are the same as with a fast
kernel; only the way of running differs. Two casts, down and up again, round a float32 tensor. An op that only passes
values on, such as Relu, stays float32 between such ops and needs no casts. `slow_kernels.py` lists these ops.
"""

import enum
from typing import Collection, Dict, List, NamedTuple, Sequence

from ..tables.dtypes import FLOAT32, LOW
from ..tables.slow_kernels import EXACT
from .graph_view import GraphView, Node, is_border
from .kernel_table import KernelTable

# attribute of such nodes and of the casts around them: the low dtype that they emulate; no compiler may fuse them
ROUNDED = "_npu_shim_rounded"


class Way(enum.Enum):
    """How a lowered op runs."""

    KERNEL = "kernel of its dtype"
    ROUNDED = "float32 kernel on rounded values, its result rounded: the CPU's low-precision kernel is slow or partial"
    CARRIED = "float32 kernel that hands rounded values on to such an op"
    ROUNDS = "rounds what such an op gives"


class Running(NamedTuple):
    """How the decisions run.

    Attributes:
        runs: the dtypes of the slots as they are written into the graph, one entry a slot as in `becomes`.
        ways: positions of the nodes that run in another way than by the kernel of their dtype.
    """

    runs: List[int]
    ways: Dict[int, Way]


class Fixed(NamedTuple):
    """What may not be changed node by node.

    Attributes:
        kept: positions of nodes that run in the dtypes that are decided.
        together: for each loop variable that goes round as it came in, the positions that change as one.
    """

    kept: Collection[int]
    together: Sequence[Sequence[int]] = ()


def emulate(
    view: GraphView,
    first: Sequence[int],
    becomes: Sequence[int],
    kernels: KernelTable,
    fixed: Fixed,
    consumers: Sequence[Sequence[int]],
) -> Running:
    """Finds the nodes whose low slots run as float32.

    Args:
        view: the graph.
        first: position of each node's first slot in `becomes`.
        becomes: the decided dtypes.
        kernels: what runs where, and how.
        fixed: what may not be changed.
        consumers: positions of the nodes that read each node's outputs.
    """
    ways: Dict[int, Way] = {}
    runs = list(becomes)
    for position, node in enumerate(view.nodes) if kernels.slow else ():
        if node.layout.op in kernels.slow and position not in fixed.kept:
            start = first[position]
            dtypes = tuple(becomes[start : start + len(node.dtypes)])
            instead = kernels.runs_in(node.layout, node.device, dtypes)
            if instead != dtypes:
                runs[start : start + len(dtypes)] = instead
                ways[position] = Way.CARRIED if node.op in EXACT else Way.ROUNDED
    running = Running(runs, ways)
    if ways:
        _Carrier(view, first, running, kernels, fixed, consumers).carry()
        _keep_rounding(view, first, running, consumers)
    return running


def _keep_rounding(view: GraphView, first: Sequence[int], running: Running, consumers: Sequence[Sequence[int]]) -> None:
    """Lets an existing Cast to the low dtype round the result, so that a second rewrite changes nothing."""
    runs = running.runs
    for position in list(running.ways):
        for reader in consumers[position]:
            node = view.nodes[reader]
            if node.op == "Cast":
                source, target = first[reader] + node.layout.inputs[0], first[reader] + node.layout.outputs[0]
                if runs[source] in LOW and runs[source] == runs[target]:
                    runs[source] = FLOAT32
                    running.ways[reader] = Way.ROUNDS


def already_rounded(nodes: Sequence[Node], kernels: KernelTable) -> List[int]:
    """Positions of the nodes that an earlier rewrite emulated and that still need it: a second one keeps them."""
    if not kernels.slow:
        return []
    marked = (position for position, node in enumerate(nodes) if node.rounded and node.op != "Cast")
    return [position for position in marked if kernels.on_cpu(nodes[position].device)]


def gives_rounded(node: Node, k: int) -> bool:
    """Whether slot k of such a node is one that stands for the low dtype, not one of statistics in float32."""
    admits = node.layout.admits[k]
    return node.dtypes[k] == FLOAT32 and (admits is None or node.rounded in admits)


class _Carrier:
    """Keeps ops that only pass values on in float32 if a consumer takes float32 from them.

    A weight that enters a loop is such a case: each iteration would cast it up.
    """

    def __init__(
        self,
        view: GraphView,
        first: Sequence[int],
        running: Running,
        kernels: KernelTable,
        fixed: Fixed,
        consumers: Sequence[Sequence[int]],
    ) -> None:
        self._nodes, self._first, self._consumers = view.nodes, first, consumers
        self._running, self._kernels = running, kernels
        # what goes into or out of a function has the decided dtype on both sides
        whole = [unit for unit in fixed.together if not any(is_border(view.nodes[position]) for position in unit)]
        self._units: Dict[int, Sequence[int]] = {position: unit for unit in whole for position in unit}
        single = [
            position
            for position, node in enumerate(view.nodes)
            if node.op in EXACT and position not in fixed.kept and not is_border(node)
        ]
        self._units.update({position: (position,) for position in single if position not in self._units})

    def carry(self) -> None:
        """Finds all such ops, from the end on; what is read by one that has become float32 is asked again."""
        waiting = list(self._units.values())
        while waiting:
            unit = waiting.pop()
            if all(map(self._is_low, unit)) and any(self._feeds_float32(position, unit) for position in unit):
                for position in unit:
                    self._running.runs[self._first[position]] = FLOAT32
                    self._running.ways[position] = Way.CARRIED
                read = [port.node for position in unit for port in self._nodes[position].inputs]
                waiting += [self._units[giver] for giver in read if giver in self._units]

    def _is_low(self, position: int) -> bool:
        return self._running.runs[self._first[position]] in LOW and self._kernels.on_cpu(self._nodes[position].device)

    def _feeds_float32(self, position: int, unit: Sequence[int]) -> bool:
        """Whether somebody outside the unit takes float32 from a node."""
        runs = self._running.runs
        for reader in self._consumers[position]:
            node = self._nodes[reader]
            for slot, port in zip(node.layout.inputs, node.inputs) if reader not in unit else ():
                if port.node == position and (runs[self._first[reader] + slot] if slot >= 0 else ~slot) == FLOAT32:
                    return True
        return False
