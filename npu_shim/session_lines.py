"""What a session says about a graph that it is about to run: one line, or none."""

import logging
from collections import Counter
from typing import Optional, Tuple

from .rewriter import report
from .rewriter.decisions import Plan, Reason
from .rewriter.dtypes import FLOAT32, LOW
from .rewriter.op_table import OpTable
from .rewriter.policy import Action

OWN_WORD = (Reason.SCOPE, Reason.CUSTOM, Reason.ASKED)  # the user's, of which nobody must be told


def line(plan: Plan, table: OpTable, seconds: Optional[float] = None) -> Optional[Tuple[int, str]]:
    """Returns (level of `logging`, text) about a planned graph, or None.

    A graph that was changed has its line. So has one that the mode leaves as it is although it has white-listed ops:
    they are in low precision already, or a warning says what kept them. Graphs without such ops, those that initialize
    or save variables, have none.

    Args:
        plan: the graph's.
        table: the op table that it was planned with.
        seconds: that the rewrite took.
    """
    counts = report.summary(plan, seconds)
    if counts["lowered"]:
        return logging.INFO, report.one_line(plan, counts)
    if plan.changed:
        raised = sum(d.was in LOW and d.becomes == FLOAT32 for d in plan.decisions())
        up = ", %d slots raised to float32" % raised if raised else ""
        return logging.INFO, report.one_line(plan, counts) + up
    listed = [d for d in plan.decisions() if d.op in table.entries and table.entries[d.op].listed == "white"]
    low = sum(d.was in LOW for d in listed)
    if low:
        text = "%s: nothing to lower, %d of %d slots of white-listed ops are written in low precision"
        return logging.INFO, text % (plan.policy.name, low, len(listed))
    kept = [d for d in listed if d.was == FLOAT32 and d.reason not in OWN_WORD]
    if not kept or Action.LOWER not in (plan.policy.white, plan.policy.cube):
        return None
    ops = ", ".join("%s %d" % pair for pair in sorted(Counter(d.op for d in kept).items()))
    reasons = "; ".join(sorted({d.reason.value for d in kept}))
    return logging.WARNING, "%s lowers nothing of this graph, %s keep float32: %s" % (plan.policy.name, ops, reasons)
