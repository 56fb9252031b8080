"""Sums a weight's gradient after a loop instead of in it: one product of what all steps give.

The gradient of a recurrent layer's loop adds a product to the weight's gradient in every step, so that every step
reads and writes all of that gradient, which is larger than what the step computes from its batch:

    while n >= 1:  a = pop(stack);  sum = sum + a^T d     becomes     while n >= 1:  rows[n] = d
                                                                      sum = all of stack^T rows

The way of a graph with v1 loops, whose Stacks have sizes:

    loops.View (loops, their gradients, Stacks) -> plan.plan -> apply.apply

What does not have this form stays as it is. The order of the sums differs, so that float32 results differ in their last
digits; 16-bit factors keep their dtype, their products are summed in float32 and rounded once, if at all.
"""

from __future__ import annotations

from npu_shim.rewriter.ir.module import Module
from npu_shim.xla.passes.control_flow.gradient_sinking import apply, loops, plan
from npu_shim.xla.passes.dead_control_dependencies import keep_needed


def sink(module: Module) -> None:
    """Has a graph sum after its loops where that moves fewer bytes.

    Args:
        module: has v1 loops, Placeholders of full shapes, and Stacks that are pushed to and popped from outside of a
            tf.cond and have sizes.
    """
    view = loops.View(module)
    sums = plan.plan(view)
    if sums:
        apply.apply(view, sums)
        keep_needed(module.graph)
