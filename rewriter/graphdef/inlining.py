"""Inlines function calls, so that caller and callee are planned together; outlining.py restores the functions.

A call becomes what TensorFlow's own lowering makes of it: an op that only moves data for each input and output.
Each of these ops has one type slot, so a signature and its callers cannot disagree:

    PartitionedCall(x)   x -> Identity -> ... body ... -> Identity
    If(p, x)             x -> Switch -> ... else ..., ... then ... -> Merge, which waits for p
    While(x)             x -> Enter -> Merge -> ... cond ...; Merge -> Switch -> ... body ... -> NextIteration -> Merge

    call[in0]  call[body]/MatMul  call[out0]      names of inlined nodes; no TensorFlow name has brackets
"""

from __future__ import annotations

from typing import Any, Iterable, Mapping, NamedTuple

from ..errors import ConfigError, nearest
from ..graph.graph_view import KEEP, TO_FLOAT
from .functions import BRANCH, CALL, KINDS, LOOP, Outputs, called, fits, kind_of, left_as_written, roles


class Call(NamedTuple):
    """An inlined call.

    Attributes:
        name: of its stand-in in the flat graph: a NoOp, or for a preserved call an IdentityN of its results.
        scope: number of the scope that contains it.
        proto: its NodeDef.
        kind: CALL, BRANCH or LOOP.
        scopes: numbers of the scopes of its functions, in the order of its kind.
        takes, gives: dtypes of the values that go in and out.
        selector: the tensor that chooses a branch, as the flat graph names it; "" for other kinds.
    """

    name: str
    scope: int
    proto: Any
    kind: str
    scopes: tuple[int, ...]
    takes: tuple[int, ...]
    gives: tuple[int, ...]
    selector: str = ""

    def entry(self, number: int) -> str:
        """Name of the node that receives argument `number`."""
        return "%s[%s%d]" % (self.name, "enter" if self.kind == LOOP else "in", number)

    def exit(self, number: int) -> str:
        """Name of the node whose first output is result `number`."""
        return "%s[%s%d]" % (self.name, "var" if self.kind == LOOP else "out", number)

    def merge(self, number: int) -> str:
        """Name of a loop variable's Merge, read by the condition."""
        return "%s[merge%d]" % (self.name, number)

    def following(self, number: int) -> str:
        """Name of a loop variable's NextIteration."""
        return "%s[next%d]" % (self.name, number)

    def argument(self, role: int, number: int) -> tuple[str, int]:
        """(name, output) in the flat graph of argument `number` of its function number `role`."""
        if self.kind == LOOP:
            return (self.merge(number), 0) if role == 0 else (self.exit(number), 1)
        return self.entry(number), role


class Scope(NamedTuple):
    """The graph itself (number 0), or a function body inlined for one call.

    Attributes:
        function: the FunctionDef, None for the graph.
        prefix: what its nodes' names begin with in the flat graph.
        device: the device of its call, which its nodes inherit.
        args: argument name -> tensor of the flat graph.
        protos: node name -> NodeDef as written.
        calls: node name -> Call, for the inlined calls that it contains.
        asked: the AttrValue of the innermost to_float around its call, or None.
    """

    function: Any
    prefix: str
    device: str
    args: dict[str, str]
    protos: dict[str, Any]
    calls: dict[str, Call]
    asked: Any = None


class Inlined(NamedTuple):
    """A graph with its function calls inlined.

    Attributes:
        graph_def: the flat tf.GraphDef; the given one if nothing was inlined. The nodes of the graph itself keep their
            positions.
        source: the tf.GraphDef as given.
        scopes: the graph itself, then one for each inlined function body.
        starts: position of each scope's first node in the flat graph.
        calls: the inlined calls, in the order of their scopes.
        warnings: the functions that are left as they are, with the reasons.
        left: the names of these functions.
        fed, preserved: names of the nodes that are fed, and of those that keep their names and dtypes.
    """

    graph_def: Any
    source: Any
    scopes: tuple[Scope, ...] = ()
    starts: tuple[int, ...] = ()
    calls: tuple[Call, ...] = ()
    warnings: tuple[str, ...] = ()
    left: frozenset[str] = frozenset()
    fed: frozenset[str] = frozenset()
    preserved: frozenset[str] = frozenset()


def inline(graph_def: Any, feeds: Iterable[str] = (), preserved: Iterable[str] = ()) -> Inlined:
    """Inlines the function calls of a graph.

    Args:
        graph_def: a tf.compat.v1.GraphDef; it is not changed.
        feeds: names of tensors that callers supply; a call that is fed stays as it is.
        preserved: names of nodes or tensors that keep their names and dtypes.

    Returns:
        Inlined.

    Raises:
        ConfigError: a body reads a tensor that it does not contain.
    """
    library = {function.signature.name: function for function in graph_def.library.function}
    if not library or {node.op for node in graph_def.node}.isdisjoint([*KINDS, *library]):  # nearly always in version 1
        return Inlined(graph_def, graph_def)
    why = left_as_written(graph_def.node, library)
    warnings = tuple("function '%s' is left as written: %s" % (name, why[name]) for name in sorted(why))
    return _inlined(graph_def, Inlined(
        graph_def, graph_def, warnings=warnings, left=frozenset(why), fed=_node_names(feeds),
        preserved=_node_names(preserved),
    ))  # fmt: skip


def inline_again(inlined: Inlined, graph_def: Any) -> Inlined:
    """Inlines the calls of a graph that was made from an inlined one: just those that were inlined there.

    Args:
        inlined: the result for the first graph.
        graph_def: the tf.compat.v1.GraphDef made from it; it is not changed.

    Raises:
        ConfigError: a body reads a tensor that it does not contain.
    """
    return _inlined(graph_def, inlined)


def _inlined(graph_def: Any, like: Inlined) -> Inlined:
    """Inlines the calls of a graph, except those of the functions that `like` left as written."""
    library = {function.signature.name: function for function in graph_def.library.function}
    writer = _Writer(graph_def, library, like)
    if not writer.calls:
        return like._replace(graph_def=graph_def, source=graph_def, scopes=(), starts=(), calls=())
    starts = writer.write()
    return like._replace(
        graph_def=writer.flat, source=graph_def, scopes=tuple(writer.scopes), starts=starts, calls=tuple(writer.calls)
    )


def split(text: str) -> tuple[str, int]:
    """(node name, output number) of a tensor name in a graph."""
    name, colon, port = text.rpartition(":")
    return (name, int(port)) if colon else (text, 0)


def tensor(name: str, port: int) -> str:
    """The name of an output in a graph."""
    return name if port == 0 else "%s:%d" % (name, port)


def _node_names(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.lstrip("^").partition(":")[0] for name in names)


class _Writer:
    """Writes the flat graph: finds all calls, scope by scope, then writes the nodes of every scope."""

    def __init__(self, graph_def: Any, library: Mapping[str, Any], like: Inlined) -> None:
        self._source, self._library = graph_def, library
        self._left, self._fed, self._preserved = like.left, like.fed, like.preserved
        self._outputs = Outputs(library)
        self.flat = type(graph_def)()
        self.calls: list[Call] = []
        self.scopes = [Scope(None, "", "", {}, {node.name: node for node in graph_def.node}, {})]
        for number, scope in enumerate(self.scopes):  # grows while iterating
            for proto in scope.protos.values():
                self._find_call(number, scope, proto)

    def _find_call(self, number: int, scope: Scope, proto: Any) -> None:
        """Opens the scopes of a call's functions, if the call can be inlined."""
        kind = kind_of(proto, self._library)
        names = called(proto, self._library) if kind else ()
        if kind is None or not names or any(name not in self._library or name in self._left for name in names):
            return
        bodies = [self._library[name] for name in names]
        kept = KEEP in proto.attr and proto.attr[KEEP].i != 0
        if kept or (number == 0 and proto.name in self._fed) or not fits(proto, kind, bodies):
            return
        takes = tuple(arg.type for arg in bodies[0].signature.input_arg)
        gives = tuple(arg.type for arg in bodies[-1].signature.output_arg)
        name = scope.prefix + proto.name
        first = len(self.scopes)
        call = Call(name, number, proto, kind, tuple(range(first, first + len(bodies))), takes, gives)
        device = proto.device or scope.device
        asked = proto.attr.get(TO_FLOAT, scope.asked)
        for k, (body, role) in enumerate(zip(bodies, roles(proto, kind))):
            args = {arg.name: tensor(*call.argument(k, i)) for i, arg in enumerate(body.signature.input_arg)}
            protos = {node.name: node for node in body.node_def}
            self.scopes.append(Scope(body, "%s[%s]/" % (name, role), device, args, protos, {}, asked))
        scope.calls[proto.name] = call
        self.calls.append(call)

    def write(self) -> tuple[int, ...]:
        """Writes the flat graph; returns the position of each scope's first node."""
        self.flat.versions.CopyFrom(self._source.versions)
        for function in self._library.values():  # calls that are not inlined need the signatures
            self.flat.library.function.add().signature.CopyFrom(function.signature)
        starts = []
        for scope in self.scopes:
            starts.append(len(self.flat.node))
            for proto in scope.protos.values():
                self._write_node(scope, proto)
        for number, call in enumerate(self.calls):
            if call.kind == BRANCH:
                scope = self.scopes[call.scope]
                call = call._replace(selector=self._tensor(scope, call.proto.input[0]))
                scope.calls[call.proto.name] = self.calls[number] = call
            self._write_call(call)
        return tuple(starts)

    def _write_node(self, scope: Scope, proto: Any) -> None:
        call = scope.calls.get(proto.name)
        node = self.flat.node.add()
        if call is not None:
            self._write_stand_in(scope, call, node)
            return
        node.CopyFrom(proto)
        if scope.function is not None or scope.calls:
            node.input[:] = [self._tensor(scope, text) for text in proto.input]
        node.name = scope.prefix + proto.name
        node.device = proto.device or scope.device
        if scope.asked is not None and TO_FLOAT not in node.attr:
            node.attr[TO_FLOAT].CopyFrom(scope.asked)

    def _write_stand_in(self, scope: Scope, call: Call, node: Any) -> None:
        controls = [self._tensor(scope, text) for text in call.proto.input if text[0] == "^"]
        fetched = call.scope == 0 and call.name in self._preserved and call.gives
        node.name, node.op = call.name, "IdentityN" if fetched else "NoOp"
        node.device = call.proto.device or scope.device
        if fetched:
            node.input.extend(call.exit(number) for number in range(len(call.gives)))
            node.attr["T"].list.type.extend(call.gives)
        node.input.extend(controls)

    def _write_call(self, call: Call) -> None:
        """Writes the nodes for a call's inputs and outputs."""
        scope, device = self.scopes[call.scope], self.scopes[call.scopes[0]].device
        texts = [text for text in call.proto.input if text[0] != "^"][1 if call.kind == BRANCH else 0 :]
        values = [self._tensor(scope, text) for text in texts]
        results = [self._results(number) for number in call.scopes]
        for i, (dtype, value) in enumerate(zip(call.takes, values)):
            self._write_entry(call, i, dtype, value, device)
        for j, dtype in enumerate(call.gives):
            given = [results[0][0], results[1][j]] if call.kind == LOOP else [body[j] for body in results]
            self._write_exit(call, j, dtype, given, device)

    def _write_entry(self, call: Call, i: int, dtype: int, value: str, device: str) -> None:
        if call.kind == CALL:
            self._add(call.entry(i), "Identity", [value], dtype, device)
        elif call.kind == LOOP:
            self._add(call.entry(i), "Enter", [value], dtype, device).attr["frame_name"].s = call.name.encode()
        elif len(call.scopes) == 2 and "branches" not in call.proto.attr:
            self._add(call.entry(i), "Switch", [value, call.selector], dtype, device)
        else:
            node = self._add(call.entry(i), "_SwitchN", [value, call.selector], dtype, device)
            node.attr["num_outs"].i = len(call.scopes)

    def _write_exit(self, call: Call, j: int, dtype: int, results: list[str], device: str) -> None:
        """Writes the node of result `j`; `results` has the tensor that each function returns for it."""
        if call.kind == CALL:
            self._add(call.exit(j), "Identity", results, dtype, device)
        elif call.kind == BRANCH:
            chosen_by = "^" + split(call.selector)[0]  # where no argument goes through a Switch, nothing else says it
            self._add(call.exit(j), "Merge", [*results, chosen_by], dtype, device).attr["N"].i = len(results)
        else:
            goes_on, value = results
            self._add(call.following(j), "NextIteration", [value], dtype, device)
            merge = self._add(call.merge(j), "Merge", [call.entry(j), call.following(j)], dtype, device)
            merge.attr["N"].i = 2
            self._add(call.exit(j), "Switch", [call.merge(j), goes_on], dtype, device)

    def _results(self, number: int) -> list[str]:
        """The tensors that a function returns."""
        scope = self.scopes[number]
        return [self._tensor(scope, scope.function.ret[arg.name]) for arg in scope.function.signature.output_arg]

    def _add(self, name: str, op: str, inputs: list[str], dtype: int, device: str) -> Any:
        node = self.flat.node.add(name=name, op=op, device=device, input=inputs)
        node.attr["T"].type = dtype
        return node

    def _tensor(self, scope: Scope, text: str) -> str:
        """Translates an input, as written in its scope, to the flat graph."""
        if text[0] == "^":
            argument = scope.args.get(text[1:])
            return "^" + (split(argument)[0] if argument else scope.prefix + text[1:])
        if scope.function is None:
            name, port = split(text)
            return scope.calls[name].exit(port) if name in scope.calls else text
        try:
            return self._body_tensor(scope, *text.split(":"))
        except KeyError as missing:
            known = {**scope.protos, **scope.args}
            text = "function '%s' reads '%s', which is not in it%s"
            name = scope.function.signature.name
            raise ConfigError(text % (name, missing.args[0], nearest(str(missing.args[0]), known))) from None

    def _body_tensor(self, scope: Scope, name: str, arg: Any = None, index: Any = 0) -> str:
        if arg is None:
            return scope.args[name]
        port = self._outputs.number(scope.protos[name], arg, int(index))
        if name in scope.calls:
            return scope.calls[name].exit(port)
        return tensor(scope.prefix + name, port)
