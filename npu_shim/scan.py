"""What scripts use of TensorFlow, tf.contrib, npu_bridge and hccl, read from their source: nothing is imported or run.

    import tensorflow as tf; slim = tf.contrib.slim; slim.conv2d(x)   ->   tensorflow.contrib.slim.conv2d

Names are followed through imports, plain assignments and scopes. A name that several branches of a `try` or of a check
of TensorFlow's version bind stands for all of its meanings. What goes through containers, attributes of objects or
strings is not seen.
"""

import ast
import builtins
import contextlib
import os
import warnings
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple, Union

ROOTS = ("tensorflow", "npu_bridge", "hccl")
NPU_INIT = "npu_bridge.npu_init"
# how much a script needs a name
NEEDED = "needed"
OPTIONAL = "optional"  # in a branch for which the script has another
PERHAPS = "perhaps"  # a bare name that may come from a star import of the script's own
BUILTINS = frozenset(dir(builtins)) | frozenset(
    # Python 2's
    ["basestring", "cmp", "execfile", "file", "long", "raw_input", "reduce", "reload", "unichr", "unicode", "xrange"]
)
# folders that are not the user's
FOREIGN = ("__pycache__", "site-packages", "node_modules")
_MISSING_NAME = ("ImportError", "ModuleNotFoundError", "AttributeError")
_VERSION = ("__version__", "VERSION")
_Meanings = Tuple[Optional[str], ...]


class Use(NamedTuple):
    """One place at which a script uses a name.

    Attributes:
        names: dotted names, any of which may be meant; the first is the one to report.
        path: str, the file.
        line: int, from 1.
        need: NEEDED, OPTIONAL or PERHAPS.
    """

    names: Tuple[str, ...]
    path: str
    line: int
    need: str


class Unread(NamedTuple):
    """A file that is not Python 3, or cannot be read: its path, the line (from 1; 0 for the file) and why."""

    path: str
    line: int
    reason: str


def python_files(path: str) -> List[str]:
    """Sorted paths of the .py files of a folder, or the file itself; hidden folders and virtual environments left out.

    Raises:
        OSError: there is no such file or folder.
    """
    if not os.path.isdir(path):
        os.stat(path)
        return [path]
    found = []
    for folder, folders, files in os.walk(path):
        folders[:] = [f for f in folders if not _foreign(os.path.join(folder, f), f)]
        found += [os.path.join(folder, f) for f in files if f.endswith(".py")]
    return sorted(found)


def _foreign(path: str, name: str) -> bool:
    return name.startswith(".") or name in FOREIGN or os.path.exists(os.path.join(path, "pyvenv.cfg"))


def read(path: str) -> Union[List[Use], Unread]:
    """The uses in a file, in the order of their lines; or Unread."""
    try:
        with open(path, "rb") as f:
            return uses(f.read(), path)
    except SyntaxError as error:
        return Unread(path, error.lineno or 0, error.msg)
    except (OSError, ValueError, RecursionError) as error:
        return Unread(path, 0, getattr(error, "strerror", None) or str(error))


def uses(source: Union[str, bytes], path: str = "<source>") -> List[Use]:
    """The uses in a script.

    Args:
        source: the script.
        path: str, for the results.

    Returns:
        List of Use, in the order of their lines.

    Raises:
        SyntaxError: it is not Python 3.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "\d" and the like are the script's business
        tree = ast.parse(source, path)
    reader = _Reader(path, _bound_names(tree))
    reader.visit(tree)
    reader.finish()
    return sorted(set(reader.found), key=lambda use: (use.line, use.names))


def _bound_names(tree: ast.AST) -> Set[str]:
    """Every name that the script binds somewhere."""
    names: Set[str] = set()
    for node in ast.walk(tree):
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


def _tracked(module: str) -> bool:
    return module.split(".")[0] in ROOTS


class _Scope:
    """Names bound in one module, class or function, with their meanings; None stands for anything else."""

    def __init__(self, is_class: bool = False) -> None:
        self.names: Dict[str, _Meanings] = {}
        self.is_class = is_class
        self.of_module: Set[str] = set()  # declared global


class _Reader(ast.NodeVisitor):
    """Walks one script. Bodies of functions come after what surrounds them, when all of its names are bound."""

    def __init__(self, path: str, bound: Set[str]) -> None:
        self.path = path
        self.bound = bound
        self.found: List[Use] = []
        self.scopes = [_Scope()]
        self.later: List[Tuple[List[_Scope], ast.AST, bool]] = []
        self.stars: List[str] = []
        self.foreign_star = False
        self.branch = False  # inside a branch that has an alternative

    def finish(self) -> None:
        while self.later:
            self.scopes, node, self.branch = self.later.pop(0)
            for statement in getattr(node, "body"):  # noqa: B009 - of a function
                self.visit(statement)

    def bind(self, name: str, *meanings: Optional[str]) -> None:
        scope = self.scopes[0] if name in self.scopes[-1].of_module else self.scopes[-1]
        before = scope.names.get(name, ()) if self.branch else ()
        scope.names[name] = tuple(dict.fromkeys(before + meanings))

    def use(self, meanings: _Meanings, line: int, need: str = NEEDED) -> None:
        names = tuple(name for name in meanings if name is not None)
        if need == NEEDED and (self.branch or None in meanings):
            need = OPTIONAL
        if names:
            self.found.append(Use(names, self.path, line, need))

    def meanings(self, node: ast.AST) -> _Meanings:
        """What an expression of names and dots can mean; () where it is nothing of ours."""
        if isinstance(node, ast.Attribute):
            inner = self.meanings(node.value)
            return tuple(name and name + "." + node.attr for name in inner) if any(inner) else ()
        if not isinstance(node, ast.Name):
            return ()
        for scope in reversed(self.scopes):
            if node.id in scope.names:
                return scope.names[node.id]
        return ("tensorflow",) if node.id == "tf" and NPU_INIT in self.stars and "tf" not in self.bound else ()

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if _tracked(alias.name):
                self.use((alias.name,), node.lineno)
            top = alias.name.split(".")[0]
            name = alias.name if alias.asname else top
            self.bind(alias.asname or top, name if _tracked(name) else None)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = "" if node.level else node.module or ""
        for alias in node.names:
            if alias.name == "*":
                self.star(module, node.lineno)
            elif _tracked(module):
                self.use((module + "." + alias.name,), node.lineno)
                self.bind(alias.asname or alias.name, module + "." + alias.name)
            else:
                self.bind(alias.asname or alias.name, None)

    def star(self, module: str, line: int) -> None:
        if _tracked(module):
            self.use((module,), line)
            self.stars.append(module)
        else:
            self.foreign_star = True

    def visit_Attribute(self, node: ast.Attribute) -> None:
        meanings = self.meanings(node)
        if any(meanings):
            self.use(meanings, node.lineno)
        else:
            self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.bind(node.id, None)
        elif self.stars and node.id not in self.bound and node.id not in BUILTINS and not node.id.startswith("__"):
            need = PERHAPS if self.foreign_star else NEEDED
            self.use(self.meanings(node) or tuple(star + "." + node.id for star in self.stars), node.lineno, need)

    def visit_Assign(self, node: ast.Assign) -> None:
        meanings = self.meanings(node.value)
        self.visit(node.value)
        for target in node.targets:
            if isinstance(target, ast.Name) and any(meanings):
                self.bind(target.id, *meanings)
            else:
                self.visit(target)

    def visit_FunctionDef(self, node: Union[ast.FunctionDef, ast.AsyncFunctionDef]) -> None:
        for expression in (*node.decorator_list, *([node.returns] if node.returns else ())):
            self.visit(expression)
        self.visit(node.args)
        self.bind(node.name, None)
        inner = _Scope()
        inner.names.update((arg, (None,)) for arg in _arguments(node.args))
        self.later.append(([s for s in self.scopes if not s.is_class] + [inner], node, self.branch))

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.args)
        with self.inside(_Scope()) as scope:
            scope.names.update((arg, (None,)) for arg in _arguments(node.args))
            self.visit(node.body)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for expression in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(expression)
        self.bind(node.name, None)
        with self.inside(_Scope(is_class=True)):
            self.visit_all(node.body)

    def visit_ListComp(self, node: Union[ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp]) -> None:
        with self.inside(_Scope()):
            self.visit_all(node.generators)
            self.visit_all([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])

    visit_SetComp = visit_GeneratorExp = visit_DictComp = visit_ListComp

    def visit_Global(self, node: ast.Global) -> None:
        self.scopes[-1].of_module.update(node.names)

    def visit_Try(self, node: ast.Try) -> None:
        self.in_branch(_may_miss_a_name(node), [*node.body, *node.handlers, *node.orelse])
        self.visit_all(node.finalbody)

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        self.in_branch(self.asks_for_version(node.test), [*node.body, *node.orelse])

    def asks_for_version(self, test: ast.AST) -> bool:
        """Whether the condition of an `if` asks which TensorFlow there is."""
        for node in ast.walk(test):
            if isinstance(node, ast.Attribute) and node.attr in _VERSION and any(self.meanings(node)):
                return True
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "hasattr":
                return any(self.meanings(node.args[0])) if node.args else False
        return False

    def in_branch(self, branch: bool, body: Iterable[ast.AST]) -> None:
        outer, self.branch = self.branch, self.branch or branch
        self.visit_all(body)
        self.branch = outer

    def visit_all(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    @contextlib.contextmanager
    def inside(self, scope: _Scope) -> Iterator[_Scope]:
        self.scopes = [*self.scopes, scope]
        yield scope
        self.scopes = self.scopes[:-1]


def _arguments(arguments: ast.arguments) -> List[str]:
    every = [*getattr(arguments, "posonlyargs", ()), *arguments.args, *arguments.kwonlyargs]
    return [a.arg for a in (*every, arguments.vararg, arguments.kwarg) if a is not None]


def _may_miss_a_name(node: ast.Try) -> bool:
    """Whether a `try` is there because a name may be missing."""
    if not node.handlers:
        return False
    plain = all(isinstance(s, (ast.Import, ast.ImportFrom, ast.Assign)) for s in node.body)
    caught = [name.id for h in node.handlers if h.type for name in ast.walk(h.type) if isinstance(name, ast.Name)]
    return plain or any(name in _MISSING_NAME for name in caught)
