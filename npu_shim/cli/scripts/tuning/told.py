"""What `npu-shim tune` tells at its end: what was kept in float32, what that bought, and what it cost."""

from __future__ import annotations

from typing import Sequence

from npu_shim.cli.scripts.tuning import criteria, proposal
from npu_shim.cli.scripts.tuning.criteria import Outcome
from npu_shim.cli.scripts.tuning.proposal import Node, Share
from npu_shim.cli.scripts.tuning.search import Result

MOST_LINES = 12  # of nodes
LEAST_LOW = 0.9  # share of the matrix and convolution ops that should stay low


def as_text(result: Result, out: str, words: str) -> str:
    """Returns it.

    Args:
        result: what tuning came to.
        out: path of the mixlist.
        words: the criteria.
    """
    lines = ["", "float32: %s" % _curves(result.float32)]
    if result.noise is not None:
        lines.append("float32, first weights disturbed by 2^-11: the loss deviates by %.3g" % result.noise)
    if not result.failed:
        lines.append("own mode: %s" % _curves(result.own))
        lines += ["", "nothing is to be tuned: the script's own mode meets %s" % words, *_advice(result)]
        return "\n".join(lines) + "\n"
    lines.append("own mode: %s" % "; ".join(result.failed))
    if result.unreplayed:
        lines += ["no step could be replayed, so nodes are taken by scope: %s" % result.unreplayed]
    if result.best is None:
        lines += ["", "no list met %s within %d trials; the same command with more --trials continues" % (
            words, result.trials), *_advice(result)]  # fmt: skip
        return "\n".join(lines) + "\n"
    lines += ["tuned: %s" % _curves(result.best.outcome), *_kept(result), *_cost(result), *_advice(result)]
    return "\n".join([*lines, *_use(result, out)]) + "\n"


def _curves(outcome: Outcome) -> str:
    parts = [
        "%s %.4g -> %.4g in %d steps" % (name, curve[0], curve[-1], len(curve))
        for name, curve in outcome.losses.items() if curve
    ]  # fmt: skip
    return "; ".join(parts + ([] if outcome.metric is None else ["metric %.6g" % outcome.metric]))


def _kept(result: Result) -> list[str]:
    """The nodes in float32, each with the error of a step in which it alone is low."""
    assert result.best is not None
    ops = {node.name: node.op for node in result.nodes}
    rows = [(name, group) for group in result.groups[: result.best.kept] for name in group["lines"]]
    lowered = sum(node.low for node in result.nodes)
    lines = ["", "kept in float32 (%d of %d nodes that the mode lowers):" % (len(rows), lowered)]
    for name, group in rows[:MOST_LINES]:
        error = group["error"]
        beside = "" if len(group["lines"]) == 1 else ", with %d others" % (len(group["lines"]) - 1)
        known = "" if error is None else ", error %s%s" % ("infinite" if error > 1e9 else "%.2g" % error, beside)
        lines.append("  %s (%s)%s" % (name, ops.get(name, "?"), known))
    return lines + (["  and %d more" % (len(rows) - MOST_LINES)] if len(rows) > MOST_LINES else [])


def _cost(result: Result) -> list[str]:
    assert result.best is not None
    table = proposal.table_of(result.own.more["values"])
    before, after = proposal.share(result.nodes, table), proposal.share(result.tuned, table)
    worst = [criteria.worst(outcome, result.float32) for outcome in (result.own, result.best.outcome)]
    rows = [
        ("", "own mode", "tuned"),
        ("deviation of the loss", *("%.3g" % number for number in worst)),
        ("matrix and convolution ops that are low", _nodes(before), _nodes(after)),
        ("  share of their operations", _percent(before), _percent(after)),
        ("nodes that are low", _low(result.nodes), _low(result.tuned)),
    ]
    lines = ["", *("%-40s %12s %12s" % row for row in rows)]
    if after.low < LEAST_LOW:
        lines += ["", "less than %g %% of the matrix and convolution ops stay low" % (100 * LEAST_LOW)]
    return lines


def _nodes(share: Share) -> str:
    return "%d of %d" % share.nodes


def _percent(share: Share) -> str:
    return "%.1f %%" % (100 * share.low)


def _low(nodes: Sequence[Node]) -> str:
    return "%d of %d" % (sum(node.low for node in nodes), len(nodes))


def _advice(result: Result) -> list[str]:
    return ["", *("calibration: " + line for line in result.advice)] if result.advice else []


def _use(result: Result, out: str) -> list[str]:
    """The lines that a user adds to the script, or types instead."""
    written = result.proposed.written(out)
    lines = ["", "wrote %s after %d trials; add to the script" % (" and ".join(written.values()), result.trials), ""]
    lines += ['  custom_op.parameter_map["%s"].s = tf.compat.as_bytes("%s")' % pair for pair in written.items()]
    arguments = ", ".join('%s="%s"' % pair for pair in written.items())
    words = " ".join("--set %s=%s" % pair for pair in written.items())
    return [*lines, "", "or NPURunConfig(%s), or leave it as it is: npu-shim run %s SCRIPT" % (arguments, words)]
