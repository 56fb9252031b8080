"""The module `imp`, which Python 3.12 removed: what training scripts used of it."""

from __future__ import annotations

import importlib.util
import sys
import types
from importlib import reload
from types import ModuleType
from typing import Any

new_module = types.ModuleType

__all__ = ["load_source", "new_module", "reload"]


def load_source(name: str, pathname: str) -> ModuleType:
    """Imports a Python file as a module of that name, anew when there is one already.

    Args:
        name: str.
        pathname: path of the file.

    Returns:
        The module, which `sys.modules` has too.

    Raises:
        OSError: the file cannot be read.
    """
    spec: Any = importlib.util.spec_from_file_location(name, pathname)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
