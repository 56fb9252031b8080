"""`tensorflow_core`, 1.15's name of the package behind `tensorflow`: the same modules under that name."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from typing import Any

CORE = "tensorflow_core"


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `tensorflow_core.NAME` as `tensorflow.NAME`."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """The spec of a module below tensorflow_core, or None."""
        if not (fullname + ".").startswith(CORE + "."):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: Any) -> None:
        """Puts TensorFlow's module where the import system looks for it after this call."""
        name = module.__spec__.name
        # `tensorflow_core._api.v1` is the v1 API, which `tensorflow` shows
        inner = name[len(CORE) :].replace("._api.v1.v1", "").replace("._api.v1", "")
        sys.modules[name] = importlib.import_module("tensorflow" + inner)


def install() -> None:
    """Makes tensorflow_core importable if it is not, as in every TensorFlow except 1.15."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
