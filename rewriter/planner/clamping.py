"""Constants whose size is all that matters stop at the largest finite number of a low dtype, in place of infinity.

    Const(-1e9) -> Select(mask, scores, .)     in float16 -65504; with -inf a row that is masked as a whole is NaN
    Const(1e10) -> Mul(x, .)                   in float16 infinity, which the lint tells: 65504 would be a wrong number
    Const(-inf) -> Select(mask, scores, .)     -inf: that is what its author wrote

Size matters alone where a value hides others: one that is added, chosen, compared, or a bound; a factor of a mask; and
what is made of such by moving it. Where its size counts after all, further on, carried.py keeps float32. Who else reads
the constant gets one of its own, so that this depends on no other reader.
"""

from typing import Dict, Iterable, List, Set

from ..graph.facts import Facts
from ..graph.graph_view import GraphView, Node, Port
from ..tables.dtypes import LOW
from ..tables.dtypes import name as dtype_name
from .casts import INTEGERS, CastEdit, Consumer, Edits, reserve_name

MOVES = frozenset((
    "Identity", "Reshape", "ExpandDims", "Squeeze", "Transpose", "StridedSlice", "Slice", "Tile", "StopGradient",
    "BroadcastTo", "Gather", "GatherV2", "Pack", "ConcatV2", "Enter", "Switch", "Merge", "NextIteration", "Exit",
))  # fmt: skip
HIDES = frozenset(("Add", "AddV2", "AddN", "Sub", "BiasAdd", "Select", "SelectV2", "Maximum", "Minimum"))
# what is compared with a number that hides has to be clamped as that is: -65504 > -inf, and -1e9 is not above -1e8
COMPARES = frozenset(("Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual"))
# op -> the inputs that its values are made of
FILLS = {"Fill": (1,), "OneHot": (2, 3), "PadV2": (2,)}
DEEP = 16  # ops that are looked through for a mask


def clamped(edits: Edits, view: GraphView, facts: Facts) -> Edits:
    """Returns the edits with the constants clamped that are beyond a low dtype where only their size matters.

    Args:
        edits: as `casts.find_edits` returns them.
        view: the graph.
        facts: what is known of its constants.
    """
    names = {node.name for node in view.nodes} | {cast.name for cast in edits.casts}
    behind: Dict[str, List[CastEdit]] = {}
    for cast in edits.casts:
        if isinstance(cast.source, str):
            behind.setdefault(cast.source, []).append(cast)
    changed: Dict[str, List[CastEdit]] = {}
    for cast in edits.casts:
        if cast.folded and cast.dtype in LOW and isinstance(cast.source, Port):
            whole = [cast, *behind.get(cast.name, ())]
            readers = [reader for edit in whole for reader in edit.consumers]
            sized = {reader for reader in readers if only_size_matters(view, *reader)}
            if sized and facts.overflows(cast.source, cast.dtype):
                changed.update(_divided(whole, sized, len(sized) == len(readers), names))
    if not changed:
        return edits
    casts = [new for cast in edits.casts for new in changed.get(cast.name, [cast])]
    return edits._replace(casts=tuple(sorted(casts, key=lambda cast: cast.name)))


def _divided(whole: List[CastEdit], sized: Set[Consumer], is_all: bool, names: Set[str]) -> Dict[str, List[CastEdit]]:
    """By name of each edit of a constant what takes its place: for some readers a clamped one, for others as it is."""
    first = whole[0]
    if is_all:
        return {first.name: [first._replace(clamped=True)]}
    own = reserve_name(first.name + "-clamped", names)
    result: Dict[str, List[CastEdit]] = {}
    for edit in whole:
        inside = tuple(reader for reader in edit.consumers if reader in sized)
        others = tuple(reader for reader in edit.consumers if reader not in sized)
        if edit is first:
            new = edit._replace(name=own, consumers=inside, clamped=True)
        else:
            new = edit._replace(name=reserve_name(edit.name + "-clamped", names), source=own, consumers=inside)
        result[edit.name] = [edit._replace(consumers=others), *([new] if inside or edit is first else [])]
    return result


def only_size_matters(view: GraphView, position: int, number: int) -> bool:
    """Whether all that counts of a large number is its size, for the node that reads it as this input."""
    node = view.nodes[position]
    if node.op == "Mul":
        return is_mask(view, node.inputs[1 - number])
    return node.op in HIDES or node.op in COMPARES or node.op in MOVES or number in FILLS.get(node.op, ())


def is_mask(view: GraphView, port: Port, left: int = DEEP) -> bool:
    """Whether a tensor is a mask: whole numbers as floats, or one less such; `left` ops are looked through."""
    node = view.nodes[port.node]
    if port in view.fed or not left:
        return False
    if node.op == "Cast":
        return dtype_name(node.input_dtype(0)) in INTEGERS
    return any(is_mask(view, taken, left - 1) for taken in _made_of(node))


def _made_of(node: Node) -> Iterable[Port]:
    if node.op == "Sub":
        return node.inputs
    return node.inputs[:1] if node.op in MOVES else ()
