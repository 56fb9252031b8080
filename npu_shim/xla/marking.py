"""XLA in the session: marks nodes so that TensorFlow's own clustering compiles them.

`_XlaCompile` on a node asks for it whatever the session's global jit level is, on CPU too and without flags (TensorFlow
2.15.1); TensorFlow leaves out by itself what XLA cannot compile. Switched by NPU_SHIM_XLA or the parameter_map key
`npu_shim_xla`.
"""

import functools
import logging
import os

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.errors import ConfigError, nearest
from npu_shim.rewriter.kernel_table import device_type

LOG = logging.getLogger("npu_shim")
SWITCH = ("auto", "on", "off")
MARK = "_XlaCompile"
OPT_OUT = "_without_npu_compile"  # of npu_scope.without_npu_compile_scope


def wanted(values):
    """Returns whether to mark nodes: "on", or "auto" (the default) where there is a GPU.

    Args:
        values: option values; `npu_shim_xla` wins over the environment's NPU_SHIM_XLA.

    Raises:
        ConfigError: another word.
    """
    switch = values.get("npu_shim_xla") or os.environ.get("NPU_SHIM_XLA") or "auto"
    if switch not in SWITCH:
        expected = ", ".join(SWITCH) + nearest(switch, SWITCH)
        raise ConfigError("NPU_SHIM_XLA is '%s', expected one of %s" % (switch, expected))
    return switch == "on" or (switch == "auto" and accelerator() == "GPU")


@functools.lru_cache(maxsize=None)
def accelerator():
    """Device type that training runs on: "GPU" where TensorFlow sees one, else "CPU"."""
    return "GPU" if tf.config.experimental.list_physical_devices("GPU") else "CPU"


def mark(graph_def):
    """Returns a copy of a GraphDef with every node on the accelerator marked, but for those that opted out."""
    target = accelerator()
    marked = tf.GraphDef()
    marked.CopyFrom(graph_def)
    for node in marked.node:
        if MARK not in node.attr and OPT_OUT not in node.attr and (device_type(node.device) or target) == target:
            node.attr[MARK].b = True
    return marked


def log_clusters(count):
    """Logs how many XLA clusters (at least one) a session is about to compile."""
    LOG.info("npu_shim: XLA compiles %d cluster%s", count, "" if count == 1 else "s")
