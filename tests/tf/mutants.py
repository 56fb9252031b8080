"""Draws graphs with one fault: what a check of a rewrite must refuse.

No mutant computes what its graph computes: operands are exchanged only where they are different tensors and their op is
not commutative, an input is led to another tensor of its dtype, an op becomes another function of the same type, and an
attribute gets a value that TensorFlow reads and that differs. Names, the order of nodes and of control inputs, and
attributes that TensorFlow only notes are never touched.
"""

import random

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.graph import arguments

# ops of the same inputs, outputs and attributes, of which one computes something else than the other
EXCHANGES = {
    "Exp": "Sqrt", "Sqrt": "Exp", "Add": "Sub", "AddV2": "Sub", "Sub": "Mul", "Mul": "Sub", "RealDiv": "Sub",
    "Maximum": "Minimum", "Minimum": "Maximum", "Relu": "Tanh", "Tanh": "Relu", "Sigmoid": "Tanh", "Sum": "Max",
    "Mean": "Sum", "Max": "Min", "Square": "Exp", "Rsqrt": "Sqrt", "Neg": "Square", "TanhGrad": "SigmoidGrad",
    "Greater": "Less", "Less": "Greater", "GreaterEqual": "Less", "ZerosLike": "Identity", "Log": "Exp",
    "AssignAdd": "AssignSub", "AssignAddVariableOp": "AssignSubVariableOp", "LogicalAnd": "LogicalOr",
}  # fmt: skip
COMMUTES = frozenset({
    "Add", "AddV2", "AddN", "Mul", "Maximum", "Minimum", "Equal", "NotEqual", "LogicalAnd", "LogicalOr", "Merge",
    "SquaredDifference", "NoOp", "_ParallelConcatUpdate", "ConcatOffset", "BroadcastGradientArgs", "Assert",
})  # fmt: skip
LISTS = ("strides", "ksize", "dilations", "shape", "dims")


def drawn(graph_def, rng, tries=400):
    """(what was done, a GraphDef with one fault); None where none was drawn."""
    for _ in range(tries):
        mutant = type(graph_def)()
        mutant.CopyFrom(graph_def)
        bodies = [function for function in mutant.library.function if function.node_def]
        body = rng.choice(bodies) if bodies and rng.random() < 0.5 else None
        how = rng.choice(IN_GRAPHS if body is None else IN_GRAPHS + IN_FUNCTIONS * 2)
        what = how(_Place(mutant, body), rng)
        if what is not None:
            return "%s%s" % (what, "" if body is None else " in " + body.signature.name), mutant
    return None


class _Place:
    """The nodes of a graph or of a function's body, and what reads what in them."""

    def __init__(self, graph_def, body):
        self.graph_def, self.body = graph_def, body
        self.nodes = graph_def.node if body is None else body.node_def
        self.library = {function.signature.name: function.signature for function in graph_def.library.function}

    def definition(self, node):
        """The OpDef of a node, None for an op of ours."""
        return self.library.get(node.op) or tf_internals.op_defs().get(node.op)

    def outputs(self, node):
        """(text that names it, dtype) of each output of a node."""
        definition, outputs = self.definition(node), []
        if definition is None:
            return outputs
        seen = {}
        for number, argument in enumerate(arguments.of_each(definition.output_arg, node)):
            if self.body is None:
                text = node.name if number == 0 else "%s:%d" % (node.name, number)
            else:
                text = "%s:%s:%d" % (node.name, argument.name, seen.get(argument.name, 0))
                seen[argument.name] = seen.get(argument.name, 0) + 1
            outputs.append(text)
        return list(zip(outputs, arguments.dtypes(definition.output_arg, node)))

    def tensors(self):
        """Text -> dtype of all tensors."""
        tensors = {text: dtype for node in self.nodes for text, dtype in self.outputs(node)}
        if self.body is not None:
            tensors.update((argument.name, argument.type) for argument in self.body.signature.input_arg)
        return tensors


def _inputs_swapped(place, rng):
    node = rng.choice(place.nodes)
    data = arguments.data(node)
    if node.op in COMMUTES or len(data) < 2:
        return None
    one, other = rng.sample(range(len(data)), 2)
    tensors = place.tensors()
    if data[one] == data[other] or tensors.get(data[one]) != tensors.get(data[other]) or data[one] not in tensors:
        return None
    node.input[one], node.input[other] = data[other], data[one]
    return "inputs %d and %d of %s (%s) swapped" % (one, other, node.name, node.op)


def _input_led_elsewhere(place, rng):
    node = rng.choice(place.nodes)
    data = arguments.data(node)
    if not data:
        return None
    number, tensors = rng.randrange(len(data)), place.tensors()
    dtype = tensors.get(data[number])
    others = [text for text, have in tensors.items() if have == dtype and text != data[number]]
    others = [text for text in others if text.partition(":")[0] != node.name]
    if dtype is None or not others:
        return None
    was, node.input[number] = data[number], rng.choice(others)
    return "input %d of %s (%s) led from %s to %s" % (number, node.name, node.op, was, node.input[number])


def _op_exchanged(place, rng):
    node = rng.choice(place.nodes)
    if node.op not in EXCHANGES:
        return None
    was, node.op = node.op, EXCHANGES[node.op]
    return "%s: %s became %s" % (node.name, was, node.op)


def _control_dropped(place, rng):
    node = rng.choice(place.nodes)
    waits = arguments.controls(node)
    if not waits:
        return None
    text = rng.choice(waits)
    if waits.count(text) > 1 or text[1:] in {arguments.source_of(value) for value in arguments.data(node)}:
        return None  # it waits all the same
    node.input.remove(text)
    return "%s no longer waits for %s" % (node.name, text)


def _control_added(place, rng):
    node, other = rng.choice(place.nodes), rng.choice(place.nodes)
    if other.name in {arguments.source_of(text) for text in node.input} | {node.name}:
        return None
    node.input.append("^" + other.name)
    return "%s waits for %s" % (node.name, other.name)


def _attribute_changed(place, rng):
    node = rng.choice(place.nodes)
    definition = place.definition(node)
    names = [a.name for a in definition.attr if a.name in node.attr] if definition is not None else []
    if not names or node.op == "Cast":
        return None
    name = rng.choice(names)
    value = node.attr[name]
    kind = value.WhichOneof("value")
    if kind == "b" and name not in ("use_locking", "validate_shape", "is_constant", "cudnn_enable_on_gpu",
                                    "use_cudnn_on_gpu", "validate_indices", "Truncate"):  # fmt: skip
        value.b = not value.b
    elif kind == "list" and name in LISTS and len(value.list.i) > 1:
        value.list.i[1] += 1
    elif kind == "tensor" and value.tensor.dtype in (tf.float32.as_datatype_enum, tf.int32.as_datatype_enum):
        array = tf.make_ndarray(value.tensor)
        if not array.size or not (abs(array) < 1e6).all():
            return None
        value.tensor.CopyFrom(tf.make_tensor_proto(array + 1, dtype=value.tensor.dtype, shape=array.shape))
    elif kind == "f":
        value.f += 1
    elif kind == "i" and name in ("axis", "num_split", "num_outs", "out_idx"):
        value.i += 1
    else:
        return None
    return "attribute %s of %s (%s) changed" % (name, node.name, node.op)


def _dtype_changed(place, rng):
    node = rng.choice(place.nodes)
    names = [
        name for name in node.attr if node.attr[name].type in (tf.float32.as_datatype_enum, tf.float16.as_datatype_enum)
    ]
    names = [name for name in names if name[0] != "_"]
    if not names:
        return None
    name = rng.choice(names)
    both = tf.float32.as_datatype_enum + tf.float16.as_datatype_enum
    node.attr[name].type = both - node.attr[name].type
    return "dtype %s of %s (%s) exchanged" % (name, node.name, node.op)


def _cast_dropped(place, rng):
    casts = [node for node in place.nodes if node.op == "Cast"]
    if not casts:
        return None
    cast = rng.choice(casts)
    name = cast.name if place.body is None else cast.name + ":y:0"
    readers = [(node, number) for node in place.nodes for number, text in enumerate(node.input) if text == name]
    if not readers:
        return None
    node, number = rng.choice(readers)
    node.input[number] = cast.input[0]
    return "%s (%s) reads around %s" % (node.name, node.op, cast.name)


def _cast_doubled(place, rng):
    node = rng.choice(place.nodes)
    data, tensors = arguments.data(node), place.tensors()
    numbers = [k for k, text in enumerate(data) if tensors.get(text) == tf.float32.as_datatype_enum]
    if not numbers:
        return None
    number, taken = rng.choice(numbers), {node.name for node in place.nodes}
    name, suffix = node.name.rpartition("/")[2] + "-doubled", "" if place.body is None else ":y:0"
    if name in taken or name + "-up" in taken:
        return None
    low, wide = tf.float16.as_datatype_enum, tf.float32.as_datatype_enum
    for text, source, (was, becomes) in ((name, data[number], (wide, low)), (name + "-up", name + suffix, (low, wide))):
        cast = place.nodes.add(name=text, op="Cast", input=[source], device=node.device)
        cast.attr["SrcT"].type, cast.attr["DstT"].type = was, becomes
    node.input[number] = name + "-up" + suffix
    return "input %d of %s (%s) rounded once more" % (number, node.name, node.op)


def _device_changed(place, rng):
    node = rng.choice(place.nodes)
    node.device = "/device:CPU:1" if "CPU:1" not in node.device else "/device:CPU:0"
    return "device of %s changed" % node.name


def _node_removed(place, rng):
    number = rng.randrange(len(place.nodes))
    name = place.nodes[number].name
    del place.nodes[number]
    return "%s removed" % name


def _node_duplicated(place, rng):
    node = rng.choice(place.nodes)
    place.nodes.add().CopyFrom(node)
    if rng.random() < 0.5:
        place.nodes[-1].name += "-again"
    return "%s duplicated" % node.name


def _node_added(place, rng):
    place.nodes.add(name="unasked", op="NoOp")
    return "a node added"


def _arguments_permuted(place, rng):
    arguments_ = place.body.signature.input_arg
    numbers = [(i, j) for i in range(len(arguments_)) for j in range(i) if arguments_[i].type == arguments_[j].type]
    if not numbers:
        return None
    one, other = rng.choice(numbers)
    arguments_[one].name, arguments_[other].name = arguments_[other].name, arguments_[one].name
    return "arguments %d and %d exchanged" % (one, other)


def _returns_exchanged(place, rng):
    ret = place.body.ret
    pairs = [(a, b) for a in ret for b in ret if a < b and ret[a] != ret[b]]
    if not pairs:
        return None
    one, other = rng.choice(pairs)
    ret[one], ret[other] = ret[other], ret[one]
    return "returns %s and %s exchanged" % (one, other)


def _control_return_dropped(place, rng):
    if not place.body.control_ret:
        return None
    del place.body.control_ret[rng.choice(sorted(place.body.control_ret))]
    return "a control return dropped"


def _branches_exchanged(place, rng):
    calls = [node for node in place.nodes if "then_branch" in node.attr]
    calls = [n for n in calls if n.attr["then_branch"].func.name != n.attr["else_branch"].func.name]
    if not calls:
        return None
    node = rng.choice(calls)
    one, other = node.attr["then_branch"].func, node.attr["else_branch"].func
    one.name, other.name = other.name, one.name
    return "branches of %s exchanged" % node.name


OFTEN = [_inputs_swapped, _input_led_elsewhere, _op_exchanged, _attribute_changed, _cast_dropped]
IN_GRAPHS = [
    *OFTEN, *OFTEN, _control_dropped, _control_added, _dtype_changed, _cast_doubled, _device_changed, _node_removed,
    _node_duplicated, _node_added, _branches_exchanged,
]  # fmt: skip
IN_FUNCTIONS = [_arguments_permuted, _returns_exchanged, _control_return_dropped]


def seeded(seed):
    """A generator of its own for each seed."""
    return random.Random(seed)
