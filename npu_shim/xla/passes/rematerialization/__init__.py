"""Recomputation: cheap ops of the forward pass run again in the backward pass, so that their results are not kept.

The way of a step:

    facts.read -> plan.plan (stages, groups, cut) -> apply.apply -> report.described
"""

from __future__ import annotations

from npu_shim.rewriter.ir.module import Module
from npu_shim.xla.passes.rematerialization import apply, facts, plan, report
from npu_shim.xla.passes.sizes import Sizes

OFF = report.Recomputation("off", because="it is off")


def recomputed(module: Module, mode: str, sizes: Sizes) -> report.Recomputation:
    """Has a module compute values again, and returns what.

    Args:
        module: a step's, with feeds of full shapes.
        mode: one of `options.words.RECOMPUTE`.
        sizes: of its tensors.
    """
    if mode == "off":
        return OFF
    step = facts.read(module, mode, sizes)
    regions = plan.plan(step, mode)
    apply.apply(module.graph, step, regions)
    return report.described(step, mode, regions)
