"""Values that are known before the graph runs: a constant that somebody needs in low precision is written so, not cast.

Grappler folds casts of constants in a later pass of its own; a graph that is rewritten offline has no later pass.
"""

import operator
from typing import Any, Callable, Dict, List

from .dtypes import FLOAT32
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


def known(view: GraphView, port: Port, most: int = LARGEST) -> bool:
    """Whether an output is a float32 constant of at most `most` elements, or arithmetic on such of one element each."""
    node = view.nodes[port.node]
    if port in view.fed or node.dtypes[:1] != (FLOAT32,):
        return False
    if node.op == "Const":
        return view.elements(port.node) <= most
    return node.op in ARITHMETIC and not node.controls and all(known(view, source, 1) for source in node.inputs)


def value(view: GraphView, port: Port, constant: Callable[[int], Any]) -> Any:
    """The value of a known output, a numpy array like those that `constant` gives for the Const at a position."""
    node = view.nodes[port.node]
    if node.op == "Const":
        return constant(port.node)
    return ARITHMETIC[node.op](*(value(view, source, constant) for source in node.inputs))


def controls(view: GraphView, port: Port) -> List[int]:
    """Positions of the control inputs that hold a known output in its place: in a loop they say which loop it is in."""
    node = view.nodes[port.node]
    return sorted({*node.controls, *(c for source in node.inputs for c in controls(view, source))})
