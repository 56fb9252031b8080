"""Function calls and version 2 control flow: which ops call which functions, and which bodies can be inlined."""

from __future__ import annotations

from collections import Counter
from typing import Any, Iterable, Mapping, Sequence

from .. import tf_internals
from ..tables.dtypes import NUMBERS
from ..tables.function_calls import BRANCH as BRANCH
from ..tables.function_calls import CALL as CALL
from ..tables.function_calls import KINDS as KINDS
from ..tables.function_calls import LOOP as LOOP

ROLES = {CALL: ("body",), LOOP: ("cond", "body")}  # the role of each function of a call, for readers
MOST_NODES = 100_000  # that all inlined copies of one function may have together
BOOL = NUMBERS["bool"]


def kind_of(proto: Any, library: Mapping[str, Any]) -> str | None:
    """How a node uses functions: CALL, BRANCH, LOOP, or None where it calls none that we inline."""
    return CALL if proto.op in library else KINDS.get(proto.op, (None,))[0]


def called(proto: Any, library: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the functions that a node calls, in the order of its kind."""
    if proto.op in library:
        return (proto.op,)
    names = []
    for attr in KINDS.get(proto.op, (None, ()))[1]:
        if attr in proto.attr:
            names += [function.name for function in proto.attr[attr].list.func] or [proto.attr[attr].func.name]
        else:
            names.append("")
    return tuple(names)


def roles(proto: Any, kind: str) -> tuple[str, ...]:
    """The role of each function of a call: "body", "cond", "then", "else", "branch0", ..."""
    if kind != BRANCH:
        return ROLES[kind]
    if "branches" in proto.attr:
        return tuple("branch%d" % k for k in range(len(proto.attr["branches"].list.func)))
    return "else", "then"


def fits(proto: Any, kind: str, bodies: Sequence[Any]) -> bool:
    """Whether a call matches the signatures of its functions, and its branch selector is not a float."""
    count = sum(text[0] != "^" for text in proto.input)
    takes = [[arg.type for arg in body.signature.input_arg] for body in bodies]
    gives = [[arg.type for arg in body.signature.output_arg] for body in bodies]
    if kind == LOOP:
        return gives[0] == [BOOL] and takes[0] == takes[1] == gives[1] and len(takes[0]) == count
    if kind == BRANCH:
        chooses = proto.attr["Tcond"].type == BOOL if "Tcond" in proto.attr else True
        count -= 1
        return chooses and all(t == takes[0] for t in takes) and all(g == gives[0] for g in gives) and (
            len(takes[0]) == count
        )
    return len(takes[0]) == count


def left_as_written(nodes: Iterable[Any], library: Mapping[str, Any]) -> dict[str, str]:
    """Finds functions whose bodies cannot be inlined.

    Args:
        nodes: the NodeDefs of the graph.
        library: function name -> FunctionDef.

    Returns:
        Dict of function name -> reason in words, for the functions that the graph calls directly or indirectly.
    """
    direct = Counter(name for node in nodes for name in called(node, library) if name in library)
    calls = {}
    waiting = list(direct)
    while waiting:
        name = waiting.pop()
        if name not in calls:
            body = library[name].node_def
            calls[name] = Counter(f for node in body for f in called(node, library) if f in library)
            waiting += calls[name]
    why = {name: reason for name in calls for reason in [_own_reason(library[name], library)] if reason}
    order, cyclic = _callers_first(calls)
    why.update((name, "it calls itself, or is between functions that do") for name in cyclic)
    times = Counter(direct)
    for name in order:
        size = len(library[name].node_def) * times[name]
        if size > MOST_NODES:
            why[name] = "inlined for each of its calls it would have %d nodes" % size
        if name not in why:
            for callee, count in calls[name].items():
                times[callee] += times[name] * count
    return why


def _own_reason(function, library):
    """Why a function's own signature or body prevents inlining, or None."""
    signature = function.signature
    if signature.attr:
        return "its signature has attributes"
    if any(arg.is_ref or not arg.type or arg.number_attr for arg in [*signature.input_arg, *signature.output_arg]):
        return "its signature has references or lists"
    known = tf_internals.op_defs()
    unknown = [node.op for node in function.node_def if node.op not in known and node.op not in library]
    return "op %s in it is not in this TensorFlow" % min(unknown) if unknown else None


def _callers_first(calls):
    """The functions, callers before callees, and those on or between cycles of calls."""
    callers = {name: [] for name in calls}
    for name, callees in calls.items():
        for callee in callees:
            callers[callee].append(name)
    leaves = _topological_order(calls, callers)
    rest = {name: [callee for callee in calls[name] if callee not in leaves] for name in calls if name not in leaves}
    callers = {name: [caller for caller in callers[name] if caller in rest] for name in rest}
    roots = _topological_order(callers, rest)
    return [*roots, *reversed(list(leaves))], [name for name in rest if name not in roots]


def _topological_order(needs, needed_by):
    """Topological order, dependencies first, as the keys of a dict; names on cycles are omitted."""
    missing = {name: len(needs[name]) for name in needs}
    order = dict.fromkeys(name for name in needs if not missing[name])
    waiting = list(order)
    for name in waiting:  # grows while iterating
        for other in needed_by[name]:
            missing[other] -= 1
            if not missing[other]:
                order[other] = None
                waiting.append(other)
    return order


class Outputs:
    """Tensor names in function bodies: node:output_arg:index, where a graph numbers all outputs consecutively."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._plain = {}  # op -> names of its outputs, for ops without lists

    def number(self, proto: Any, arg: str, index: int) -> int:
        """The number of output `index` of the output argument `arg` of a node."""
        for start, (name, length) in self._args(proto):
            if name == arg and index < max(length, 1):
                return start + index
        raise KeyError(arg)

    def text(self, proto: Any, number: int) -> str:
        """The suffix that names one output of a node: output_arg:index."""
        for start, (name, length) in self._args(proto):
            if start <= number < start + length:
                return "%s:%d" % (name, number - start)
        raise KeyError(number)

    def _args(self, proto):
        plain = self._plain.get(proto.op)
        if plain is not None:
            return enumerate(plain)
        function = self._library.get(proto.op)
        definition = function.signature if function is not None else tf_internals.op_defs()[proto.op]
        if not any(arg.number_attr or arg.type_list_attr for arg in definition.output_arg):
            plain = self._plain[proto.op] = [(arg.name, 1) for arg in definition.output_arg]
            return enumerate(plain)
        return self._lists(proto, definition)

    @staticmethod
    def _lists(proto, definition):
        defaults = {a.name: a.default_value for a in definition.attr}
        start = 0
        for arg in definition.output_arg:
            attr = arg.number_attr or arg.type_list_attr
            value = proto.attr[attr] if attr in proto.attr else defaults.get(attr)
            length = 1 if not attr else value.i if arg.number_attr else len(value.list.type)
            yield start, (arg.name, length)
            start += length
