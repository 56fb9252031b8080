"""The modules of tf.contrib as scripts see them: each has the names of its rows in names.json.

A module of tf.contrib costs nothing until a name of it is used.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from typing import Any

from npu_shim.compat import callers
from npu_shim.compat.names import moved, names


class _Loader(importlib.abc.Loader):
    """Gives the import system, which asks a module in sys.modules for its spec, the face that is there."""

    def create_module(self, spec: Any) -> Any:
        return sys.modules.get(spec.name)

    def exec_module(self, module: Any) -> None:
        pass


class Face(types.ModuleType):
    """One module of tf.contrib; a name is looked up in the table when it is used."""

    def __init__(self, path: str) -> None:
        super().__init__(names.CONTRIB + (path and "." + path))
        self.__path__ = []  # its modules can be imported by name
        self.__spec__ = importlib.machinery.ModuleSpec(self.__name__, _Loader(), is_package=True)
        self.__dict__["_path"] = path

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            return names.public_names(self._path) if self._path else modules()
        if name.startswith("__"):
            raise AttributeError(name)
        value = get(self._path + "." + name if self._path else name)
        self.__dict__[name] = value
        return value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__all__})


def get(path: str) -> Any:
    """What tf.contrib.PATH is: a Face, a module of another package, or an object.

    Raises:
        AttributeError: there is nothing; the message names the script's line and the nearest name.
    """
    full = names.CONTRIB + "." + path
    if names.is_module(path):
        if full not in sys.modules:
            sys.modules[full] = Face(path)
        return sys.modules[full]
    target = names.contrib_target(path)
    if not target or target.startswith("!"):
        raise AttributeError(callers.message(names.explain(full)))
    moved.install()  # tf-slim, too, asks for names where they were
    try:
        return names.load(target)
    except (ImportError, AttributeError) as reason:
        raise AttributeError(callers.message("%s (%s)" % (names.explain(full), reason))) from reason


def modules() -> list[str]:
    """Sorted list of str: the modules of tf.contrib."""
    return sorted(module for module in names.table()["contrib"] if "." not in module)


def find(path: str) -> Any:
    """The module that `import tensorflow.contrib.PATH` gives, or None."""
    if not path:
        return Face("")
    if names.is_module(path):
        return get(path)
    real = names.real_module(path)
    moved.install()
    return importlib.import_module(names.full_target(real)) if real else None
