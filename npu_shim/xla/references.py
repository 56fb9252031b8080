"""Turns the reference variables of a GraphDef into resource variables, which XLA can compile.

    v:VariableV2   r:Identity(v)        u:AssignAdd(v, d)            z:Mul(u, y)
    v:VarHandleOp  r:ReadVariableOp(v)  u:AssignAddVariableOp(v, d)  u/value:ReadVariableOp(v, ^u)  z:Mul(u/value, y)

Nodes keep their names. A reference is read when its consumer runs, so a consumer that waits for others gets a read
that waits for the same ones; consumers that wait for nothing share one.
"""

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.errors import PlanError

VARIABLES = ("VariableV2", "Variable")
# reference op -> resource op, where the name is not just "Resource" in front
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
PASSES_ON = ("RefIdentity", "RefSwitch", "RefMerge", "RefEnter", "RefExit", "RefNextIteration")
TYPE = "T"  # what reference ops call the attribute that resource ops call dtype


def to_resources(graph_def):
    """Returns a GraphDef without reference variables; the given one itself where it has none.

    Args:
        graph_def: tf.compat.v1.GraphDef; it is not changed.

    Raises:
        PlanError: an op writes to a reference variable and has no form for resources, named with its node.
    """
    if not any(node.op in VARIABLES for node in graph_def.node):
        return graph_def
    return _Conversion(graph_def).result()


class _Conversion:
    """One graph's conversion: where references come from, and the reads that were added."""

    def __init__(self, graph_def):
        self._source = graph_def
        self._nodes = {node.name: node for node in graph_def.node}
        self._ops = tf_internals.op_defs()
        self._library = {function.signature.name for function in graph_def.library.function}
        self._references = {}  # tensor (node, port) -> whether it is a reference
        self._reads = {}  # name of an added read -> its node

    def result(self):
        made = tf.GraphDef(versions=self._source.versions, library=self._source.library)
        made.node.extend(self._converted(node) for node in self._source.node)
        made.node.extend(self._reads.values())
        return made

    def _converted(self, node):
        if node.op in VARIABLES:
            return _handle_node(node)
        if node.op in self._library or not any(self._is_reference(text) for text in node.input):
            return node
        if node.op == "Identity":
            return self._read(node.name, node.input[0], node.input[1:])
        wants_handle = [arg.is_ref for arg in _argument_defs(self._ops[node.op].input_arg, node)]
        made = tf.NodeDef()
        made.CopyFrom(node)
        if any(wants_handle):
            self._take_resource_form(made, node)
        controls = [text for text in node.input if text.startswith("^")]
        for number, text in enumerate(node.input[: len(wants_handle)]):
            if not self._is_reference(text):
                continue
            if wants_handle[number]:
                made.input[number], writers = self._handle(text)
                made.input.extend(w for w in writers if w not in made.input)
            else:
                made.input[number] = self._value_for(node, number, text, controls)
        return made

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

    def _value_for(self, node, number, text, controls):
        if not controls:
            name = "%s/value" % text.replace(":", "_")
            if name not in self._reads:
                self._reads[name] = self._read(name, text, ())
            return name
        name = "%s/value_%d" % (node.name, number)
        self._reads[name] = self._read(name, text, controls)
        return name

    def _read(self, name, text, controls):
        handle, writers = self._handle(text)
        read = tf.NodeDef(name=name, op="ReadVariableOp", input=[handle, *dict.fromkeys([*controls, *writers])])
        read.attr["dtype"].type = self._dtype(text)
        return read

    def _handle(self, text):
        """(tensor of the handle, control inputs on the writers that lie between): what a reference stands for."""
        writers = []
        while True:
            node = self._nodes[text.partition(":")[0]]
            if node.op in VARIABLES or node.op in PASSES_ON:
                return text, writers
            writers.append("^" + node.name)
            text = node.input[0]  # every op that writes and passes a reference on takes it as its first input

    def _dtype(self, text):
        node = self._nodes[text.partition(":")[0]]
        return node.attr["dtype" if node.op in VARIABLES else TYPE].type

    def _is_reference(self, text):
        if text.startswith("^"):
            return False
        name, _, port = text.partition(":")
        key = name, int(port or 0)
        if key not in self._references:
            node = self._nodes[name]
            outputs = () if node.op in self._library else _argument_defs(self._ops[node.op].output_arg, node)
            self._references.update(((name, number), arg.is_ref) for number, arg in enumerate(outputs))
        return self._references.get(key, False)


def _handle_node(node):
    handle = tf.NodeDef(name=node.name, op="VarHandleOp", input=node.input)
    for attr in ("dtype", "shape", "container"):
        handle.attr[attr].CopyFrom(node.attr[attr])
    handle.attr["shared_name"].s = node.attr["shared_name"].s or tf.compat.as_bytes(node.name)
    return handle


def _argument_defs(arguments, node):
    """The argument definitions of a node's inputs or outputs, one for each tensor."""
    for argument in arguments:
        if argument.number_attr:
            count = node.attr[argument.number_attr].i
        elif argument.type_list_attr:
            count = len(node.attr[argument.type_list_attr].list.type)
        else:
            count = 1
        for _ in range(count):
            yield argument
