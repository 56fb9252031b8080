"""Writes what each pass made of a module, as text."""

from __future__ import annotations

import itertools
import os
import pathlib
from typing import Callable

from ..ir import text
from ..ir.module import Module
from .pipeline import Pass

_runs = itertools.count(1)  # of this process


def to_folder(folder: str, pipeline: str) -> Callable[[int, Pass, Module], None]:
    """Returns a `Watch.changed` that writes FOLDER/PIPELINE-PROCESS-RUN-NUMBER-PASS.txt after each pass.

    Args:
        folder: made when it is needed.
        pipeline: name of the pipeline.
    """
    start = "%s-%d-%d" % (pipeline, os.getpid(), next(_runs))

    def write(number: int, step: Pass, module: Module) -> None:
        path = pathlib.Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        name = "%s-%02d-%s.txt" % (start, number, step.name.replace(" ", "-"))
        (path / name).write_text(text.show(module, provenance=True), encoding="utf-8")

    return write
