"""XLA in the session: marks nodes so that TensorFlow's own clustering compiles them.

`_XlaCompile` on a node asks for it whatever the session's global jit level is, on CPU too and without flags (TensorFlow
2.15.1). What makes shapes out of data stays out (traps.py); what XLA cannot compile TensorFlow leaves out by itself;
the hook takes clusters of less than MINIMUM_OPS ops apart again, since TensorFlow's own minimum does not hold for
marked nodes. A tf.cond that XLA can run, above all the one of a skipped step, becomes functional first
(conditionals.py). Switched by NPU_SHIM_XLA or the parameter_map key `npu_shim_xla`.

A cluster is compiled for the shapes that come in. TensorFlow compiles one for new shapes when it has met them twice,
and runs a cluster op by op that was compiled more than 10 times in less than 50 runs each: `Shapes` says so.
"""

import functools
import logging
import os

import tensorflow.compat.v1 as tf

from npu_shim.options.scopes import OPT_OUT
from npu_shim.rewriter.errors import ConfigError, nearest
from npu_shim.rewriter.graph.emulation import ROUNDED
from npu_shim.rewriter.graph.kernel_table import device_type
from npu_shim.session.clusters import conditionals, moves, traps

LOG = logging.getLogger("npu_shim")
SWITCH = ("auto", "on", "off")
MARK = "_XlaCompile"
CACHE_FLAG = "--tf_xla_persistent_cache_directory"
CACHE_ON_GPU = "--tf_xla_persistent_cache_device_types=GPU"
MINIMUM_OPS = 8  # a launch of a cluster costs as much as a few ops
MANY_SHAPES = 10  # TensorFlow's own limit of programs for a cluster that is seldom run


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


def prepare(values):
    """Gets a new session ready: sets TensorFlow's flags for a cache of compiled programs where a folder is given.

    TensorFlow reads its flags once a process, at the first cluster, so the first folder holds. Its CPU compiler cannot
    store programs: with a cache for CPUs every cluster fails (2.15.1: "No available targets are compatible with triple
    "unknown""). So the cache is for GPUs, and a session on the CPU says that its folder stays empty.

    Args:
        values: option values; `npu_shim_xla_cache` wins over the environment's NPU_SHIM_XLA_CACHE.

    Returns:
        Shapes of the session, or None where its clusters are not compiled.
    """
    try:
        if not wanted(values):
            return None
    except ConfigError:  # the first run says it
        return None
    folder = values.get("npu_shim_xla_cache") or os.environ.get("NPU_SHIM_XLA_CACHE")
    if folder:
        _keep_programs(folder)
    return Shapes()


@functools.lru_cache(maxsize=None)
def _keep_programs(folder):
    flags = os.environ.get("TF_XLA_FLAGS", "")
    if accelerator() != "GPU":
        LOG.warning("npu_shim: npu_shim_xla_cache does nothing here: TensorFlow stores compiled programs for GPUs only")
    elif CACHE_FLAG not in flags:
        os.environ["TF_XLA_FLAGS"] = "%s %s=%s %s" % (flags, CACHE_FLAG, folder, CACHE_ON_GPU)


@functools.lru_cache(maxsize=None)
def accelerator():
    """Device type that training runs on: "GPU" where TensorFlow sees one, else "CPU"."""
    return "GPU" if tf.config.experimental.list_physical_devices("GPU") else "CPU"


def mark(graph_def, keep=()):
    """Returns a copy of a GraphDef with the nodes on the accelerator marked, but for those that opted out and traps.

    Args:
        graph_def: tf.compat.v1.GraphDef; it is not changed.
        keep: names of nodes or tensors that are fed, fetched or run.
    """
    target, out = accelerator(), traps.left_out(graph_def)

    def stays_out(node):
        opted_out = OPT_OUT in node.attr or ROUNDED in node.attr  # XLA would take the rounding away
        return opted_out or node.name in out or (device_type(node.device) or target) != target

    marked = tf.GraphDef()
    marked.CopyFrom(conditionals.functional(graph_def, keep, stays_out, MINIMUM_OPS))
    for node in marked.node:
        if OPT_OUT in node.attr or moves.MUST_COMPILE in node.attr:
            node.attr[MARK].b = False
        elif MARK not in node.attr and not stays_out(node):
            node.attr[MARK].b = True
    return marked


def log_clusters(count):
    """Logs how many XLA clusters (at least one) a session is about to compile."""
    LOG.info("npu_shim: XLA compiles %d cluster%s", count, "" if count == 1 else "s")


class Shapes:
    """The shapes that a session has been fed, counted to say when XLA compiles too often."""

    def __init__(self):
        self._seen = set()

    def run(self, session, once, fetches, feed_dict, options, run_metadata):
        """Watches a run, see `doors.watch`."""
        self.see(feed_dict)
        return once(fetches, feed_dict, options, run_metadata)

    def see(self, feed_dict):
        """Notes the shapes of a run's feeds; warns once when they are more than MANY_SHAPES."""
        if not feed_dict or len(self._seen) > MANY_SHAPES:
            return
        fed = ((key, value) for key, value in feed_dict.items() if hasattr(value, "shape"))
        self._seen.add(frozenset((str(key), value.shape) for key, value in fed))
        if len(self._seen) > MANY_SHAPES:
            LOG.warning(
                "npu_shim: a session with XLA was fed %d sets of shapes: clusters whose shapes change so often run op "
                "by op from now on; pad to fewer shapes, or set NPU_SHIM_XLA=off",
                len(self._seen),
            )
