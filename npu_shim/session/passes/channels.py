"""Channels last for what a CPU computes channels first wrongly, or not at all: Transposes around TensorFlow's kernel.

    x -> MaxPool (NCHW) -> y
    x -> Transpose -> MaxPool (NHWC) -> Transpose -> Identity y

Without oneDNN no CPU kernel of a convolution or a pool takes channels first. With it, TensorFlow 2.15.1 takes a pool
for an earlier one of the same sizes in the other layout, whose result is then wrong without a word, and refuses the
gradient of a maximum in a branch or a loop of its own. So pools turn always, and convolutions where oneDNN is
off or does not know their padding or dtype.
"""

from __future__ import annotations

from typing import Any, Iterator, NamedTuple, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.rewriter.tables.dtypes import FLOAT32
from npu_shim.session.passes import rounding

LAST = {b"NCHW": b"NHWC", b"NCDHW": b"NDHWC"}
BY_AXIS = ("strides", "dilations", "ksize")  # attributes with a number for each axis
PADDINGS = "explicit_paddings"  # with two
# what XLA compiles in any case
COMPILED = ("_XlaMustCompile", "_xla_compile_id", "_XlaCluster", "_tpu_replicate")


class Turned(NamedTuple):
    """Positions of an op's inputs that are images, and of those that are shapes of images; whether it gives one."""

    images: Sequence[int]
    shapes: Sequence[int] = ()
    gives: bool = True


_CONVOLUTION, _BY_FILTER, _BY_INPUT = Turned([0]), Turned([0, 2], gives=False), Turned([2], [0])
_POOL, _OF_MAXIMUM, _OF_MEAN = Turned([0]), Turned([0, 1, 2]), Turned([1], [0])
CONVOLUTIONS = {
    "Conv2D": _CONVOLUTION, "Conv2DBackpropFilter": _BY_FILTER, "Conv2DBackpropInput": _BY_INPUT,
    "Conv3D": _CONVOLUTION, "Conv3DBackpropFilterV2": _BY_FILTER, "Conv3DBackpropInputV2": _BY_INPUT,
    "DepthwiseConv2dNative": _CONVOLUTION, "DepthwiseConv2dNativeBackpropFilter": _BY_FILTER,
    "DepthwiseConv2dNativeBackpropInput": _BY_INPUT,
}  # fmt: skip
POOLS = {
    "MaxPool": _POOL, "MaxPoolGrad": _OF_MAXIMUM, "AvgPool": _POOL, "AvgPoolGrad": _OF_MEAN,
    "MaxPool3D": _POOL, "MaxPool3DGrad": _OF_MAXIMUM, "AvgPool3D": _POOL, "AvgPool3DGrad": _OF_MEAN,
}  # fmt: skip
TURNED = {**POOLS, **CONVOLUTIONS}


def turn(graph_def: tf.GraphDef, accelerator: str = "CPU") -> tf.GraphDef:
    """Returns a GraphDef that computes channels last what a CPU of this process cannot compute channels first.

    Args:
        graph_def: tf.compat.v1.GraphDef; it is not changed, and returned if there is no such op.
        accelerator: device type of the nodes without a device.
    """
    runs_first = CONVOLUTIONS.keys() if tf_internals.onednn_is_on() else ()

    def is_first(node: tf.NodeDef) -> bool:
        first = node.op in TURNED and node.attr["data_format"].s in LAST and not is_compiled(node)
        refused = node.op not in runs_first or has_given_padding(node) or node.attr["T"].type != FLOAT32
        return first and refused and rounding.runs_here(node, accelerator)

    if not any(is_first(node) for body, _ in bodies(graph_def) for node in body):
        return graph_def
    copy = tf.GraphDef()
    copy.CopyFrom(graph_def)
    for body, is_main in bodies(copy):
        for node in [node for node in body if is_first(node)]:
            _Turning(body, node, is_main).turn(TURNED[node.op])
    return copy


def bodies(graph_def: tf.GraphDef) -> Iterator[tuple[Any, bool]]:
    """(nodes, whether they are the graph's own): of the graph, and of its functions but for what XLA compiles."""
    yield graph_def.node, True
    for function in graph_def.library.function:
        if not is_compiled(function):
            yield function.node_def, False


def is_compiled(owner: Any) -> bool:
    """Whether XLA compiles a node or a function in any case, by the names of its ops."""
    return any(name in owner.attr for name in COMPILED)


def has_given_padding(node: tf.NodeDef) -> bool:
    """Whether the padding of a convolution is a list of numbers, which oneDNN's gradients do not run."""
    return node.attr["padding"].s == b"EXPLICIT"


class _Turning:
    """Turns one node; what is added is written behind the nodes of its body."""

    def __init__(self, body, node, is_main):
        self._body, self._node, self._is_main = body, node, is_main
        self._name = node.name
        self._to = [0, *range(2, len(node.attr["data_format"].s)), 1]
        # a constant of a loop belongs to the loop, and a function has none of version 1
        self._waits = ["^" + source_of(node.input[0])] if is_main else []

    def turn(self, turned):
        node, to = self._node, self._to
        for k in turned.images:
            node.input[k] = self._transposed("image_%d" % k, node.input[k], to)
        for k in turned.shapes:
            node.input[k] = self._gathered("shape_%d" % k, node.input[k])
        node.attr["data_format"].s = LAST[node.attr["data_format"].s]
        for name in BY_AXIS:
            if name in node.attr:
                numbers = node.attr[name].list.i
                numbers[:] = [numbers[axis] for axis in to]
        pads = node.attr[PADDINGS].list.i if PADDINGS in node.attr else []
        if pads:
            pads[:] = [pads[2 * axis + side] for axis in to for side in (0, 1)]
        if turned.gives:
            self._turn_back()

    def _turn_back(self):
        """Lets an Identity have the node's name: where a function reads it, its result is called as the node's."""
        node, name = self._node, self._node.name
        node.name = name + "/channels_last"
        back = np.argsort(self._to).tolist()
        first = self._transposed("back", node.name if self._is_main else node.name + ":output:0", back)
        given = self._add("Identity", "", [first], T=node.attr["T"])
        given.name = name
        for key, value in node.attr.items():
            if key.startswith("_"):
                given.attr[key].CopyFrom(value)

    def _transposed(self, name, source, axes):
        axes = self._constant(name + "_axes", axes)
        node = self._add("Transpose", name, [source, axes], T=self._node.attr["T"], Tperm=tf.int32)
        return self._output(node, "y")

    def _gathered(self, name, source):
        axes = self._constant(name + "_axes", self._to)
        kind = self._node.attr.get("Tshape", tf.int32)
        node = self._add("Gather", name, [source, axes], Tparams=kind, Tindices=tf.int32)
        node.attr["validate_indices"].b = True  # TensorFlow 1.15 fills in no defaults here
        return self._output(node, "output")

    def _constant(self, name, values):
        node = self._add("Const", name, self._waits, dtype=tf.int32)
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(values, tf.int32))
        return self._output(node, "output")

    def _add(self, op, name, inputs, **types):
        node = self._node
        added = self._body.add(op=op, name="%s/channels_last_%s" % (self._name, name), input=inputs, device=node.device)
        for key, kind in types.items():
            added.attr[key].type = kind.type if isinstance(kind, tf.AttrValue) else kind.as_datatype_enum
        return added

    def _output(self, node, argument):
        return node.name if self._is_main else "%s:%s:0" % (node.name, argument)
