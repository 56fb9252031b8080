"""Reads one script: which names of ours it uses, what it defines, refers to and imports. See scan."""

import ast
import builtins
import contextlib
import warnings
from typing import Dict, FrozenSet, Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple, Union

from npu_shim.compat.scan.bindings import bound_names, own_file
from npu_shim.compat.scan.conditions import catches_all, constant, is_constant, is_main, may_miss_a_name, of_python

ROOTS = ("tensorflow", "tensorflow_core", "keras", "npu_bridge", "hccl")
NPU_INIT = "npu_bridge.npu_init"
# how much a script needs a name
NEEDED = "needed"
OPTIONAL = "optional"  # in a branch for which the script has another
PERHAPS = "perhaps"  # a bare name that may come from a star import of the script's own, or from nowhere
SET = "set"  # the script gives it a value
ANYTHING = "*"  # for a module whose name is made when the script runs
BUILTINS = frozenset(dir(builtins)) | frozenset(
    # Python 2's
    ["basestring", "cmp", "execfile", "file", "long", "raw_input", "reduce", "reload", "unichr", "unicode", "xrange"]
)
_VERSION = ("__version__", "VERSION")
_Meanings = Tuple[Optional[str], ...]


class Use(NamedTuple):
    """One place at which a script uses a name.

    Attributes:
        names: dotted names, any of which may be meant; the first is the one to report.
        path: str, the file.
        line: int, from 1.
        need: NEEDED, OPTIONAL, PERHAPS or SET.
        function: str, the innermost function around it, "" at the top level.
        certain: bool, whether it runs whenever the function, or the script, does.
        bare: bool, whether it is a bare name that a star import could give.
        keywords: names of the arguments that it is called with by name, see Script.calls.
    """

    names: Tuple[str, ...]
    path: str
    line: int
    need: str
    function: str = ""
    certain: bool = True
    bare: bool = False
    keywords: Tuple[str, ...] = ()


class Import(NamedTuple):
    """An import of what is not ours.

    Attributes:
        module: str, dotted; or what may be a module, or a name in one; or ANYTHING.
        level: int, how many dots it begins with.
        line: int, from 1.
        function: str, the innermost function around it, "" at the top level.
        certain: bool, whether it runs whenever the function, or the script, does.
        optional: bool, whether the script has an alternative.
        member: bool, whether it may be a name in a module.
    """

    module: str
    level: int
    line: int
    function: str
    certain: bool
    optional: bool
    member: bool = False


class Script(NamedTuple):
    """What reading one file gave.

    Attributes:
        path: str, the file.
        uses: list of Use, in the order of their lines.
        functions: names of the functions and classes that it defines, and of methods as "Class.method".
        references: (function around it, name) of what it certainly refers to: a function or a class; ".name" is of
            something else, a method or a function of a module. What a class is made of is referred to from its name.
        imports: its imports of what is not ours.
        calls: list of Use with keywords: the calls of what is ours.
        starts: bool, whether running it does something: it is a script, not only a module.
        says_npu_optimizer: line of the first "NpuOptimizer" in a string, or 0.
    """

    path: str
    uses: List[Use]
    functions: FrozenSet[str]
    references: FrozenSet[Tuple[str, str]]
    imports: Tuple[Import, ...]
    calls: List[Use]
    starts: bool
    says_npu_optimizer: int


def script(source: Union[str, bytes], path: str = "<source>") -> Script:
    """Everything that is read from a script; raises SyntaxError when it is not Python 3."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "\d" and the like are the script's business
        tree = ast.parse(source, path)
    reader = _Reader(path, bound_names(tree, path))
    reader.visit(tree)
    reader.finish()
    found = sorted(set(reader.found), key=lambda use: (use.line, use.names, not use.certain))
    strings = [getattr(node, "lineno", 0) for node in ast.walk(tree) if constant(node) == "NpuOptimizer"]
    return Script(
        path, _first_of_each(found), frozenset(reader.functions), frozenset(reader.references), tuple(reader.imports),
        reader.calls, reader.starts, min(strings, default=0),
    )  # fmt: skip


def _first_of_each(found: List[Use]) -> List[Use]:
    """One use of a name a line: the one that is certain."""
    seen = {(use.names, use.line, use.need): use for use in reversed(found)}
    return [use for use in found if seen[use.names, use.line, use.need] is use]


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
        self.later: List[Tuple[List[_Scope], ast.AST, bool, str]] = []
        self.stars: List[str] = []
        self.foreign_star = False
        self.branch = False  # inside a branch that has an alternative
        self.certain = True  # not inside a branch at all
        self.function = ""
        self.owner = ""  # the class whose body is read, with a dot
        self.functions: Set[str] = set()
        self.references: Set[Tuple[str, str]] = set()
        self.imports: List[Import] = []
        self.calls: List[Use] = []
        self.handed_over: Set[ast.AST] = set()  # lambdas that are arguments: of tf.cond, Dataset.map
        self.starts = False

    def finish(self) -> None:
        while self.later:
            self.scopes, node, self.branch, self.function = self.later.pop(0)
            self.certain = True
            for statement in getattr(node, "body"):  # noqa: B009 - of a function
                self.visit(statement)

    def bind(self, name: str, *meanings: Optional[str]) -> None:
        scope = self.scopes[0] if name in self.scopes[-1].of_module else self.scopes[-1]
        before = scope.names.get(name, ()) if self.branch else ()
        scope.names[name] = tuple(dict.fromkeys(before + meanings))

    def use(self, meanings: _Meanings, line: int, need: str = NEEDED, bare: bool = False) -> None:
        names = tuple(name for name in meanings if name is not None)
        if need == NEEDED and (self.branch or None in meanings):
            need = OPTIONAL
        if names:
            self.found.append(Use(names, self.path, line, need, self.function, self.certain, bare))

    def refer(self, name: str, dot: str = "") -> None:
        if self.certain:
            self.references.add((self.function, dot + name))

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
            else:
                self.imported(alias.name, 0, node)
            top = alias.name.split(".")[0]
            name = alias.name if alias.asname else top
            self.bind(alias.asname or top, name if _tracked(name) else None)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = "" if node.level else node.module or ""
        if not _tracked(module):
            self.imported(node.module or "", node.level, node)
            for alias in node.names:
                inner = (node.module + "." if node.module else "") + alias.name
                self.imported(inner, node.level, node, member=True)
        for alias in node.names:
            if alias.name == "*":
                self.star(module, node)
            elif _tracked(module):
                self.use((module + "." + alias.name,), node.lineno)
                self.bind(alias.asname or alias.name, module + "." + alias.name)
            else:
                self.bind(alias.asname or alias.name, None)

    def imported(self, module: str, level: int, node: Union[ast.stmt, ast.expr], member: bool = False) -> None:
        self.imports.append(Import(module, level, node.lineno, self.function, self.certain, self.branch, member))

    def star(self, module: str, node: ast.ImportFrom) -> None:
        if _tracked(module):
            self.use((module,), node.lineno)
            self.stars.append(module)
        elif not own_file(self.path, node.module or "", node.level):  # what it binds is not known
            self.foreign_star = True

    def visit_Attribute(self, node: ast.Attribute) -> None:
        meanings = self.meanings(node)
        if any(meanings) and not isinstance(node.ctx, ast.Load):
            self.use(meanings, node.lineno, SET)
            self.visit(node.value)
        elif any(meanings):
            self.use(meanings, node.lineno)
        else:
            if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):  # FLAGS.evaluate is no function
                self.refer(node.attr, ".")
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        self.starts |= not self.function and not self.scopes[-1].is_class and self.certain
        if isinstance(node.func, ast.Attribute) and not any(self.meanings(node.func)):
            self.refer(node.func.attr, ".")
        keywords = tuple(keyword.arg for keyword in node.keywords if keyword.arg)
        if keywords and not self.branch:
            names = tuple(filter(None, self.meanings(node.func) or self.of_stars(node.func)))
            use = Use(names, self.path, node.lineno, NEEDED, self.function, self.certain, keywords=keywords)
            self.calls += [use] if names else []
        self.import_by_name(node)
        given = (*node.args, *(keyword.value for keyword in node.keywords))
        self.handed_over.update(each for each in given if isinstance(each, ast.Lambda))
        name = node.args[1] if len(node.args) == 3 else None
        if isinstance(node.func, ast.Name) and node.func.id == "setattr" and name and is_constant(name):
            self.use(tuple(m and m + "." + str(constant(name)) for m in self.meanings(node.args[0])), node.lineno, SET)
        self.generic_visit(node)

    def import_by_name(self, node: ast.Call) -> None:
        """`import_module("nets.a")` imports that; `import_module(args.model)` may import anything."""
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in ("import_module", "__import__") and node.args:
            module = constant(node.args[0])
            if isinstance(module, str) and _tracked(module):
                self.use((module,), node.lineno)
                return
            self.imported(module if isinstance(module, str) else ANYTHING, 0, node, member=not isinstance(module, str))

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.bind(node.id, None)
            return
        self.refer(node.id)
        stars = self.of_stars(node)
        if stars:
            need = PERHAPS if self.foreign_star else NEEDED
            meant = self.meanings(node)
            self.use(meant or stars, node.lineno, need, bare=not meant)

    def of_stars(self, node: ast.AST) -> Tuple[str, ...]:
        """What a bare name can mean that only a star import can have bound; () for any other expression."""
        if not isinstance(node, ast.Name) or node.id in self.bound or node.id in BUILTINS or node.id.startswith("__"):
            return ()
        return tuple(star + "." + node.id for star in self.stars)

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
        name = self.owner + node.name
        self.functions.add(name)
        inner = _Scope()
        inner.names.update((arg, (None,)) for arg in _arguments(node.args))
        self.later.append(([s for s in self.scopes if not s.is_class] + [inner], node, self.branch, name))

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.args)
        with self.inside(_Scope()) as scope:
            scope.names.update((arg, (None,)) for arg in _arguments(node.args))
            self.in_branch(False, [node.body], node in self.handed_over)  # one that is kept may never be called

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for expression in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(expression)
        self.bind(node.name, None)
        self.functions.add(node.name)
        for base in node.bases:  # whose methods are the class's
            if isinstance(base, (ast.Name, ast.Attribute)):
                self.references.add((node.name, base.id if isinstance(base, ast.Name) else "." + base.attr))
        outer, self.owner = self.owner, node.name + "."
        with self.inside(_Scope(is_class=True)):
            self.visit_all(node.body)
        self.owner = outer

    def visit_ListComp(self, node: Union[ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp]) -> None:
        with self.inside(_Scope()):
            self.visit_all(node.generators)
            self.visit_all([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])

    visit_SetComp = visit_GeneratorExp = visit_DictComp = visit_ListComp

    def visit_Global(self, node: ast.Global) -> None:
        self.scopes[-1].of_module.update(node.names)

    def visit_Try(self, node: ast.Try) -> None:
        swallowed = any(catches_all(handler) for handler in node.handlers)
        self.in_branch(may_miss_a_name(node), node.body, not swallowed)
        self.in_branch(may_miss_a_name(node), [*node.handlers, *node.orelse], False)
        self.visit_all(node.finalbody)

    def visit_If(self, node: ast.If) -> None:
        known = of_python(node.test)
        if known is not None:  # the branch of another Python is dead
            self.visit_all(node.body if known else node.orelse)
            return
        self.visit(node.test)
        main = is_main(node.test)
        self.starts |= main
        self.in_branch(self.asks_for_version(node.test), node.body, main)
        self.in_branch(self.asks_for_version(node.test), node.orelse, False)

    def visit_While(self, node: ast.While) -> None:
        self.visit(node.test)
        self.in_branch(False, [*node.body, *node.orelse], is_constant(node.test))

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.visit(node.test)
        self.in_branch(self.asks_for_version(node.test), [node.body, node.orelse], False)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self.visit(node.values[0])
        self.in_branch(self.asks_for_version(node.values[0]), node.values[1:], False)

    def asks_for_version(self, test: ast.AST) -> bool:
        """Whether the condition of an `if` asks which TensorFlow there is."""
        for node in ast.walk(test):
            if isinstance(node, ast.Attribute) and node.attr in _VERSION and any(self.meanings(node)):
                return True
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "hasattr":
                return any(self.meanings(node.args[0])) if node.args else False
        return False

    def in_branch(self, branch: bool, body: Iterable[ast.AST], certain: bool) -> None:
        outer = self.branch, self.certain
        self.branch, self.certain = self.branch or branch, self.certain and certain
        self.visit_all(body)
        self.branch, self.certain = outer

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
