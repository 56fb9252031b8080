"""The trials of `npu-shim tune`, one after another: float32, the script's own mode, a replay, then lists to try."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from npu_shim.cli.scripts.tuning import criteria, proposal, trials
from npu_shim.cli.scripts.tuning.criteria import Outcome
from npu_shim.cli.scripts.tuning.proposal import Node, Proposal
from npu_shim.cli.scripts.tuning.state import State
from npu_shim.cli.scripts.tuning.trials import Trial, Wanted
from npu_shim.options.reports import doors
from npu_shim.rewriter.errors import ConfigError
from npu_shim.session.trial import ranking

REPLAYS = 80
FURTHEST = 100  # a later step is not replayed, unless losses stop being finite there
FLOAT32, OWN, REPLAY, DISTURBED = "float32", "own mode", "replay", "float32, disturbed"
DISTURBANCE = 2.0**-11  # relative: what rounding to float16 changes at most
SKIPPED = 50  # updates that a dynamic loss scale may skip until it has found its size
LARGE = 1.0  # a deviation that no noise explains


@dataclass(frozen=True)
class Tried:
    """A trial of a list: which groups were kept in float32, and what came of it."""

    kept: int
    outcome: Outcome
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    """What tuning came to.

    Attributes:
        float32: outcome of the reference.
        own: outcome of the script's own mode, and what it fails.
        failed: what the own mode fails; empty where there is nothing to tune.
        best: the trial whose list is proposed, None without one.
        groups: ranked groups of nodes, as `replay.ranking` gives them.
        proposed: the files, empty ones without `best`.
        nodes: training graphs in the own mode.
        tuned: training graphs with the proposed list.
        advice: what calibration suggests besides.
        unreplayed: why no step could be replayed, "" where one was.
        noise: how far losses deviate in float32 itself, None where that was not needed.
        trials: how many there were.
    """

    float32: Outcome
    own: Outcome
    failed: tuple[str, ...]
    best: Tried | None
    groups: Sequence[Mapping[str, Any]]
    proposed: Proposal
    nodes: Sequence[Node]
    tuned: Sequence[Node]
    advice: Sequence[str]
    trials: int
    unreplayed: str = ""
    noise: float | None = None


class Search:
    """Runs trials, or takes them from the state."""

    def __init__(self, wanted: Wanted, state: State, progress: Any):
        self._wanted, self._state, self._progress = wanted, state, progress
        self._unreplayed = ""
        self._noise: float | None = None

    def result(self) -> Result:
        """Runs what is left to run.

        Raises:
            ConfigError: a mistake of the user that a trial brought up.
        """
        float32 = self._trial(FLOAT32, {"use_off_line": False}, calibrated=True, check=self._check_reference)
        own = self._trial(OWN, {}, asked=_at_most(float32), check=_check_own)
        failed = self._problems(own, float32)
        if not failed:
            return self._told(float32, own, failed, None, (), Proposal())
        groups, first = self._ranked(float32, own)
        best = self._bisected(float32, own, groups, first)
        proposal = Proposal() if best is None else self._proposed(own, groups, best.kept)
        return self._told(float32, own, failed, best, groups, proposal)

    def _told(
        self, float32: Outcome, own: Outcome, failed: tuple[str, ...], best: Tried | None,
        groups: Sequence[Mapping[str, Any]], proposal: Proposal,
    ) -> Result:  # fmt: skip
        tuned = [] if best is None else _nodes(best.outcome)
        advice = float32.more["advice"]
        nodes, count = _nodes(own), self._state.count
        return Result(
            float32, own, failed, best, groups, proposal, nodes, tuned, advice, count, self._unreplayed, self._noise
        )

    def _check_reference(self, outcome: Outcome) -> None:
        if outcome.status:
            raise ConfigError("the script ends with status %d in float32:\n%s" % (outcome.status, outcome.printed))
        if not any(outcome.losses.values()):
            text = "no training step was seen in a session"
            raise ConfigError(text + ("" if outcome.more.get("is_reached") else ": the script made none"))
        told = ["%s is not finite" % name for name, curve in outcome.losses.items() if criteria.first_nonfinite(curve)]
        if any(criterion.kind == "metric" for criterion in self._wanted.criteria) and outcome.metric is None:
            text = "--metric '%s' finds no number in what the script prints; its last lines:\n%s"
            raise ConfigError(text % (self._wanted.metric, outcome.printed))
        told += criteria.problems(outcome, outcome, self._wanted.criteria)
        if told:
            words = ", ".join(map(str, self._wanted.criteria))
            raise ConfigError("float32 itself does not meet %s (%s): no list can" % (words, "; ".join(told)))

    def _ranked(self, float32: Outcome, own: Outcome) -> tuple[Sequence[Mapping[str, Any]], int]:
        """The groups of nodes by the error that they bring, and how many of them to keep in float32 at first."""
        hints = [*own.more["hints"], *float32.more["hints"]]
        scale = (own.more["scales"] or [None])[-1]
        asked = {"replay": _steps(float32, own), "most": REPLAYS, "scale": scale, "hints": hints}
        replayed = self._trial(REPLAY, {"use_off_line": False}, asked=asked)
        ranking = replayed.more["ranking"] or {"problem": "the script ended before it"}
        self._unreplayed = ranking["problem"] or ""
        return _unreplayed(own, hints) if self._unreplayed else (ranking["groups"], ranking["first"])

    def _bisected(
        self, float32: Outcome, own: Outcome, groups: Sequence[Mapping[str, Any]], first: int
    ) -> Tried | None:
        """Looks for the fewest groups to keep in float32: none at all fails; more are tried until a trial holds."""
        fails, holds, best, kept = 0, len(groups) + 1, None, first
        while kept not in (fails, holds) and self._may_run(_name(kept)):
            tried = self._try(float32, own, groups, kept)
            if tried.problems:
                fails, kept = kept, min(len(groups), 2 * kept) if best is None else (kept + holds) // 2
            else:
                best, holds, kept = tried, kept, (fails + kept) // 2
        return best

    def _may_run(self, name: str) -> bool:
        return self._state.has(name) or self._state.count < self._wanted.trials

    def _try(self, float32: Outcome, own: Outcome, groups: Sequence[Mapping[str, Any]], kept: int) -> Tried:
        proposal = self._proposed(own, groups, kept)

        def options(folder: str) -> dict[str, Any]:
            out = os.path.join(folder, "ops_info.json")
            for path, text in proposal.texts(out).items():
                with open(path, "w", encoding="utf-8") as f:
                    f.write(text)
            return proposal.written(out)

        outcome = self._trial(_name(kept), options, asked=_at_most(float32))
        return Tried(kept, outcome, self._problems(outcome, float32))

    def _problems(self, outcome: Outcome, float32: Outcome) -> tuple[str, ...]:
        """What a trial fails. One whose losses deviate a little is held against the noise of float32 itself."""
        told = criteria.problems(outcome, float32, self._wanted.criteria, self._noise or 0.0)
        small = all(criteria.DEVIATES in problem for problem in told) and criteria.worst(outcome, float32) < LARGE
        if told and small and self._noise is None and self._may_run(DISTURBED):
            disturbed = self._trial(DISTURBED, {"use_off_line": False}, asked={"disturb": DISTURBANCE})
            noise = criteria.worst(disturbed, float32)
            self._noise = noise if noise < LARGE else 0.0  # what spoils a training tells nothing of its noise
            told = criteria.problems(outcome, float32, self._wanted.criteria, self._noise)
        return tuple(told)

    def _proposed(self, own: Outcome, groups: Sequence[Mapping[str, Any]], kept: int) -> Proposal:
        lines = {name: line for group in groups[:kept] for name, line in group["lines"].items()}
        return proposal.of(lines, _nodes(own), own.more["values"])

    def _trial(
        self, name: str, options: Any, calibrated: bool = False, asked: Any = None, check: Any = lambda outcome: None
    ) -> Outcome:
        """Runs a trial that has not ended before. One that `check` raises for is not kept: its cause may be removed."""
        if not self._may_run(name):
            text = "%d trials do not suffice for the one called '%s'; the same command with more --trials continues"
            raise ConfigError(text % (self._wanted.trials, name))

        def run() -> Mapping[str, Any]:
            fields = self._run(name, options, calibrated, asked or {})
            check(_outcome(fields))
            return fields

        return _outcome(self._state.trial(name, run))

    def _run(self, name: str, options: Any, calibrated: bool, asked: Mapping[str, Any]) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="npu_shim_tune_") as folder:
            values = options(folder) if callable(options) else options
            number = self._state.count + 1
            return trials.run(folder, self._wanted, Trial(number, name, values, calibrated, asked), self._progress)


def _outcome(fields: Mapping[str, Any]) -> Outcome:
    return Outcome(fields["losses"], fields["status"], fields["metric"], fields["printed"], fields)


def _check_own(outcome: Outcome) -> None:
    if outcome.status and not any(outcome.losses.values()):
        text = "the script ends with status %d in its own mode, before a training step:\n%s"
        raise ConfigError(text % (outcome.status, outcome.printed))
    if not any(node.low for node in _nodes(outcome)):
        text = "the script's own mode lowers nothing of its training step: nothing is to be tuned; %s MODE gives it one"
        raise ConfigError(text % doors.MODE)


def _nodes(outcome: Outcome) -> list[Node]:
    return [Node(*row) for row in outcome.more["nodes"]]


def _name(kept: int) -> str:
    """The name of the trial of a list."""
    return "%d in float32" % kept


def _steps(float32: Outcome, own: Outcome) -> tuple[int, ...]:
    """Numbers of the steps to replay: where losses stop being finite and just before; else the first and one more."""
    steps = sorted(filter(None, map(criteria.first_nonfinite, own.losses.values())))
    count = max(map(len, float32.losses.values()))
    if steps:
        return tuple(sorted({max(1, steps[0] - 1), min(steps[0], count)}))
    return tuple(sorted({1, max(1, min(count // 2, FURTHEST))}))


def _unreplayed(own: Outcome, hints: Sequence[str]) -> tuple[list[dict[str, Any]], int]:
    """Groups of nodes where no step could be replayed: what warnings and calibration name, then scopes by halves."""
    low = {node.name: node.line for node in _nodes(own) if node.low and not node.op.startswith(ranking.FIXED)}
    named: list[tuple[str, ...]] = [(name,) for name in dict.fromkeys(hints) if name in low]
    rest = tuple(name for name in low if (name,) not in named)
    while len(rest) > 1:
        half, rest = ranking.halves(rest)
        named.append(half)
    groups = [{"lines": {name: low[name] for name in names}, "error": None} for names in [*named, rest] if names]
    return groups, max(1, len(set(hints) & set(low)))


def _at_most(float32: Outcome) -> dict[str, int]:
    """How long a trial may be, for `protocol.Asked`: some updates may be skipped."""
    count = max(map(len, float32.losses.values()))
    return {"longest": count + count // 2 + SKIPPED}
