"""Compares a graph before and after a pass with what the pass has promised to change.

A pass declares a Promise: attributes that it may set, and one function that explains a node which differs: given the
node before and after, it says which inserted nodes stand behind the difference and which nodes went into it, or that
there is no right reason. Every other node, edge, attribute, device and function must be as before.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, FrozenSet, Iterable, Iterator, Mapping, NamedTuple, Optional

from ..errors import VerifyError
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
Compare = Callable[[Any, Any, FrozenSet[str]], Iterable[str]]


def nothing(graphs: Graphs, was: Any, now: Any) -> Explained | None:
    """Explains no difference."""
    return None


class Promise(NamedTuple):
    """What a pass may change.

    Attributes:
        name: of the pass, for messages.
        reason: why the graph means the same.
        attributes: those that it may set on any node.
        explain: what a difference is; None from it for one that may not be.
        compare: for a pass that moves nodes into functions: yields in words, of the graph before and after it and the
            names of what is kept, what it has not promised; None to compare node by node.
    """

    name: str
    reason: str
    attributes: tuple[str, ...] = ()
    explain: Explain = nothing
    compare: Compare | None = None


def require_kept(promise: Promise, before: Any, after: Any, keep: Iterable[str] = ()) -> None:
    """Checks the result of a pass.

    Args:
        promise: what the pass may change.
        before: tf.compat.v1.GraphDef that it was given.
        after: GraphDef that it returned; nothing is checked if it is the same object.
        keep: names of nodes or tensors that are fed, fetched or run.

    Raises:
        VerifyError: with every violation, and the name of the pass.
    """
    if after is before:
        return
    kept = frozenset(map(source_of, keep))
    if promise.compare is not None:
        violations = [*promise.compare(before, after, kept)]
    else:
        violations = [*_violations(promise, _plain(before, promise), _plain(after, promise), kept)]
    if violations:
        raise VerifyError("pass '%s': %s" % (promise.name, violation) for violation in violations)


def _plain(graph_def: Any, promise: Promise) -> Any:
    """A graph without the attributes that a pass may set."""
    if not promise.attributes:
        return graph_def
    plain = type(graph_def)()
    plain.CopyFrom(graph_def)
    for nodes in (plain.node, *(function.node_def for function in plain.library.function)):
        for node in nodes:
            for name in promise.attributes:
                node.attr.pop(name, None)
    return plain


def _violations(promise: Promise, before: Any, after: Any, keep: frozenset[str]) -> Iterator[str]:
    yield from _nodes_stay(promise, before.node, after.node, keep, "")
    was, now = ([f.signature.name for f in graph.library.function] for graph in (before, after))
    if was != now:
        yield "the functions of the library were %s and are %s" % (was, now)
        return
    for one, other in zip(before.library.function, after.library.function):
        inside = keep.union(map(source_of, [*one.ret.values(), *one.control_ret.values()]))
        for violation in _nodes_stay(promise, one.node_def, other.node_def, inside, ":y:0"):
            yield "in function '%s' %s" % (one.signature.name, violation)
        if _bytes(_without_nodes(one)) != _bytes(_without_nodes(other)):
            yield "function '%s' has changed" % one.signature.name
    if _bytes(before.versions) != _bytes(after.versions):
        yield "the graph's versions have changed"


def _nodes_stay(promise: Promise, before: Any, after: Any, keep: frozenset[str], output: str) -> Iterator[str]:
    by_name = dict if output else _Plain  # in a body "x:y:0" is the only name of a tensor
    earlier = {node.name: node for node in before}
    later = {node.name: node for node in after}
    graphs = Graphs(by_name(earlier), by_name(later), output)
    if len(later) != len(after):
        yield "two nodes have one name"
    inserted: set[str] = set()
    removed: set[str] = set()
    for name, node in later.items():
        was = earlier.get(name)
        if was is not None and (was is not node and _bytes(was) != _bytes(node)):
            was, now = graphs.before[name], graphs.after[name]
            explained = Explained() if _bytes(was) == _bytes(now) else promise.explain(graphs, was, now)
            if explained is None:
                yield _difference(was, now)
                continue
            inserted |= explained.inserted
            removed |= explained.removed
        yield from ("'%s' reads '%s', which is gone" % (name, text) for text in _missing(graphs, node))
    yield from ("'%s' (%s) is new" % (n, graphs.after[n].op) for n in graphs.after.keys() - graphs.before - inserted)
    gone = graphs.before.keys() - graphs.after
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


def _missing(graphs: Graphs, node: Any) -> Iterator[str]:
    """Inputs of a node that were there before and are not any more."""
    for text in node.input:
        source = source_of(text)
        if source not in graphs.after and source in graphs.before:
            yield text


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
