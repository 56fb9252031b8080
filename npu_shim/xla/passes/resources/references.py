"""Turns the reference variables of a GraphDef into resource variables, which XLA can compile.

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
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.graph import arguments
from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.xla.passes.resources.late_reads import MEMORY, PASSES_ON, ROUTES, VARIABLES, VIEWS, Writes

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


def to_resources(graph_def: Any) -> Any:
    """Returns a GraphDef without reference variables; the same object if there are none.

    Args:
        graph_def: tf.compat.v1.GraphDef; it is not changed.

    Raises:
        PlanError: an op writes to a reference variable and has no resource form, or its variable may be one of several;
            the error names its node.
    """
    if not any(node.op in VARIABLES for node in graph_def.node):
        return graph_def
    return _Conversion(graph_def).result()


class _Conversion:
    """The conversion of one graph."""

    def __init__(self, graph_def):
        self._source = graph_def
        self._nodes = {node.name: node for node in graph_def.node}
        self._ops = tf_internals.op_defs()
        self._library = {function.signature.name for function in graph_def.library.function}
        self._references = {}  # tensor (node, port) -> whether it is a reference
        self._added = {}  # name of an added node -> the node
        self._shared = {}  # tensor -> name of the read that its early consumers share
        self._routes = {}  # name of a Switch or Enter of memory -> name of the added one, of the handle
        self._writes = Writes(self._nodes, self._reference_inputs)

    def result(self) -> Any:
        made = tf.GraphDef(versions=self._source.versions, library=self._source.library)
        made.node.extend(self._converted(node) for node in self._source.node)
        made.node.extend(self._added.values())
        return _entered_once(made)

    def _converted(self, node):
        if node.op in VARIABLES:
            return _handle_node(node)
        if not any(self._is_memory(text) for text in node.input):
            return node
        if self._joins(node):
            return self._join(node)
        if node.op == "Identity" and self._is_reference(node.input[0]) and not self._is_join(node.input[0]):
            return self._read(node.name, node.input[0], node.input[1:])
        made = tf.NodeDef()
        made.CopyFrom(node)
        wanted = self._reference_inputs(node)
        if wanted:
            self._take_resource_form(made, node)
        for number, text in enumerate(node.input):
            if number in wanted and self._is_reference(text):
                made.input[number], waits = self._handle(text)
                made.input.extend(each for each in waits if each not in made.input)
            elif self._is_memory(text):
                made.input[number] = self._value_for(node, number, text)
        return made

    def _reference_inputs(self, node):
        """Numbers of a node's reference inputs."""
        if node.op in self._library or not _has_references(node.op, "input_arg"):
            return ()
        taken = arguments.of_each(self._ops[node.op].input_arg, node)
        return [number for number, argument in enumerate(taken) if argument.is_ref]

    def _take_resource_form(self, made, node):
        op = RENAMED.get(node.op, "Resource" + node.op)
        if op not in self._ops:
            raise PlanError(
                "node '%s': op %s writes to a reference variable and has no form for resource variables; make the "
                "variable with use_resource=True, or run the step in the session" % (node.name, node.op)
            )
        made.op = op
        if node.op in PASSES_ON:
            made.attr[TYPE].type = tf.resource.as_datatype_enum
            return
        wanted = {attr.name for attr in self._ops[op].attr}
        if "dtype" in wanted and TYPE in node.attr:
            made.attr["dtype"].CopyFrom(node.attr[TYPE])
        for name in [name for name in made.attr if name not in wanted and not name.startswith("_")]:
            del made.attr[name]

    def _joins(self, node):
        """Whether a node joins the references of a tf.cond's branches."""
        return node.op == "RefMerge" and not any("NextIteration" in self._nodes[source_of(t)].op for t in node.input)

    def _is_join(self, text):
        return self._joins(self._nodes[source_of(text)])

    def _join(self, node):
        """The Merge of the values that a tf.cond's branches end with."""
        made = tf.NodeDef()
        made.CopyFrom(node)
        made.op = "Merge"
        for number, text in enumerate(node.input):
            if self._is_reference(text):
                made.input[number] = self._shared_value(text)
        return made

    def _value_for(self, node, number, text):
        """The value that replaces an input that is a variable's memory."""
        inputs = [text] if node.op == "Merge" else node.input  # its other inputs may be dead
        if node.op not in ROUTES and self._writes.is_late(inputs, text, self._taken(text)):
            # a value that comes through Switch or Enter is read before the branch or loop begins
            waits = [each for each in inputs if each[0] == "^"]
            sources = [source_of(each) for each in inputs if each[0] != "^"]
            waits += ["^" + each for each in sources if self._waits_for(each)]
            return self._fresh(text, dict.fromkeys(waits), self._unused("%s/value_%d" % (node.name, number)))
        return self._shared_value(text)

    def _waits_for(self, source):
        op = self._nodes[source].op
        return op not in VARIABLES and op not in PASSES_ON and op not in ROUTES

    def _shared_value(self, text):
        if not self._is_reference(text) or self._is_join(text):
            return text
        if text not in self._shared:
            self._shared[text] = self._unused("%s/value" % text.replace(":", "_"))
            self._add(self._read(self._shared[text], text, ()))
        return self._shared[text]

    def _fresh(self, text, waits, name):
        """Reads a tensor's memory after `waits`, by a node of that name; other tensors give their shared value."""
        place = self._place(text)
        if place is not None:
            return self._add(self._read(name, text, waits, place))
        node = self._nodes[source_of(text)]
        if node.op not in VIEWS:
            return self._shared_value(text)
        made = tf.NodeDef()
        made.CopyFrom(node)
        made.name = name
        made.input[0] = self._fresh(node.input[0], waits, self._unused(name + "/memory"))
        return self._add(made)

    def _place(self, text):
        """(handle, control inputs) of the variable whose memory a tensor aliases; None if there is no such variable."""
        node = self._nodes[source_of(text)]
        if self._is_reference(text):
            return None if self._is_join(text) and self._origin(node) is None else self._handle(text)
        if node.op == "Identity":
            return self._place(node.input[0])
        if node.op not in ROUTES:
            return None
        inner = self._place(node.input[0])
        if inner is None:
            return None
        if node.name not in self._routes:
            made = tf.NodeDef()
            made.CopyFrom(node)
            made.name = self._routes[node.name] = self._unused(node.name + "/handle")
            made.attr[TYPE].type = tf.resource.as_datatype_enum
            made.input[0] = inner[0]
            made.input.extend(each for each in inner[1] if each not in made.input)
            self._add(made)
        return text.replace(node.name, self._routes[node.name], 1), []

    def _read(self, name, text, controls, place=None):
        handle, waits = place or self._handle(text)
        read = tf.NodeDef(name=name, op="ReadVariableOp", input=[handle, *dict.fromkeys([*controls, *waits])])
        variable = self._nodes[min(self._writes.variables(text))]
        read.attr["dtype"].type = variable.attr["dtype"].type
        return read

    def _handle(self, text):
        """Resolves a reference to (handle, control inputs on the writers that it passes through).

        Raises:
            PlanError: a tf.cond returns one of several variables.
        """
        waits = []
        while True:
            node = self._nodes[source_of(text)]
            if self._joins(node):
                waits.append("^" + node.name)
                text = self._origin(node)
                if text is None:
                    raise PlanError(
                        "node '%s' gives one of several reference variables, and is written to: XLA must know which; "
                        "write to the variables inside of tf.cond, or run the step in the session" % node.name
                    )
            elif node.op in VARIABLES or node.op in PASSES_ON:
                return _without_port(text), waits
            else:
                waits.append("^" + node.name)
                text = node.input[0]  # every writer that forwards a reference takes it as its first input

    def _origin(self, join):
        """The handle that enters a tf.cond if all branches return its variable; None if they return several."""
        found = set()
        for text in join.input:
            if text[0] == "^":
                continue
            if self._is_join(text) and self._origin(self._nodes[source_of(text)]) is None:
                return None
            switch = self._nodes[source_of(self._handle(text)[0])]
            found.add(self._handle(switch.input[0])[0] if switch.op == "RefSwitch" else None)
        return found.pop() if len(found) == 1 else None

    def _is_memory(self, text):
        """Whether a tensor is a reference or aliases a reference variable's memory."""
        return self._taken(text) is not None

    def _taken(self, text):
        """The first tensor that reads the memory from its reference, or the reference; None for other tensors."""
        taken = text
        while not self._is_reference(text):
            node = self._nodes[source_of(text)]
            if text[0] == "^" or node.op not in MEMORY or not node.input:
                return None
            taken, text = text, node.input[0]
        return taken

    def _is_reference(self, text):
        if text.startswith("^"):
            return False
        key = arguments.output_of(text)
        if key not in self._references:
            node = self._nodes[key[0]]
            if node.op in self._library or not _has_references(node.op, "output_arg"):
                return False
            outputs = arguments.of_each(self._ops[node.op].output_arg, node)
            self._references.update(((node.name, number), arg.is_ref) for number, arg in enumerate(outputs))
        return self._references.get(key, False)

    def _add(self, node):
        self._added[node.name] = node
        return node.name

    def _unused(self, name):
        while name in self._nodes or name in self._added or name in self._shared.values():
            name += "_"
        return name


@functools.lru_cache(maxsize=None)
def _has_references(op: str, kind: str) -> bool:
    """Whether an op takes ("input_arg") or returns ("output_arg") references."""
    definition = tf_internals.op_defs().get(op)
    return definition is not None and any(argument.is_ref for argument in getattr(definition, kind))


def _entered_once(graph_def):
    """Makes each handle enter a loop once, in place, since XLA treats two entries as two variables."""
    kept, replaced = {}, {}
    for node in graph_def.node:
        if node.op == "Enter" and node.attr[TYPE].type == tf.resource.as_datatype_enum:
            first = kept.setdefault((_without_port(node.input[0]), node.attr["frame_name"].s), node)
            if first is not node:
                replaced[node.name] = first.name
                first.input.extend(text for text in node.input[1:] if text not in first.input)
    for node in graph_def.node:
        for number, text in enumerate(node.input):
            if source_of(text) in replaced:
                node.input[number] = text.replace(source_of(text), replaced[source_of(text)], 1)
    return graph_def


def _without_port(text):
    return text[:-2] if text.endswith(":0") else text


def _handle_node(node):
    handle = tf.NodeDef(name=node.name, op="VarHandleOp", input=node.input)
    for attr in ("dtype", "shape", "container"):
        handle.attr[attr].CopyFrom(node.attr[attr])
    handle.attr["shared_name"].s = node.attr["shared_name"].s or tf.compat.as_bytes(node.name)
    return handle
