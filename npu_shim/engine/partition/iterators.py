"""The iterators of tf.data that a run of the session reads, and whether their elements may be read before it.

    IteratorV2 -> MakeIterator (the dataset's nodes)      it begins anew
    IteratorV2 -> IteratorGetNext                         it is read

An element that is read ahead is kept, and fed to the run that would have read it: so nothing else may be done with the
iterator. Its dataset is asked earlier than the script asks: `auto` wants that nobody can tell.
"""

from __future__ import annotations

from typing import Any, Iterable, Mapping, NamedTuple

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.graph.walks import reached
from npu_shim.xla.passes import writers

ITERATORS = ("Iterator", "IteratorV2", "OneShotIterator")
NEXT, START = ("IteratorGetNext", "IteratorGetNextSync"), "MakeIterator"
NAMES, BY_NAME = "IteratorToStringHandle", ("IteratorFromStringHandle", "IteratorFromStringHandleV2")
# what others may change, or what changes others, when an element is read
SHARED = (
    "PyFunc", "Variable", "VarHandle", "Queue", "Iterator", "Generator", "Print",
    "Mutable", "Stage", "Barrier", "Accumulator", "Timestamp",
)  # fmt: skip


class Reads(NamedTuple):
    """What a run does to iterators.

    Attributes:
        nexts: the operations by which it reads them, in no order.
        begun: the operations, in ITERATORS, of those that it has begin anew.
        others: (operation, that of the iterator or None for any), of what else it does: what `why_not_ahead` asks for.
    """

    nexts: tuple[Any, ...] = ()
    begun: tuple[Any, ...] = ()
    others: tuple[tuple[Any, Any], ...] = ()


def of_run(graph: tf.Graph, nodes: Iterable[str], fed: frozenset[str]) -> Reads:
    """Returns the Reads of a run.

    Args:
        graph: the session's.
        nodes: names of what it fetches or runs.
        fed: names of the tensors that it feeds.
    """

    def sources(operation: Any) -> list[Any]:
        return [*operation.control_inputs, *(x.op for x in operation.inputs if x.name not in fed)]

    reachable = list(reached(map(graph.get_operation_by_name, nodes), sources))
    nexts = [one for one in reachable if one.type in NEXT and not fed.issuperset(x.name for x in one.outputs)]
    begun = [one.inputs[1].op for one in reachable if one.type == START]
    return Reads(tuple(nexts), tuple(begun), tuple(other for one in reachable for other in _others(one)))


def _others(operation: Any) -> list[tuple[Any, Any]]:
    """(the operation, an iterator's, None for any) for what it does with iterators but to read or begin them."""
    waits = [(operation, one.inputs[0].op) for one in operation.control_inputs if one.type in NEXT]
    if operation.type in BY_NAME:
        return [*waits, (operation, None)]
    if operation.type in (*NEXT, START, NAMES):
        return waits
    return [*waits, *((operation, x.op) for x in operation.inputs if x.op.type in ITERATORS)]


def why_not_ahead(graph: tf.Graph, iterator: Any, bodies: Mapping[str, Any] | None) -> str:
    """Says why elements of an iterator are not read ahead, "" if they may be.

    Args:
        graph: the session's.
        iterator: operation that makes its handle.
        bodies: name -> FunctionDef of its library where nobody has asked for it; else None.
    """
    if iterator.type not in ITERATORS:
        return "which iterator it is depends on the run"
    others = [other for other in graph.get_operations() if other.type in ITERATORS and _are_one(iterator, other)]
    if len(others) > 1:
        return "'%s' is the same iterator" % next(other.name for other in others if other is not iterator)
    takers = iterator.outputs[0].consumers()
    strange = [taker for taker in takers if taker.type not in (*NEXT, START, NAMES)]
    strange += [one for one in graph.get_operations() if one.type in BY_NAME]
    if strange:
        return "'%s' (%s) may take it too" % (strange[0].name, strange[0].type)
    nexts = {taker for taker in takers if taker.type in NEXT}
    waits = [one.name for one in graph.get_operations() if not nexts.isdisjoint(one.control_inputs)]
    if waits:  # a run of it would read the iterator, whatever it is fed
        return "'%s' waits for it to be read" % waits[0]
    types = {x.dtype.base_dtype for taker in nexts for x in taker.outputs}
    if types & {tf.variant, tf.resource}:
        return "its elements are not arrays"
    return "" if bodies is None else _why_not_unseen(iterator, bodies)


def _are_one(iterator: Any, other: Any) -> bool:
    """Whether two operations make handles of the same iterator."""
    if "OneShotIterator" in (iterator.type, other.type):
        return iterator is other
    named = [(one.get_attr("container"), one.get_attr("shared_name") or one.name) for one in (iterator, other)]
    return named[0] == named[1]


def _why_not_unseen(iterator: Any, bodies: Mapping[str, Any]) -> str:
    """Says what could tell that an element is read early, "" if nothing can."""
    starts = [taker.inputs[0].op for taker in iterator.outputs[0].consumers() if taker.type == START]
    makers = [iterator] if iterator.type == "OneShotIterator" else starts
    nodes = [one.node_def for one in reached(makers, lambda one: [*one.control_inputs, *(x.op for x in one.inputs)])]
    called: dict[str, Any] = {}
    while nodes:
        node = nodes.pop()
        if node.name != iterator.name and any(word in node.op for word in SHARED):
            return "its dataset has '%s' (%s)" % (node.name, node.op)
        new = [body for body in writers.called(node, bodies) if body.signature.name not in called]
        called.update((body.signature.name, body) for body in new)
        nodes += [inner for body in new for inner in body.node_def]
    return ""
