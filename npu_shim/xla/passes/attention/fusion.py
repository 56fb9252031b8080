"""The pass that makes attention calls; see the package."""

from __future__ import annotations

from typing import Any, Iterator

from npu_shim.rewriter.ir.module import Module
from npu_shim.xla.passes import dead_control_dependencies, enclosed
from npu_shim.xla.passes.attention import apply, report
from npu_shim.xla.passes.attention.matching import pattern
from npu_shim.xla.passes.attention.matching.contents import Contents
from npu_shim.xla.passes.sizes import Sizes

ENCLOSED = "it is in a loop, a tf.cond or another function"


def fused(module: Module, sizes: Sizes) -> report.Attention:
    """Replaces the attention of a module by calls; returns what was taken, and what was not.

    Args:
        module: a Module with feeds of full shapes.
        sizes: of its tensors.
    """
    inside = enclosed.nodes(module.graph)
    misses = tuple(_enclosed(module, inside))
    if not any(node not in inside for node, _ in pattern.candidates(module.graph)):
        return report.Attention("auto", misses=misses)
    known = Contents(sizes.of)
    plan_of_graph = pattern.plan(module.graph, known, inside)
    plan_of_graph = plan_of_graph._replace(misses=(*plan_of_graph.misses, *misses))
    apply.apply(module.graph, plan_of_graph.matches)
    if plan_of_graph.matches:
        dead_control_dependencies.keep_needed(module.graph)
    return report.described(plan_of_graph)


def _enclosed(module: Module, inside: Any) -> Iterator[pattern.NearMiss]:
    """Yields what looks like attention in loops, conditionals and functions."""
    yield from (pattern.NearMiss(node.name, ENCLOSED) for node, _ in pattern.candidates(module.graph) if node in inside)
    for name in module.functions:
        for node, _ in pattern.candidates(module.functions[name]):
            yield pattern.NearMiss(node.name, ENCLOSED)
