"""Channels last for what a CPU computes channels first wrongly, or not at all: Transposes around TensorFlow's kernel.

    x -> MaxPool (NCHW) -> y
    x -> Transpose -> MaxPool (NHWC) -> Transpose -> Identity y

Without oneDNN no CPU kernel of a convolution or a pool takes channels first. With it, TensorFlow 2.15.1 takes a pool
for an earlier one of the same sizes in the other layout, whose result is then wrong without a word, and refuses the
gradient of a maximum in a branch or a loop of its own. So pools are converted always, and convolutions where oneDNN is
off or does not know their padding or dtype.
"""

from __future__ import annotations

from typing import Any, Container, Iterator, NamedTuple, Sequence

import numpy as np

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.ir.attributes import Attributes, DType, Tensor
from npu_shim.rewriter.ir.graph import Graph, Node, Value
from npu_shim.rewriter.ir.module import Function, Module
from npu_shim.rewriter.tables.dtypes import FLOAT32, NUMBERS
from npu_shim.session.passes import rounding

INT32 = DType(NUMBERS["int32"])
LAST = {b"NCHW": b"NHWC", b"NCDHW": b"NDHWC"}
BY_AXIS = ("strides", "dilations", "ksize")  # attributes with a number for each axis
PADDINGS = "explicit_paddings"  # with two
# what XLA compiles in any case
COMPILED = ("_XlaMustCompile", "_xla_compile_id", "_XlaCluster", "_tpu_replicate")


class Layout(NamedTuple):
    """Positions of an op's inputs that are images, and of those that are shapes of images; whether it gives one."""

    images: Sequence[int]
    shapes: Sequence[int] = ()
    gives: bool = True


_CONVOLUTION, _BY_FILTER, _BY_INPUT = Layout([0]), Layout([0, 2], gives=False), Layout([2], [0])
_POOL, _OF_MAXIMUM, _OF_MEAN = Layout([0]), Layout([0, 1, 2]), Layout([1], [0])
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
CONVERTED = {**POOLS, **CONVOLUTIONS}


def to_channels_last(module: Module, accelerator: str = "CPU") -> None:
    """Has channels last whatever a CPU of this process cannot compute channels first.

    Args:
        module: changed in place.
        accelerator: device type of the nodes without a device.
    """
    runs_first = CONVOLUTIONS.keys() if tf_internals.onednn_is_on() else ()

    def is_first(node: Node) -> bool:
        first = node.op in CONVERTED and node.attrs.get("data_format") in LAST and not is_compiled(node.attrs)
        if not first or not rounding.runs_here(node, accelerator):
            return False
        return node.op not in runs_first or has_given_padding(node) or node.attrs["T"] != FLOAT32

    for graph in bodies(module, CONVERTED):
        for node in filter(is_first, graph):
            _Conversion(node).apply(CONVERTED[node.op])


def bodies(module: Module, ops: Container[str]) -> Iterator[Graph]:
    """The graph, and its functions with one of the ops, but for what XLA compiles."""
    for graph in module.graphs_with(lambda op: op in ops):
        if not (isinstance(graph, Function) and graph.proto is not None and is_compiled(graph.proto.attr)):
            yield graph


def is_compiled(attributes: Any) -> bool:
    """Whether XLA compiles a node or a function in any case, by its attributes."""
    return any(name in attributes for name in COMPILED)


def has_given_padding(node: Node) -> bool:
    """Whether the padding of a convolution is a list of numbers, which oneDNN's gradients do not run."""
    return bool(node.attrs["padding"] == b"EXPLICIT")


class _Conversion:
    """Converts one node; what is added stands behind the nodes of its graph."""

    def __init__(self, node: Node) -> None:
        self._node, self._graph = node, node.graph
        self._to = (0, *range(2, len(node.attrs["data_format"])), 1)
        # a constant of a loop belongs to the loop, and a function has none of version 1
        self._waits = [] if isinstance(node.graph, Function) else [node.inputs[0].node]

    def apply(self, layout: Layout) -> None:
        node, inputs = self._node, list(self._node.inputs)
        for k in layout.images:
            inputs[k] = self._transposed("image_%d" % k, inputs[k], self._to)
        for k in layout.shapes:
            inputs[k] = self._gathered("shape_%d" % k, inputs[k])
        if layout.gives:
            name, attrs = node.name + "/channels_last", dict(node.attrs.items())
            node = self._graph.add(name, node.op, inputs, node.controls, attrs, node.device, origin=node)
            self._transpose_back(node.value)
        else:
            node.set_inputs(inputs)
        self._reorder(node.attrs)

    def _reorder(self, attrs: Attributes) -> None:
        attrs["data_format"] = LAST[attrs["data_format"]]
        for name in BY_AXIS:
            if name in attrs:
                attrs[name] = tuple(attrs[name][axis] for axis in self._to)
        pads = attrs.get(PADDINGS)
        if pads:
            attrs[PADDINGS] = tuple(pads[2 * axis + side] for axis in self._to for side in (0, 1))

    def _transpose_back(self, converted: Value) -> None:
        """Makes the node an Identity: where a function reads it, its result is called as the node's."""
        node = self._node
        back = self._transposed("back", converted, np.argsort(self._to).tolist())
        for name in node.attrs:
            if name[0] != "_" and name != "T":
                del node.attrs[name]
        node.set_op("Identity")
        node.set_inputs([back])
        node.set_controls([])

    def _transposed(self, name: str, source: Value, axes: Sequence[int]) -> Value:
        inputs = [source, self._constant(name + "_axes", axes)]
        return self._add("Transpose", name, inputs, {"T": self._node.attrs["T"], "Tperm": INT32})

    def _gathered(self, name: str, source: Value) -> Value:
        inputs = [source, self._constant(name + "_axes", self._to)]
        attrs = {"Tparams": self._node.attrs.get("Tshape", INT32), "Tindices": INT32, "validate_indices": True}
        return self._add("Gather", name, inputs, attrs)  # TensorFlow 1.15 fills in no defaults here

    def _constant(self, name: str, axes: Sequence[int]) -> Value:
        tensor = Tensor(INT32, (len(axes),), tuple(axes))
        return self._add("Const", name, (), {"dtype": INT32, "value": tensor}, self._waits)

    def _add(
        self, op: str, name: str, inputs: Sequence[Value], attrs: dict[str, Any], controls: Sequence[Node] = ()
    ) -> Value:
        node = self._node
        name = "%s/channels_last_%s" % (node.name, name)
        return self._graph.add(name, op, inputs, controls, attrs, node.device, origin=node).value
