"""Outlines a rewritten flat graph of inlining.py: restores its functions and calls. It decides nothing.

Consumers of an argument are in the body and consumers of a result are in the caller. So every tensor of the flat graph
belongs to one scope, and an added node belongs to the scope of its input.
"""

import hashlib
import re
from typing import Any, Dict, List, Tuple

from ..errors import VerifyError
from ..planner.casts import reserve_name
from ..tf_internals import forget_full_type
from .functions import BRANCH, CALL, LOOP, Outputs
from .inlining import Inlined, split, tensor

# attributes by which TensorFlow swaps a function for another of the same signature, or finds its gradient
OF_SIGNATURE = ("api_implements", "api_preferred_device", "forward_function_name", "backward_function_name")
# call attributes with the dtypes of inputs and outputs, by kind
TAKES = {CALL: "Tin", BRANCH: "Tin", LOOP: "T"}
GIVES = {CALL: "Tout", BRANCH: "Tout", LOOP: "T"}
ADDED = re.compile(r"(?P<marker>.*\])-(?P<port>\d+)(?P<rest>-.*)$")  # a cast of a call's input or output node

BORDER = (-1, "")  # the input and output nodes of calls belong to no scope


def outline(inlined: Inlined, rewritten: Any) -> Any:
    """Outlines a rewritten flat graph.

    A changed body becomes a new function, named after its contents, so that equal bodies share one. The original
    functions stay in the library, with the gradients registered for them.

    Args:
        inlined: the Inlined that was rewritten.
        rewritten: tf.compat.v1.GraphDef: its flat graph with the nodes in their order, then the added nodes.

    Returns:
        tf.compat.v1.GraphDef.

    Raises:
        VerifyError: a node reads a tensor of another scope, or the dtypes around a call disagree.
    """
    return _Writer(inlined, rewritten).graph() if inlined.calls else rewritten


class _Writer:
    """Maps every tensor of the flat graph to its scope and its name there."""

    def __init__(self, inlined, rewritten):
        self._inlined, self._scopes = inlined, inlined.scopes
        self._before, self._after = inlined.graph_def.node, rewritten.node
        self._outputs = Outputs({function.signature.name: function for function in inlined.source.library.function})
        self._position = {node.name: position for position, node in enumerate(self._before)}
        self._now = {node.name: position for position, node in enumerate(self._after)}
        self._prefixes = {scope.prefix: number for number, scope in enumerate(self._scopes)}
        self._caller = {number: call for call in inlined.calls for number in call.scopes}
        self._ports: Dict[Tuple[int, int], Tuple[int, str]] = {}  # a call's value -> (scope, its name there)
        self._waited: Dict[Tuple[int, int], str] = {}  # (value of a call, scope) -> the control input for it there
        self._home: List[Tuple[int, str]] = []  # scope of each node of the flat graph, and its name there
        for number, (scope, start) in enumerate(zip(self._scopes, inlined.starts)):
            kept = [self._after[start + k].name for k in range(len(scope.protos))] if number == 0 else scope.protos
            self._home += [(number, name) for name in kept]
        self._home += [BORDER] * (len(self._before) - len(self._home))
        for call in inlined.calls:
            self._name_values(call)
        self._added: Dict[int, List[int]] = {}  # scope -> positions of the nodes that were added to it
        self._place_added()
        self._names: Dict[int, str] = {}  # scope -> name of its function
        self._functions: Dict[str, Any] = {}  # name -> FunctionDef

    def graph(self):
        """The graph as a whole."""
        for number in range(len(self._scopes) - 1, 0, -1):  # callees follow their callers
            self._write_function(number)
        source = self._inlined.source
        graph_def = type(source)(versions=source.versions, library=source.library)
        graph_def.node.extend(self._nodes(0))
        graph_def.library.function.extend(self._functions[name] for name in sorted(self._functions))
        return graph_def

    def _name_values(self, call):
        """Records the names of a call's values in the caller and in the bodies."""
        stand_in = self._home[self._position[call.name]][1]
        outside = self._scopes[call.scope].function is not None
        for j in range(len(call.gives)):
            text = "%s:%s" % (stand_in, self._outputs.text(call.proto, j)) if outside else tensor(stand_in, j)
            self._ports[self._position[call.exit(j)], 0] = call.scope, text
            self._waited[self._position[call.exit(j)], call.scope] = stand_in
        for role, number in enumerate(call.scopes):
            for i, arg in enumerate(self._scopes[number].function.signature.input_arg):
                name, port = call.argument(role, i)
                self._ports[self._position[name], port] = number, arg.name
                self._waited[self._position[name], number] = arg.name

    def _place_added(self):
        """Assigns each added node its scope, from its input or else its name, and a name there."""
        added = range(len(self._before), len(self._after))
        taken = [set(scope.args) for scope in self._scopes]
        for number, name in self._home:
            if number >= 0:
                taken[number].add(name)
        for position in added:
            origin, source = position, self._source(position)
            while source is not None and source[0] in added:
                origin, source = source[0], self._source(source[0])
            number = self._scope_of_origin(origin)
            name = reserve_name(self._local_name(number, self._after[position].name), taken[number])
            self._added.setdefault(number, []).append(position)
            self._home.append((number, name))

    def _source(self, position):
        """(position, output) of a node's first input, or None if it has control inputs only."""
        first = next(iter(self._after[position].input), "^")
        if first[0] == "^":
            return None
        name, port = split(first)
        return self._now[name], port

    def _scope_of_origin(self, position):
        """The scope of an added node that reads no other added node.

        With control inputs only, the name decides: a call's input node is an argument of several functions, so
        waiting for it does not identify one of them.
        """
        source = self._source(position)
        if source is not None:
            place = self._ports.get(source)
            return place[0] if place else self._home[source[0]][0]
        name = self._after[position].name
        place = ADDED.match(name)
        if place:
            return self._ports[self._position[place["marker"]], int(place["port"])][0]
        return self._prefixes[name[: name.rfind("]/") + 2] if "]/" in name else ""]

    def _local_name(self, number, name):
        """The name of an added node in its scope, independent of where the function is called."""
        match = ADDED.match(name)
        marker = self._position.get(match["marker"]) if match else None
        if marker is not None:
            return self._ports[marker, int(match["port"])][1].replace(":", "-") + match["rest"]
        prefix = self._scopes[number].prefix
        return name[len(prefix) :] if name.startswith(prefix) else name

    def _local(self, number, text):
        """Translates an input of the flat graph to its name in a scope."""
        name, port = split(text.lstrip("^"))
        position = self._now[name]
        control = text[0] == "^"
        place = self._control(number, position) if control else self._ports.get((position, port))
        if place is None:
            place = self._plain(position, port)
        if place[0] != number:
            raise VerifyError(["'%s' is read in another function than it is in" % text])
        return place[1]

    def _control(self, number, position):
        """(scope, text) of a control input of a node in scope `number`."""
        if (position, number) in self._waited:
            return number, "^" + self._waited[position, number]
        home, name = self._home[position]
        return home, "^" + name

    def _plain(self, position, port):
        number, name = self._home[position]
        if number <= 0:
            return number, tensor(name, port)
        return number, "%s:%s" % (name, self._outputs.text(self._after[position], port))

    def _nodes(self, number):
        """Yields the nodes of a scope under their names there."""
        scope, start = self._scopes[number], self._inlined.starts[number]
        for position, proto in enumerate(scope.protos.values(), start):
            call = scope.calls.get(proto.name)
            yield self._call(number, call) if call else self._node(number, proto, position)
        for position in self._added.get(number, ()):
            node = _copy(self._after[position])
            node.name = self._home[position][1]
            node.device = "" if node.device == scope.device and number else node.device
            node.input[:] = [self._local(number, text) for text in node.input]
            yield node

    def _node(self, number, proto, position):
        """An original node; a rewrite does not change its control inputs."""
        node = _copy(self._after[position])
        node.name, node.device = self._home[position][1], proto.device
        node.input[:] = [self._local(number, text) for text in node.input if text[0] != "^"]
        node.input.extend(text for text in proto.input if text[0] == "^")
        return node

    def _call(self, number, call):
        """The call itself: its operands are the inputs of its input nodes."""
        node = _copy(call.proto)
        position = self._position[call.name]
        node.name = self._home[position][1]
        selector = [self._now_called(call.selector)] if call.selector else []
        values = [self._read(call.entry(i))[0] for i in range(len(call.takes))]
        node.input[:] = [self._local(number, text) for text in [*selector, *values]]
        node.input.extend(text for text in call.proto.input if text[0] == "^")
        self._check(call)
        takes, gives = ([self._dtype(name) for name in names] for names in self._borders(call))
        for attr, dtypes in ((TAKES[call.kind], takes), (GIVES[call.kind], gives)):
            if attr in node.attr and dtypes:
                node.attr[attr].list.type[:] = dtypes
        self._name_functions(node, call)
        return node

    def _name_functions(self, node, call):
        names = dict(zip(call.scopes, (self._names[number] for number in call.scopes)))
        renamed = {self._scopes[number].function.signature.name: name for number, name in names.items()}
        if node.op in renamed:
            node.op = renamed[node.op]
            return
        if "branches" in node.attr:
            for function, number in zip(node.attr["branches"].list.func, call.scopes):
                function.name = names[number]
            return
        attrs = {CALL: ("f",), BRANCH: ("else_branch", "then_branch"), LOOP: ("cond", "body")}[call.kind]
        for attr, number in zip(attrs, call.scopes):
            node.attr[attr].func.name = names[number]

    def _check(self, call):
        """Checks that each loop variable has one dtype and that fetched results are unchanged."""
        if call.kind == LOOP:
            for i in range(len(call.takes)):
                around = (call.entry(i), call.merge(i), call.following(i), call.exit(i))
                if len({self._dtype(name) for name in around}) > 1:
                    raise VerifyError(["loop variable %d of '%s' has several dtypes" % (i, call.name)])
        stand_in = self._position[call.name]
        for before, after in zip(self._before[stand_in].input, self._after[stand_in].input):
            if before[0] != "^" and before != after:
                raise VerifyError(["the results of '%s' are fetched and have changed" % call.name])

    def _write_function(self, number):
        """Writes the function of a scope and records its name: the original one if the body is unchanged."""
        original = self._scopes[number].function
        call = self._caller[number]
        body = _copy(original)
        del body.node_def[:]
        body.node_def.extend(self._nodes(number))
        role = call.scopes.index(number)
        condition = call.kind == LOOP and role == 0
        takes, gives = self._borders(call)
        if call.kind == LOOP:
            takes = gives
        for arg, name in zip(body.signature.input_arg, takes):
            arg.type = self._dtype(name)
        for j, arg in enumerate(() if condition else body.signature.output_arg):
            arg.type = self._dtype(gives[j])
            read = self._read(call.following(j) if call.kind == LOOP else call.exit(j))
            body.ret[arg.name] = self._local(number, read[role if call.kind == BRANCH else 0])
        self._names[number] = original.signature.name if body == original else self._new(body)

    def _new(self, message):
        """Adds a function to the library under a new name; returns the name."""
        for attr in OF_SIGNATURE:
            if attr in message.attr:
                del message.attr[attr]
        for arg in [*message.signature.input_arg, *message.signature.output_arg]:
            forget_full_type(arg, "experimental_full_type")
        nodes = sorted(message.node_def, key=lambda node: node.name)
        del message.node_def[:]
        message.node_def.extend(nodes)
        digest = hashlib.sha256(message.SerializeToString(deterministic=True)).hexdigest()[:8]
        message.signature.name = "%s_low_%s" % (message.signature.name, digest)
        self._functions[message.signature.name] = message
        return message.signature.name

    def _borders(self, call):
        """Names of a call's input nodes and output nodes."""
        takes = [call.entry(i) for i in range(len(call.takes))]
        return takes, [call.exit(j) for j in range(len(call.gives))]

    def _read(self, name):
        return self._after[self._position[name]].input

    def _dtype(self, name):
        return self._after[self._position[name]].attr["T"].type

    def _now_called(self, text):
        """The name of a tensor whose node may have been renamed."""
        name, port = split(text)
        return tensor(self._after[self._position[name]].name, port)


def _copy(message):
    copy = type(message)()
    copy.CopyFrom(message)
    return copy

