"""The folders that a script puts on sys.path, as far as its text says; nothing of it runs."""

import ast
import os
from typing import Callable, Dict, FrozenSet, Iterable, List, NamedTuple, Optional

from npu_shim.compat.scan.conditions import constant, is_constant

_ADDING = {"append": -1, "insert": -1, "extend": -1, "__iadd__": -1, "addsitedir": 0}  # function -> its argument
_READINGS = 3  # names that are made of names
_OF_PATHS: Dict[str, Callable[..., str]] = {
    **{name: getattr(os.path, name) for name in ("join", "dirname", "abspath", "realpath", "normpath", "expanduser")},
    **{"str": str, "fspath": str, "Path": os.path.join, "PurePath": os.path.join},
}


class SearchPath(NamedTuple):
    """What a script adds to sys.path.

    Attributes:
        folders: paths, absolute where the script's own is. What the script gives as a relative path counts from its
            folder, where it is started as a rule.
        is_open: bool, whether it adds more, whose path only a run shows.
    """

    folders: FrozenSet[str] = frozenset()
    is_open: bool = False


def search_path(tree: ast.AST, path: str) -> SearchPath:
    """What a script, read from `path`, adds to sys.path wherever it does so."""
    nodes = list(ast.walk(tree))
    added = [argument for node in nodes for argument in _added(node)]
    if not added:
        return SearchPath()
    reading = _Paths(path, nodes)
    folders = [reading.of(argument) for argument in added]
    return SearchPath(frozenset(folder for folder in folders if folder is not None), None in folders)


def joined(every: Iterable[SearchPath]) -> SearchPath:
    """What several scripts that run in one process add."""
    every = list(every)
    folders = (folder for one in every for folder in one.folders)
    return SearchPath(frozenset(folders), any(one.is_open for one in every))


def _added(node: ast.AST) -> List[ast.expr]:
    """The expressions of the folders that a statement or a call adds."""
    if isinstance(node, ast.AugAssign) and _is_sys_path(node.target):
        return _items(node.value)
    if isinstance(node, ast.Assign) and any(_is_sys_path(target) for target in node.targets):
        return [item for part in _summands(node.value) if not _is_sys_path(part) for item in _items(part)]
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
        return []
    if node.func.attr not in _ADDING or not (_is_sys_path(node.func.value) or node.func.attr == "addsitedir"):
        return []
    number = _ADDING[node.func.attr]
    if number >= len(node.args):  # sys.path.insert(*where), which only a run shows
        return [node]
    argument = node.args[number]
    return _items(argument) if node.func.attr in ("extend", "__iadd__") else [argument]


def _is_sys_path(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Attribute) and node.attr == "path"):
        return False
    return isinstance(node.value, ast.Name) and node.value.id == "sys"


def _items(node: ast.expr) -> List[ast.expr]:
    return list(node.elts) if isinstance(node, (ast.List, ast.Tuple)) else [node]


def _summands(node: ast.expr) -> List[ast.expr]:
    return [*_summands(node.left), *_summands(node.right)] if isinstance(node, ast.BinOp) else [node]


class _Paths:
    """Values of expressions that are paths: strings, __file__, os.path, pathlib, and names for these."""

    def __init__(self, path: str, nodes: List[ast.AST]) -> None:
        self._folder, self._is_absolute = os.path.dirname(os.path.abspath(path)), os.path.isabs(path)
        self._names: Dict[str, Optional[str]] = {"__file__": os.path.abspath(path)}
        for _ in range(_READINGS):
            self._names = {**self._assigned(nodes), "__file__": os.path.abspath(path)}

    def _assigned(self, nodes: List[ast.AST]) -> Dict[str, Optional[str]]:
        """Name -> its path, or None where it has several values or one that is not known."""
        names: Dict[str, Optional[str]] = {}
        for statement in [node for node in nodes if isinstance(node, ast.Assign)]:
            value = self._value(statement.value)
            for target in (target for target in statement.targets if isinstance(target, ast.Name)):
                names[target.id] = value if names.get(target.id, value) == value else None
        return names

    def of(self, node: ast.AST) -> Optional[str]:
        """The folder that an expression gives, or None."""
        value = self._value(node)
        if value is None:
            return None
        folder = os.path.abspath(os.path.join(self._folder, value))
        if self._is_absolute:
            return folder
        return "" if folder == os.getcwd() else os.path.relpath(folder)

    def _value(self, node: ast.AST) -> Optional[str]:
        if is_constant(node):
            value = constant(node)
            return value if isinstance(value, str) else None
        if isinstance(node, ast.Name):
            return self._names.get(node.id)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.BinOp):
            return self._joined(node)
        return self._called(node) if isinstance(node, ast.Call) else None

    def _attribute(self, node: ast.Attribute) -> Optional[str]:
        if node.attr in ("pardir", "curdir", "sep"):
            return str(getattr(os, node.attr))
        inner = self._value(node.value) if node.attr == "parent" else None
        return None if inner is None else os.path.dirname(os.path.join(self._folder, inner))

    def _joined(self, node: ast.BinOp) -> Optional[str]:
        """`folder + "/models"`, `path / "models"` of pathlib."""
        left, right = self._value(node.left), self._value(node.right)
        if left is None or right is None:
            return None
        return left + right if isinstance(node.op, ast.Add) else os.path.join(left, right)

    def _called(self, node: ast.Call) -> Optional[str]:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in ("getcwd", "getcwdu", "cwd"):
            return self._folder
        if name in ("resolve", "absolute", "as_posix") and isinstance(node.func, ast.Attribute):
            return self._value(node.func.value)
        values = [self._value(argument) for argument in node.args]
        if name not in _OF_PATHS or not values or None in values:
            return None
        known = [value for value in values if value is not None]
        if name in ("abspath", "realpath"):  # of the folder in which the script is started, not of the scan's
            known = [os.path.join(self._folder, *known)]
        return _OF_PATHS[name](*known)
