"""What of the scripts of a tree certainly runs: names there stop a script if they are missing, others only may.

A script runs its top level and what that imports. What certain code refers to by a name runs if it is a function or a
class of the same file, of a file that is imported, or of one file only in the tree; a method runs if its name is called
and its class, or one that derives from it, is used. What stands in a branch, or where an exception is caught, is not
certain.
"""

import collections
import os
from typing import DefaultDict, Iterable, List, Set, Tuple

from npu_shim.compat.scan.bindings import own_file
from npu_shim.compat.scan.reader import Script

# methods of a class in use that nobody calls by name; "call" is that of Keras' layers
IMPLIED = ("__init__", "__new__", "__call__", "call")
# what calls the `main` of the script that is started, if it is given none
MAIN_RUNNERS = {"tensorflow.app.run", "tensorflow.compat.v1.app.run", "tensorflow.python.platform.app.run"}
Place = Tuple[str, str]


def starting(scripts: Iterable[Script]) -> List[Script]:
    """The scripts of a tree that somebody may start."""
    return [script for script in scripts if script.starts and not _is_test(script.path)]


def certain(scripts: Iterable[Script], starts: Iterable[Script]) -> Set[Place]:
    """Returns (path, function) of what certainly runs; function is "" for the top level of a file.

    Args:
        scripts: those of the tree.
        starts: those of them that are started.
    """
    return _Walk(scripts).from_starts(starts)


class _Walk:
    """From the top levels of some scripts to everything that they use."""

    def __init__(self, scripts: Iterable[Script]) -> None:
        self._by_path = {script.path: script for script in scripts}
        self._homes: DefaultDict[str, List[str]] = collections.defaultdict(list)  # name, or ".method" -> files
        self._methods: DefaultDict[str, List[Place]] = collections.defaultdict(list)
        for script in self._by_path.values():
            for name in script.functions:
                self._homes[name].append(script.path)
                if "." in name:
                    self._methods[name.partition(".")[2]].append((script.path, name))
        self._reached: Set[Place] = set()
        self._called: Set[str] = set(IMPLIED)  # names of methods

    def from_starts(self, starts: Iterable[Script]) -> Set[Place]:
        waiting = [(script.path, "") for script in starts]
        while waiting:
            place = waiting.pop()
            if place not in self._reached:
                self._reached.add(place)
                waiting += self._next(*place)
        return self._reached

    def _next(self, path: str, function: str) -> Iterable[Place]:
        script = self._by_path[path]
        files = [file for file in imported(script, function) if file in self._by_path]
        yield from ((file, "") for file in files)
        names = [name for around, name in script.references if around == function]
        if any(use.certain and use.function == function and MAIN_RUNNERS & set(use.names) for use in script.uses):
            names.append("main")
        for name in names:
            yield from self._functions(script, name)
        self._called.update(name[1:] for name in names if name.startswith("."))
        for method in [name[1:] for name in names if name.startswith(".")]:
            yield from (place for place in self._methods[method] if self._is_used(place))
        for name in script.functions:  # if this is a class, those of its methods that are called
            if name.startswith(function + ".") and name.partition(".")[2] in self._called:
                yield path, name

    def _functions(self, script: Script, name: str) -> Iterable[Place]:
        """The function or class of a name: the script's own, that of what it imports, or the only one there is."""
        plain = name.lstrip(".")
        if plain == name and name in script.functions:
            return [(script.path, name)]
        homes = self._homes[plain]
        if len(homes) > 1:
            given = [asked for asked in script.imports if asked.member and asked.module.rpartition(".")[2] == plain]
            known = {
                file for asked in given or script.imports for file in module_files(script, asked.module, asked.level)
            }
            homes = [home for home in homes if home in known]
        return [(homes[0], plain)] if len(homes) == 1 and not plain.startswith("__") else []

    def _is_used(self, method: Place) -> bool:
        return (method[0], method[1].partition(".")[0]) in self._reached


def imported(script: Script, function: str = "") -> List[str]:
    """The files of the script's own that a function of it, or its top level, certainly imports; packages too."""
    sure = [asked for asked in script.imports if asked.certain and asked.function == function]
    return [file for asked in sure for file in module_files(script, asked.module, asked.level)]


def module_files(script: Script, module: str, level: int) -> List[str]:
    """The files of the script's own that the import of a module runs: its packages' and its own."""
    parts = module.split(".") if module else []
    folders = sorted(script.search.folders)
    candidates = [own_file(script.path, ".".join(parts[:n]), level, folders) for n in range(1, len(parts) + 1)]
    return [file for file in candidates if file]


def _is_test(path: str) -> bool:
    name = os.path.basename(path)
    return name.startswith("test_") or name.endswith("_test.py")
