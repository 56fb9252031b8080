"""One trial: the script runs in a process of its own, and what it left is read."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any, Mapping

from npu_shim.cli.scripts.tuning import launch, proposal
from npu_shim.cli.scripts.tuning.criteria import Criterion
from npu_shim.options.entrances import forced
from npu_shim.options.reports import kept_pages, ledger
from npu_shim.rewriter.errors import ConfigError
from npu_shim.session.observers import ranges
from npu_shim.session.trial import protocol

CALIBRATED = 8  # steps whose ranges are measured


@dataclass(frozen=True)
class Wanted:
    """What the user asks of tune.

    Attributes:
        argv: the script and its arguments.
        criteria: all of which a trial must meet.
        loss: the name of the loss, None to look for it.
        metric: a regular expression for the metric, None for none.
        trials: how many at most.
        seed: for what the script does not seed.
        out: path of the mixlist.
    """

    argv: tuple[str, ...]
    criteria: tuple[Criterion, ...]
    loss: str | None
    metric: str | None
    trials: int
    seed: int
    out: str


@dataclass(frozen=True)
class Trial:
    """A trial to run.

    Attributes:
        number: from 1.
        name: for people.
        options: forced on all sessions, see `forced`.
        calibrated: whether the ranges of its first steps are measured.
        asked: more fields of `protocol.Asked`.
    """

    number: int
    name: str
    options: Mapping[str, Any]
    calibrated: bool = False
    asked: Mapping[str, Any] = field(default_factory=dict)


def run(folder: str, wanted: Wanted, trial: Trial, progress: Any) -> dict[str, Any]:
    """Runs a trial.

    Args:
        folder: for what it leaves; its working directory is in there.
        wanted: the user's wishes.
        trial: which.
        progress: a `progress.Progress`.

    Returns:
        JSON values: the fields of `criteria.Outcome`, and `scales`, the loss scale of each step; `values`, the options
        of the session that trains; `ranking`; `nodes`, those of the training graphs; `hints`, names of nodes that may
        be at fault; `advice`, what calibration suggests; `is_reached`, whether any session took the options.

    Raises:
        ConfigError: what the trial says is a mistake of the user.
    """
    left = os.path.join(folder, "left")
    os.mkdir(left)
    protocol.Asked(left, progress.began, wanted.loss, wanted.seed, **trial.asked).write()
    with progress.trial(trial.number, trial.name, lambda: _steps_so_far(left)) as watch:
        status, printed = launch.run(wanted.argv, trial.number, folder, _environment(left, trial), watch)
    losses = protocol.losses(left)
    problem = protocol.read(left, protocol.PROBLEM) or (None if losses else protocol.read(left, protocol.UNNAMED))
    if problem is not None:
        raise ConfigError(problem["problem"])
    scales = losses.pop(protocol.SCALE, [])
    settings: Any = next(protocol.settings(left), {"values": {}})
    return {
        "losses": losses, "scales": scales, "status": status, "printed": launch.last_lines(printed),
        "metric": None if wanted.metric is None else launch.metric(wanted.metric, printed),
        "values": settings["values"], "ranking": protocol.read(left, protocol.RANKING),
        "is_reached": any(fact.kind == ledger.SESSION for fact in ledger.of_folder(left)), **_seen(left),
    }  # fmt: skip


def _environment(left: str, trial: Trial) -> dict[str, str]:
    options = {**forced.of_environment(), **trial.options}
    measured = {"NPU_SHIM_CALIBRATE": str(CALIBRATED), "NPU_SHIM_CALIBRATION": left} if trial.calibrated else {}
    return {
        protocol.FOLDER: left, kept_pages.SWITCH: left, forced.VARIABLE: json.dumps(options), "PYTHONHASHSEED": "0",
        ledger.VARIABLE: left, **measured,
    }  # fmt: skip


def _steps_so_far(left: str) -> int:
    return max(map(len, protocol.losses(left).values()), default=0)


def _seen(left: str) -> dict[str, Any]:
    """What is known of the graphs of a trial, and of their ranges."""
    pages = kept_pages.collected(left)
    warned = [warning["node"] for page in pages for warning in page["warnings"] if warning["node"]]
    measured = ranges.collected(left)
    suspects = [name for ranges_seen, *_ in measured for name in ranges.suspects(ranges_seen)]
    told = [line for ranges_seen, _, scale, _ in measured for line in ranges.proposals(ranges_seen, scale)]
    return {
        "nodes": [list(node) for node in proposal.nodes(pages)],
        "hints": list(dict.fromkeys([*warned, *suspects])),
        "advice": [line for line in dict.fromkeys(told) if "loss scale" in line],
    }
