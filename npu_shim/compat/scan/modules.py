"""Modules that scripts import and that are nowhere: not installed, and not in the tree."""

import importlib.util
import os
from typing import Dict, Iterable, List, NamedTuple, Set

from npu_shim.compat.scan.bindings import own_file
from npu_shim.compat.scan.meanings import root
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
        needs: str, the package that is not installed, if that is all; else "".
    """

    path: str
    line: int
    function: str
    certain: bool
    reason: str
    needs: str = ""


def lost(scripts: Iterable[Script], files: Iterable[str]) -> List[Problem]:
    """The imports that fail wherever they run.

    Scripts put folders of their own on sys.path in many ways, so a module counts as there if it is anywhere in the
    tree under its name, or in a folder that they name; where they add one that only a run shows, it may be there.

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
                certain = asked.certain and (bool(asked.level) or not script.search.is_open)
                needs = "" if asked.level or tree.has(root(asked.module)) else root(asked.module)
                problems.append(Problem(script.path, asked.line, asked.function, certain, reason, needs))
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

    def has(self, top: str) -> bool:
        """Whether the tree has a folder or a file of this name, wherever it is."""
        return top in self._bases

    def missing(self, script: Script, asked: Import) -> str:
        """Why an import fails, or ""."""
        if own_file(script.path, asked.module, asked.level, script.search.folders):
            return ""
        top = root(asked.module)
        if asked.level:
            folder = script.path
            for _ in range(asked.level):
                folder = os.path.dirname(folder)
            where = os.path.join(folder, *asked.module.split("."))
            return "" if _exists(where) else "there is no module '%s%s'" % ("." * asked.level, asked.module)
        bases = {*self._bases.get(top, ()), *script.search.folders}
        if any(_exists(os.path.join(base, *asked.module.split("."))) for base in bases) or _installed(top):
            return ""
        close = nearest(top, self._bases) if not self.has(top) else ""
        return "there is no module '%s', neither installed nor in this tree%s" % (asked.module, close)


def _exists(path: str) -> bool:
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.isdir(path) or any(
        entry == name + ".py" or (entry.startswith(name + ".") and entry.endswith((".so", ".pyd", ".pyc")))
        for entry in (os.listdir(folder) if os.path.isdir(folder) else ())
    )


def _installed(top: str) -> bool:
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError, AttributeError):  # something that has no spec, as a stand-in in sys.modules
        return True
