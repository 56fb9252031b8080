"""Restores names that TensorFlow has moved between its modules since 1.15, for scripts and tf-slim.

The rows are in names.json under "moved"; the modules below tensorflow.python were compared, name by name, between
1.15.5, 2.15.1 and 2.21.0. A row means something only where the name is missing. Under "everything" stand modules that
had all names of others: 1.15's tensorflow.python itself, and packages that were the module of their name.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Mapping

from npu_shim.compat import callers
from npu_shim.compat.names import exports, missing, names


class Finder(missing.Finder):
    """Finds the modules of this file; while one is in sys.meta_path, the names are restored."""


def install() -> None:
    """Makes TensorFlow 2's modules resolve these names as well; a second call does nothing."""
    if names.tensorflow_1() or any(isinstance(finder, Finder) for finder in sys.meta_path):
        return
    sys.meta_path.append(Finder(_modules()))
    missing.when_loaded({module: functools.partial(_patch_module, rows) for module, rows in _answers().items()})


def _modules() -> dict[str, str]:
    """{module that is gone: the one that stands for it}."""
    rows = names.table()["moved"]
    targets = {name: t if t.startswith("!") else names.full_target(t) for name, t in rows.items()}
    here = {name: t for name, t in targets.items() if t.startswith("!") or exports.file_of(t)}
    return {name: target for name, target in here.items() if not exports.file_of(name)}


def _answers() -> dict[str, dict[str, str]]:
    """{module: {name: target}} of the names in modules that are there."""
    rows: dict[str, dict[str, str]] = {}
    stand_ins = _modules()
    for name, target in names.table()["moved"].items():
        module, _, last = name.rpartition(".")
        # `from PACKAGE import MODULE` asks the package that stands for a lost one
        module = stand_ins.get(module, module)
        if exports.file_of(module):
            rows.setdefault(module, {})[last] = target
    for module in names.table()["everything"]:
        rows.setdefault(module, {})
    return rows


def _load(target: str) -> Any:
    if target.startswith("!"):
        raise AttributeError(callers.message("it is not here: " + target[1:].strip()))
    return names.load(target)


def _patch_module(rows: Mapping[str, str], module: Any) -> None:
    others = names.table()["everything"].get(module.__name__, "").replace("tf ", "tensorflow.compat.v1 ").split()
    missing.answer(module, rows, load=_load, others=others)
