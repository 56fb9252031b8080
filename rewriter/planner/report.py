"""Reports a plan, as text for people and as JSON values for programs."""

from collections import Counter
from itertools import chain
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ..graph.emulation import Way
from ..graph.graph_view import Slot
from ..tables.dtypes import FLOAT32, FLOATS, LOW
from ..tables.dtypes import name as dtype_name
from ..tables.op_table import Entry, OpTable
from ..tables.policy import Action, PrecisionPolicy
from .decisions import Plan, Reason

BY_USER = (Reason.SCOPE, Reason.ASKED, Reason.CUSTOM)
SETTLED = (*BY_USER, Reason.ALREADY_ROUNDED)
MOST_LINES = 12  # of a group in the text report


def summary(plan: Plan, seconds: Optional[float] = None) -> Dict[str, Any]:
    """Returns counts: nodes, slots of a floating dtype, slots lowered, casts each way, constants lowered, seconds."""
    was = [dtype for node in plan.view.nodes for dtype in node.dtypes]
    changes = list(zip(was, plan.becomes))
    return {
        "nodes": len(plan.view.nodes),
        "slots": sum(was in FLOATS for was, _ in changes),
        "lowered": sum(was == FLOAT32 and becomes in LOW for was, becomes in changes),
        "casts_to_low": sum(cast.dtype in LOW and not cast.folded for cast in plan.casts),
        "casts_to_float32": sum(cast.dtype == FLOAT32 for cast in plan.casts),
        "constants_to_low": sum(cast.folded for cast in plan.casts),
        "seconds": seconds,
    }


def as_json(plan: Plan, seconds: Optional[float] = None) -> Dict[str, Any]:
    """The whole plan as JSON values; except for the seconds, independent of the order of the graph's nodes."""
    names = [node.name for node in plan.view.nodes]
    return {
        "summary": summary(plan, seconds),
        "decisions": [
            {
                "node": d.node,
                "op": d.op,
                "attr": d.slot.attr,
                "index": d.slot.index,
                "was": dtype_name(d.was),
                "becomes": dtype_name(d.becomes),
                "reason": d.reason.value,
                "runs": d.way.value,
                "because": None if d.because is None else slot_name(*d.because),
            }
            for d in plan.decisions()
        ],
        "casts": [
            {
                "tensor": cast.tensor,
                "to": dtype_name(cast.dtype),
                "folded": cast.folded,
                "consumers": ["%s:%d" % (names[position], number) for position, number in cast.consumers],
            }
            for cast in plan.casts
        ],
        "unmatched": list(plan.unmatched),
        "warnings": list(plan.warnings),
    }


def slot_name(node: str, slot: Slot) -> str:
    """A slot for people: "node.T", or "node.T[1]" for an entry of a list attribute."""
    return "%s.%s" % (node, slot.attr) if slot.index is None else "%s.%s[%d]" % (node, slot.attr, slot.index)


def one_line(plan: Plan, counts: Mapping[str, Any]) -> str:
    """The one line that a session logs; `counts` is the plan's `summary`."""
    took = "" if counts["seconds"] is None else ", %.2f s" % counts["seconds"]
    return "%s: %d of %d float slots to %s, casts %d down and %d up%s" % (
        plan.policy.name, counts["lowered"], counts["slots"], dtype_name(plan.policy.low),
        counts["casts_to_low"], counts["casts_to_float32"], took,
    )  # fmt: skip


def nothing_lowered(plan: Plan, table: OpTable) -> Tuple[str, ...]:
    """One line where a mode that lowers some ops lowers nothing of a graph that has such ops in float32, with why.

    Ops that the user keeps by a scope or by name do not count, nor those that an earlier rewrite had run so.
    """
    was = chain.from_iterable([node.dtypes for node in plan.view.nodes])
    if any(old == FLOAT32 and new in LOW for old, new in zip(was, plan.becomes)):
        return ()
    reasons: Counter[Reason] = Counter()
    for d in plan.decisions():
        entry = table.entries.get(d.op)
        if entry is None or d.was != FLOAT32 or d.reason in SETTLED or d.slot.attr in entry.keep:
            continue
        if _lowers(plan.policy, entry):
            reasons[d.reason] += 1
    if not reasons:
        return ()
    told = ", ".join("%s (%d)" % (reason.value, count) for reason, count in reasons.most_common())
    total = sum(reasons.values())
    return ("%s lowers nothing: none of %d slots that it should: %s" % (plan.policy.name, total, told),)


def _lowers(policy: PrecisionPolicy, entry: Entry) -> bool:
    """Whether the mode lowers ops of this entry whatever their producers are."""
    if entry.role != "computes":
        return False
    if entry.cube and policy.cube is not None:
        return policy.cube is Action.LOWER
    return {"white": policy.white, "gray": policy.gray, "black": policy.black}[entry.listed] is Action.LOWER


def lowered_lines(plan: Plan) -> List[str]:
    """One line a lowered node, for NPU_SHIM_LOG=plan."""
    return [
        "reduce precision of %s (%s): %s to %s: %s"
        % (slot_name(d.node, d.slot), d.op, dtype_name(d.was), dtype_name(d.becomes), d.reason.value)
        for d in plan.decisions()
        if d.becomes in LOW and d.was == FLOAT32
    ]


def as_text(plan: Plan, seconds: Optional[float] = None) -> str:
    """The report that `npu-shim plan` prints: a summary, op types by outcome and reason, casts, warnings."""
    lines = [one_line(plan, summary(plan, seconds)), ""]
    groups: Counter[Tuple[str, str, str]] = Counter()
    ways: Counter[Tuple[str, str]] = Counter()
    for d in plan.decisions():
        groups[dtype_name(d.becomes), d.reason.value, d.op] += 1
        if d.way is not Way.KERNEL:
            ways[d.way.value, d.op] += 1
    widest = max((len(key[1]) for key in groups), default=0)
    for becomes in sorted({key[0] for key in groups}):
        lines.append("%s:" % becomes)
        reasons = sorted({key[1] for key in groups if key[0] == becomes})
        for reason in reasons:
            ops = Counter({key[2]: n for key, n in groups.items() if key[:2] == (becomes, reason)})
            lines.append("  %-*s %6d   %s" % (widest, reason, sum(ops.values()), _shown(ops)))
    for way in sorted({way for way, _ in ways}):
        ops = Counter({op: n for (way_op, op), n in ways.items() if way_op == way})
        lines.append("runs as %s:\n  %d   %s" % (way, sum(ops.values()), _shown(ops)))
    text = "\n".join(lines) + "\n"
    return text + group("warnings", plan.warnings) + group("matched nothing", plan.unmatched)


def _shown(ops: Mapping[str, int]) -> str:
    """Counts by op type, the most frequent first."""
    shown = ["%s %d" % pair for pair in sorted(ops.items(), key=lambda pair: (-pair[1], pair[0]))]
    rest = "" if len(shown) <= MOST_LINES else ", and %d more op types" % (len(shown) - MOST_LINES)
    return ", ".join(shown[:MOST_LINES]) + rest


def group(title: str, texts: Sequence[str]) -> str:
    """A titled group of lines of the text report; "" where there are none."""
    return "".join(["%s:\n" % title, *("  %s\n" % text for text in texts)]) if texts else ""
