"""Saturation: a rewritten graph in which float16 stops at 65504 in place of infinity, as some hardware computes.

    MatMul -> y (float16) -> Relu        what the rewriter writes
    MatMul -> y -> clamp -> Relu         where clamp is Select(Abs(y) > 65504, Sign(y) * 65504, y)

It comes after everything else and only adds: each added node stands between a float16 output and all that reads it.
What was there keeps its name, attributes, inputs and control inputs, but for data inputs, which name the clamp of what
they read before. NaN stays NaN: Minimum and Maximum drop it on some devices. The comparison also holds where a compiler
keeps more digits than float16 has. Outputs that pass values on get no clamp, nor do variables and feeds; a float16
tensor that is fetched by its own name is what it was before the clamp.
"""

from __future__ import annotations

from typing import Any, Collection, Iterable, Iterator, Mapping, NamedTuple, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from .. import tf_internals
from ..graph import arguments
from ..graph.walks import reached
from ..tables.dtypes import FLOAT16
from ..tables.slow_kernels import EXACT
from . import functions

MARK = "_npu_shim_saturates"  # attribute of the added nodes
LARGEST = 65504.0
IN_FUNCTION = ":output:0"  # what a function's body appends to the name of a clamp
# results within 1, values as they are stored or handed on; an op that calls functions has clamps inside
FINITE = EXACT | frozenset((
    "Const", "Placeholder", "PlaceholderWithDefault", "ReadVariableOp", "ResourceGather", "RestoreV2",
    "IdentityN", "OneHot", "ZerosLike", "OnesLike", "Fill", "Sign", "Round", "Floor", "Ceil",
    "Sigmoid", "Tanh", "Erf", "Sin", "Cos", "Softsign", "Softmax", "RandomUniform", "RandomStandardNormal",
    "TensorArrayReadV3", "TensorArrayGatherV3", "TensorArrayConcatV3", "StackPopV2",
    "TensorListGetItem", "TensorListStack", "TensorListPopBack", "TensorListConcatV2",
    *functions.KINDS,
))  # fmt: skip


class Output(NamedTuple):
    """An output of a node.

    Attributes:
        node: its name.
        number: int, among the node's outputs.
        text: how readers name it.
    """

    node: str
    number: int
    text: str


def saturated(graph_def: Any, feeds: Iterable[str] = ()) -> Any:
    """Returns a GraphDef in which float16 results saturate, in the graph and in the functions that it calls.

    Args:
        graph_def: a tf.compat.v1.GraphDef; it is not changed. It is returned as it is where nothing overflows in
            float16.
        feeds: names of tensors that are fed. What computes them need not run, so that no clamp may wait for it.
    """
    fed = frozenset(arguments.tensor_of(name) for name in feeds)
    library = {function.signature.name: function for function in graph_def.library.function}
    bodies = _called(graph_def.node, library)
    within = [_outputs(library[name].node_def, IN_FUNCTION) for name in bodies]
    if not any(next(outputs, None) for outputs in (_outputs(graph_def.node, fed=fed), *within)):
        return graph_def
    result = tf.GraphDef()
    result.CopyFrom(graph_def)
    _clamp_all(result.node, "", fed)
    for function in result.library.function:
        if function.signature.name in bodies:
            clamps = _clamp_all(function.node_def, IN_FUNCTION)
            for name, text in list(function.ret.items()):  # a map that is changed while it is read may skip one
                function.ret[name] = clamps.get(text, text)
    return result


def _called(nodes: Any, library: Mapping[str, Any]) -> set[str]:
    """Names of the functions that are called from the graph, also by each other; functions of data sets are not."""

    def by(nodes: Any) -> list[str]:
        return [name for node in nodes for name in functions.called(node, library) if name in library]

    return set(reached(by(nodes), lambda name: by(library[name].node_def)))


def _clamp_all(nodes: Any, suffix: str, fed: Collection[str] = ()) -> dict[str, str]:
    """Adds the clamps of a graph, or of a function's body, whose outputs are named with a suffix, in place.

    Returns:
        Dict of what readers named -> the clamp.
    """
    by_name = {node.name: node for node in nodes}
    clamps, added = {}, []
    for output in list(_outputs(nodes, suffix, fed)):
        parts = _clamp(output, by_name[output.node], suffix, by_name)
        clamps[output.text] = parts[-1].name + suffix
        added += parts
    for node in nodes:
        for number, text in enumerate(node.input):
            node.input[number] = clamps.get(text, clamps.get(arguments.tensor_of(text), text))
    nodes.extend(added)
    return clamps


def _outputs(nodes: Sequence[Any], suffix: str = "", fed: Collection[str] = ()) -> Iterator[Output]:
    """Yields the float16 outputs that may have become infinite; what is fed is as it was given."""
    known = tf_internals.op_defs()
    done = {arguments.tensor_of(node.input[2]) for node in nodes if MARK in node.attr and node.op == "SelectV2"}
    done.update(fed)
    for node in nodes:
        if node.op not in known or MARK in node.attr or (node.op in FINITE and not _is_infinite(node)):
            continue
        names = _names(node, known[node.op].output_arg, suffix)
        dtypes = arguments.dtypes(known[node.op].output_arg, node)
        references = [output.is_ref for output in arguments.of_each(known[node.op].output_arg, node)]
        for number, (text, dtype, reference) in enumerate(zip(names, dtypes, references)):
            if dtype == FLOAT16 and not reference and text not in done:
                yield Output(node.name, number, text)


def _is_infinite(node: Any) -> bool:
    """Whether a node is a float16 constant that holds infinity: such as 1e9 is written when it is rounded."""
    if node.op != "Const" or node.attr["dtype"].type != FLOAT16:
        return False
    return bool(np.isinf(tf.make_ndarray(node.attr["value"].tensor)).any())


def _names(node: Any, output_arguments: Any, suffix: str) -> Iterator[str]:
    """Yields how readers name each output: NODE:0 and so on, in a function NODE:ARGUMENT:0."""
    if not suffix:
        count = len(arguments.dtypes(output_arguments, node))
        yield from ("%s:%d" % (node.name, number) for number in range(count))
        return
    for argument in output_arguments:
        count = len(arguments.dtypes([argument], node))
        yield from ("%s:%s:%d" % (node.name, argument.name, number) for number in range(count))


def _clamp(output: Output, producer: Any, suffix: str, taken: Any) -> list[Any]:
    """Makes the nodes of a clamp; the last one is its result."""
    base = _free("%s/saturated_%d" % (output.node, output.number), taken)
    source = output.text if suffix or output.number else output.node

    def node(name, op, inputs, **dtypes):
        node = tf.NodeDef(name=name, op=op, device=producer.device, input=inputs)
        node.attr[MARK].b = True
        for key, dtype in dtypes.items():
            node.attr[key].type = dtype
        return node

    def out(node, argument):
        return node.name + (":%s:0" % argument if suffix else "")

    largest = node(base + "/largest", "Const", ["^" + output.node], dtype=FLOAT16)  # in the frame of a loop
    largest.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(LARGEST, tf.float16))
    size = node(base + "/size", "Abs", [source], T=FLOAT16)
    beyond = node(base + "/beyond", "Greater", [out(size, "y"), out(largest, "output")], T=FLOAT16)
    sign = node(base + "/sign", "Sign", [source], T=FLOAT16)
    limit = node(base + "/limit", "Mul", [out(sign, "y"), out(largest, "output")], T=FLOAT16)
    inputs = [out(beyond, "z"), out(limit, "z"), source]
    return [largest, size, beyond, sign, limit, node(base, "SelectV2", inputs, T=FLOAT16)]


def _free(name: str, taken: Any) -> str:
    """The name, or the first one with a number that no node has."""
    number, free = 0, name
    while free in taken:
        number += 1
        free = "%s_%d" % (name, number)
    return free
