"""What of the scripts of a tree certainly runs: names there stop a script if they are missing, others only may.

A script runs its top level; what certain code refers to by a name runs if the name is of a function, a class or a
method in the same file, or in one other file only. What stands in a branch, or where an exception is caught, is not
certain.
"""

import collections
import os
from typing import DefaultDict, Dict, Iterable, List, Set, Tuple

from npu_shim.compat.scan.reader import Script, own_file


def certain(scripts: Iterable[Script]) -> Set[Tuple[str, str]]:
    """Returns (path, function) of what certainly runs; function is "" for the top level of a file."""
    by_path = {script.path: script for script in scripts}
    homes: DefaultDict[str, List[str]] = collections.defaultdict(list)
    for script in by_path.values():
        for name in script.functions:
            homes[name].append(script.path)
    found: Set[Tuple[str, str]] = set()
    waiting = [(script.path, "") for script in by_path.values() if script.starts and not _is_test(script.path)]
    while waiting:
        place = waiting.pop()
        if place in found:
            continue
        found.add(place)
        waiting += _next(by_path[place[0]], place[1], homes, by_path)
    return found


def _next(
    script: Script, function: str, homes: Dict[str, List[str]], by_path: Dict[str, Script]
) -> Iterable[Tuple[str, str]]:
    for around, name in script.references:
        if around == function:
            if name in script.functions:
                yield script.path, name
            elif len(homes.get(name, ())) == 1 and not name.startswith("__"):
                yield homes[name][0], name
    if not function:
        for file in imported(script):
            if file in by_path:
                yield file, ""


def imported(script: Script) -> List[str]:
    """The files of the script's own that it imports at its top level, unconditionally."""
    found = (
        own_file(script.path, module, int(relative)) for module, relative, sure in script.imports if sure and module
    )
    return [file for file in found if file]


def _is_test(path: str) -> bool:
    name = os.path.basename(path)
    return name.startswith("test_") or name.endswith("_test.py")
