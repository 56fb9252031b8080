"""What a trial is asked, and the files that it answers with. No TensorFlow: `npu-shim tune` reads them."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import Any, Iterator, Mapping

from npu_shim.pjrt import atomic_write

FOLDER = "NPU_SHIM_TRIAL"
ASKED, PROBLEM, UNNAMED, RANKING = "asked.json", "problem.json", "unnamed.json", "ranking.json"
SCALE = "loss scale"  # stands among the losses, which are tensors' names
LOSSES, SETTINGS = ".losses.tsv", ".settings.json"  # of each process


@dataclass(frozen=True)
class Asked:
    """What is asked of a trial.

    Attributes:
        folder: where it answers.
        began: when tune began, in seconds since the epoch: a checkpoint that is younger is of another trial.
        loss: the name of the loss, None to look for it.
        seed: for random numbers that the script does not seed.
        replay: numbers of the training steps to replay, from 1, in order; once they were run of all that trains, the
            process ends. Empty for none.
        hints: names of nodes that may be at fault, the likeliest first.
        scale: the loss scale that a replayed step has, None for the script's own.
        most: how many replays at most.
        disturb: how much, at most and relative to each, the first weights are changed at random; 0 for not.
        longest: how many steps at most, 0 for all; then losses that stay infinite end the trial, too. Where updates
            that are not finite are skipped, a script that counts its updates would never end.
    """

    folder: str
    began: float = 0.0
    loss: str | None = None
    seed: int = 0
    replay: tuple[int, ...] = ()
    hints: tuple[str, ...] = ()
    scale: float | None = None
    most: int = 0
    disturb: float = 0.0
    longest: int = 0

    def write(self) -> None:
        """Writes it into its folder."""
        _write(os.path.join(self.folder, ASKED), asdict(self))


def is_asked() -> bool:
    """Whether this process is a trial."""
    return bool(os.environ.get(FOLDER))


def asked() -> Asked | None:
    """Returns what is asked of this process; None where it is no trial."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return None
    with open(os.path.join(folder, ASKED), encoding="utf-8") as f:
        fields = json.load(f)
    return Asked(**{**fields, "replay": tuple(fields["replay"]), "hints": tuple(fields["hints"])})


def write_problem(folder: str, text: str) -> None:
    """Says why a trial cannot go on: a mistake of the user."""
    _write(os.path.join(folder, PROBLEM), {"problem": text})


def write_unnamed(folder: str, text: str) -> None:
    """Says why a training step has no loss that is known for one."""
    _write(os.path.join(folder, UNNAMED), {"problem": text})


def write_settings(folder: str, settings: Mapping[str, Any]) -> None:
    """Writes what a process knows of the session that trains: `values`, its options."""
    _write(os.path.join(folder, "%d%s" % (os.getpid(), SETTINGS)), settings)


def write_ranking(folder: str, ranking: Mapping[str, Any]) -> None:
    """Writes what replays have found."""
    _write(os.path.join(folder, RANKING), ranking)


def read(folder: str, name: str) -> Any:
    """Returns what a trial has written into a file of its folder, None where it wrote none."""
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def settings(folder: str) -> Iterator[Any]:
    """Yields the settings of each process of a trial."""
    for name in sorted(name for name in os.listdir(folder) if name.endswith(SETTINGS)):
        yield read(folder, name)


def losses(folder: str) -> dict[str, list[float]]:
    """Returns the losses of a trial, name -> the value of each step, from the process with the most of them.

    Processes of one training have a loss each, which are of different data: one of them is enough.
    """
    losses: dict[str, list[float]] = {}
    for path in sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(LOSSES)):
        curves: dict[str, list[float]] = {}
        with open(path, encoding="utf-8") as f:
            for line in f:
                name, _, value = line.rstrip("\n").rpartition("\t")
                if line.endswith("\n"):  # else it is still being written
                    curves.setdefault(name, []).append(float(value))
        if sum(map(len, curves.values())) > sum(map(len, losses.values())):
            losses = curves
    return losses


def _write(path: str, content: Any) -> None:
    with atomic_write.file(path) as f:
        f.write((json.dumps(content) + "\n").encode("utf-8"))
