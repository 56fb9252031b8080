"""NPU_SHIM_TRACE=FILE: writes one JSON line for each graph that a session hands to the rewriter, for other programs.

A line has the mode's name, its low dtype, whether anything changed, and the counts of `report.summary`. Lines are
appended, so that the programs a script starts can write into the same file.
"""

from __future__ import annotations

import json
import os

from npu_shim.rewriter.planner import report
from npu_shim.rewriter.planner.decisions import Plan
from npu_shim.rewriter.tables.dtypes import LOW
from npu_shim.rewriter.tables.dtypes import name as dtype_name

SWITCH = "NPU_SHIM_TRACE"


def graph(plan: Plan, seconds: float) -> None:
    """Appends the line of a graph that was planned in `seconds`, if NPU_SHIM_TRACE is set."""
    path = os.environ.get(SWITCH)
    if not path:
        return
    by_hand = sum(dtype in LOW for node in plan.view.nodes for dtype in node.dtypes)
    line = {"mode": plan.policy.name, "low": dtype_name(plan.policy.low), "changed": plan.changed}
    line.update(report.summary(plan, seconds), low_by_hand=by_hand)
    with open(path, "a", encoding="utf-8") as f:
        f.write(json.dumps(line) + "\n")
