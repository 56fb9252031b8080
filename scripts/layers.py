"""Computes the layers of the packages from their imports: what each imports, its layer, and the import cycles.

    python scripts/layers.py [CHECKOUT]

A package here is an entry of npu_shim/ (a folder, or a file that stands there by itself), `configs` or `rewriter`;
within rewriter/ likewise an entry of it. It depends on every package that one of its files imports, wherever in the
file. Its layer is one above the highest that it imports; packages in a cycle have none.
"""

import ast
import pathlib
import sys
from typing import Dict, Iterator, List, Set

HERE = pathlib.Path(__file__).resolve().parent.parent
FACES = ("npu_bridge", "hccl")  # installed by these names, and all of one package
PACKAGE, INNER = "npu_shim", ("rewriter", "configs")


def modules(root: pathlib.Path) -> Dict[str, pathlib.Path]:
    """The modules of a checkout by the names they are imported by."""
    paths = {}
    for path in (path for folder in (PACKAGE, *INNER) for path in sorted((root / folder).rglob("*.py"))):
        parts = list(path.relative_to(root).with_suffix("").parts)
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        paths[".".join(parts if parts[0] == PACKAGE else [PACKAGE, *parts])] = path
    return paths


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


def package_of(name: str, root: str, known: Dict[str, pathlib.Path]) -> str:
    """The package within a root package that an imported name is in, or "" if it is in none."""
    parts = name.split(".")
    if parts[0] in FACES:
        parts = [PACKAGE, "bridge"]
    inner = len(root.split("."))
    is_inside = ".".join(parts[:inner]) == root and len(parts) > inner
    return parts[inner] if is_inside and ".".join(parts[: inner + 1]) in known else ""


def dependencies(checkout: pathlib.Path, root: str = PACKAGE) -> Dict[str, Set[str]]:
    """Each package within a root package, and those that it imports."""
    known = modules(checkout)
    graph: Dict[str, Set[str]] = {}
    for name, path in known.items():
        here = package_of(name, root, known)
        if here:
            targets = graph.setdefault(here, set())
            targets.update({package_of(target, root, known) for target in imported(name, path)} - {"", here})
    return graph


def layers(graph: Dict[str, Set[str]]) -> Dict[str, int]:
    """The layer, from 0, of each package that neither is in a cycle nor depends on one."""
    levels: Dict[str, int] = {}
    while True:
        ready = [package for package in graph if package not in levels and graph[package] <= set(levels)]
        if not ready:
            return levels
        levels.update({package: 1 + max((levels[below] for below in graph[package]), default=-1) for package in ready})


def cycles(graph: Dict[str, Set[str]]) -> List[Set[str]]:
    """The groups of packages that reach each other."""

    def reached(start: str) -> Set[str]:
        seen: Set[str] = set()
        todo = [start]
        while todo:
            new = graph[todo.pop()] - seen
            seen |= new
            todo += new
        return seen

    reach = {package: reached(package) for package in graph}
    groups = {frozenset(other for other in reach[package] if package in reach[other]) for package in graph}
    return [set(group) for group in sorted(filter(None, groups), key=sorted)]


def main(arguments: List[str]) -> int:
    """Prints the packages of npu_shim/, rewriter/ and configs/ among them, and those within rewriter/."""
    checkout = pathlib.Path(arguments[0]).resolve() if arguments else HERE
    for root in (PACKAGE, PACKAGE + ".rewriter"):
        graph = dependencies(checkout, root)
        levels = layers(graph)
        for package in sorted(graph, key=lambda name: (levels.get(name, 99), name)):
            print("%2s  %-16s -> %s" % (levels.get(package, "-"), package, " ".join(sorted(graph[package]))))
        count = (len(graph), max(levels.values(), default=-1) + 1, sum(map(len, graph.values())), len(cycles(graph)))
        print("%s: %d packages, %d layers, %d dependencies, %d cycles" % (root, *count))
        for cycle in cycles(graph):
            print("cycle: %s" % " ".join(sorted(cycle)))
        print()
    entries = [path for path in (checkout / PACKAGE).iterdir() if path.name != "__pycache__"]
    print("%d entries in %s/" % (len(entries), PACKAGE))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
