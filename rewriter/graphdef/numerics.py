"""Warns of values that float16 cannot hold: each warning names the node and how to keep it in float32.

Static checks only: constants (-1e9 becomes infinity, 1e-8 zero), results whose range exceeds 65504 for any feed,
squares and exponentials that are rounded, and integers known to exceed 2048, which float16 rounds.
"""

from typing import Any, Tuple

import numpy as np
import tensorflow.compat.v1 as tf

from ..graph import folding
from ..graph.facts import Facts
from ..graph.graph_view import Port
from ..planner.casts import INTEGERS
from ..planner.decisions import Plan
from ..tables.dtypes import FLOAT16, FLOAT32, INFINITE_FROM, LOW, ZERO_UP_TO
from ..tables.dtypes import name as dtype_name

WHOLE = 2048.0  # up to here float16 holds every integer
SMALL_INTEGERS = ("bool", "int8", "uint8")
GROWS = {"Square": "255", "Pow": "255 for a square, 40 for a cube", "Exp": "11", "Expm1": "11"}  # op -> inputs above
# ops whose result may be much larger than their inputs; a sum of a few terms overflows only if they nearly do
MULTIPLIES = ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Conv2D", "Mul", "RealDiv", "Square")
# ops that hand on some of the values of their first input, and no others
MOVES = ("Identity", "Reshape", "ExpandDims", "Squeeze", "Transpose", "StridedSlice", "Slice", "Tile", "StopGradient")
COUNTERS = ("VariableV2", "Variable", "ReadVariableOp")
WAY_OUT = "a keep_dtype_scope around that, or its op type on the black-list, keeps float32"


def warnings(plan: Plan, graph_def: Any, facts: Facts) -> Tuple[str, ...]:
    """Finds values that a float16 plan changes by more than rounding.

    Args:
        plan: a Plan made for `graph_def`.
        graph_def: tf.compat.v1.GraphDef.
        facts: the `facts.Facts` of the graph.

    Returns:
        Tuple of str, one warning for each node or constant, grouped by kind.
    """
    if plan.policy.low != FLOAT16:
        return ()
    return (
        *_lost_constants(plan, graph_def.node),
        *_overflows(plan, facts),
        *_rounded_growth(plan, facts),
        *_whole_numbers(plan, facts),
    )


def _lost_constants(plan, protos):
    """Constants that a cast to float16 turns into infinity or zero."""
    for cast, reader in _down_casts(plan):
        if not cast.folded and plan.view.nodes[cast.source.node].op != "Const":
            continue
        with np.errstate(all="ignore"):
            constant = folding.value(plan.view, cast.source, lambda p: tf.make_ndarray(protos[p].attr["value"].tensor))
            lost = _lost(np.asarray(constant, np.float64))
        if lost:
            text = "constant '%s' has %s in float16, and '%s' (op %s) reads it; %s"
            yield text % (cast.tensor, lost, reader.name, reader.op, WAY_OUT)


def _down_casts(plan):
    """(cast, node) for each Cast of a tensor to float16 that has consumers, and the first consumer by name.

    The Cast of an output that was itself lowered does not count: it rounds the result of a float32 kernel.
    """
    behind = {cast.source: cast.consumers for cast in plan.casts}  # consumers behind the up-cast of a rounding
    for cast in plan.casts:
        readers = [*cast.consumers, *behind.get(cast.name, ())]
        if cast.dtype == FLOAT16 and isinstance(cast.source, Port) and readers and not _is_low(plan, cast.source):
            yield cast, min((plan.view.nodes[position] for position, _ in readers), key=lambda node: node.name)


def _origin(view, port, moves=MOVES):
    """The output that a value comes from, through ops that only hand values on."""
    while view.nodes[port.node].op in moves and port not in view.fed:
        port = view.nodes[port.node].inputs[0]
    return port


def _is_low(plan, port):
    """Whether the plan lowers an output."""
    slot = plan.view.nodes[port.node].layout.outputs[port.port]
    return slot >= 0 and plan.becomes[plan.first[port.node] + slot] in LOW


def _lost(values):
    """What the worst value becomes in float16, in words; "" if none is lost."""
    size = np.abs(values)
    big = values[np.isfinite(values) & (size >= INFINITE_FROM)]
    if big.size:
        return "%g, which becomes infinity" % big[np.argmax(np.abs(big))]
    small = values[(size > 0) & (size <= ZERO_UP_TO)]
    return "%g, which becomes zero" % small[np.argmin(np.abs(small))] if small.size else ""


def _overflows(plan, facts):
    """Low-precision ops whose result may overflow float16 although their inputs do not."""
    for position, node in enumerate(plan.view.nodes):
        if node.op not in MULTIPLIES or plan.becomes[plan.first[position]] != FLOAT16:
            continue
        reached = _reach(facts.range(Port(position, 0)))
        if reached >= INFINITE_FROM and all(_reach(facts.range(port)) < INFINITE_FROM for port in node.inputs):
            text = "'%s' (op %s) is computed in float16 and may reach %g, which becomes infinity; %s"
            yield text % (node.name, node.op, reached, WAY_OUT)


def _reach(found):
    return 0.0 if found is None else max(abs(end) for end in found)


def _rounded_growth(plan, facts):
    """Squares, powers and exponentials in float32 whose results are rounded to float16."""
    for cast, reader in _down_casts(plan):
        source = _origin(plan.view, cast.source)
        node = plan.view.nodes[source.node]
        squares = node.op == "Mul" and node.inputs[0] == node.inputs[1]
        if cast.source_dtype != FLOAT32 or not (squares or node.op in GROWS):
            continue
        found = facts.range(source)
        if found is None or _reach(found) >= INFINITE_FROM:
            text = "'%s' (op %s) is rounded to float16 for '%s' (op %s), and inputs above %s become infinity; %s"
            above = GROWS["Square" if squares else node.op]
            yield text % (node.name, node.op, reader.name, reader.op, above, WAY_OUT)


def _whole_numbers(plan, facts):
    """Integers and ranges of integers known to exceed 2048: one warning for all of them."""
    found = []
    for cast, reader in _down_casts(plan):
        source = _origin(plan.view, cast.source, (*MOVES, "Cast"))
        node = plan.view.nodes[source.node]
        dtype = dtype_name(node.output_dtype(source.port))
        if node.op == "Range" or (dtype in INTEGERS and dtype not in SMALL_INTEGERS):
            most = _most(plan.view, facts, source)
            if most > WHOLE:
                found.append((node.name, dtype, "counts" if np.isinf(most) else "goes to %g," % most, reader))
    if found:
        name, dtype, most, reader = found[0]
        more = "" if len(found) == 1 else " (and %d more like it)" % (len(found) - 1)
        text = "'%s' (%s)%s %s above 2048, where float16 rounds whole numbers, and '%s' (op %s) reads it; %s"
        yield text % (name, dtype, more, most, reader.name, reader.op, WAY_OUT)


def _most(view, facts, port):
    """The known bound of an integer tensor: infinity for a counter in a variable, 0 where nothing is known."""
    found = facts.range(port)
    if found is not None:
        return _reach(found)
    return np.inf if view.nodes[port.node].op in COUNTERS else 0.0
