"""The rule about loss scales: a fixed one that is beyond float16, whoever multiplies the loss by it.

gradient = tf.gradients(loss * 2**32, w) / 2**32    a float16 gradient on the way is infinity where it is above 2**-16

It is told by the division, at the optimizer: the product with the loss is often a part of other constants by now. An L2
loss times 1e-6 looks alike, so that only powers of two count.
"""

import math
import re
from typing import Dict, Iterator, Optional, Set

from ..graph.graph_view import Node, Port
from ..tables.dtypes import INFINITE_FROM
from .seen import MOVES, Seen

OPTIMIZER_STEP = re.compile(r"(Resource)?(Sparse)?Apply[A-Z]\w*$")
# what stands between an optimizer and the division: clipping, the choice of finite steps, conversions
BETWEEN = (*MOVES, "Cast", "Enter", "Switch", "Merge", "Select", "SelectV2", "Mul", "RealDiv", "Reciprocal", "Inv")
TEXT = (
    "a fixed loss scale of %g is divided out of the gradients of '%s' (op %s): what it lifts beyond 65504 is infinity "
    "in float16, so weights become NaN, or steps are skipped forever; take one below 65504, one that falls after an "
    "overflow, bfloat16, or float16 that saturates"
)
DEEP = 16  # nodes that the rule looks through for an optimizer's step


def fixed_scales(seen: Seen) -> Iterator[str]:
    """Gradients that are divided by a constant power of two beyond float16."""
    if not seen.plan.changed or seen.plan.policy.saturates:
        return
    steps: Dict[float, Node] = {}
    for node in seen.plan.view.nodes:
        scale = _divisor(seen, node) if OPTIMIZER_STEP.match(node.op) else None
        if scale is not None:
            steps.setdefault(scale, node)
    for scale, node in steps.items():
        yield TEXT % (scale, node.name, node.op)


def _divisor(seen: Seen, step: Node) -> Optional[float]:
    """The power of two beyond float16 by which a gradient of an optimizer's step is divided; None if there is none."""
    waiting = list(step.inputs)
    known: Set[int] = set()
    while waiting and len(known) < DEEP:
        port = waiting.pop(0)
        node = seen.node(port)
        if port.node in known or node.op not in BETWEEN or port in seen.plan.view.fed:
            continue
        known.add(port.node)
        scale = _divides_by(seen, node)
        if scale is not None:
            return scale
        waiting += node.inputs
    return None


def _divides_by(seen: Seen, node: Node) -> Optional[float]:
    """The number that a node divides by, where it is a power of two beyond float16."""
    if node.op == "Mul":
        factors = (_reciprocal(seen, port) for port in node.inputs)
        divisors = [factor for factor in factors if factor is not None]
    else:
        divisor = _scalar(seen, node.inputs[1]) if node.op == "RealDiv" else None
        divisors = [] if divisor is None else [divisor]
    return next((number for number in divisors if _is_scale(number)), None)


def _reciprocal(seen: Seen, port: Port) -> Optional[float]:
    """One over a constant factor."""
    node = seen.node(seen.origin(port, (*MOVES, "Enter")))
    if node.op in ("Reciprocal", "Inv"):
        return _scalar(seen, node.inputs[0])
    factor = _scalar(seen, port)
    return 1 / factor if factor else None


def _scalar(seen: Seen, port: Port) -> Optional[float]:
    return seen.scalar(seen.origin(port, (*MOVES, "Enter")))


def _is_scale(number: float) -> bool:
    return INFINITE_FROM <= number < math.inf and math.frexp(number)[0] == 0.5
