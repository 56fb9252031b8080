"""The ranges of tensors over several steps: what is measured of each, how steps add up, and what follows from them."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from npu_shim.rewriter.tables.dtypes import INFINITE_FROM, ZERO_UP_TO

SUFFIX = ".ranges.json"
READS = ("Identity", "ReadVariableOp")
MOST_LINES = 12  # of a group in the text
# a gradient this far below float16's largest value leaves room for a larger loss scale
HEADROOM = 2.0**5
LOST = 0.01  # share of a gradient's values that may be lost
# where a tensor's largest value is above it, the values that float16 loses are below 1/2048 of that: any sum with it in
# float16 loses them too, and healthy gradients have such values, as those of a softmax
SMALL = ZERO_UP_TO * 2048
NOISE = 2.0**-23  # of the largest gradient: less than that may be what float32 leaves of a sum that cancels


@dataclass
class Range:
    """What was measured of a tensor; magnitudes are absolute values.

    Attributes:
        tensor: its name.
        op: the type of the op that gives it.
        dtype: as the script wrote it.
        line: the line of a customize_dtypes file that keeps the op in float32.
        steps: how many steps it was measured in.
        largest: largest finite magnitude.
        smallest: smallest magnitude that is not zero; infinity where all are zero.
        values: how many values were measured.
        beyond: how many of them float16 rounds to infinity, or are infinite.
        below: how many of them float16 rounds to zero though they are not.
        nonfinite: how many of them are infinite or not a number.
        first_nonfinite: number of the first step with such a value, counted from 1; 0 for none.
        turn: which of the tensor's measurements that was. Groups take turns, so it tells tensors of different groups
            apart where the step does not.
    """

    tensor: str
    op: str
    dtype: str
    line: str = ""
    steps: int = 0
    largest: float = 0.0
    smallest: float = math.inf
    values: int = 0
    beyond: int = 0
    below: int = 0
    nonfinite: int = 0
    first_nonfinite: int = 0
    turn: int = 0

    def add(self, step: int, magnitudes: Sequence[float], counts: Sequence[int]) -> None:
        """Adds one step.

        Args:
            step: its number, counted from 1.
            magnitudes: largest, smallest.
            counts: values, beyond, below, nonfinite.
        """
        self.steps += 1
        self.largest = max(self.largest, float(magnitudes[0]))
        self.smallest = min(self.smallest, float(magnitudes[1]))
        self.values += int(counts[0])
        self.beyond += int(counts[1])
        self.below += int(counts[2])
        self.nonfinite += int(counts[3])
        if counts[3] and not self.first_nonfinite:
            self.first_nonfinite, self.turn = step, self.steps

    def share(self, count: int) -> float:
        """Returns a count as a share of the values."""
        return count / self.values if self.values else 0.0

    def as_json(self) -> dict[str, Any]:
        """The range as JSON values: `smallest` is None where all values are zero."""
        return {**vars(self), "smallest": self.smallest if math.isfinite(self.smallest) else None}


def of_json(fields: Mapping[str, Any]) -> Range:
    """The Range of what `as_json` gave."""
    smallest = fields["smallest"]
    return Range(**{**fields, "smallest": math.inf if smallest is None else smallest})


def collected(folder: str) -> list[tuple[list[Range], int, tuple[float, float] | None, int]]:
    """Returns what processes have measured into a folder, for each graph: ranges, steps, loss scales, left out."""
    collected = []
    for name in sorted(name for name in os.listdir(folder) if name.endswith(SUFFIX)):
        with open(os.path.join(folder, name), encoding="utf-8") as f:
            recorded = json.load(f)
        tensors = [of_json(fields) for fields in recorded["tensors"]]
        collected.append(
            (tensors, recorded["steps"], recorded["scale"] and tuple(recorded["scale"]), recorded["left_out"])
        )
    return collected


def suspects(ranges: Sequence[Range]) -> list[str]:
    """Returns the names of the ops whose results float16 cannot hold, the worst first: infinite, beyond, lost."""
    bad = sorted((seen for seen in ranges if seen.nonfinite), key=_of_origin)
    high = sorted((seen for seen in ranges if seen.beyond), key=lambda seen: -seen.largest)
    lost = sorted((seen for seen in ranges if seen.share(seen.below) > LOST), key=lambda seen: -seen.share(seen.below))
    return list(dict.fromkeys(seen.tensor.partition(":")[0] for seen in (*bad, *high, *lost)))


def _of_origin(seen: Range) -> tuple[int, bool]:
    """Orders what is not finite: a read of a variable comes last, for it may find what its step has already written."""
    return seen.turn, seen.op in READS


def proposals(ranges: Sequence[Range], scale: tuple[float, float] | None) -> list[str]:
    """Returns what the ranges suggest to change, one line each, the most urgent first.

    Args:
        ranges: in the order of the graph.
        scale: least and greatest loss scale of the steps, None without one.
    """
    lines = []
    origin = min((seen for seen in ranges if seen.nonfinite), key=_of_origin, default=None)
    if origin is not None:
        lines.append("%s is the first that is not finite; to keep it in float32: %s" % (origin.tensor, origin.line))
    high = sorted((seen for seen in ranges if seen.beyond > seen.nonfinite), key=lambda seen: -seen.largest)
    text = "%s would be infinite where it is lowered; to keep it in float32: %s"
    lines += [text % (seen.tensor, seen.line) for seen in high[:MOST_LINES]]
    return lines + _of_loss_scale([seen for seen in ranges if seen.tensor.startswith("gradients")], scale)


def _of_loss_scale(gradients: Sequence[Range], scale: tuple[float, float] | None) -> list[str]:
    largest = max((gradient.largest for gradient in gradients), default=0.0)
    small = [gradient for gradient in gradients if NOISE * largest <= gradient.largest <= SMALL]
    lost = [seen for seen in small if seen.share(seen.below) > LOST]
    if not lost:
        return []
    text = "%d gradients have no value above %.2g, and over %g %% of their values would be zero in float16"
    factor = 2 ** int(math.log2(INFINITE_FROM / largest / HEADROOM))  # 2 or more: the largest is SMALL / NOISE at most
    now = "" if scale is None else " (now %g)" % scale[1]
    told = text % (len(lost), SMALL, 100 * LOST)
    return ["%s: a loss scale %d times larger%s keeps more of them" % (told, factor, now)]


def as_text(ranges: Sequence[Range], steps: int, scale: tuple[float, float] | None, left_out: int) -> str:
    """Returns the ranges as text: what leaves float16, what is lost below it, and what to change."""
    lines = ["%d steps, %d tensors measured, %d in loops or branches left out" % (steps, len(ranges), left_out)]
    if scale is not None:
        lines.append("loss scale %g" % scale[0] if scale[0] == scale[1] else "loss scale %g to %g" % scale)
    bad = sorted((seen for seen in ranges if seen.nonfinite), key=lambda seen: (seen.first_nonfinite, seen.tensor))
    lines += _group("infinite or not a number", bad, lambda seen: "first in step %d" % seen.first_nonfinite)
    high = sorted((seen for seen in ranges if seen.beyond), key=lambda seen: -seen.largest)
    lines += _group("beyond float16", high, lambda seen: "up to %.4g, %s" % (seen.largest, _percent(seen, seen.beyond)))
    low = sorted((seen for seen in ranges if seen.below), key=lambda seen: -seen.share(seen.below))
    lines += _group("zero in float16", low, lambda seen: "from %.4g, %s" % (seen.smallest, _percent(seen, seen.below)))
    wide = sorted(ranges, key=lambda seen: -seen.largest)
    lines += _group("largest", wide, lambda seen: "%.4g" % seen.largest)
    wanted = proposals(ranges, scale)
    lines += ["", "what to change:", *("  " + line for line in wanted)] if wanted else []
    return "\n".join(lines) + "\n"


def _percent(seen: Range, count: int) -> str:
    return "%.3g %% of the values" % (100 * seen.share(count))


def _group(title: str, ranges: Sequence[Range], say: Any) -> list[str]:
    if not ranges:
        return []
    lines = ["", "%s (%d):" % (title, len(ranges))]
    lines += ["  %s (%s): %s" % (seen.tensor, seen.op, say(seen)) for seen in ranges[:MOST_LINES]]
    return lines + (["  and %d more" % (len(ranges) - MOST_LINES)] if len(ranges) > MOST_LINES else [])
