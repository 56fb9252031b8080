"""Recomputation: cheap ops of the forward pass run again in the backward pass, so that their results are not kept.

The way of a step:

    facts.read -> plan.plan (stages, groups, cut) -> apply.apply -> report.described
"""

from __future__ import annotations

from typing import Any

from npu_shim.xla.passes.memory.rematerialization import apply, facts, plan, report

OFF = report.Recomputation("off", because="it is off")


def recomputed(graph_def: Any, mode: str, on_cpu: bool) -> tuple[Any, report.Recomputation]:
    """Returns (GraphDef, Recomputation); the same GraphDef if nothing is computed again.

    Args:
        graph_def: tf.compat.v1.GraphDef of a step with functional control flow and feeds of full shapes; it is not
            changed.
        mode: one of `options.words.RECOMPUTE`.
        on_cpu: whether XLA compiles it for a CPU.
    """
    if mode == "off":
        return graph_def, OFF
    step = facts.read(graph_def, mode)
    unrounded = ("bfloat16",) if on_cpu else ()
    regions = plan.plan(step, mode, unrounded)
    return apply.apply(graph_def, step, regions), report.described(step, mode, regions, unrounded)
