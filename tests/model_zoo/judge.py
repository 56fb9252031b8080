"""What a run came to, told from its exit status, its trace and its log."""

import math
import re
import statistics
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

WHOLE, OTHER, NOT_TAKEN, STOPS, OWN_FAULT = "whole", "other precision", "not taken", "stops", "own fault"
_LOSS = re.compile("loss|cost|entropy", re.IGNORECASE)
_NO_LOSS = re.compile("scale", re.IGNORECASE)  # a loss scale is no loss
_ERROR = re.compile(r"^(?:E\s+)?[\w.]*(?:Error|Exception|Interrupt|Exit)\b.*")
NO_STEP = "it writes no variable"  # what the engine says of an evaluation
LONGEST = 200  # characters of a cause


class Ran(NamedTuple):
    """What is known of a run: `status` is None where the limit ended it; `missing` a checkpoint that is not there."""

    status: Optional[int]
    trace: List[Dict[str, Any]]
    log: str
    seconds: float
    missing: str = ""


class Outcome(NamedTuple):
    """A row of the table: what a recipe came to, and the figures.

    Where an engine ran the session: `taken` as programs of the steps that write variables, `written`; their number for
    the last step, the ops that a step leaves to the host, and why others were not taken.
    """

    result: str
    cause: str = ""
    mode: str = ""
    lowered: int = 0
    slots: int = 0
    steps: int = 0
    first_loss: Optional[float] = None
    step_ms: Optional[float] = None
    seconds: float = 0.0
    float32_ms: Optional[float] = None
    float32_loss: Optional[float] = None
    taken: Optional[int] = None
    written: int = 0
    programs: int = 0
    host_ops: int = 0
    why_not: str = ""
    losses: Sequence[float] = ()


def judge(recipe, ran):
    """Returns the Outcome of a run.

    Whole is: ended as expected after at least one training step; each graph that trains was lowered, in the mode that
    the recipe says; losses finite, the first in its range; the checkpoint there.
    """
    outcome, graphs, steps = _figures(recipe, ran)
    if outcome.result != WHOLE:
        return outcome
    other = _other_precision(recipe, graphs, steps)
    return outcome._replace(result=OTHER, cause=other) if other else outcome


def judge_way(recipe, way, ran, beside):
    """Returns the Outcome of a run in a way of ours, of a script that asks for none.

    Whole is: ended as expected after at least one training step; losses finite, the first in its range, and all beside
    those of `beside` (a list, or None); the checkpoint there and read again; what the way is about has happened.
    """
    outcome, graphs, _ = _figures(recipe, ran)
    if outcome.result != WHOLE:
        return outcome
    apart = _apart(outcome.losses, beside or (), max(way.apart, recipe.apart))
    if apart:
        return outcome._replace(result=STOPS, cause=apart)
    if way.lowers and recipe.lowers and not any(line["changed"] for line in graphs):
        cause = "%s lowered nothing" % outcome.mode if graphs else "no graph reached the rewriter"
        return outcome._replace(result=OTHER, cause=cause)
    if way.engine and not (outcome.taken or 0) > outcome.written / 2:
        return outcome._replace(result=NOT_TAKEN, cause=outcome.why_not[:LONGEST] or "no session reached the engine")
    return outcome


def _figures(recipe, ran):
    """The Outcome of a run but for its precision, the trace's lines of graphs, and those of steps."""
    graphs = [line for line in ran.trace if "mode" in line]
    steps = [line for line in ran.trace if "step" in line]
    most = max(graphs, key=lambda line: _weight(recipe, line), default={})
    losses = _losses(steps)
    outcome = Outcome(
        WHOLE,
        mode=most.get("mode", ""),
        lowered=most.get("lowered", 0),
        slots=most.get("slots", 0),
        steps=len(steps),
        first_loss=losses[0] if losses else None,
        step_ms=_step_ms(steps),
        seconds=round(ran.seconds, 1),
        losses=losses,
        **_of_engine(steps),
    )
    stops = _stops(recipe, ran, steps, losses)
    if recipe.own_fault:
        cause = recipe.own_fault if stops else "expected to stop by its own fault, and does not"
        return outcome._replace(result=OWN_FAULT if stops else STOPS, cause=cause), graphs, steps
    return outcome._replace(result=STOPS, cause=stops[:LONGEST]) if stops else outcome, graphs, steps


def _apart(losses, others, most):
    """Where losses leave those of another way, or ""."""
    for number, (loss, other) in enumerate(zip(losses, others), 1):
        if abs(loss - other) > most * max(abs(other), 1):
            return "loss %d is %.4g, in float32 %.4g" % (number, loss, other)
    return ""


def _of_engine(steps):
    """What an engine made of the steps; {} where there was none."""
    told = [line for line in steps if "taken" in line]
    taken = [line for line in told if line["taken"]]
    if not told:
        return {}
    others = [line["why"] for line in told if not line["taken"] and line["why"] != NO_STEP]
    last = taken[-1] if taken else {"programs": 0, "host_ops": 0}
    counts = {"taken": len(taken), "written": len(taken) + len(others)}
    return {**counts, "programs": last["programs"], "host_ops": last["host_ops"], "why_not": (others or [""])[0]}


def _weight(recipe, line):
    """The graph that is told of is the one in the mode asked for with most low slots."""
    return line["mode"] == recipe.mode, line["lowered"], line["low_by_hand"]


def _stops(recipe, ran, steps, losses):
    """Why the run is not what was expected, but for its precision; "" if it is."""
    if ran.status is None:
        return "over the limit of %d s with %d training steps" % (recipe.limit, len(steps))
    if ran.status != 0:
        return last_error(ran.log) or "exit status %d" % ran.status
    if not steps:
        return "no training step; last line: " + _last_line(ran.log)
    bad = [loss for loss in losses if not math.isfinite(loss)]
    if bad:
        return "a loss is %s, %d of %d" % (bad[0], len(bad), len(losses))
    if recipe.loss and not (losses and recipe.loss[0] <= losses[0] <= recipe.loss[1]):
        return "first loss %s, expected %s to %s" % (losses[0] if losses else "not fetched", *recipe.loss)
    return "no checkpoint %s" % ran.missing if ran.missing else ""


def _other_precision(recipe, graphs, steps):
    """What is wrong with the precision of a run, or ""."""
    if not graphs:
        return "no graph reached the rewriter"
    asked = [line for line in graphs if line["mode"] == recipe.mode]
    if not asked:
        return "in %s, expected %s" % (", ".join(sorted({line["mode"] for line in graphs})), recipe.mode)
    changed = [line for line in asked if line["changed"]]
    if recipe.lowers and not changed:
        return "%s lowered nothing" % recipe.mode
    if not recipe.lowers and not any(line["low_by_hand"] for line in asked):
        return "expected float16 by hand in the graph, found none"
    trained = len({line["fetched"] for line in steps if not line.get("shared")})  # others run one's program
    if recipe.lowers and len(changed) < trained:
        return "%d of %d graphs that train were changed" % (len(changed), trained)
    return ""


def _losses(steps):
    """The first loss of each step, or the first scalar where none is called a loss."""
    losses = []
    for line in steps:
        scalars = {name: value for name, value in line["scalars"].items() if not _NO_LOSS.search(name)}
        named = [value for name, value in scalars.items() if _LOSS.search(name)]
        losses += (named or list(scalars.values()))[:1]
    return losses


def _step_ms(steps):
    """Median time of a step in milliseconds, without the first of each set of fetches, which is traced and compiled."""
    seen, rest = set(), []
    for line in steps:
        if line["fetched"] in seen:
            rest.append(line["seconds"])
        seen.add(line["fetched"])
    return round(statistics.median(rest) * 1000, 2) if rest else None


def last_error(log):
    """The last line of a log that names an error and says which, or ""."""
    lines = [match.group().strip() for match in map(_ERROR.match, log.splitlines()) if match]
    telling = [line for line in lines if not line.endswith("Graph execution error:")]
    return telling[-1].replace("tensorflow.python.framework.errors_impl.", "") if telling else ""


def _last_line(log):
    return (log.strip().splitlines() or ["(nothing printed)"])[-1][:LONGEST]
