"""The pass that makes attention calls; see the package."""

from __future__ import annotations

from typing import Iterator

from npu_shim.rewriter.ir.graph import Value
from npu_shim.rewriter.ir.module import Module
from npu_shim.xla.passes import dead_control_dependencies
from npu_shim.xla.passes.attention import apply, composite, report
from npu_shim.xla.passes.attention.matching import pattern
from npu_shim.xla.passes.attention.matching.contents import Contents, Shape
from npu_shim.xla.passes.shapes import static_shapes


def fused(module: Module) -> report.Attention:
    """Replaces the attention of a module by calls; returns what was taken, and what was not.

    Args:
        module: a Module with functional control flow and feeds of full shapes.
    """
    inside = tuple(_in_functions(module))
    if not any(True for _ in pattern.candidates(module.graph)):
        return report.Attention("auto", misses=inside)
    found_plan = pattern.plan(module.graph, Contents(_Shapes(module).of))
    found_plan = found_plan._replace(misses=(*found_plan.misses, *inside))
    apply.apply(module, found_plan.matches, composite.function)
    if found_plan.matches:
        dead_control_dependencies.keep_needed(module.graph)
    return report.described(found_plan)


def _in_functions(module: Module) -> Iterator[pattern.NearMiss]:
    """Yields what looks like attention in the bodies of loops and conditionals."""
    for name in module.functions:
        for node, _ in pattern.candidates(module.functions[name]):
            yield pattern.NearMiss(node.name, "it is in a loop, a tf.cond or another function")


class _Shapes:
    """The shapes that TensorFlow infers for a module as it is now."""

    def __init__(self, module: Module) -> None:
        self._graph = static_shapes.of_module(module)

    def of(self, value: Value) -> Shape:
        """The sizes of a value, None where one is open."""
        shape = self._graph.get_operation_by_name(value.node.name).outputs[value.index].shape
        return tuple(shape.as_list()) if shape.is_fully_defined() else None
