"""Takes a plan's edits back, to see that nothing else was changed: what is left must be the original, byte by byte.

    original  --apply-->  rewritten  --taken back-->  original?

`planner.edges` has compared names, ops, devices and edges, and that dtypes are the planned ones. Here they are set
back, unread, and what remains speaks for all other attributes, for the function library and for every node that no
edit names.
"""

from itertools import chain
from typing import Any, Collection, Iterable, Iterator, Sequence

import tensorflow.compat.v1 as tf

from ..errors import VerifyError
from ..graph import folding
from ..graph.emulation import ROUNDED
from ..graph.graph_view import KEEP, MOVED, Node
from ..planner.casts import CastEdit
from ..planner.decisions import Plan
from ..tables.dtypes import LOW
from . import constants

CAST_ATTRIBUTES = frozenset({"SrcT", "DstT", "Truncate", ROUNDED})
CONSTANT_ATTRIBUTES = frozenset({"dtype", "value", ROUNDED})
FULL_TYPE = "experimental_type"  # of nodes, TensorFlow 2 only; apply clears what it has noted of dtypes


def require_original(plan: Plan, before: Any, after: Any, touched: Collection[int]) -> None:
    """Checks a rewritten graph for changes that are none of the plan's.

    Args:
        plan: what was applied; `planner.verify` has accepted the names and edges of the result.
        before: the tf.compat.v1.GraphDef that it was made for.
        after: the rewritten GraphDef, its nodes in the order of `before`, then the inserted ones.
        touched: positions of the nodes that the plan's edits concern.

    Raises:
        VerifyError: with every violation.
    """
    reversed_ = _copy(after)
    del reversed_.node[len(before.node) :]
    _take_back(plan, before.node, reversed_.node, touched)
    violations = [*_inserted_stay_plain(plan, before, after)]
    if _bytes(before) != _bytes(reversed_):
        violations += [*_differences(before, reversed_)] or ["the graph has changed outside of its nodes"]
    if violations:
        raise VerifyError(violations)


def _take_back(plan: Plan, before: Sequence[Any], left: Sequence[Any], touched: Iterable[int]) -> None:
    """Sets back what the plan's edits may change in the nodes that they concern, and nothing else."""
    for boundary in plan.edits.boundaries:
        left[boundary.node].name = before[boundary.node].name
    for position in touched if plan.edits.boundaries else ():  # readers of what was renamed
        left[position].input[:] = before[position].input
    for position, number in chain(plan.edits.reconnections, *(cast.consumers for cast in plan.casts)):
        left[position].input[number] = before[position].input[number]
    for position, becomes in plan.changed_nodes().items():
        _take_dtypes_back(left[position], before[position], plan.view.nodes[position], becomes)
    for position in plan.running.ways:
        _take_mark_back(left[position], before[position], ROUNDED)
    for position in plan.moved_nodes():
        _take_mark_back(left[position], before[position], MOVED)


def _take_dtypes_back(proto: Any, was: Any, node: Node, becomes: Sequence[int]) -> None:
    proto.op = was.op
    for slot, old, new in zip(node.layout.slots, node.dtypes, becomes):
        if slot.attr not in was.attr:
            proto.attr.pop(slot.attr, None)
        elif slot.index is not None:
            proto.attr[slot.attr].list.type[slot.index] = old
        elif old != new:
            proto.attr[slot.attr].type = old
    if FULL_TYPE in proto.DESCRIPTOR.fields_by_name and was.HasField(FULL_TYPE):
        proto.experimental_type.CopyFrom(was.experimental_type)


def _take_mark_back(proto: Any, was: Any, mark: str) -> None:
    if mark in was.attr:
        proto.attr[mark].CopyFrom(was.attr[mark])
    else:
        proto.attr.pop(mark, None)


def _differences(before: Any, after: Any) -> Iterator[str]:
    """One line for each node that is not its original again, and for all else in which two graphs differ."""
    for was, now in zip(before.node, after.node):
        if _bytes(was) != _bytes(now):
            yield "'%s' (%s) has changed in %s" % (was.name, was.op, ", ".join(_parts(was, now)))
    for name in ("library", "versions"):
        if _bytes(getattr(before, name)) != _bytes(getattr(after, name)):
            yield "the graph's %s has changed" % name


def _parts(was: Any, now: Any) -> Iterator[str]:
    """What two nodes differ in, with what was and what is."""
    for field in ("name", "op", "device", "input"):
        old, new = getattr(was, field), getattr(now, field)
        if old != new:
            yield "%s: was %s, is %s" % (field, _short(old), _short(new))
    for attr in sorted({*was.attr, *now.attr}):
        values = [node.attr.get(attr) for node in (was, now)]
        old, new = ("absent" if value is None else _short(value) for value in values)
        if None in values or _bytes(values[0]) != _bytes(values[1]):
            yield "attribute %s: was %s, is %s" % (attr, old, new)


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 60 else text[:57] + "..."


def _bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString(deterministic=True))


def _copy(message: Any) -> Any:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def _inserted_stay_plain(plan: Plan, before: Any, after: Any) -> Iterator[str]:
    """Inserted nodes have the attributes of their kind, and constants the rounded values of what they stand for."""
    inserted = {node.name: node for node in after.node[len(before.node) :]}
    for cast in plan.casts:
        node = inserted[cast.name]
        allowed = CONSTANT_ATTRIBUTES if cast.folded else CAST_ATTRIBUTES
        if not allowed.issuperset(node.attr) or (ROUNDED in node.attr and node.attr[ROUNDED].type not in LOW):
            yield "the inserted '%s' has other attributes than its kind" % cast.name
        elif not cast.folded and node.attr["Truncate"].b:
            yield "the inserted '%s' truncates" % cast.name
        elif cast.folded and not _holds(node, folding.value(plan.view, cast.source, _reader(before)), cast):
            yield "the inserted constant '%s' is not %s in its dtype" % (cast.name, cast.tensor)
    for boundary in plan.edits.boundaries:
        name = plan.view.nodes[boundary.node].name
        if len(boundary.casts) > 1 and set(inserted[name].attr) != {"T", KEEP}:
            yield "the inserted '%s' has other attributes than its kind" % name


def _holds(node: Any, value: Any, cast: CastEdit) -> bool:
    """Whether a Const has a value, rounded as its cast says."""
    wanted = constants.rounded_to(cast, value)
    held = tf.make_ndarray(node.attr["value"].tensor)
    return held.shape == wanted.shape and held.dtype == wanted.dtype and held.tobytes() == wanted.tobytes()


def _reader(graph_def: Any) -> Any:
    return lambda position: tf.make_ndarray(graph_def.node[position].attr["value"].tensor)
