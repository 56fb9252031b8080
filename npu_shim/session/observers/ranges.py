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
    found = []
    for name in sorted(name for name in os.listdir(folder) if name.endswith(SUFFIX)):
        with open(os.path.join(folder, name), encoding="utf-8") as f:
            each = json.load(f)
        tensors = [of_json(fields) for fields in each["tensors"]]
        found.append((tensors, each["steps"], each["scale"] and tuple(each["scale"]), each["left_out"]))
    return found


def suspects(found: Sequence[Range]) -> list[str]:
    """Returns the names of the ops whose results float16 cannot hold, the worst first: infinite, beyond, lost."""
    bad = sorted((each for each in found if each.nonfinite), key=_of_origin)
    high = sorted((each for each in found if each.beyond), key=lambda each: -each.largest)
    lost = sorted((each for each in found if each.share(each.below) > LOST), key=lambda each: -each.share(each.below))
    return list(dict.fromkeys(each.tensor.partition(":")[0] for each in (*bad, *high, *lost)))


def _of_origin(each: Range) -> tuple[int, bool]:
    """Orders what is not finite: a read of a variable comes last, for it may find what its step has already written."""
    return each.turn, each.op in READS


def proposals(found: Sequence[Range], scale: tuple[float, float] | None) -> list[str]:
    """Returns what the ranges suggest to change, one line each, the most urgent first.

    Args:
        found: the ranges, in the order of the graph.
        scale: least and greatest loss scale of the steps, None without one.
    """
    lines = []
    origin = min((each for each in found if each.nonfinite), key=_of_origin, default=None)
    if origin is not None:
        lines.append("%s is the first that is not finite; to keep it in float32: %s" % (origin.tensor, origin.line))
    high = sorted((each for each in found if each.beyond > each.nonfinite), key=lambda each: -each.largest)
    text = "%s would be infinite where it is lowered; to keep it in float32: %s"
    lines += [text % (each.tensor, each.line) for each in high[:MOST_LINES]]
    return lines + _of_loss_scale([each for each in found if each.tensor.startswith("gradients")], scale)


def _of_loss_scale(gradients: Sequence[Range], scale: tuple[float, float] | None) -> list[str]:
    largest = max((gradient.largest for gradient in gradients), default=0.0)
    small = [gradient for gradient in gradients if NOISE * largest <= gradient.largest <= SMALL]
    lost = [each for each in small if each.share(each.below) > LOST]
    if not lost:
        return []
    text = "%d gradients have no value above %.2g, and over %g %% of their values would be zero in float16"
    factor = 2 ** int(math.log2(INFINITE_FROM / largest / HEADROOM))  # 2 or more: the largest is SMALL / NOISE at most
    now = "" if scale is None else " (now %g)" % scale[1]
    told = text % (len(lost), SMALL, 100 * LOST)
    return ["%s: a loss scale %d times larger%s keeps more of them" % (told, factor, now)]


def as_text(found: Sequence[Range], steps: int, scale: tuple[float, float] | None, left_out: int) -> str:
    """Returns the ranges as text: what leaves float16, what is lost below it, and what to change."""
    lines = ["%d steps, %d tensors measured, %d in loops or branches left out" % (steps, len(found), left_out)]
    if scale is not None:
        lines.append("loss scale %g" % scale[0] if scale[0] == scale[1] else "loss scale %g to %g" % scale)
    bad = sorted((each for each in found if each.nonfinite), key=lambda each: (each.first_nonfinite, each.tensor))
    lines += _group("infinite or not a number", bad, lambda each: "first in step %d" % each.first_nonfinite)
    high = sorted((each for each in found if each.beyond), key=lambda each: -each.largest)
    lines += _group("beyond float16", high, lambda each: "up to %.4g, %s" % (each.largest, _percent(each, each.beyond)))
    low = sorted((each for each in found if each.below), key=lambda each: -each.share(each.below))
    lines += _group("zero in float16", low, lambda each: "from %.4g, %s" % (each.smallest, _percent(each, each.below)))
    wide = sorted(found, key=lambda each: -each.largest)
    lines += _group("largest", wide, lambda each: "%.4g" % each.largest)
    wanted = proposals(found, scale)
    lines += ["", "what to change:", *("  " + line for line in wanted)] if wanted else []
    return "\n".join(lines) + "\n"


def _percent(each: Range, count: int) -> str:
    return "%.3g %% of the values" % (100 * each.share(count))


def _group(title: str, found: Sequence[Range], say: Any) -> list[str]:
    if not found:
        return []
    lines = ["", "%s (%d):" % (title, len(found))]
    lines += ["  %s (%s): %s" % (each.tensor, each.op, say(each)) for each in found[:MOST_LINES]]
    return lines + (["  and %d more" % (len(found) - MOST_LINES)] if len(found) > MOST_LINES else [])
