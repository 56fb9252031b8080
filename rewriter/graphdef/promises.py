"""Compares a graph before and after a pass node by node, for what the pass promises to change.

A pass declares attributes that it may set, and one function that explains a node which differs: given the node before
and after, it says which inserted nodes stand behind the difference and which nodes went into it, or that there is no
right reason. Every other node, edge, attribute, device and function must be as before.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, Mapping, NamedTuple, Optional

from ..graph.arguments import source_of


class Graphs(NamedTuple):
    """The nodes of a graph, or of a function's body, by name: before a pass and after it.

    Attributes:
        before, after: name -> NodeDef.
        output: what follows the name of a node where its only output is read: ":y:0" in a body, "" in a graph.
    """

    before: Mapping[str, Any]
    after: Mapping[str, Any]
    output: str = ""


class Explained(NamedTuple):
    """The nodes behind a difference: names of those that were inserted for it, and of those that went into it."""

    inserted: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()


Explain = Callable[[Graphs, Any, Any], Optional[Explained]]


def nothing(graphs: Graphs, was: Any, now: Any) -> Explained | None:
    """Explains no difference."""
    return None


def all_else_stays(
    explain: Explain = nothing, attributes: tuple[str, ...] = ()
) -> Callable[[Any, Any, Any], Iterator[str]]:
    """Makes the `violations` of a pass's Promise; the context has in `keep` the names of what is fed, fetched or run.

    Args:
        explain: what a difference is; None from it for one that may not be.
        attributes: those that the pass may set on any node.
    """

    def violations(before: Any, after: Any, context: Any) -> Iterator[str]:
        kept = frozenset(map(source_of, context.keep))
        return _violations(explain, _plain(before, attributes), _plain(after, attributes), kept)

    return violations


def _plain(graph_def: Any, attributes: tuple[str, ...]) -> Any:
    """A graph without some attributes."""
    if not attributes:
        return graph_def
    plain = type(graph_def)()
    plain.CopyFrom(graph_def)
    for nodes in (plain.node, *(function.node_def for function in plain.library.function)):
        for node in nodes:
            for name in attributes:
                node.attr.pop(name, None)
    return plain


def _violations(explain: Explain, before: Any, after: Any, keep: frozenset[str]) -> Iterator[str]:
    yield from _nodes_stay(explain, before.node, after.node, keep, "")
    was, now = ([f.signature.name for f in graph.library.function] for graph in (before, after))
    if was != now:
        yield "the functions of the library were %s and are %s" % (was, now)
        return
    for one, other in zip(before.library.function, after.library.function):
        inside = keep.union(map(source_of, [*one.ret.values(), *one.control_ret.values()]))
        for violation in _nodes_stay(explain, one.node_def, other.node_def, inside, ":y:0"):
            yield "in function '%s' %s" % (one.signature.name, violation)
        if _bytes(_without_nodes(one)) != _bytes(_without_nodes(other)):
            yield "function '%s' has changed" % one.signature.name
    if _bytes(before.versions) != _bytes(after.versions):
        yield "the graph's versions have changed"


def _nodes_stay(explain: Explain, before: Any, after: Any, keep: frozenset[str], output: str) -> Iterator[str]:
    by_name = dict if output else _Plain  # in a body "x:y:0" is the only name of a tensor
    earlier = {node.name: node for node in before}
    later = {node.name: node for node in after}
    graphs = Graphs(by_name(earlier), by_name(later), output)
    gone = graphs.before.keys() - graphs.after
    if len(later) != len(after):
        yield "two nodes have one name"
    inserted: set[str] = set()
    removed: set[str] = set()
    for name, node in later.items():
        was = earlier.get(name)
        if was is not None and (was is not node and _bytes(was) != _bytes(node)):
            was, now = graphs.before[name], graphs.after[name]
            explained = Explained() if _bytes(was) == _bytes(now) else explain(graphs, was, now)
            if explained is None:
                yield _difference(was, now)
                continue
            inserted |= explained.inserted
            removed |= explained.removed
        if gone:
            yield from ("'%s' reads '%s', which is gone" % (name, t) for t in node.input if source_of(t) in gone)
    yield from ("'%s' (%s) is new" % (n, graphs.after[n].op) for n in graphs.after.keys() - graphs.before - inserted)
    yield from ("'%s' (%s) is gone" % (name, graphs.before[name].op) for name in gone - removed | gone & keep)


class _Plain(Dict[str, Any]):
    """Name -> node of a graph, which reads "x" where it read "x:0": one tensor, and a pass may write one for the other.

    Few nodes are asked for: those that differ, and their neighbours.
    """

    def __getitem__(self, name: str) -> Any:
        return _plain_inputs(super().__getitem__(name))

    def get(self, name: str, default: Any = None) -> Any:
        return _plain_inputs(super().get(name)) if name in self else default


def _plain_inputs(node: Any) -> Any:
    if not any(text.endswith(":0") for text in node.input):
        return node
    plain = type(node)()
    plain.CopyFrom(node)
    plain.input[:] = [text[:-2] if text.endswith(":0") else text for text in node.input]
    return plain


def _difference(was: Any, now: Any) -> str:
    """The first difference of two nodes of one name."""
    for field in ("op", "device"):
        if getattr(was, field) != getattr(now, field):
            return "'%s': its %s was %s and is %s" % (was.name, field, getattr(was, field), getattr(now, field))
    if len(was.input) != len(now.input):
        return "'%s' had the inputs %s and has %s" % (was.name, list(was.input), list(now.input))
    for number, (one, other) in enumerate(zip(was.input, now.input)):
        if one != other:
            return "input %d of '%s' was '%s' and is '%s'" % (number, was.name, one, other)
    names = (name for name in {*was.attr, *now.attr} if was.attr.get(name) != now.attr.get(name))
    return "'%s' (%s) has changed in %s" % (was.name, was.op, ", ".join(sorted(names)) or "its fields")


def _without_nodes(function: Any) -> Any:
    plain = type(function)()
    plain.CopyFrom(function)
    del plain.node_def[:]
    return plain


def _bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString(deterministic=True))
