"""What TensorFlow checks when a step runs and XLA does not: errors that become numbers. Said once, before they can."""

import functools
import logging

import tensorflow.compat.v1 as tf

from npu_shim.xla.lowering.table import SPARSE_UPDATES

LOG = logging.getLogger("npu_shim")
SHOWN = 3  # node names in a line
INTEGERS = frozenset(dtype.as_datatype_enum for dtype in (tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16))
GATHERS = ("Gather", "GatherV2", "GatherNd", "ResourceGather", "ResourceGatherNd")
UPDATES = tuple(
    prefix + op
    for op in ("ScatterAdd", "ScatterSub", "ScatterUpdate", *(name[len("Resource") :] for name in SPARSE_UPDATES))
    for prefix in ("", "Resource")
)
DIVISIONS = ("Div", "FloorDiv", "FloorMod", "Mod", "TruncateDiv", "TruncateMod")
# what happens -> (ops, whether for integers only)
KINDS = {
    "takes the last row for an index that is out of range": (GATHERS, False),
    "gives -1 for an integer divided by zero": (DIVISIONS, True),
    "gives NaN for a label that is out of range": (("SparseSoftmaxCrossEntropyWithLogits",), False),
    "leaves out an update of a row whose index is out of range": (UPDATES, False),
    "stays at the limit of a counter": (("CountUpTo", "ResourceCountUpTo"), False),
    "gives an infinite CTC loss where labels need more time than there is": (("CTCLoss",), False),
    "ignores tf.check_numerics": (("CheckNumerics", "CheckNumericsV2"), False),
}  # source: TensorFlow 2.15.1, tried on CPU


def tell(graph_def):
    """Logs what XLA does instead of an error, with the nodes of a GraphDef that it does it for; once a process each."""
    nodes = [*graph_def.node, *(node for function in graph_def.library.function for node in function.node_def)]
    for what, (ops, integers) in KINDS.items():
        names = [n.name for n in nodes if n.op in ops and (not integers or n.attr["T"].type in INTEGERS)]
        if names:
            more = ", ... (%d in all)" % len(names) if len(names) > SHOWN else ""
            _once(what, ", ".join("'%s'" % name for name in names[:SHOWN]) + more)


@functools.lru_cache(maxsize=None)
def _said(what):
    return []


def _once(what, names):
    if not _said(what):
        _said(what).append(names)
        LOG.warning("npu_shim: compiled by XLA, a step %s, where TensorFlow ends it with an error: %s", what, names)
