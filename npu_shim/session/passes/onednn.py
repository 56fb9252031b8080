"""Names oneDNN's kernels where TensorFlow's own refuse: convolutions with dilation, gradients of those with groups.

    Conv2DBackpropFilter               "do not yet support dilation rates larger than 1" where oneDNN is off
    _MklNativeConv2DBackpropFilter     what a session on a CPU runs, and what TensorFlow itself runs with oneDNN on

TensorFlow switches oneDNN on where the processor has AVX-512 or AVX-VNNI, or where TF_ENABLE_ONEDNN_OPTS=1 stood in the
environment when it was imported. Its wheels for x86 hold the kernels in either case; those of TensorFlow 1.15 do not.
"""

from __future__ import annotations

import os
from typing import Sequence

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.ir.graph import Node
from npu_shim.rewriter.ir.module import Module
from npu_shim.rewriter.tables.dtypes import FLOAT32, NUMBERS
from npu_shim.session import lines
from npu_shim.session.passes import channels, rounding

SWITCH = "TF_ENABLE_ONEDNN_OPTS"
PREFIX, LABEL = "_MklNative", b"MklNameChangeOp"
# all of them: no graph says which convolution has groups
GRADIENTS = frozenset(["Conv2DBackpropFilter", "Conv2DBackpropInput"])
# of these TensorFlow's own refuse dilation alone
DILATED = frozenset([
    "Conv3D", "Conv3DBackpropFilterV2", "Conv3DBackpropInputV2", "DepthwiseConv2dNative",
    "DepthwiseConv2dNativeBackpropFilter", "DepthwiseConv2dNativeBackpropInput",
])  # fmt: skip


def name_kernels(module: Module, accelerator: str = "CPU") -> None:
    """Lets convolutions run by oneDNN where they must; changes nothing where TensorFlow sees to that.

    Args:
        module: changed in place.
        accelerator: device type of the nodes without a device.
    """
    if tf_internals.onednn_is_on():
        return
    nodes = (node for graph in channels.bodies(module, channels.CONVOLUTIONS) for node in graph)
    here = [node for node in nodes if _computes_here(node, accelerator)]
    _tell(here)
    for node in filter(_is_refused, here):
        node.set_op(PREFIX + node.op)
        node.attrs["_kernel"] = LABEL


def _is_refused(node: Node) -> bool:
    """Whether TensorFlow's own kernel refuses a convolution, or may."""
    refused = node.op in GRADIENTS or (node.op in DILATED and max(node.attrs.get("dilations") or (), default=1) > 1)
    if not refused or channels.is_compiled(node.attrs) or channels.has_given_padding(node):
        return False
    return bool(node.attrs["T"] == FLOAT32)


def _computes_here(node: Node, accelerator: str) -> bool:
    """Whether a node is a convolution on a CPU of this process, for which oneDNN has a kernel."""
    is_known = node.op in channels.CONVOLUTIONS and PREFIX + node.op in tf_internals.op_defs()
    return is_known and rounding.runs_here(node, accelerator)


def _tell(convolutions: Sequence[Node]) -> None:
    """Says what is other than where oneDNN is on: once, and not of what the user has chosen and TensorFlow can run."""
    chosen = os.environ.get(SWITCH) == "0"
    because = "%s=0" % SWITCH if chosen else "TensorFlow was imported before npu_shim"
    way_out = "set %s=1 in the environment%s" % (SWITCH, "" if chosen else ", or import npu_shim first")
    if any(node.attrs["T"] == NUMBERS["bfloat16"] and node.op in GRADIENTS | DILATED for node in convolutions):
        what = "TensorFlow's own kernels refuse bfloat16 convolutions with dilation, and gradients of those with groups"
        lines.once("oneDNN is off (%s): %s; %s" % (because, what, way_out))
    elif convolutions and not chosen:
        lines.once("oneDNN is off (%s): convolutions sum in another order than with it; %s" % (because, way_out))
