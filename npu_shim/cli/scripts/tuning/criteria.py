"""The criteria of `npu-shim tune`: their words, and whether a trial meets them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from npu_shim.rewriter.errors import ConfigError, nearest

TOLERANCE = 0.05  # of a loss
WINDOWS = 8  # stretches of a curve whose means are compared
FLOOR = 0.05  # share of the fall of float32's loss that counts as its least size
NOISES = 3  # deviations of float32 itself within which a trial is as good as float32
DEVIATES = "deviates by"
ENOUGH = 0.9  # share of float32's steps that a trial must have
FORMS = ("loss", "loss<=0.05", "finite", "metric>=0.95", "metric<=3.2")
_WORD = re.compile(r"^\s*([A-Za-z_]+)\s*(?:(<=|>=)\s*(\S+))?\s*$")


@dataclass(frozen=True)
class Criterion:
    """One criterion: `kind` is "loss", "finite" or "metric", `sign` "<=" or ">=", `bound` its number."""

    kind: str
    sign: str = "<="
    bound: float = 0.0

    def __str__(self) -> str:
        return self.kind if self.kind == "finite" else "%s%s%g" % (self.kind, self.sign, self.bound)


@dataclass(frozen=True)
class Outcome:
    """What came out of a trial.

    Attributes:
        losses: name of a loss -> its value at each training step.
        status: the script's exit status.
        metric: the metric it printed last, None for none.
        printed: the last lines that it printed.
    """

    losses: Mapping[str, Sequence[float]]
    status: int = 0
    metric: float | None = None
    printed: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)


def parsed(words: Sequence[str], has_pattern: bool) -> tuple[Criterion, ...]:
    """Reads criteria.

    Args:
        words: of FORMS each.
        has_pattern: whether a regular expression for the metric is given.

    Raises:
        ConfigError: another word, a number that is none, a metric without a pattern.
    """
    parsed = tuple(map(_parsed, words))
    if any(criterion.kind == "metric" for criterion in parsed) and not has_pattern:
        raise ConfigError("--criterion names a metric: give --metric REGEX, which finds it in what the script prints")
    if has_pattern and not any(criterion.kind == "metric" for criterion in parsed):
        raise ConfigError("--metric is given, and no --criterion like metric>=0.95")
    return parsed


def _parsed(word: str) -> Criterion:
    match = _WORD.match(word)
    kind = match.group(1) if match else re.split("[<>=]", word)[0]
    if match is None or kind not in ("loss", "finite", "metric"):
        hint = nearest(kind, ("loss", "finite", "metric"))
        raise ConfigError("--criterion is '%s', expected one of %s%s" % (word, ", ".join(FORMS), hint))
    sign, text = match.group(2), match.group(3)
    wrong = {"loss": sign == ">=", "finite": sign is not None, "metric": sign is None}[kind]
    try:
        bound = TOLERANCE if text is None else float(text)
    except ValueError:
        wrong, bound = True, 0.0
    if wrong or not math.isfinite(bound) or (kind == "loss" and bound <= 0):
        raise ConfigError("--criterion is '%s', expected one of %s" % (word, ", ".join(FORMS)))
    return Criterion(kind, sign or "<=", bound)


def problems(outcome: Outcome, reference: Outcome, criteria: Sequence[Criterion], noise: float = 0.0) -> list[str]:
    """Returns what a trial fails, one sentence each; none where it meets all criteria.

    Args:
        outcome: the trial.
        reference: float32.
        criteria: what it must meet.
        noise: how far losses deviate from float32's in float32 itself, where it is disturbed a little.
    """
    told = []
    for criterion in criteria:
        if criterion.kind == "metric":
            told += _of_metric(outcome, criterion)
        else:
            told += _of_losses(outcome, reference, criterion, noise)
    if outcome.status and not told:
        told.append("the script ended with status %d" % outcome.status)
    return list(dict.fromkeys(told))


def _of_metric(outcome: Outcome, criterion: Criterion) -> list[str]:
    if outcome.metric is None:
        return ["no metric was printed"]
    good = outcome.metric >= criterion.bound if criterion.sign == ">=" else outcome.metric <= criterion.bound
    return [] if good else ["metric %.6g" % outcome.metric]


def _of_losses(outcome: Outcome, reference: Outcome, criterion: Criterion, noise: float) -> list[str]:
    told, bound = [], max(criterion.bound, NOISES * noise)
    for name, expected in reference.losses.items():
        curve = outcome.losses.get(name, ())
        bad = first_nonfinite(curve)
        if bad and not first_nonfinite(expected[:bad]):
            told.append("%s is not finite from step %d on" % (name, bad))
        elif len(curve) < ENOUGH * len(expected):
            told.append("%d of %d steps of %s" % (len(curve), len(expected), name))
        elif criterion.kind == "loss" and deviation(curve, expected) > bound:
            told.append("%s %s %.3g" % (name, DEVIATES, deviation(curve, expected)))
    return told


def first_nonfinite(curve: Sequence[float]) -> int:
    """Returns the number of the first step, from 1, whose loss is not finite; 0 where all are."""
    return next((number for number, value in enumerate(curve, 1) if not math.isfinite(value)), 0)


def deviation(curve: Sequence[float], expected: Sequence[float]) -> float:
    """Returns how far a loss is from float32's at worst: the means of WINDOWS stretches of both are compared.

    The difference counts relative to float32's mean there and a twentieth of its whole fall, so that a loss that goes
    to zero has a size too. Infinity where either is not finite.
    """
    count = min(len(curve), len(expected))
    if not count or first_nonfinite(curve[:count]) or first_nonfinite(expected[:count]):
        return math.inf
    edges = [count * k // min(WINDOWS, count) for k in range(min(WINDOWS, count) + 1)]
    pairs = [(_mean(curve[a:b]), _mean(expected[a:b])) for a, b in zip(edges, edges[1:])]
    fall = abs(pairs[0][1] - pairs[-1][1])
    sizes = [abs(mean) + FLOOR * fall for _, mean in pairs]
    return max(abs(low - high) / size if size else float(low != high) for (low, high), size in zip(pairs, sizes))


def worst(outcome: Outcome, reference: Outcome) -> float:
    """Returns the largest deviation of a trial's losses; infinity for one that has none."""
    return max(
        (deviation(outcome.losses.get(name, ()), curve) for name, curve in reference.losses.items()), default=0.0
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
