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

from typing import Any, Iterable

from npu_shim.session.clusters import pruning
from npu_shim.xla.passes.control_flow.gradient_sinking import apply, loops, plan


def after_loops(graph_def: Any, keep: Iterable[str]) -> Any:
    """Returns a GraphDef that sums after its loops where that moves fewer bytes; the same object if nowhere.

    Args:
        graph_def: tf.compat.v1.GraphDef with v1 loops, Placeholders of full shapes, and Stacks that are pushed to and
            popped from outside of a tf.cond and have sizes; it is not changed.
        keep: names of the nodes that are fetched or run.
    """
    view = loops.View(graph_def)
    sums = plan.plan(view)
    return pruning.reachable(apply.apply(graph_def, view, sums), keep) if sums else graph_def
