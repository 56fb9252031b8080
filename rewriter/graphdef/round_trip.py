"""Inlines an outlined graph again, to see that it is still the flat graph that was verified.

    graph --inline--> flat --rewrite, verify--> flat' --outline--> graph' --inline--> flat''      flat'' is flat'

Inserted nodes have other names in a function than in the flat graph, so they are found by who reads them. What the flat
graph does not show is compared with the original: the attributes of calls, the signatures of functions, the library.
"""

from __future__ import annotations

from typing import Any, Iterator

from ..errors import ConfigError, VerifyError
from ..graph.emulation import ROUNDED
from ..graph.graph_view import MOVED, TO_FLOAT, is_border_name
from ..tf_internals import forget_full_type
from .functions import KINDS
from .inlining import Call, Inlined, inline_again, split
from .outlining import GIVES, OF_SIGNATURE, TAKES

# of nodes for a call's inputs and outputs, which a graph with calls does not have; a frame has the name of its call
MARKS = (MOVED, ROUNDED, "frame_name")


def require_same_flat(inlined: Inlined, flat: Any, outlined: Any) -> None:
    """Checks what `outlining.outline` has made.

    Args:
        inlined: the Inlined whose flat graph was rewritten.
        flat: the rewritten flat tf.compat.v1.GraphDef, verified.
        outlined: the GraphDef made from it.

    Raises:
        VerifyError: with every violation.
    """
    if not inlined.calls:
        return
    violations, renamed = [*_twice_named(outlined)], _Renamed(inlined, flat)
    try:
        again = inline_again(renamed.inlined, outlined)
    except (ConfigError, LookupError) as error:
        raise VerifyError([*violations, "a function cannot be read again: %s" % error]) from error
    violations += [*_Matching(inlined, flat, again.graph_def, renamed).differences()]
    violations += [*_calls_stay(inlined, again, renamed), *_library_stays(inlined.source, outlined)]
    if violations:
        raise VerifyError(violations)


def _twice_named(graph_def: Any) -> Iterator[str]:
    bodies = {function.signature.name: function.node_def for function in graph_def.library.function}
    if len(bodies) != len(graph_def.library.function):
        yield "two functions have one name"
    for where, nodes in [("the graph", graph_def.node), *bodies.items()]:
        if len({node.name for node in nodes}) != len(nodes):
            yield "two nodes of %s have one name" % where


class _Renamed:
    """The fetched calls that were renamed, and with them all nodes of their functions.

    Attributes:
        inlined: as given, with the new names as preserved.
    """

    def __init__(self, inlined: Inlined, flat: Any) -> None:
        names = [node.name for node in inlined.graph_def.node]
        now = dict(zip(names, (node.name for node in flat.node)))
        calls = [call.name for call in inlined.calls if call.scope == 0]
        self._old = {now[name] + "[": name + "[" for name in calls if now[name] != name}
        self.inlined = inlined._replace(preserved=inlined.preserved.union(name[:-1] for name in self._old))

    def old(self, name: str) -> str:
        """The name that a node of the graph inlined again had in the flat graph."""
        start = name[: name.find("[") + 1]
        return self._old[start] + name[len(start) :] if start in self._old else name


class _Matching:
    """Compares two flat graphs from the nodes that have one name in both, against the edges."""

    def __init__(self, inlined: Inlined, one: Any, other: Any, renamed: _Renamed) -> None:
        self._one, self._renamed = {node.name: node for node in one.node}, renamed
        self._other = {renamed.old(node.name): node for node in other.node}
        self._same = {name: name for name in self._one if name in self._other}
        originals = one.node[: len(inlined.graph_def.node)]
        self._originals = {node.name for node in originals}
        stands = {call.name for call in inlined.calls}
        pairs = zip(inlined.graph_def.node, originals)
        self._results = {now.name: now.input for was, now in pairs if was.name in stands and now.op == "IdentityN"}

    def differences(self) -> Iterator[str]:
        """One line for each."""
        waiting = list(self._same)
        while waiting:
            name = waiting.pop()
            one, other = self._one[name], self._other[self._same[name]]
            if (one.op, one.device, len(one.input)) != (other.op, other.device, len(other.input)):
                yield "'%s' (%s, device '%s', %d inputs) has become %s, device '%s', %d inputs" % (
                    name, one.op, one.device, len(one.input), other.op, other.device, len(other.input)
                )  # fmt: skip
                continue
            yield from _attributes(one, other, self._not_compared(one))
            for number, (read, reads) in enumerate(zip(one.input, other.input)):
                if not self._match(read, reads, waiting):
                    yield "input %d of '%s' was '%s' and is '%s'" % (number, name, read, reads)
        yield from ("'%s' is gone" % name for name in self._one if name not in self._same)
        if len(set(self._same.values())) != len(self._other):
            yield "the graph has %d nodes and had %d" % (len(self._other), len(self._one))

    def _not_compared(self, node: Any) -> tuple[str, ...]:
        """The attributes that a node gets, or loses, only by being inlined."""
        if node.name not in self._originals:
            return () if TO_FLOAT in node.attr else (TO_FLOAT,)
        return MARKS if is_border_name(node.name) else ()

    def _match(self, read: str, reads: str, waiting: list[str]) -> bool:
        (name, port), (other, its_port) = split(read.lstrip("^")), split(reads.lstrip("^"))
        other = self._renamed.old(other)
        if name in self._results and read[0] != "^":  # who reads a fetched call reads its results
            name, port = split(self._results[name][port])
        if (read[0] == "^", port) != (reads[0] == "^", its_port) or other not in self._other:
            return False
        if name not in self._same:
            self._same[name] = other
            waiting.append(name)
        return self._same[name] == other


def _attributes(one: Any, other: Any, left_out: tuple[str, ...]) -> Iterator[str]:
    for attr in sorted({*one.attr, *other.attr}.difference(left_out)):
        if attr not in one.attr or attr not in other.attr or _bytes(one.attr[attr]) != _bytes(other.attr[attr]):
            yield "attribute %s of '%s' (%s) has changed" % (attr, one.name, one.op)


def _calls_stay(inlined: Inlined, again: Inlined, renamed: _Renamed) -> Iterator[str]:
    """Calls and functions differ in the names of functions and in dtypes only, and those of both sides agree."""
    now = {_old_call(call.name, renamed): call for call in again.calls}
    if set(now) != {call.name for call in inlined.calls}:
        yield "other calls are inlined than before"
        return
    for call in inlined.calls:
        after = now[call.name]
        bodies = [again.scopes[number].function for number in after.scopes]
        if _bytes(_plain_call(call.proto, call)) != _bytes(_plain_call(after.proto, call)):
            yield "the call '%s' has changed" % call.name
        yield from _types_agree(after, bodies)
        for number, body in zip(call.scopes, bodies):
            original = inlined.scopes[number].function
            if _bytes(_plain_function(original, body)) != _bytes(_plain_function(body, original)):
                yield "the signature or the attributes of function '%s' have changed" % body.signature.name


def _old_call(name: str, renamed: _Renamed) -> str:
    return renamed.old(name + "[")[:-1]


def _types_agree(call: Call, bodies: list[Any]) -> Iterator[str]:
    for body in bodies:
        takes = [argument.type for argument in body.signature.input_arg]
        if TAKES[call.kind] in call.proto.attr and list(call.proto.attr[TAKES[call.kind]].list.type) != takes:
            yield "the call '%s' and function '%s' have other inputs" % (call.name, body.signature.name)
    gives = [argument.type for argument in bodies[-1].signature.output_arg]
    if GIVES[call.kind] in call.proto.attr and list(call.proto.attr[GIVES[call.kind]].list.type) != gives:
        yield "the call '%s' and function '%s' have other results" % (call.name, bodies[-1].signature.name)


def _plain_call(proto: Any, call: Call) -> Any:
    """A call without what the flat graph shows: its name, its inputs, its dtypes, and the names of its functions."""
    plain = _copy(proto)
    plain.name = ""
    waits = [text for text in plain.input if text[0] == "^"]
    plain.input[:] = waits
    for attr in (TAKES[call.kind], GIVES[call.kind]):
        if attr in plain.attr:
            del plain.attr[attr].list.type[:]
    plain.op = "" if plain.op not in KINDS else plain.op
    for attr in KINDS.get(plain.op, (None, ()))[1]:
        if attr in plain.attr:
            plain.attr[attr].func.name = ""
            for function in plain.attr[attr].list.func:
                function.name = ""
    return plain


def _plain_function(function: Any, other: Any) -> Any:
    """A function without its body; without its name and dtypes, where the other one has another name."""
    plain = _copy(function)
    del plain.node_def[:]
    for name in list(plain.ret):
        plain.ret[name] = ""
    if function.signature.name != other.signature.name:
        plain.signature.name = ""
        for attr in OF_SIGNATURE:
            plain.attr.pop(attr, None)
        for argument in [*plain.signature.input_arg, *plain.signature.output_arg]:
            argument.type = 0
            forget_full_type(argument, "experimental_full_type")
    return plain


def _library_stays(before: Any, after: Any) -> Iterator[str]:
    """The original functions and their gradients are there, unchanged."""
    count = len(before.library.function)
    for was, now in zip(before.library.function, after.library.function):
        if _bytes(was) != _bytes(now):
            yield "function '%s' of the library has changed" % was.signature.name
    if len(after.library.function) < count:
        yield "%d functions of the library are missing" % (count - len(after.library.function))
    called = _called(after)
    for function in after.library.function[count:]:
        if function.signature.name not in called:
            yield "nobody calls the new function '%s'" % function.signature.name
    gradients = ([_bytes(gradient) for gradient in library.gradient] for library in (before.library, after.library))
    if len(set(map(tuple, gradients))) > 1 or _bytes(before.versions) != _bytes(after.versions):
        yield "the gradients of the library or the graph's versions have changed"


def _called(graph_def: Any) -> set[str]:
    called: set[str] = set()
    for nodes in [graph_def.node, *(function.node_def for function in graph_def.library.function)]:
        for node in nodes:
            called.add(node.op)
            for attr in KINDS.get(node.op, (None, ()))[1]:
                if attr in node.attr:
                    called.update(
                        [node.attr[attr].func.name, *(function.name for function in node.attr[attr].list.func)]
                    )
    return called


def _bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString(deterministic=True))


def _copy(message: Any) -> Any:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy
