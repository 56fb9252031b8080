"""Reads a GraphDef into a GraphView, and TensorFlow's kernel registry into a KernelTable."""

import functools
import operator
from typing import Dict, List

from . import tf_internals
from .errors import ConfigError, nearest
from .graph_view import GraphView, Layout, Node, Port, Slot
from .kernel_table import Kernel, KernelTable
from .shapes import Shapes

# attributes that scopes put on nodes
KEEP, TO_FLOAT = "_keep_dtype", "_npu_shim_to_float"
KEEP_WITH_GRADIENTS = 2  # the vendor's scope writes 1
GRADIENT = "_grad/"

# Old forms that have one type attribute for data and statistics, and the newer form that has two: a node is read as
# its newer form, the new attribute as a copy of the old one, and takes that form only if it is lowered.
NEWER_FORM = {"FusedBatchNorm": ("FusedBatchNormV2", {"U": "T"}), "FusedBatchNormGrad": ("FusedBatchNormGradV2", {"U":
"T"})}


def read(graph_def, feeds=(), preserved=()):
    """Reads a graph.

    Args:
        graph_def: a tf.compat.v1.GraphDef; it is not changed.
        feeds: names of tensors that callers supply ("x" or "x:0").
        preserved: names of nodes or tensors that must keep their names and dtypes: fetches, targets, saver ops.

    Returns:
        A GraphView with the nodes in the order of the GraphDef.

    Raises:
        ConfigError: an op that this TensorFlow does not have, an input, feed or preserved name that is not in the
            graph.
    """
    library = {function.signature.name: function.signature for function in graph_def.library.function}
    position = {node.name: number for number, node in enumerate(graph_def.node)}
    nodes = _read_nodes(graph_def.node, _Layouts(library), position)
    nodes = _keep_gradients(graph_def.node, nodes)
    fed = frozenset(_port(name, position, "feed") for name in feeds)
    kept = frozenset(_port(name, position, "fetch").node for name in preserved)

    def elements(constant):
        dims = graph_def.node[constant].attr["value"].tensor.tensor_shape.dim
        return functools.reduce(operator.mul, [dim.size for dim in dims], 1)

    shapes = Shapes(nodes, graph_def.node, fed)
    return GraphView(tuple(nodes), fed, kept, frozenset(library), elements, shapes.sums_nothing)


def reread(before, graph_def, touched):
    """Reads a graph made from that of `before` by changing the nodes at `touched` and adding nodes at the end.

    Returns:
        A GraphView without interface. What was not touched is taken over, so that checking every rewrite is cheap.

    Raises:
        ConfigError: as `read`.
    """
    count = len(before.nodes)
    position = {node.name: number for number, node in enumerate(before.nodes)}
    protos = graph_def.node
    changed = [*touched, *range(count, len(protos))]
    position.update((protos[number].name, number) for number in changed)
    library = {function.signature.name: function.signature for function in graph_def.library.function}
    nodes = list(before.nodes) + [None] * (len(protos) - count)
    for number, node in zip(changed, _read_nodes((protos[n] for n in changed), _Layouts(library), position)):
        nodes[number] = node
    return GraphView(tuple(nodes), functions=before.functions)


def kernel_table(default_device="CPU"):
    """The kernels of this TensorFlow; `default_device` ("CPU" or "GPU") is assumed where a node names none."""
    return KernelTable(_kernels(), default_device)


@functools.lru_cache(maxsize=None)
def _kernels():
    return {
        op: tuple(
            Kernel(k.device_type, tuple((c.name, frozenset(c.allowed_values.list.type)) for c in k.constraint))
            for k in registered
        )
        for op, registered in tf_internals.kernels().items()
    }


def _read_nodes(protos, layouts, position):
    nodes = []
    ports = _Ports(position)
    for proto in protos:
        try:
            nodes.append(_read_node(proto, layouts, ports))
        except KeyError as missing:
            raise ConfigError(_unknown(proto, missing.args[0], position, layouts)) from None
    return nodes


class _Ports(dict):
    """Input as text -> Port, each made once; of a control input the Port's number is -1."""

    def __init__(self, position):
        super().__init__()
        self._position = position

    def __missing__(self, text):
        name, colon, number = text.rpartition(":")
        if text[0] == "^":
            port = Port(self._position[text[1:]], -1)
        else:
            port = Port(self._position[name], int(number)) if colon else Port(self._position[text], 0)
        self[text] = port
        return port


def _read_node(proto, layouts, ports):
    inputs = [ports[text] for text in proto.input]
    controls = ()
    if inputs and inputs[-1].port < 0:  # control inputs come last
        controls = tuple([port.node for port in inputs if port.port < 0])
        del inputs[-len(controls) :]
    op, attr = proto.op, proto.attr
    layout, dtypes = layouts.of(op, attr)
    if len(inputs) != len(layout.inputs):
        raise ConfigError(
            "node '%s': op %s has %d inputs, this one %d" % (proto.name, op, len(layout.inputs), len(inputs))
        )
    kept = KEEP in attr and attr[KEEP].i != 0
    asked = attr[TO_FLOAT].type if TO_FLOAT in attr else 0
    return Node(proto.name, op, proto.device, layout, dtypes, tuple(inputs), controls, kept, asked)


def _keep_gradients(protos, nodes):
    """Keeps the gradient ops of nodes whose scope asks for it: TensorFlow names them SCOPE/NODE_grad/..."""
    with_gradients = {
        node.name for node, proto in zip(nodes, protos) if node.kept and proto.attr[KEEP].i == KEEP_WITH_GRADIENTS
    }
    if not with_gradients:
        return nodes
    return [node._replace(kept=node.kept or _is_gradient_of(node.name, with_gradients)) for node in nodes]


def _is_gradient_of(name, forward):
    end = name.find(GRADIENT)
    while end >= 0:
        parts = name[:end].split("/")
        if any("/".join(parts[start:]) in forward for start in range(1, len(parts))):
            return True
        end = name.find(GRADIENT, end + 1)
    return False


def _unknown(proto, missing, position, layouts):
    """Says what of a node is not known: its op, or one of its inputs."""
    if missing == proto.op and missing not in position:
        return "node '%s': op %s is not in this TensorFlow%s" % (proto.name, missing, nearest(missing, layouts.names()))
    return "node '%s' reads '%s', which is not in the graph%s" % (proto.name, missing, nearest(missing, position))


def _port(name, position, role):
    """The port of a tensor name, a node name, or a control name."""
    node, colon, port = name.lstrip("^").rpartition(":")
    if not colon or not port.isdigit():
        node, port = name.lstrip("^"), "0"
    if node not in position:
        raise ConfigError("%s '%s' is not in the graph%s" % (role, name, nearest(node, position)))
    return Port(position[node], int(port))


class _Layouts:
    """The layouts of one graph's ops, each made once."""

    def __init__(self, library):
        self._library = library
        self._simple = {}  # op -> (Layout, its type attributes with their defaults), for ops without lists
        self._made = {}
        self._dtypes = {}

    def names(self):
        return [*tf_internals.op_defs(), *self._library]

    def of(self, op, attr):
        """The layout of a node and the dtypes of its slots, in the order of the layout."""
        simple = self._simple.get(op)
        if simple is None:
            simple = self._simple[op] = self._read_simple(op)
        layout, wanted = simple
        if layout is not None:
            if not wanted:
                return layout, ()
            values = tuple([attr[name].type if name in attr else default for name, default in wanted])
            return layout, self._dtypes.setdefault(values, values)
        return self._of_lists(op, attr, wanted)

    def _read_simple(self, op):
        definition, copied = self._definition(op)
        wanted = [
            (copied.get(a.name, a.name), a.default_value.type) for a in definition.attr if a.type == "type"
        ]
        lists = any(a.number_attr or a.type_list_attr for a in [*definition.input_arg, *definition.output_arg])
        if lists or any(a.type == "list(type)" for a in definition.attr):
            return None, definition
        return _layout(definition, {}), wanted

    def _definition(self, op):
        form, copied = NEWER_FORM.get(op, (op, {}))
        definition = self._library.get(form) or tf_internals.op_defs().get(form)
        if definition is None:
            raise KeyError(op)
        return definition, copied

    def _of_lists(self, op, attr, definition):
        lengths, values = {}, []
        for a in definition.attr:
            value = attr.get(a.name, a.default_value)
            if a.type == "type":
                values.append(value.type)
            elif a.type == "list(type)":
                types = tuple(value.list.type)
                lengths[a.name] = len(types)
                values.extend(types)
            elif a.type == "int":
                lengths[a.name] = value.i
        key = (op, tuple(lengths.values()))
        if key not in self._made:
            self._made[key] = _layout(definition, lengths)
        return self._made[key], tuple(values)


def _layout(definition, lengths):
    """The layout of an op; `lengths` has its int attributes' values and its list(type) attributes' lengths."""
    slots: List[Slot] = []
    admits = []
    start: Dict[str, int] = {}
    for a in definition.attr:
        if a.type not in ("type", "list(type)"):
            continue
        start[a.name] = len(slots)
        indices = [None] if a.type == "type" else range(lengths[a.name])
        slots += [Slot(a.name, index) for index in indices]
        allowed = frozenset(a.allowed_values.list.type) or None
        admits += [allowed for _ in indices]
    inputs, ref_inputs = _ports(definition.input_arg, start, lengths)
    outputs, ref_outputs = _ports(definition.output_arg, start, lengths)
    return Layout(definition.name, tuple(slots), inputs, outputs, tuple(admits), ref_inputs, ref_outputs)


def _ports(args, start, lengths):
    ports: List[int] = []
    refs = set()
    for arg in args:
        begin = len(ports)
        if arg.type_list_attr:
            ports += range(start[arg.type_list_attr], start[arg.type_list_attr] + lengths[arg.type_list_attr])
        else:
            one = start[arg.type_attr] if arg.type_attr else ~arg.type
            ports += [one] * (lengths[arg.number_attr] if arg.number_attr else 1)
        if arg.is_ref:
            refs.update(range(begin, len(ports)))
    return tuple(ports), frozenset(refs)
