"""The rewriter as one function: options in the user's words, a GraphDef in, a GraphDef and its plan out."""

import contextlib
import gc
import time
from dataclasses import dataclass
from typing import Any

from . import options as option_table
from . import precision
from .rewriter import graph_def as graphs
from .rewriter.apply import apply, sort_nodes
from .rewriter.decisions import Plan
from .rewriter.errors import ConfigError, nearest
from .rewriter.plan import plan
from .rewriter.verify import verify

# the words of this function and of the command line for our own parameter_map keys
OWN_OPTIONS = {"profile": "npu_shim_profile"}


@dataclass(frozen=True)
class Rewritten:
    """A rewritten GraphDef (the given one itself where nothing changes), its plan, and the seconds that it took."""

    graph_def: Any
    plan: Plan
    seconds: float


def rewrite(graph_def, fetches, feeds=(), device="CPU", **options):
    """Rewrites a graph to mixed precision, exactly as a session does it.

    Args:
        graph_def: a tf.compat.v1.GraphDef; it is not changed.
        fetches: names of tensors or operations that are fetched or run; they keep their names and dtypes.
        feeds: names of tensors that are fed.
        device: "CPU" or "GPU", assumed for nodes that name no device.
        **options: as in NPURunConfig and in NpuOptimizer's parameter_map (precision_mode, precision_mode_v2,
            modify_mixlist,
            graph_run_mode, ...), and `profile`: "ascend910" (the default) or "gpu".

    Returns:
        (GraphDef, Plan).

    Raises:
        ConfigError: an option, a file, a fetch or a feed that cannot be taken.
        PlanError: an op must run in a dtype that the profile does not have.
        VerifyError: the result breaks the contract (a fault of npu_shim).

    Example:
        >>> rewritten, plan = npu_shim.rewrite(graph.as_graph_def(), ["loss:0"], precision_mode="allow_mix_precision")
    """
    done = rewrite_graph(graph_def, feeds, fetches, precision.resolve(checked(options)), device)
    return done.graph_def, done.plan


def checked(options):
    """Returns keyword options as option values; raises ConfigError for an unknown name or a value not accepted."""
    values = {OWN_OPTIONS.get(name, name): value for name, value in options.items() if value is not None}
    known = option_table.options()
    for name in values:
        if name not in known:
            raise ConfigError("unknown option '%s'%s" % (name, nearest(name, [*known, *OWN_OPTIONS])))
    option_table.validate(values)
    return values


def rewrite_graph(graph_def, feeds, preserved, chosen, device="CPU"):
    """Reads, plans, applies and verifies.

    Args:
        graph_def: a tf.compat.v1.GraphDef; it is not changed.
        feeds: names of tensors that are fed.
        preserved: names of nodes or tensors whose names and dtypes must stay.
        chosen: the `precision.Precision` of the options.
        device: assumed for nodes that name no device.

    Returns:
        Rewritten.
    """
    start = time.perf_counter()
    with _without_collector():
        kernels = graphs.kernel_table(device)
        before = graphs.read(graph_def, feeds, preserved)
        planned = plan(before, chosen.table, chosen.policy, kernels, chosen.warnings, chosen.unmatched)
        result = graph_def
        if planned.changed:
            result, touched = apply(planned, graph_def)
            verify(before, graphs.reread(before, result, touched), kernels)
            sort_nodes(result)
    return Rewritten(result, planned, time.perf_counter() - start)


@contextlib.contextmanager
def _without_collector():
    """Python's cyclic collector stays off: we make no cycles, and each pass walks all of the user's objects.

    With a graph of 26,000 nodes it took as long as the planning itself.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
