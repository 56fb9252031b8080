"""Draws the house from its imports: rooms, the floor each stands on, the arrows between them, and circles.

    python scripts/rooms.py [CHECKOUT]

A room is an entry of npu_shim/ (a folder, or a file that stands there by itself), `configs` or `rewriter`; within
rewriter/ likewise an entry of it. An arrow goes from a room to each that one of its files imports, wherever
in the file. A room's floor is one above the highest that it imports; rooms in a circle have none.
"""

import ast
import pathlib
import sys
from typing import Dict, Iterator, List, Set

HERE = pathlib.Path(__file__).resolve().parent.parent
FACES = ("npu_bridge", "hccl")  # installed by these names, and all of one room
PACKAGE, INNER = "npu_shim", ("rewriter", "configs")


def modules(root: pathlib.Path) -> Dict[str, pathlib.Path]:
    """The modules of a checkout by the names they are imported by."""
    found = {}
    for path in (path for folder in (PACKAGE, *INNER) for path in sorted((root / folder).rglob("*.py"))):
        parts = list(path.relative_to(root).with_suffix("").parts)
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        found[".".join(parts if parts[0] == PACKAGE else [PACKAGE, *parts])] = path
    return found


def imported(name: str, path: pathlib.Path) -> Iterator[str]:
    """What a module imports anywhere in it, by full names; of `from a import b` both a and a.b."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            yield base
            yield from (base + "." + alias.name for alias in node.names)


def room(name: str, house: str, known: Dict[str, pathlib.Path]) -> str:
    """The room of a house that an imported name is in, or "" if it is in none."""
    parts = name.split(".")
    if parts[0] in FACES:
        parts = [PACKAGE, "bridge"]
    inner = len(house.split("."))
    is_inside = ".".join(parts[:inner]) == house and len(parts) > inner
    return parts[inner] if is_inside and ".".join(parts[: inner + 1]) in known else ""


def arrows(root: pathlib.Path, house: str = PACKAGE) -> Dict[str, Set[str]]:
    """Each room of a house, which is a package, and the rooms that it imports."""
    known = modules(root)
    drawn: Dict[str, Set[str]] = {}
    for name, path in known.items():
        here = room(name, house, known)
        if here:
            targets = drawn.setdefault(here, set())
            targets.update({room(target, house, known) for target in imported(name, path)} - {"", here})
    return drawn


def floors(drawn: Dict[str, Set[str]]) -> Dict[str, int]:
    """The floor of each room that stands in no circle and above none, from 0."""
    found: Dict[str, int] = {}
    while True:
        ready = [each for each in drawn if each not in found and drawn[each] <= set(found)]
        if not ready:
            return found
        found.update({each: 1 + max((found[below] for below in drawn[each]), default=-1) for each in ready})


def circles(drawn: Dict[str, Set[str]]) -> List[Set[str]]:
    """The groups of rooms that reach each other."""

    def reached(start: str) -> Set[str]:
        seen: Set[str] = set()
        todo = [start]
        while todo:
            new = drawn[todo.pop()] - seen
            seen |= new
            todo += new
        return seen

    reach = {each: reached(each) for each in drawn}
    groups = {frozenset(other for other in reach[each] if each in reach[other]) for each in drawn}
    return [set(group) for group in sorted(filter(None, groups), key=sorted)]


def main(arguments: List[str]) -> int:
    """Prints npu_shim/, with rewriter/ and configs/ as rooms of it, and the rooms of rewriter/."""
    root = pathlib.Path(arguments[0]).resolve() if arguments else HERE
    for house in (PACKAGE, PACKAGE + ".rewriter"):
        drawn = arrows(root, house)
        stands = floors(drawn)
        for each in sorted(drawn, key=lambda name: (stands.get(name, 99), name)):
            print("%2s  %-16s -> %s" % (stands.get(each, "-"), each, " ".join(sorted(drawn[each]))))
        count = (len(drawn), max(stands.values(), default=-1) + 1, sum(map(len, drawn.values())), len(circles(drawn)))
        print("%s: %d rooms, %d floors, %d arrows, %d circles" % (house, *count))
        for circle in circles(drawn):
            print("circle: %s" % " ".join(sorted(circle)))
        print()
    entries = [path for path in (root / PACKAGE).iterdir() if path.name != "__pycache__"]
    print("%d entries in %s/" % (len(entries), PACKAGE))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
