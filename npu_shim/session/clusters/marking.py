"""XLA in the session: marks nodes so that TensorFlow's own clustering compiles them.

`_XlaCompile` on a node requests it whatever the session's global jit level is, on CPU too and without flags (TensorFlow
2.15.1). Ops that derive shapes from data stay out (traps.py), and TensorFlow leaves out what XLA cannot compile. The
hook dissolves clusters of fewer than MINIMUM_OPS ops, since TensorFlow's own minimum does not apply to marked nodes. A
tf.cond that XLA can run, above all that of a skipped step, becomes functional first (conditionals.py). The switch is
NPU_SHIM_XLA or the parameter_map key `npu_shim_xla`.

A cluster is compiled for the shapes of its inputs. TensorFlow compiles it for new shapes when they occur a second time.
A cluster that was compiled more than 10 times in fewer than 50 runs each then runs op by op: `Shapes` warns about that.
"""

from __future__ import annotations

import functools
import logging
import os
from typing import Any, Callable, Mapping

import tensorflow.compat.v1 as tf

from npu_shim.distributed.job import ranks
from npu_shim.options.ops.scopes import OPT_OUT
from npu_shim.options.reports import ledger
from npu_shim.pjrt import program_cache
from npu_shim.rewriter.errors import ConfigError, one_of
from npu_shim.rewriter.graph.emulation import ROUNDED
from npu_shim.rewriter.graph.kernel_table import device_type
from npu_shim.rewriter.ir.graph import Node
from npu_shim.rewriter.ir.module import Module
from npu_shim.session import devices
from npu_shim.session.clusters import folded, moves, roots, slow_ops, traps

LOG = logging.getLogger("npu_shim")
SWITCH = ("auto", "on", "off")
MARK = "_XlaCompile"
OWN = "_npu_shim_cluster"  # beside a MARK of ours, for the hook
CACHE_FLAG = "--tf_xla_persistent_cache_directory"
CACHE_ON_GPU = "--tf_xla_persistent_cache_device_types=GPU"
MINIMUM_OPS = 8  # launching a cluster costs as much as a few ops
MANY_SHAPES = 10  # TensorFlow's own limit of programs for a cluster that is seldom run


def wanted(values: Mapping[str, Any]) -> bool:
    """Returns whether to mark nodes: "on", or "auto" (the default) where there is a GPU.

    Args:
        values: option values; `npu_shim_xla` wins over the environment's NPU_SHIM_XLA.

    Raises:
        ConfigError: another word.
    """
    switch = values.get("npu_shim_xla") or os.environ.get("NPU_SHIM_XLA") or "auto"
    one_of(switch, SWITCH, "NPU_SHIM_XLA")
    return switch == "on" or (switch == "auto" and devices.accelerator() == "GPU")


def configure(values: Mapping[str, Any]) -> Shapes | None:
    """Configures XLA for a new session: sets TensorFlow's flags if there is a folder for compiled programs.

    TensorFlow reads its flags once per process, at the first cluster, so the first folder wins. Its CPU compiler cannot
    store programs: with a cache for CPUs every cluster fails (2.15.1: "No available targets are compatible with triple
    "unknown""). So the cache is for GPUs, and a session on the CPU warns that its folder stays empty.

    Args:
        values: option values; `npu_shim_xla_cache` wins over the environment's NPU_SHIM_XLA_CACHE.

    Returns:
        Shapes of the session, or None if its clusters are not compiled.
    """
    try:
        if not wanted(values):
            return None
    except ConfigError:  # the first run raises it
        return None
    folder = program_cache.folder(values.get(program_cache.KEY))
    if folder:
        _set_program_cache(folder)
    return Shapes()


@functools.lru_cache(maxsize=None)
def _set_program_cache(folder):
    flags = os.environ.get("TF_XLA_FLAGS", "")
    if devices.accelerator() != "GPU":
        LOG.warning("npu_shim: npu_shim_xla_cache keeps no clusters here: TensorFlow stores those of GPUs only")
    elif CACHE_FLAG not in flags:
        os.environ["TF_XLA_FLAGS"] = "%s %s=%s %s" % (flags, CACHE_FLAG, folder, CACHE_ON_GPU)


def outside(module: Module) -> Callable[[Node], bool]:
    """Returns a function that tells which nodes stay out of clusters: traps, what opted out, other devices' nodes.

    It knows nodes by their names: what it says holds when tf.conds have become Ifs, too.
    """
    target = devices.accelerator()
    out = _excluded(module, target)

    def stays_out(node: Node) -> bool:
        opted_out = OPT_OUT in node.attrs or ROUNDED in node.attrs  # XLA would remove the rounding
        return opted_out or node.name in out or (device_type(node.device) or target) != target

    return stays_out


def mark(module: Module, stays_out: Callable[[Node], bool] | None = None) -> None:
    """Marks the nodes that clusters may have.

    Args:
        module: changed in place.
        stays_out: what `outside` returned before tf.conds became Ifs; None asks it now.
    """
    stays_out = stays_out or outside(module)
    for node in module.graph:
        if OPT_OUT in node.attrs or moves.MUST_COMPILE in node.attrs:
            node.attrs[MARK] = False
        elif MARK not in node.attrs:  # TensorFlow 1.15 takes what says nothing into the clusters of what is marked
            node.attrs[MARK] = not stays_out(node)
            if node.attrs[MARK]:
                node.attrs[OWN] = True


def _excluded(module, target):
    """Names of the nodes that stay out of clusters for what they are."""
    out = traps.excluded(module.graph) | roots.excluded(module.graph)
    if target == "CPU":
        out |= slow_ops.excluded(module)
    if ranks.world_size() > 1:
        out |= folded.excluded(module.graph)
    return out


def log_clusters(count: int) -> None:
    """Logs how many XLA clusters (at least one) a session is about to compile."""
    ledger.note(ledger.CLUSTERS)
    LOG.info("npu_shim: XLA compiles %d cluster%s", count, "" if count == 1 else "s")


class Shapes:
    """The feed shapes of a session, counted to warn when XLA compiles too often."""

    def __init__(self) -> None:
        self._seen = set()

    def run(
        self,
        session: tf.Session,
        once: Callable[..., Any],
        fetches: Any,
        feed_dict: Any,
        options: Any,
        run_metadata: Any,
    ) -> Any:
        """Watches a run, see `interceptors.watch`."""
        self.see(feed_dict)
        return once(fetches, feed_dict, options, run_metadata)

    def see(self, feed_dict: Mapping[Any, Any] | None) -> None:
        """Records the shapes of a run's feeds; warns once when there are more than MANY_SHAPES."""
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
