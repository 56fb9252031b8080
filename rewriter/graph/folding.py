"""Constant folding: a constant that a consumer needs in low precision is written so instead of cast.

Grappler folds casts of constants in a later pass of its own; a graph that is rewritten offline has no later pass.
"""

import operator
from typing import Any, Callable, Dict, List, Optional, Set

from ..tables.dtypes import FLOAT32
from .graph_view import GraphView, Port

# elementwise arithmetic, e.g. the 1 / keep_prob of a dropout; only on single elements, so that a result is never large
ARITHMETIC: Dict[str, Callable[..., Any]] = {
    "Add": operator.add,
    "AddV2": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "RealDiv": operator.truediv,
    "Neg": operator.neg,
}
LARGEST = 1 << 20  # elements; a GraphDef has room for 2 GiB, and a large constant costs more there than a Cast
LONGEST = 64  # nodes of an expression; a longer one is computed by the graph, and cast


def known(view: GraphView, port: Port) -> bool:
    """Whether an output is a float32 constant of at most LARGEST elements, or arithmetic on such of one element each.

    Expressions of more than LONGEST nodes do not count, so that a graph full of them is read in time.
    """
    return _expression(view, port) is not None


def value(view: GraphView, port: Port, constant: Callable[[int], Any]) -> Any:
    """The value of a known output, a numpy array like those that `constant` gives for the Const at a position."""
    values: Dict[int, Any] = {}
    for position in _expression(view, port) or [port.node]:
        node = view.nodes[position]
        if node.op == "Const":
            values[position] = constant(position)
        else:
            values[position] = ARITHMETIC[node.op](*(values[source.node] for source in node.inputs))
    return values[port.node]


def controls(view: GraphView, port: Port) -> List[int]:
    """Positions of the control inputs of a known output; in a loop they tie it to its frame."""
    return sorted({control for position in _expression(view, port) or () for control in view.nodes[position].controls})


def _expression(view: GraphView, port: Port) -> Optional[List[int]]:
    """Positions of the nodes that compute an output, in topological order; None if it is not known."""
    if not _may_be_known(view, port, LARGEST):
        return None
    order: Dict[int, None] = {}
    opened: Set[int] = set()
    stack = [port]
    while stack:
        source = stack[-1]
        if source.node in order:
            stack.pop()
        elif source.node in opened:  # all that it reads is in order
            order[stack.pop().node] = None
        elif len(opened) == LONGEST or not _may_be_known(view, source, LARGEST if source == port else 1):
            return None
        else:
            opened.add(source.node)
            inputs = view.nodes[source.node].inputs
            if any(value.node in opened and value.node not in order for value in inputs):
                return None  # it reads itself, which is no graph that runs
            stack += inputs
    return list(order)


def _may_be_known(view: GraphView, port: Port, most: int) -> bool:
    """Whether an output is a constant of at most `most` elements, or arithmetic on what may be one."""
    node = view.nodes[port.node]
    if port in view.fed or node.dtypes[:1] != (FLOAT32,):
        return False
    if node.op == "Const":
        return port.node in view.sizes and view.sizes[port.node] <= most
    return node.op in ARITHMETIC and not node.controls
