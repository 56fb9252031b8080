"""The names that a script binds, those of its star imports included, and the files of its own modules."""

import ast
import os
from typing import Iterable, Set, Tuple


def bound_names(tree: ast.AST, path: str, seen: Tuple[str, ...] = ()) -> Set[str]:
    """Every name that the script binds somewhere, those of its star imports from files beside it included."""
    names: Set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and [a.name for a in node.names] == ["*"]:
            file = own_file(path, node.module or "", node.level)
            if file and file not in seen:
                names |= _bound_in(file, (*seen, path))
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler)):
            names.add(node.name or "")
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name.split(".")[0])
        elif isinstance(node, ast.Global):
            names.update(node.names)
    return names


def own_file(path: str, module: str, level: int = 0, folders: Iterable[str] = ()) -> str:
    """The file of a module that lies beside a script, above it or in one of `folders`, or ""."""
    folder = os.path.dirname(path)
    for _ in range(max(level - 1, 0)):
        folder = os.path.dirname(folder)
    places = [folder]
    if not level:
        for _ in range(3):
            places.append(os.path.dirname(places[-1]))
        places += folders
    for place in places:
        base = os.path.join(place, *module.split("."))
        for file in (base + ".py", os.path.join(base, "__init__.py")):
            if os.path.isfile(file):
                return file
    return ""


def _bound_in(file: str, seen: Tuple[str, ...]) -> Set[str]:
    try:
        with open(file, "rb") as f:
            return bound_names(ast.parse(f.read(), file), file, seen)
    except (SyntaxError, ValueError, OSError, RecursionError):
        return set()
