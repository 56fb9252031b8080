"""Reads a GraphDef into a GraphView."""

import functools
import itertools
import operator
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

from .. import tf_internals
from ..errors import ConfigError, nearest
from ..graph.emulation import ROUNDED
from ..graph.graph_view import KEEP, MOVED, TO_FLOAT, UNSCALES, GraphView, Layout, Node, Port, Slot
from ..tables.dtypes import FLOAT32

# Old forms with one type attribute for data and statistics, and the newer forms with two. A node is read as its newer
# form, with the new attribute copied from the old one, and is rewritten to that form only if it is lowered.
NEWER_FORM = {
    "FusedBatchNorm": ("FusedBatchNormV2", {"U": "T"}),
    "FusedBatchNormGrad": ("FusedBatchNormGradV2", {"U": "T"}),
}


def read(graph_def: Any, feeds: Iterable[str] = (), preserved: Iterable[str] = ()) -> GraphView:
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
    protos = list(graph_def.node)  # of a message that nobody holds, each walk would make the Python object again
    names = [proto.name for proto in protos]
    position = dict(zip(names, range(len(names))))
    ports = _Ports(position)
    ports.fill()
    nodes = _read_nodes(protos, names, _Layouts(library), ports)
    fed = frozenset(_port(name, position, nodes, "feed") for name in feeds)
    kept = frozenset(_port(name, position, nodes, "fetch").node for name in preserved)

    return GraphView(tuple(nodes), fed, kept, frozenset(library), _sizes(nodes, protos))


def _sizes(nodes, protos):
    """Number of elements of each float32 Const."""
    sizes = {}
    for position, node in enumerate(nodes):
        if node.op == "Const" and node.dtypes == (FLOAT32,):
            dims = protos[position].attr["value"].tensor.tensor_shape.dim
            sizes[position] = functools.reduce(operator.mul, [dim.size for dim in dims], 1) if dims else 1
    return sizes


def reread(before: GraphView, graph_def: Any, touched: Iterable[int]) -> GraphView:
    """Reads a graph made from that of `before` by changing the nodes at `touched` and adding nodes at the end.

    Returns:
        A GraphView without feeds and preserved nodes. Untouched nodes are reused, so that checking a rewrite is cheap.

    Raises:
        ConfigError: as `read`.
    """
    count = len(before.nodes)
    changed = [*touched, *range(count, len(graph_def.node))]
    protos = [graph_def.node[number] for number in changed]
    names = [proto.name for proto in protos]
    position = {**before.positions(), **dict(zip(names, changed))}
    library = {function.signature.name: function.signature for function in graph_def.library.function}
    nodes: List[Any] = [*before.nodes, *[None] * (len(graph_def.node) - count)]
    ports = _Ports(position)
    if len(changed) > count // 2:
        ports.fill()
    for number, node in zip(changed, _read_nodes(protos, names, _Layouts(library), ports)):
        nodes[number] = node
    return GraphView(tuple(nodes), functions=before.functions)


def _read_nodes(protos, names, layouts, ports):
    nodes = []
    for proto, name in zip(protos, names):
        try:
            nodes.append(_read_node(proto, name, layouts, ports))
        except KeyError as missing:
            raise ConfigError(_unknown(proto, missing.args[0], ports.position, layouts)) from None
    return nodes


class _Ports(dict):
    """Input as text -> Port, each made once; the Port of a control input has number -1."""

    def __init__(self, position):
        super().__init__()
        self.position = position

    def fill(self):
        """Makes the first port of every node."""
        self.update(zip(self.position, map(Port, self.position.values(), itertools.repeat(0))))

    def __missing__(self, text):
        name, colon, number = text.rpartition(":")
        if text[0] == "^":
            port = Port(self.position[text[1:]], -1)
        else:
            port = Port(self.position[name], int(number)) if colon else Port(self.position[text], 0)
        self[text] = port
        return port


def _read_node(proto, name, layouts, ports):
    inputs = list(map(ports.__getitem__, proto.input[:]))  # a slice is made at once, an iterator asks for each
    controls = ()
    if inputs and inputs[-1].port < 0:  # control inputs come last
        controls = tuple([port.node for port in inputs if port.port < 0])
        del inputs[-len(controls) :]
    attr = proto.attr
    op, layout, dtypes = layouts.of(proto.op, attr)
    if len(inputs) != len(layout.inputs):
        raise ConfigError(
            "node '%s': op %s has %d inputs, this one %d" % (name, op, len(layout.inputs), len(inputs))
        )
    kept = KEEP in attr and attr[KEEP].i != 0
    asked = attr[TO_FLOAT].type if TO_FLOAT in attr else 0
    rounded = attr[ROUNDED].type if ROUNDED in attr else 0
    flags = MOVED in attr, UNSCALES in attr
    return Node(name, op, proto.device, layout, dtypes, tuple(inputs), controls, kept, asked, rounded, *flags)


def _unknown(proto, missing, position, layouts):
    """The error text for an unknown op, or an unknown input, of a node."""
    if missing == proto.op and missing not in position:
        return "node '%s': op %s is not in this TensorFlow%s" % (proto.name, missing, nearest(missing, layouts.names()))
    return "node '%s' reads '%s', which is not in the graph%s" % (proto.name, missing, nearest(missing, position))


def _port(name, position, nodes, role):
    """The port of a tensor name, a node name, or a control name."""
    node, colon, port = name.lstrip("^").rpartition(":")
    if not colon or not port.isdigit():
        node, colon, port = name.lstrip("^"), "", "0"
    if node not in position:
        raise ConfigError("%s '%s' is not in the graph%s" % (role, name, nearest(node, position)))
    producer = nodes[position[node]]
    count = len(producer.layout.outputs)
    if colon and int(port) >= count:
        outputs = "no output" if not count else "1 output" if count == 1 else "%d outputs" % count
        raise ConfigError("%s '%s': node '%s' (op %s) has %s" % (role, name, node, producer.op, outputs))
    return Port(position[node], int(port))


class _Layouts:
    """The layouts of one graph's ops. Registered ops are read once for all graphs; functions belong to the graph."""

    def __init__(self, library):
        self._library = library
        self._forms = {}

    def names(self):
        return [*tf_internals.op_defs(), *self._library]

    def of(self, op, attr):
        """The op type of a node, its layout, and the dtypes of its slots in the order of the layout.

        For equal nodes it gives the same objects, which are quick to compare, and to find again in memory.
        """
        form = self._forms.get(op)
        if form is None:
            form = self._forms[op] = _form(self._library[op]) if op in self._library else _registered_form(op)
        if form.layout is None:
            return _of_lists(op, form, attr)
        if len(form.types) == 1:  # of most ops, and nothing is asked of more nodes
            [(name, default)] = form.types
            key = attr[name].type if name in attr else default
        else:
            key = tuple([attr[name].type if name in attr else default for name, default in form.types])
        kind = form.kinds.get(key)
        if kind is None:
            kind = form.kinds[key] = op, form.layout, key if isinstance(key, tuple) else (key,)
        return kind


class _Form(NamedTuple):
    """How nodes of one op type are read: `types` are (name, default) of their type attributes.

    `layout` is None for ops with lists, whose layouts differ from node to node. `kinds` are what `_Layouts.of` gives
    for the nodes read so far, by their types and the lengths of their lists.
    """

    definition: Any
    layout: Optional[Layout]
    types: Tuple[Tuple[str, int], ...]
    kinds: Dict[Any, Tuple[str, Layout, Tuple[int, ...]]]


@functools.lru_cache(maxsize=None)
def _registered_form(op):
    newer, copied = NEWER_FORM.get(op, (op, {}))
    definition = tf_internals.op_defs().get(newer)
    if definition is None:
        raise KeyError(op)
    return _form(definition, copied)


def _form(definition, copied=None):
    types = [((copied or {}).get(a.name, a.name), a.default_value.type) for a in definition.attr if a.type == "type"]
    lists = any(a.number_attr or a.type_list_attr for a in [*definition.input_arg, *definition.output_arg])
    if lists or any(a.type == "list(type)" for a in definition.attr):
        return _Form(definition, None, (), {})
    return _Form(definition, _layout(definition, {}), tuple(types), {})


def _of_lists(op, form, attr):
    lengths, values = {}, []
    for a in form.definition.attr:
        value = attr.get(a.name, a.default_value)
        if a.type == "type":
            values.append(value.type)
        elif a.type == "list(type)":
            types = tuple(value.list.type)
            lengths[a.name] = len(types)
            values.extend(types)
        elif a.type == "int":
            lengths[a.name] = value.i
    key = (*lengths.values(), *values)
    if key not in form.kinds:
        form.kinds[key] = op, _layout(form.definition, lengths), tuple(values)
    return form.kinds[key]


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
