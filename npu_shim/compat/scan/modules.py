"""Modules that scripts import and that are nowhere: not installed, and not in the tree."""

import importlib.util
import os
from typing import Dict, Iterable, List, NamedTuple, Set

from npu_shim.compat.scan.bindings import own_file
from npu_shim.compat.scan.reader import Import, Script
from npu_shim.rewriter.errors import nearest


class Problem(NamedTuple):
    """What may stop a script.

    Attributes:
        path: str, the file.
        line: int, from 1.
        function: str, the innermost function around it, "" at the top level.
        certain: bool, whether it runs whenever the function, or the script, does.
        reason: str, for the user.
    """

    path: str
    line: int
    function: str
    certain: bool
    reason: str


def lost(scripts: Iterable[Script], files: Iterable[str]) -> List[Problem]:
    """The imports that fail wherever they run.

    Scripts put folders of their own on sys.path in many ways, so a module counts as there if it is anywhere in the
    tree under its name.

    Args:
        scripts: what was read.
        files: paths of all files of the tree.
    """
    tree = _Tree(files)
    problems = []
    for script in scripts:
        for asked in script.imports:
            named = asked.module and not (asked.member or asked.optional)
            reason = tree.missing(script, asked) if named else ""
            if reason:
                problems.append(Problem(script.path, asked.line, asked.function, asked.certain, reason))
    return problems


class _Tree:
    """Where the modules of a tree are."""

    def __init__(self, files: Iterable[str]) -> None:
        self._bases: Dict[str, Set[str]] = {}  # top-level name -> the folders that have it
        for file in files:
            folder, name = os.path.split(os.path.splitext(os.path.abspath(file))[0])
            self._bases.setdefault(name, set()).add(folder)
            while folder != os.path.dirname(folder):
                folder, name = os.path.split(folder)
                self._bases.setdefault(name, set()).add(folder)

    def missing(self, script: Script, asked: Import) -> str:
        """Why an import fails, or ""."""
        if own_file(script.path, asked.module, asked.level):
            return ""
        top = asked.module.split(".")[0]
        if asked.level:
            folder = script.path
            for _ in range(asked.level):
                folder = os.path.dirname(folder)
            where = os.path.join(folder, *asked.module.split("."))
            return "" if _exists(where) else "there is no module '%s%s'" % ("." * asked.level, asked.module)
        bases = self._bases.get(top, ())
        if any(_exists(os.path.join(base, *asked.module.split("."))) for base in bases) or _installed(top):
            return ""
        close = nearest(top, self._bases) if not bases else ""
        return "there is no module '%s', neither installed nor in this tree%s" % (asked.module, close)


def _exists(path: str) -> bool:
    folder, name = os.path.split(path)
    return os.path.isdir(path) or any(
        entry == name + ".py" or (entry.startswith(name + ".") and entry.endswith((".so", ".pyd", ".pyc")))
        for entry in (os.listdir(folder) if os.path.isdir(folder) else ())
    )


def _installed(top: str) -> bool:
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError, AttributeError):  # something that has no spec, as a stand-in in sys.modules
        return True
