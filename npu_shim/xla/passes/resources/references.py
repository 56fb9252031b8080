"""Turns the reference variables of a step into resource variables, which XLA can compile.

    v:VariableV2   r:Identity(v)        u:AssignAdd(v, d)            z:Mul(u, y)
    v:VarHandleOp  r:ReadVariableOp(v)  u:AssignAddVariableOp(v, d)  u/value:ReadVariableOp(v, ^u)  z:Mul(u/value, y)

Nodes keep their names. A reference is read when its consumer runs, and so is a variable's memory behind an Identity
(late_reads.py): a consumer that runs after a write gets its own read, with the consumer's control inputs; the others
share one read. A tf.cond that returns its branches' references returns their values instead:

    m:RefMerge(Assign(Switch(v):1), AssignAdd(Switch(v):0))     becomes     Merge(read after the one, after the other)

and a later write to the tf.cond's result writes to v, after the tf.cond.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Iterable, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.analysis import order
from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.attributes import DType, encode
from npu_shim.rewriter.ir.definitions import Argument, expanded
from npu_shim.rewriter.ir.graph import Graph, Node, Value
from npu_shim.rewriter.ir.module import Module
from npu_shim.xla.passes.resources.late_reads import ASKS, MEMORY, PASSES_ON, ROUTES, VARIABLES, VIEWS, Writes

# reference op -> resource op, unless that is "Resource" and the same name
RENAMED = {
    "Assign": "AssignVariableOp",
    "AssignAdd": "AssignAddVariableOp",
    "AssignSub": "AssignSubVariableOp",
    "IsVariableInitialized": "VarIsInitializedOp",
    "RefIdentity": "Identity",
    "RefSwitch": "Switch",
    "RefMerge": "Merge",
    "RefEnter": "Enter",
    "RefExit": "Exit",
    "RefNextIteration": "NextIteration",
}
TYPE = "T"  # what reference ops call the attribute that resource ops call dtype
RESOURCE = DType(tf.resource.as_datatype_enum)


def to_resources(module: Module, context: Any = None) -> None:
    """Replaces the reference variables of a module, if there are any.

    Args:
        module: a step's, with v1 control flow.
        context: not used.

    Raises:
        PlanError: an op writes to a reference variable and has no resource form, or its variable may be one of several;
            the error names its node.
    """
    if not module.ops().isdisjoint(VARIABLES):
        for change in _Conversion(module.graph).changes():
            change()
        _enter_once(module.graph)
        _switch_once(module.graph)


class _Conversion:
    """The conversion of one graph: reads are added at once, all else changes when every node has been looked at."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._definition = graph.module.definition
        ops = {op: definition for op in graph.module.ops() for definition in [self._definition(op)] if definition}
        self._taking = frozenset(op for op, definition in ops.items() if _any_reference(definition.inputs))
        self._giving = frozenset(op for op, definition in ops.items() if _any_reference(definition.outputs))
        self._references: dict[Node, list[int]] = {}  # node -> the numbers of its outputs that are references
        self._shared: dict[Value, Value] = {}  # reference -> the read that its early consumers share
        self._routes: dict[Node, Node] = {}  # a Switch or Enter of memory -> the added one, of the handle
        writers = (node for node in graph if node.op in self._taking and node.op not in PASSES_ON + ASKS)
        self._writes = Writes({node: [node.inputs[k] for k in self._taken_by_reference(node)] for node in writers})

    def changes(self) -> list[Callable[[], Any]]:
        """The changes of the nodes that are there, not yet made; what they need is added."""
        concerned = self._concerned()
        return [self._change(node) for node in self._graph if node in concerned]

    def _concerned(self) -> set[Node]:
        """The variables, and the nodes that take a reference or memory behind one."""
        pending = [node for node in self._graph if node.op in self._giving]
        concerned = {node for node in pending if node.op in VARIABLES}
        for node in pending:  # grows while it is read
            takers = [user for user in node.users() if user not in concerned and any(map(self._memory, user.inputs))]
            concerned.update(takers)
            pending += takers
        return concerned

    def _change(self, node: Node) -> Callable[[], Any]:
        """What makes a node take no reference."""
        if node.op in VARIABLES:
            return functools.partial(graphdef.become, node, _handle_node(node))
        if self._joins(node):
            inputs = [self._shared_value(value) if self._is_reference(value) else value for value in node.inputs]
            return functools.partial(_set, node, "Merge", inputs)
        first = node.inputs[0]
        if node.op == "Identity" and self._is_reference(first) and not self._joins(first.node):
            handle, waits, dtype = self._reading(first, node.controls)
            read = tf.NodeDef(name=node.name, op="ReadVariableOp", input=[str(handle), *["^" + n.name for n in waits]])
            read.attr["dtype"].type = dtype
            return functools.partial(graphdef.become, node, read)
        return self._with_values(node)

    def _with_values(self, node: Node) -> Callable[[], Any]:
        wanted = self._taken_by_reference(node)
        inputs, controls = list(node.inputs), list(node.controls)
        for number, value in enumerate(node.inputs):
            if number in wanted and self._is_reference(value):
                inputs[number], waits = self._handle(value)
                controls += waits
                continue
            taken = self._memory(value)
            if taken is not None:
                inputs[number] = self._value_for(node, number, value, taken)
        op, attrs = self._resource_form(node) if wanted else (node.op, {})
        return functools.partial(_set, node, op, inputs, controls, attrs)

    def _taken_by_reference(self, node: Node) -> list[int]:
        """Numbers of a node's reference inputs."""
        return _references(node, self._definition(node.op), "inputs") if node.op in self._taking else []

    def _resource_form(self, node: Node) -> tuple[str, dict[str, Any]]:
        """The op that takes handles, and the attributes in which its nodes differ, None for one that they lack."""
        op = RENAMED.get(node.op, "Resource" + node.op)
        definition = self._definition(op)
        if definition is None:
            raise PlanError(
                "node '%s': op %s writes to a reference variable and has no form for resource variables; make the "
                "variable with use_resource=True, or run the step in the session" % (node.name, node.op)
            )
        if node.op in PASSES_ON:
            return op, {TYPE: RESOURCE}
        attrs = {name: None for name in node.attrs if name not in definition.attributes and not name.startswith("_")}
        if "dtype" in definition.attributes and TYPE in node.attrs:
            attrs["dtype"] = node.attrs[TYPE]
        return op, attrs

    def _joins(self, node: Node) -> bool:
        """Whether a node joins the references of a tf.cond's branches."""
        return node.op == "RefMerge" and not any("NextIteration" in value.node.op for value in node.inputs)

    def _value_for(self, node: Node, number: int, value: Value, taken: Value) -> Value:
        """The value that replaces an input that is a variable's memory, which `taken` reads first."""
        inputs, controls = ((value,), ()) if node.op == "Merge" else (node.inputs, node.controls)  # others may be dead
        sources = [*controls, *(given.node for given in inputs)]
        if node.op not in ROUTES and self._writes.is_late(sources, value, taken):
            # a value that comes through Switch or Enter is read before the branch or loop begins
            waits = [*controls, *(given.node for given in inputs if self._waits_for(given.node))]
            return self._fresh(value, waits, self._graph.free_name("%s/value_%d" % (node.name, number)))
        return self._shared_value(value)

    def _waits_for(self, source: Node) -> bool:
        return source.op not in VARIABLES and source.op not in PASSES_ON and source.op not in ROUTES

    def _shared_value(self, value: Value) -> Value:
        if not self._is_reference(value) or self._joins(value.node):
            return value
        if value not in self._shared:
            name = self._graph.free_name("%s/value" % str(value).replace(":", "_"))
            self._shared[value] = self._read(name, self._reading(value, ()))
        return self._shared[value]

    def _fresh(self, value: Value, waits: Sequence[Node], name: str) -> Value:
        """Reads a tensor's memory after `waits`, by a node of that name; other tensors give their shared value."""
        place = self._place(value)
        if place is not None:
            return self._read(name, self._reading(value, waits, place))
        node = value.node
        if node.op not in VIEWS:
            return self._shared_value(value)
        memory = self._fresh(node.inputs[0], waits, self._graph.free_name(name + "/memory"))
        return self._copy(node, name, [memory, *node.inputs[1:]], node.controls).value

    def _place(self, value: Value) -> tuple[Value, list[Node]] | None:
        """(handle, what to wait for) of the variable whose memory a tensor aliases; None if there is none."""
        node = value.node
        if self._is_reference(value):
            return None if self._joins(node) and self._origin(node) is None else self._handle(value)
        if node.op == "Identity":
            return self._place(node.inputs[0])
        if node.op not in ROUTES:
            return None
        inner = self._place(node.inputs[0])
        if inner is None:
            return None
        if node not in self._routes:
            inputs, controls = [inner[0], *node.inputs[1:]], [*node.controls, *inner[1]]
            self._routes[node] = self._copy(node, self._graph.free_name(node.name + "/handle"), inputs, controls)
            self._routes[node].attrs[TYPE] = RESOURCE
        return self._routes[node].output(value.index), []

    def _reading(
        self, value: Value, controls: Iterable[Node], place: tuple[Value, list[Node]] | None = None
    ) -> tuple[Value, list[Node], DType]:
        """(handle, what to wait for, dtype) of a read of a reference."""
        handle, waits = place or self._handle(value)
        variable = min(self._writes.variables(value), key=lambda node: node.name)
        return handle, list(dict.fromkeys([*controls, *waits])), variable.attrs["dtype"]

    def _read(self, name: str, reading: tuple[Value, list[Node], DType]) -> Value:
        handle, waits, dtype = reading
        return self._graph.add(name, "ReadVariableOp", [handle], waits, {"dtype": dtype}).value

    def _copy(self, node: Node, name: str, inputs: Sequence[Value], controls: Iterable[Node]) -> Node:
        return self._graph.add(name, node.op, inputs, controls, dict(node.attrs.items()), node.device)

    def _handle(self, value: Value) -> tuple[Value, list[Node]]:
        """Resolves a reference to (handle, the writers that it passes through, to wait for).

        Raises:
            PlanError: a tf.cond returns one of several variables.
        """
        waits: list[Node] = []
        while True:
            node = value.node
            if self._joins(node):
                waits.append(node)
                origin = self._origin(node)
                if origin is None:
                    raise PlanError(
                        "node '%s' gives one of several reference variables, and is written to: XLA must know which; "
                        "write to the variables inside of tf.cond, or run the step in the session" % node.name
                    )
                value = origin
            elif node.op in VARIABLES or node.op in PASSES_ON:
                return value, waits
            else:
                waits.append(node)
                value = node.inputs[0]  # every writer that forwards a reference takes it as its first input

    def _origin(self, join: Node) -> Value | None:
        """The handle that enters a tf.cond if all branches return its variable; None if they return several."""
        origins: set[Value | None] = set()
        for value in join.inputs:
            if self._joins(value.node) and self._origin(value.node) is None:
                return None
            switch = self._handle(value)[0].node
            origins.add(self._handle(switch.inputs[0])[0] if switch.op == "RefSwitch" else None)
        return origins.pop() if len(origins) == 1 else None

    def _memory(self, value: Value) -> Value | None:
        """The first tensor that reads a variable's memory from its reference, or the reference; None for no memory."""
        taken = value
        while not self._is_reference(value):
            node = value.node
            if node.op not in MEMORY or not node.inputs:
                return None
            taken, value = value, node.inputs[0]
        return taken

    def _is_reference(self, value: Value) -> bool:
        node = value.node
        if node.op not in self._giving:
            return False
        if node not in self._references:
            self._references[node] = _references(node, self._definition(node.op), "outputs")
        return value.index in self._references[node]


def _any_reference(arguments: Iterable[Argument]) -> bool:
    return any(argument.is_ref for argument in arguments)


def _references(node: Node, definition: Any, side: str) -> list[int]:
    """The numbers of a node's "inputs" or "outputs" that are references."""
    tensors = expanded(getattr(definition, side), node, definition)
    return [number for number, (argument, _) in enumerate(tensors) if argument.is_ref]


def _set(
    node: Node,
    op: str,
    inputs: Sequence[Value],
    controls: Iterable[Node] | None = None,
    attrs: dict[str, Any] | None = None,
) -> None:
    """Changes a node; `attrs` are None for those that it loses."""
    if op != node.op:
        node.set_op(op)
    if tuple(inputs) != node.inputs:
        node.set_inputs(inputs)
    if controls is not None and tuple(controls) != node.controls:
        node.set_controls(controls)
    for name, value in (attrs or {}).items():
        if value is None:
            del node.attrs[name]
        else:
            node.attrs[name] = value


def _handle_node(node: Node) -> Any:
    """The NodeDef of the VarHandleOp that replaces a reference variable."""
    handle = tf.NodeDef(name=node.name, op="VarHandleOp", input=["^" + control.name for control in node.controls])
    for attr in ("dtype", "shape", "container"):
        encode(node.attrs.get(attr), handle.attr[attr])
    handle.attr["shared_name"].s = node.attrs.get("shared_name") or tf.compat.as_bytes(node.name)
    return handle


def _switch_once(graph: Graph) -> None:
    """Makes each handle enter a branch once: of two, a read by the one would not see a write to the other."""
    switched: dict[Any, Node] = {}
    for node in order.topological(graph):
        if node.op == "Switch" and node.attrs[TYPE] == RESOURCE:
            first = switched.setdefault((*node.inputs, node.controls), node)
            for value in node.outputs() if first is not node else ():
                value.replace_by(first.output(value.index), list(value.users))


def _enter_once(graph: Graph) -> None:
    """Makes each handle enter a loop once, since XLA treats two entries as two variables."""
    entered: dict[tuple[Value, bytes], Node] = {}
    for node in graph:
        if node.op == "Enter" and node.attrs[TYPE] == RESOURCE:
            first = entered.setdefault((node.inputs[0], node.attrs["frame_name"]), node)
            if first is not node:
                first.set_controls([*first.controls, *node.controls])
                for value in node.outputs():
                    value.replace_by(first.output(value.index), list(value.users))
