"""Finds the nodes whose values XLA must know at compile time.

XLA searches backwards from inputs that are sizes, axes and positions, through everything that computes them:

    v -> ReadVariableOp -> FloorMod -> Fill(dims)            all of them are required, v too

TensorFlow does not expose which inputs these are. Their type in the op's definition is an integer, so every such input
counts, except those that XLA is known to accept as data.
"""

from __future__ import annotations

import collections
import functools
from typing import Any, Container, Iterable, Mapping

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.graph import arguments
from npu_shim.rewriter.graphdef import functions

INTEGERS = frozenset(
    dtype.as_datatype_enum
    for dtype in (tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64)
)
# names of integer inputs that are data: rows, classes, seeds
DATA = frozenset([
    "indices", "segment_ids", "labels", "targets", "partitions", "seed", "key", "counter", "alg", "shift",
])  # fmt: skip
STITCHES = ("DynamicStitch", "ParallelDynamicStitch")  # unlike other indices, theirs must be constant
NUMBERS = ("Range", "LinSpace")  # sizes, though they may be floats
SHAPES = frozenset(["Shape", "ShapeN", "Size", "Rank", "VariableShape"])  # use shapes, not values: the search ends here
FORWARDS = ("Identity", "IdentityN", "While", "StatelessWhile")  # the search goes from an output to its own input only
# op type -> the numbers of the inputs that XLA refuses as data
STRICT: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(["StatelessRandomUniformV2", "StatelessRandomUniformIntV2", "StatelessRandomNormalV2"], (0,)),
    **dict.fromkeys(["StatelessTruncatedNormalV2", "Fill", "Split"], (0,)),
    **dict.fromkeys(["Reshape", "Tile", "OneHot", "BroadcastTo", "Pad", "PadV2", "MirrorPad", "ExpandDims"], (1,)),
    **dict.fromkeys(["Sum", "Mean", "Max", "Min", "Prod", "All", "Any", "ArgMax", "ArgMin"], (1,)),
    "SplitV": (1, 2),
    "Range": (0, 1, 2),
}
PLACES = {"Slice": ("begin",), "StridedSlice": ("begin", "end")}  # inputs that XLA also accepts as data


def asked(nodes: Iterable[Any], library: Mapping[str, Any], places: bool = True) -> dict[str, str]:
    """Finds the nodes whose values XLA must know at compile time.

    Args:
        nodes: NodeDefs of a graph or of a function's body; functional control flow.
        library: function name -> FunctionDef.
        places: whether to include positions of slices, which XLA prefers to know but does not need.

    Returns:
        Dict from the name of each such node (or argument) to the first node found that requires it.
    """
    return _Search(library, places).asked(nodes)


def open_size(graph_def: Any, among: Container[str]) -> tuple[Any, int] | None:
    """Returns the first node that needs the value of a feed as a size or an axis, and the number of that input.

    XLA has to know it. TensorFlow finds the same, and logs a stack of its own each time.

    Args:
        graph_def: of a step, whose feeds are its Placeholders.
        among: names of the nodes that may be returned.
    """
    nodes = {node.name: node for node in graph_def.node}
    for node in graph_def.node:
        data = arguments.data(node) if node.op in STRICT and node.name in among else []
        for number in STRICT.get(node.op, ())[: len(data)]:
            if _takes_a_feed(nodes, data[number]):
                return node, number
    return None


def _takes_a_feed(nodes: Mapping[str, Any], text: str) -> bool:
    """Whether a tensor's value depends on that of a Placeholder."""
    pending, seen = [arguments.source_of(text)], set()
    while pending:
        node = nodes.get(pending.pop())
        if node is None or node.name in seen or node.op in SHAPES:
            continue
        if node.op == "Placeholder":
            return True
        seen.add(node.name)
        taken = arguments.data(node)
        # the size of a TensorArray is what it was made with, whatever a loop has written since
        pending += map(arguments.source_of, taken[:1] if node.op == "TensorArraySizeV3" else taken)
    return False


class _Search:
    def __init__(self, library, places):
        self._library, self._places, self._ops = library, places, tf_internals.op_defs()
        self._arguments = {}  # function -> numbers of the arguments that its body requires

    def asked(self, nodes: Iterable[Any]) -> dict[str, str]:
        nodes = {node.name: node for node in nodes}
        asked, forwarded = {}, set()
        asking_ops = {op for op in {node.op for node in nodes.values()} if self._may_ask(op)}
        pending = collections.deque(
            (text, name) for name, node in nodes.items() if node.op in asking_ops for text in self._inputs(node)
        )
        while pending:
            text, asking = pending.popleft()
            name = arguments.source_of(text)
            node = nodes.get(name)
            if node is not None and node.op in FORWARDS:
                if text in forwarded:
                    continue
                forwarded.add(text)
                asked.setdefault(name, asking)
                number = int(text.rpartition(":")[2]) if ":" in text else 0  # "loop:1", in a body "loop:output:1"
                pending.append((arguments.data(node)[number], asking))
            elif name not in asked:
                asked[name] = asking
                if node is not None and node.op not in SHAPES:
                    pending.extend((taken, asking) for taken in arguments.data(node))
        return asked

    def _may_ask(self, op):
        """Whether nodes of an op may have inputs that must be compile-time constants."""
        if op in SHAPES:
            return False
        return op in self._library or op in functions.KINDS or _asked_of(op, self._places) != ()

    def _inputs(self, node):
        """The inputs of a node that must be compile-time constants."""
        called = functions.called(node, self._library)
        asked = self._of_call(node, called) if called else _asked_of(node.op, self._places)
        if asked is None:
            definition = self._ops[node.op]
            named, names = enumerate(arguments.of_each(definition.input_arg, node)), _names_asked(node.op, self._places)
            asked = [number for number, argument in named if argument.name in names]
        data = arguments.data(node) if asked else ()
        return [data[number] for number in asked if number < len(data)]

    def _of_call(self, node, called):
        """The numbers of the inputs that a call's functions require."""
        first = 1 if functions.kind_of(node, self._library) == functions.BRANCH else 0
        return sorted({first + number for name in called for number in self._of_function(name)})

    def _of_function(self, name):
        if name not in self._arguments:
            self._arguments[name] = ()  # stops the recursion of a function that calls itself
            body = self._library[name]
            asked = self.asked(body.node_def)
            self._arguments[name] = [n for n, argument in enumerate(body.signature.input_arg) if argument.name in asked]
        return self._arguments[name]


@functools.lru_cache(maxsize=None)
def _asked_of(op: str, places: bool) -> tuple[int, ...] | None:
    """The numbers of the inputs of an op that must be compile-time constants; None where they differ by node."""
    definition = tf_internals.op_defs().get(op)
    if definition is None:
        return ()
    asked = [number for number, argument in enumerate(definition.input_arg) if _is_asked(definition, argument, places)]
    has_lists = any(argument.number_attr or argument.type_list_attr for argument in definition.input_arg)
    return None if asked and has_lists else tuple(asked)


@functools.lru_cache(maxsize=None)
def _names_asked(op: str, places: bool) -> frozenset[str]:
    """The names of the inputs of an op that must be compile-time constants."""
    definition = tf_internals.op_defs()[op]
    return frozenset(argument.name for argument in definition.input_arg if _is_asked(definition, argument, places))


def _is_asked(definition: Any, argument: Any, places: bool) -> bool:
    if not places and argument.name in PLACES.get(definition.name, ()):
        return False
    if argument.name in DATA and definition.name not in STITCHES:
        return False
    if definition.name in NUMBERS or argument.type in INTEGERS:
        return True
    allowed = [attr.allowed_values.list.type for attr in definition.attr if attr.name == argument.type_attr]
    return any(allowed) and set(allowed[0]) <= INTEGERS
