"""Names oneDNN's kernels where TensorFlow's own refuse: the gradients of convolutions with dilation or groups.

    Conv2DBackpropFilter               "do not yet support dilation rates larger than 1" where oneDNN is off
    _MklNativeConv2DBackpropFilter     what a session on a CPU runs, and what TensorFlow itself runs with oneDNN on

TensorFlow switches oneDNN on where the processor has AVX-512 or AVX-VNNI, or where TF_ENABLE_ONEDNN_OPTS=1 stood in the
environment when it was imported. Its wheels for x86 hold the kernels in either case; those of TensorFlow 1.15 do not.
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.tables.dtypes import FLOAT32
from npu_shim.session import channels, rounding

PREFIX, LABEL = "_MklNative", b"MklNameChangeOp"
# all of them: no graph says which convolution has groups
GRADIENTS = frozenset(["Conv2DBackpropFilter", "Conv2DBackpropInput"])


def name_kernels(graph_def: tf.GraphDef, accelerator: str = "CPU") -> tf.GraphDef:
    """Returns a GraphDef whose gradients of convolutions run by oneDNN; the same where TensorFlow sees to that itself.

    Args:
        graph_def: tf.compat.v1.GraphDef; it is not changed.
        accelerator: device type of the nodes without a device.
    """
    if tf_internals.onednn_is_on():
        return graph_def

    def is_ours(node: tf.NodeDef) -> bool:
        if node.op not in GRADIENTS or channels.is_compiled(node) or channels.has_given_padding(node):
            return False
        here = node.attr["T"].type == FLOAT32 and rounding.runs_here(node, accelerator)
        return here and PREFIX + node.op in tf_internals.op_defs()

    if not any(is_ours(node) for body, _ in channels.bodies(graph_def) for node in body):
        return graph_def
    made = tf.GraphDef()
    made.CopyFrom(graph_def)
    for body, _ in channels.bodies(made):
        for node in filter(is_ours, body):
            node.op = PREFIX + node.op
            node.attr["_kernel"].s = LABEL
    return made
