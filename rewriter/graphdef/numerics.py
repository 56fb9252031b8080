"""What float16 cannot hold, said before it does harm: a warning for each place, with its name and the way out.

Only what can be told without running: constants (-1e9 becomes infinity, 1e-8 zero), results that reach past 65504
whatever is fed, squares and exponentials that are rounded, and whole numbers known to pass 2048, which float16 rounds.
"""

import numpy as np
import tensorflow.compat.v1 as tf

from ..graph import folding
from ..graph.graph_view import Port
from ..planner.casts import INTEGERS
from ..tables.dtypes import FLOAT16, FLOAT32, LOW
from ..tables.dtypes import name as dtype_name

LARGEST = 65520.0  # from here on float16 rounds to infinity
SMALLEST = 2.0**-25  # up to here float16 rounds to zero
WHOLE = 2048.0  # up to here float16 has all whole numbers
SMALL_INTEGERS = ("bool", "int8", "uint8")
GROWS = {"Square": "255", "Pow": "255 for a square, 40 for a cube", "Exp": "11", "Expm1": "11"}  # op -> inputs above
# ops whose result may be much larger than what they read; a sum of a few terms comes close only where they do
MULTIPLIES = ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Conv2D", "Mul", "RealDiv", "Square")
COUNTERS = ("VariableV2", "Variable", "ReadVariableOp")
WAY_OUT = "a keep_dtype_scope around that, or its op type on the black-list, keeps float32"


def warnings(plan, graph_def, facts):
    """Finds what a plan in float16 changes beyond rounding.

    Args:
        plan: a Plan made for `graph_def`.
        graph_def: tf.compat.v1.GraphDef.
        facts: the `facts.Facts` of the graph.

    Returns:
        Tuple of str, one warning a place, by what kind of place it is.
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
    """Constants that are cast to float16 although it changes them beyond rounding."""
    for cast, reader in _down(plan):
        if not cast.folded and plan.view.nodes[cast.source.node].op != "Const":
            continue
        with np.errstate(all="ignore"):
            constant = folding.value(plan.view, cast.source, lambda p: tf.make_ndarray(protos[p].attr["value"].tensor))
            lost = _lost(np.asarray(constant, np.float64))
        if lost:
            text = "constant '%s' has %s in float16, and '%s' (op %s) reads it; %s"
            yield text % (cast.tensor, lost, reader.name, reader.op, WAY_OUT)


def _down(plan):
    """(cast, node) for each Cast of a tensor to float16 that somebody reads, and the first who does, by name.

    A Cast of what is decided to be float16 is no such: it is but the way in which a float32 kernel gives it.
    """
    behind = {cast.source: cast.consumers for cast in plan.casts}  # who reads through the up-cast of a rounding
    for cast in plan.casts:
        readers = [*cast.consumers, *behind.get(cast.name, ())]
        if cast.dtype == FLOAT16 and isinstance(cast.source, Port) and readers and not _is_low(plan, cast.source):
            yield cast, min((plan.view.nodes[position] for position, _ in readers), key=lambda node: node.name)


def _is_low(plan, port):
    """Whether an output is low by decision."""
    slot = plan.view.nodes[port.node].layout.outputs[port.port]
    return slot >= 0 and plan.becomes[plan.first[port.node] + slot] in LOW


def _lost(values):
    """What float16 makes of the worst value, in words, or ""."""
    size = np.abs(values)
    big = values[np.isfinite(values) & (size >= LARGEST)]
    if big.size:
        return "%g, which becomes infinity" % big[np.argmax(np.abs(big))]
    small = values[(size > 0) & (size <= SMALLEST)]
    return "%g, which becomes zero" % small[np.argmin(np.abs(small))] if small.size else ""


def _overflows(plan, facts):
    """Low-precision ops whose result leaves float16 although all they read is in it."""
    for position, node in enumerate(plan.view.nodes):
        if node.op not in MULTIPLIES or plan.becomes[plan.first[position]] != FLOAT16:
            continue
        reached = _reach(facts.range(Port(position, 0)))
        if reached >= LARGEST and all(_reach(facts.range(port)) < LARGEST for port in node.inputs):
            text = "'%s' (op %s) is computed in float16 and may reach %g, which becomes infinity; %s"
            yield text % (node.name, node.op, reached, WAY_OUT)


def _reach(found):
    return 0.0 if found is None else max(abs(end) for end in found)


def _rounded_growth(plan, facts):
    """Squares, powers and exponentials in float32 whose results are rounded to float16."""
    for cast, reader in _down(plan):
        node = plan.view.nodes[cast.source.node]
        squares = node.op == "Mul" and node.inputs[0] == node.inputs[1]
        if cast.source_dtype != FLOAT32 or not (squares or node.op in GROWS):
            continue
        found = facts.range(cast.source)
        if found is None or _reach(found) >= LARGEST:
            text = "'%s' (op %s) is rounded to float16 for '%s' (op %s), and inputs above %s become infinity; %s"
            above = GROWS["Square" if squares else node.op]
            yield text % (node.name, node.op, reader.name, reader.op, above, WAY_OUT)


def _whole_numbers(plan, facts):
    """Integers, and ranges of whole numbers, that are known to pass what float16 has: one warning for all of them."""
    found = []
    for cast, reader in _down(plan):
        node, dtype = plan.view.nodes[cast.source.node], dtype_name(cast.source_dtype)
        if node.op == "Range" or (dtype in INTEGERS and dtype not in SMALL_INTEGERS):
            most = _most(plan.view, facts, cast.source)
            if most > WHOLE:
                found.append((cast, dtype, "counts" if np.isinf(most) else "goes to %g," % most, reader))
    if found:
        cast, dtype, most, reader = found[0]
        more = "" if len(found) == 1 else " (and %d more like it)" % (len(found) - 1)
        text = "'%s' (%s)%s %s above 2048, where float16 rounds whole numbers, and '%s' (op %s) reads it; %s"
        yield text % (cast.tensor, dtype, more, most, reader.name, reader.op, WAY_OUT)


def _most(view, facts, port):
    """How far whole numbers are known to go: their bound, infinity for a counter in a variable, 0 for the unknown."""
    found = facts.range(port)
    if found is not None:
        return _reach(found)
    node = view.nodes[port.node]
    while node.op in ("Identity", "Cast") and isinstance(node.inputs[0], Port):
        node = view.nodes[node.inputs[0].node]
    return np.inf if node.op in COUNTERS else 0.0
