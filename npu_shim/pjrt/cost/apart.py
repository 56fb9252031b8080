"""What exported steps cost on a device, said by JAX in this process or in one of another interpreter."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any, Sequence

from npu_shim.pjrt import other_python
from npu_shim.pjrt.cost import report
from npu_shim.pjrt.cost.report import Cost
from npu_shim.rewriter.errors import ConfigError, unnamed

COSTS, FAILED = "costs", "failed"  # keys of what the other process says


def of_folders(
    folders: Sequence[str], device: str | None = None, compiled: bool = True, python: str | None = None
) -> list[Cost]:
    """Returns a Cost for each of some exported steps.

    Args:
        folders: as of `report.of_folder`.
        device: likewise.
        compiled: likewise.
        python: path of an interpreter with JAX; None for this process.

    Raises:
        ImportError: JAX is not installed in this process.
        ConfigError: a folder or the interpreter cannot be used.
    """
    if python is None:
        return [report.of_folder(folder, device, compiled) for folder in folders]
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "costs.json")
        asked = json.dumps([list(map(os.path.abspath, folders)), device, compiled])
        said = other_python.run(python, __file__, asked, out)
        try:
            with open(out, encoding="utf-8") as f:
                answer = json.load(f)
        except OSError as reason:
            raise ConfigError("'%s' does not say what a step costs: %s" % (python, said)) from reason
    if FAILED in answer:
        raise ConfigError("'%s' does not say what a step costs: %s" % (python, answer[FAILED]))
    return [Cost(**dict(values, notes=tuple(values["notes"]))) for values in answer[COSTS]]


def main(asked: str, out: str) -> None:
    """Writes what steps cost to a file, both as JSON: the arguments of `of_folders`, and a dict."""
    answer: dict[str, Any]
    try:
        answer = {COSTS: report.as_json(of_folders(*json.loads(asked)))}
    except (ImportError, ConfigError) as reason:
        answer = {FAILED: unnamed(reason)}
    with open(out, "w", encoding="utf-8") as f:
        json.dump(answer, f)
