"""Rules about values that float16 cannot hold.

Constants (-1e9 becomes infinity, 1e-8 zero), masks that are made of such, results whose range exceeds 65504 for any
feed, squares and exponentials that are rounded, and integers known to exceed 2048, which float16 rounds.
"""

import functools
from typing import Any, Iterator, Optional, Sequence, Tuple

import numpy as np

from ..graph.facts import Facts
from ..graph.graph_view import GraphView, Node, Port
from ..planner.casts import INTEGERS
from ..tables.dtypes import FLOAT16, FLOAT32, INFINITE_FROM, ZERO_UP_TO
from ..tables.dtypes import name as dtype_name
from . import divisions
from .seen import MOVES, WAY_OUT, Finding, Seen, told

WHOLE = 2048.0  # up to here float16 holds every integer
SMALL_INTEGERS = ("bool", "int8", "uint8")
GROWS = {"Square": "255", "Pow": "255 for a square, 40 for a cube", "Exp": "11", "Expm1": "11"}  # op -> inputs above
# ops whose result may be much larger than their inputs; a sum of a few terms overflows only if they nearly do
MULTIPLIES = ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Conv2D", "Mul", "RealDiv", "Square")
COUNTERS = ("VariableV2", "Variable", "ReadVariableOp")
NOT_NEGATIVE = ("Square", "SquaredDifference", "Abs", "Exp", "Relu", "Softplus", "Sqrt", "Sigmoid", "Relu6")
# op -> the inputs whose elements its result has: all of them where the tuple is empty
PARTS = {"Select": (1, 2), "SelectV2": (1, 2), "ConcatV2": (), "Pack": (), "PadV2": (0, 2), "Fill": (1,)}
DEEP = 16  # ops that a rule looks through
NAMED = 3  # readers of a constant that a warning names


def lost_constants(seen: Seen) -> Iterator[str]:
    """Constants that a cast to the low dtype turns into infinity or zero; TensorFlow makes one of equal ones."""
    guards = functools.lru_cache(maxsize=None)(lambda: {guard.position for guard in divisions.guards(seen)})
    # a tensor has a Cast for each device that reads it
    casts = [cast for cast, _ in seen.down if not cast.clamped]
    tensors = {cast.source: cast.tensor for cast in casts if cast.folded or _is_constant(seen, cast.source)}
    for source, tensor in tensors.items():
        assert isinstance(source, Port)  # as `seen.down` has them
        values = seen.evaluated(source)
        lost = _lost(seen, values)
        if not lost:
            continue
        readers = {*seen.rounded[source]}
        if np.abs(values).max() <= ZERO_UP_TO:
            readers -= guards()  # epsilons have a rule of their own
        if readers:
            told = _named([seen.plan.view.nodes[position] for position in readers])
            yield "constant '%s' has %s in %s, and %s; %s" % (tensor, lost, seen.low, told, WAY_OUT)


def _is_constant(seen: Seen, source: object) -> bool:
    return isinstance(source, Port) and seen.node(source).op == "Const"


def _named(readers: Sequence[Node]) -> str:
    """Says which nodes read something: the first by name, two others, and how many more."""
    first, *others = ["'%s' (op %s)" % (node.name, node.op) for node in sorted(readers, key=lambda node: node.name)]
    if not others:
        return "%s reads it" % first
    shown = others[: NAMED - 1]
    if len(others) > len(shown):
        shown.append("%d more" % (len(others) - len(shown)))
    *front, last = shown
    if not front:
        return "%s reads it, as does %s" % (first, last)
    return "%s reads it, as do %s and %s" % (first, ", ".join(front), last)


def _lost(seen: Seen, values: Any) -> str:
    """What the worst value becomes in the low dtype, in words; "" if none is lost."""
    size = np.abs(values)
    big = _largest(seen, values)
    if big is not None:
        return "%g, which becomes infinity" % big
    small = values[(size > 0) & (size <= (ZERO_UP_TO if seen.plan.policy.low == FLOAT16 else 0.0))]
    return "%g, which becomes zero" % small[np.argmin(np.abs(small))] if small.size else ""


def _largest(seen: Seen, values: Any) -> Optional[float]:
    """The largest finite value that the low dtype rounds to infinity."""
    size = np.where(np.isfinite(values), np.abs(values), 0.0)
    return float(values.flat[size.argmax()]) if size.size and size.max() >= seen.limits.infinite_from else None


def clamped_constants(seen: Seen) -> Iterator[str]:
    """Constants beyond the low dtype that are clamped, since only their size matters."""
    text = (
        "constant '%%s'%s has %%g, which %%s has not, and stands for a number that hides others: it is %%g for '%%s' "
        "(op %%s); a keep_dtype_scope around that keeps float32"
    )
    findings = []
    for cast, reader in seen.down:
        if cast.clamped:
            assert isinstance(cast.source, Port)  # as `seen.down` has them
            worst = _largest(seen, seen.evaluated(cast.source)) or 0.0
            values = (cast.tensor, worst, seen.low, np.copysign(seen.limits.largest, worst), reader.name, reader.op)
            findings.append(((worst, reader.op), Finding(text, values)))
    yield from told(findings)


def carried_constants(seen: Seen) -> Iterator[str]:
    """Large constants that a mask or a choice carries, in float32, to where they are rounded."""
    findings = []
    for cast, reader in seen.down:
        source = cast.source
        assert isinstance(source, Port)  # as `seen.down` has them
        if cast.folded or cast.source_dtype != FLOAT32 or seen.node(source).op == "Const":
            continue
        worst = _carried(seen, source)
        if worst is not None:
            node = seen.node(source)
            text = (
                "'%%s' (op %%s)%s holds %%g, which becomes infinity where it is rounded to %%s for '%%s' (op %%s); "
                "%%s"
            )
            values = (node.name, node.op, worst, seen.low, reader.name, reader.op, WAY_OUT)
            findings.append(((worst, node.op, reader.op), Finding(text, values)))
    yield from told(findings)


def _carried(seen: Seen, port: Port, left: int = DEEP) -> Optional[float]:
    """The largest finite constant beyond the low dtype that a tensor holds as it is; None if none is known."""
    port = seen.origin(port)
    node = seen.node(port)
    constant = seen.constant(port)
    if constant is not None:
        return _largest(seen, constant)
    if not left or port in seen.plan.view.fed:
        return None
    if node.op == "Mul":
        masked = [other for mask, other in (node.inputs, node.inputs[::-1]) if _is_mask(seen, mask)]
    else:
        numbers = PARTS.get(node.op, (-1,)) or range(len(node.inputs))
        masked = [node.inputs[number] for number in numbers if number >= 0]
    constants = [constant for constant in (_carried(seen, other, left - 1) for other in masked) if constant is not None]
    return max(constants, key=abs) if constants else None


def _is_mask(seen: Seen, port: Port, left: int = DEEP) -> bool:
    """Whether a tensor is a mask: whole numbers as floats, or one less such."""
    source = seen.origin(port)
    node = seen.node(source)
    if node.op == "Sub" and left:
        return any(_is_mask(seen, taken, left - 1) for taken in node.inputs)
    return node.op == "Cast" and dtype_name(node.input_dtype(0)) in INTEGERS


def overflows(seen: Seen) -> Iterator[str]:
    """Low-precision ops whose result may overflow float16 although their inputs do not."""
    plan, facts = seen.plan, seen.facts
    for position in plan.view.of_ops(MULTIPLIES):
        node = plan.view.nodes[position]
        if plan.becomes[plan.first[position]] != FLOAT16:
            continue
        reached = _reach(facts.range(Port(position, 0)))
        if reached >= INFINITE_FROM and all(_reach(facts.range(port)) < INFINITE_FROM for port in node.inputs):
            text = "'%s' (op %s) is computed in float16 and may reach %g, which becomes infinity; %s"
            yield text % (node.name, node.op, reached, WAY_OUT)


def _reach(limits: Optional[Tuple[float, float]]) -> float:
    return 0.0 if limits is None else max(abs(end) for end in limits)


def rounded_growth(seen: Seen) -> Iterator[str]:
    """Squares, powers and exponentials of open range whose results are rounded to float16, or computed in it."""
    for cast, reader in seen.down:
        assert isinstance(cast.source, Port)  # as `seen.down` has them
        source = seen.origin(cast.source)
        node = seen.node(source)
        squares = node.op == "Mul" and node.inputs[0] == node.inputs[1]
        if cast.source_dtype == FLOAT32 and (squares or node.op in GROWS) and _is_open(seen, source):
            text = "'%s' (op %s) is rounded to float16 for '%s' (op %s), and inputs above %s become infinity; %s"
            above = GROWS["Square" if squares else node.op]
            yield text % (node.name, node.op, reader.name, reader.op, above, WAY_OUT)
    findings = []
    for position in seen.plan.view.of_ops(["Exp", "Expm1", "Pow"]):
        node = seen.plan.view.nodes[position]
        if seen.is_lowered(position) and _is_open(seen, Port(position, 0)):
            text = "'%%s' (op %%s)%s is computed in float16, and inputs above %%s become infinity; %%s"
            values = (node.name, node.op, GROWS[node.op], WAY_OUT)
            findings.append((node.op, Finding(text, values)))
    yield from told(findings)


def _is_open(seen: Seen, port: Port) -> bool:
    """Whether nothing is known that keeps a growing result within float16."""
    limits = seen.facts.range(port)
    if limits is not None:
        return _reach(limits) >= INFINITE_FROM
    node = seen.node(port)
    if node.op == "Pow":
        exponent = seen.scalar(node.inputs[1])
        return exponent is None or exponent > 1 or exponent < 0
    return not (node.op in ("Exp", "Expm1") and _is_not_positive(seen, node.inputs[0]))


def _is_not_positive(seen: Seen, port: Port, left: int = DEEP) -> bool:
    """Whether a tensor is known to be zero or less: x less its maximum, or something times a negative number."""
    node = seen.node(seen.origin(port))
    if not left:
        return False
    if node.op == "Sub":
        most = seen.node(seen.origin(node.inputs[1]))
        return most.op == "Max" and seen.origin(most.inputs[0]) == seen.origin(node.inputs[0])
    if node.op == "Neg":
        return _is_not_negative(seen, node.inputs[0])
    if node.op in ("Mul", "RealDiv"):
        for one, other in (node.inputs, node.inputs[::-1]):
            factor = seen.scalar(other)
            if factor is not None and factor < 0 and _is_not_negative(seen, one):
                return node.op == "Mul" or other == node.inputs[1]
            if factor is not None and factor >= 0 and _is_not_positive(seen, one, left - 1):
                return node.op == "Mul" or other == node.inputs[1]
    return node.op in ("Sum", "Mean") and _is_not_positive(seen, node.inputs[0], left - 1)


def _is_not_negative(seen: Seen, port: Port, left: int = DEEP) -> bool:
    source = seen.origin(port)
    limits, node = seen.facts.range(source), seen.node(source)
    if (limits is not None and limits[0] >= 0) or node.op in NOT_NEGATIVE:
        return True
    if node.op == "Mul" and node.inputs[0] == node.inputs[1]:
        return True
    return node.op in ("Sum", "Mean") and left > 0 and _is_not_negative(seen, node.inputs[0], left - 1)


def whole_numbers(seen: Seen) -> Iterator[str]:
    """Integers and ranges of integers known to exceed 2048: one warning for all of them."""
    findings = []
    for cast, reader in seen.down:
        assert isinstance(cast.source, Port)  # as `seen.down` has them
        source = seen.origin(cast.source, (*MOVES, "Cast"))
        node = seen.node(source)
        dtype = dtype_name(node.output_dtype(source.port))
        if node.op == "Range" or (dtype in INTEGERS and dtype not in SMALL_INTEGERS):
            most = _most(seen.plan.view, seen.facts, source)
            if most > WHOLE:
                findings.append((node.name, dtype, "counts" if np.isinf(most) else "goes to %g," % most, reader))
    if findings:
        name, dtype, how, reader = findings[0]
        more = "" if len(findings) == 1 else " (and %d more like it)" % (len(findings) - 1)
        text = "'%s' (%s)%s %s above 2048, where float16 rounds whole numbers, and '%s' (op %s) reads it; %s"
        yield text % (name, dtype, more, how, reader.name, reader.op, WAY_OUT)


def _most(view: GraphView, facts: Facts, port: Port) -> float:
    """The known bound of an integer tensor: infinity for a counter in a variable, 0 where nothing is known."""
    limits = facts.range(port)
    if limits is not None:
        return _reach(limits)
    return np.inf if view.nodes[port.node].op in COUNTERS else 0.0
