"""Reads one script: which names of ours it uses, what it defines, refers to and imports. See scan."""

import ast
import warnings
from typing import FrozenSet, Iterable, List, NamedTuple, Optional, Set, Tuple, Union

from npu_shim.compat.scan import meanings
from npu_shim.compat.scan.bindings import bound_names, own_file
from npu_shim.compat.scan.conditions import catches_all, constant, is_constant, is_main, may_miss_a_name, of_python
from npu_shim.compat.scan.meanings import Facts, Meanings, Names, Scope, is_object, is_tracked
from npu_shim.compat.scan.search_path import SearchPath, search_path

# how much a script needs a name
NEEDED = "needed"
OPTIONAL = "optional"  # in a branch for which the script has another
PERHAPS = "perhaps"  # a bare name that may come from a star import of the script's own, or from nowhere
SET = "set"  # the script gives it a value
ANYTHING = "*"  # for a module whose name is made when the script runs
READINGS = 4  # of one script, at most: attributes of self that are made of others
_VERSION = ("__version__", "VERSION")


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
        through: attribute of `self` that holds the object whose name this is, "" where there is none.
    """

    names: Tuple[str, ...]
    path: str
    line: int
    need: str
    function: str = ""
    certain: bool = True
    bare: bool = False
    keywords: Tuple[str, ...] = ()
    through: str = ""


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
        assigned: names of the attributes that it sets, on whatever object; "*" where it may be any.
        search: what it adds to sys.path.
    """

    path: str
    uses: List[Use]
    functions: FrozenSet[str]
    references: FrozenSet[Tuple[str, str]]
    imports: Tuple[Import, ...]
    calls: List[Use]
    starts: bool
    says_npu_optimizer: int
    assigned: FrozenSet[str] = frozenset()
    search: SearchPath = SearchPath()


def script(source: Union[str, bytes], path: str = "<source>") -> Script:
    """Everything that is read from a script; raises SyntaxError when it is not Python 3."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "\d" and the like are the script's business
        tree = ast.parse(source, path)
    reader = _read(tree, path)
    uses = sorted(set(reader.uses), key=lambda use: (use.line, use.names, not use.certain))
    strings = [getattr(node, "lineno", 0) for node in ast.walk(tree) if constant(node) == "NpuOptimizer"]
    return Script(
        path, _first_of_each(uses), frozenset(reader.functions), frozenset(reader.references), tuple(reader.imports),
        reader.calls, reader.starts, min(strings, default=0), meanings.assigned(tree), search_path(tree, path),
    )  # fmt: skip


def _read(tree: ast.AST, path: str) -> "_Reader":
    """Reads a script until it is known what attributes of `self` are: one may be made of another."""
    known = meanings.facts(tree, bound_names(tree, path))
    for _ in range(READINGS):
        reader = _Reader(path, known)
        reader.visit(tree)
        reader.finish()
        if reader.names.attributes == known.attributes:
            break
        known = known._replace(attributes=reader.names.attributes)
    return reader


def _first_of_each(uses: List[Use]) -> List[Use]:
    """One use of a name a line: the one that is certain."""
    seen = {(use.names, use.line, use.need): use for use in reversed(uses)}
    return [use for use in uses if seen[use.names, use.line, use.need] is use]


class _Reader(ast.NodeVisitor):
    """Walks one script. Bodies of functions come after what surrounds them, when all of its names are bound."""

    def __init__(self, path: str, known: Facts) -> None:
        self.path = path
        self.names = Names(known)
        self.uses: List[Use] = []
        self.later: List[Tuple[List[Scope], ast.AST, bool, str]] = []
        self.branch = False  # inside a branch that has an alternative
        self.certain = True  # not inside a branch at all
        self.owner = ""  # the class whose body is read, with a dot
        self.functions: Set[str] = set()
        self.references: Set[Tuple[str, str]] = set()
        self.imports: List[Import] = []
        self.calls: List[Use] = []
        self.handed_over: Set[ast.AST] = set()  # lambdas that are arguments: of tf.cond, Dataset.map
        self.starts = False

    def finish(self) -> None:
        while self.later:
            self.names.scopes, node, self.branch, self.names.function = self.later.pop(0)
            self.certain, self.names.joins = True, False
            for statement in getattr(node, "body"):  # noqa: B009 - of a function
                self.visit(statement)

    def bind(self, name: str, *means: Optional[str]) -> None:
        self.names.bind(name, means, self.branch)

    def use(self, means: Meanings, node: ast.AST, need: str = NEEDED, bare: bool = False) -> None:
        names = tuple(name for name in means if name is not None)
        if need == NEEDED and (self.branch or None in means):
            need = OPTIONAL
        line = getattr(node, "lineno", 0)
        if names:
            through = meanings.through(node)
            self.uses.append(
                Use(names, self.path, line, need, self.names.function, self.certain, bare, through=through)
            )

    def refer(self, name: str, dot: str = "") -> None:
        if self.certain:
            self.references.add((self.names.function, dot + name))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if is_tracked(alias.name):
                self.use((alias.name,), node)
            else:
                self.imported(alias.name, 0, node)
            top = alias.name.split(".")[0]
            name = alias.name if alias.asname else top
            self.bind(alias.asname or top, name if is_tracked(name) else None)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = "" if node.level else node.module or ""
        if not is_tracked(module):
            self.imported(node.module or "", node.level, node)
            for alias in node.names:
                inner = (node.module + "." if node.module else "") + alias.name
                self.imported(inner, node.level, node, member=True)
        for alias in node.names:
            if alias.name == "*":
                self.star(module, node)
            elif is_tracked(module):
                self.use((module + "." + alias.name,), node)
                self.bind(alias.asname or alias.name, module + "." + alias.name)
            else:
                self.bind(alias.asname or alias.name, None)

    def imported(self, module: str, level: int, node: Union[ast.stmt, ast.expr], member: bool = False) -> None:
        self.imports.append(Import(module, level, node.lineno, self.names.function, self.certain, self.branch, member))

    def star(self, module: str, node: ast.ImportFrom) -> None:
        if is_tracked(module):
            self.use((module,), node)
            self.names.stars.append(module)
        elif not own_file(self.path, node.module or "", node.level):  # what it binds is not known
            self.names.foreign_star = True

    def visit_Attribute(self, node: ast.Attribute) -> None:
        stored = not isinstance(node.ctx, ast.Load)
        of_self = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        inner = self.names.of(node.value)
        means = tuple(name and name + "." + node.attr for name in inner)
        if any(means):
            self.use(means, node, SET if stored else NEEDED)
            if not stored and not any(map(is_object, means)):
                return
        elif stored and of_self:
            self.names.set_attribute(node.attr, ())
        elif of_self:  # FLAGS.evaluate is no function
            self.refer(node.attr, ".")
        self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        self.starts |= not self.names.function and not self.names.scopes[-1].is_class and self.certain
        if isinstance(node.func, ast.Attribute) and not any(m and not is_object(m) for m in self.names.of(node.func)):
            self.refer(node.func.attr, ".")
        keywords = tuple(keyword.arg for keyword in node.keywords if keyword.arg)
        if keywords and not self.branch:
            means = self.names.of(node.func) or self.names.of_stars(node.func)
            names = tuple(filter(None, () if None in means and any(map(is_object, means)) else means))
            use = Use(names, self.path, node.lineno, NEEDED, self.names.function, self.certain, keywords=keywords)
            self.calls += [use] if names else []
        self.import_by_name(node)
        given = (*node.args, *(keyword.value for keyword in node.keywords))
        self.handed_over.update(argument for argument in given if isinstance(argument, ast.Lambda))
        name = node.args[1] if len(node.args) == 3 else None
        if isinstance(node.func, ast.Name) and node.func.id == "setattr" and name and is_constant(name):
            self.use(tuple(m and m + "." + str(constant(name)) for m in self.names.of(node.args[0])), node, SET)
        self.generic_visit(node)

    def import_by_name(self, node: ast.Call) -> None:
        """`import_module("nets.a")` imports that; `import_module(args.model)` may import anything."""
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in ("import_module", "__import__") and node.args:
            module = constant(node.args[0])
            if isinstance(module, str) and is_tracked(module):
                self.use((module,), node)
                return
            self.imported(module if isinstance(module, str) else ANYTHING, 0, node, member=not isinstance(module, str))

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.bind(node.id, None)
            return
        self.refer(node.id)
        stars = self.names.of_stars(node)
        if stars:
            need = PERHAPS if self.names.foreign_star else NEEDED
            meant = self.names.of(node)
            self.use(meant or stars, node, need, bare=not meant)

    def visit_Assign(self, node: ast.Assign) -> None:
        means = self.names.of(node.value)
        self.visit(node.value)
        for target in node.targets:
            if not (_is_none(node.value) and meanings.through(target)):  # None has no methods that could be meant
                self.assign(target, means)

    def assign(self, target: ast.AST, means: Meanings) -> None:
        """`target = ...`, by its meanings."""
        if isinstance(target, ast.Name) and any(means):
            self.bind(target.id, *means)
        elif isinstance(target, ast.Attribute) and meanings.is_self(target.value):
            self.names.set_attribute(target.attr, means)
        else:
            self.visit(target)

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            self.visit(item.context_expr)
            if item.optional_vars is not None:
                means = self.names.of(item.context_expr)
                self.assign(item.optional_vars, tuple(name and name + ".__enter__()" for name in means))
        self.visit_all(node.body)

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        self.visit(node.target)
        self.in_branch(False, [*node.body, *node.orelse], True)

    def visit_FunctionDef(self, node: Union[ast.FunctionDef, ast.AsyncFunctionDef]) -> None:
        for expression in (*node.decorator_list, *([node.returns] if node.returns else ())):
            self.visit(expression)
        self.visit(node.args)
        self.bind(node.name, None)
        name = self.owner + node.name
        self.functions.add(name)
        inner = Scope()
        inner.names.update((arg, (None,)) for arg in _arguments(node.args))
        self.later.append(([s for s in self.names.scopes if not s.is_class] + [inner], node, self.branch, name))

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.args)
        with self.names.inside(Scope()) as scope:
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
        with self.names.inside(Scope(is_class=True)):
            self.visit_all(node.body)
        self.owner = outer

    def visit_ListComp(self, node: Union[ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp]) -> None:
        with self.names.inside(Scope()):
            self.visit_all(node.generators)
            self.visit_all([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])

    visit_SetComp = visit_GeneratorExp = visit_DictComp = visit_ListComp

    def visit_Global(self, node: ast.Global) -> None:
        self.names.scopes[-1].of_module.update(node.names)

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
            if isinstance(node, ast.Attribute) and node.attr in _VERSION and any(self.names.of(node)):
                return True
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "hasattr":
                return any(self.names.of(node.args[0])) if node.args else False
        return False

    def in_branch(self, branch: bool, body: Iterable[ast.AST], certain: bool) -> None:
        outer = self.branch, self.certain, self.names.joins
        self.branch, self.certain, self.names.joins = self.branch or branch, self.certain and certain, True
        self.visit_all(body)
        self.branch, self.certain, self.names.joins = outer

    def visit_all(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)


def _is_none(node: ast.AST) -> bool:
    return is_constant(node) and constant(node) is None


def _arguments(arguments: ast.arguments) -> List[str]:
    every = [*getattr(arguments, "posonlyargs", ()), *arguments.args, *arguments.kwonlyargs]
    return [a.arg for a in (*every, arguments.vararg, arguments.kwarg) if a is not None]
