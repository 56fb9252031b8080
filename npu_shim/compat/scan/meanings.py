"""What the names of a script mean, as dotted names; a call is written "()", so that objects are followed too.

    tensorflow.data.Dataset.range().map      the method `map` of what `tf.data.Dataset.range(...)` gives

Modules keep the meaning that they got last. An object is followed only where nothing else can be meant: a name, or an
attribute of `self`, that is bound in several places, or in a branch, stands for all that it is bound to.
"""

import ast
import builtins
import contextlib
from typing import Dict, FrozenSet, Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple

from npu_shim.compat.scan.conditions import constant, is_constant

Meanings = Tuple[Optional[str], ...]  # None stands for anything else
Attributes = Dict[Tuple[str, str], Meanings]  # (class, attribute) -> what methods set it to
ROOTS = ("tensorflow", "tensorflow_core", "keras", "npu_bridge", "hccl", "numpy")
UNCOUNTED = ("numpy",)  # what is lost of it is told; what is there is no sign of a TensorFlow script
NPU_INIT = "npu_bridge.npu_init"
CALL = "()"
BUILTINS = frozenset(dir(builtins)) | frozenset(
    # Python 2's
    ["basestring", "cmp", "execfile", "file", "long", "raw_input", "reduce", "reload", "unichr", "unicode", "xrange"]
)
LONGEST = 12  # calls in one meaning: `x = f(x)` in a loop has no end


class Scope:
    """Names bound in one module, class or function: what they mean now, and all that they ever meant."""

    def __init__(self, is_class: bool = False) -> None:
        self.names: Dict[str, Meanings] = {}
        self.ever: Dict[str, Meanings] = {}
        self.is_class = is_class
        self.of_module: Set[str] = set()  # declared global


class Facts(NamedTuple):
    """What is known of a script before its names are read.

    Attributes:
        bound: every name that it binds somewhere.
        shared: names that functions bind for others, by `global` or `nonlocal`.
        homes: class -> classes of this script whose methods may set the attributes of its objects; a class that
            derives from one of another file is not in it.
        foreign: attributes that it sets on anything but `self`.
        attributes: what methods set attributes to, as far as known from an earlier reading.
    """

    bound: FrozenSet[str]
    shared: FrozenSet[str]
    homes: Dict[str, FrozenSet[str]]
    foreign: FrozenSet[str]
    attributes: Attributes


def facts(tree: ast.AST, bound: Iterable[str]) -> Facts:
    """What is known of a script before its names are read."""
    nodes = list(ast.walk(tree))
    shared = [name for node in nodes if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names]
    return Facts(frozenset(bound), frozenset(shared), _homes(nodes), assigned(tree, with_self=False), {})


def assigned(tree: ast.AST, with_self: bool = True) -> FrozenSet[str]:
    """Names of the attributes that a script sets, those of `self` only if asked for; "*" where it may be any."""
    stored = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)]
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and len(node.args) == 3]
    named = [node.args[1] for node in calls if isinstance(node.func, ast.Name) and node.func.id == "setattr"]
    by_name = [str(constant(name)) if is_constant(name) else "*" for name in named]
    by_name += ["*" for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "__dict__"]
    return frozenset([node.attr for node in stored if with_self or not is_self(node.value)] + by_name)


def is_object(meaning: Optional[str]) -> bool:
    """Whether a meaning is what a call gave, or a part of it."""
    return meaning is not None and CALL in meaning


class Names:
    """The names that are bound where a script is read, innermost scope last."""

    def __init__(self, known: Facts) -> None:
        self.known = known
        self.scopes = [Scope()]
        self.attributes: Attributes = {}
        self.stars: List[str] = []
        self.foreign_star = False  # what a star import binds is not known
        self.joins = False  # in a body that may run never, or again
        self.function = ""  # around what is read, "Class.method" for a method

    @contextlib.contextmanager
    def inside(self, scope: Scope) -> Iterator[Scope]:
        """Puts a scope inside the others."""
        self.scopes = [*self.scopes, scope]
        yield scope
        self.scopes = self.scopes[:-1]

    def bind(self, name: str, meanings: Meanings, branch: bool = False) -> None:
        """Binds a name; in a branch that has an alternative, it keeps what it meant as well."""
        scope = self.scopes[0] if name in self.scopes[-1].of_module else self.scopes[-1]
        if name in self.known.shared:
            meanings = tuple(None if is_object(meaning) else meaning for meaning in meanings)
        before = scope.names.get(name, ())
        joined = branch or (self.joins and any(map(is_object, before + meanings)))
        scope.names[name] = _union(before if joined else (), meanings)
        scope.ever[name] = _union(scope.ever.get(name, ()), meanings)

    def of(self, node: ast.AST) -> Meanings:
        """What an expression of names, dots and calls can mean; () where it is nothing of ours."""
        if isinstance(node, ast.Attribute):
            inner = self.of(node.value)
            if is_self(node.value) and not any(inner):
                return self._of_self(node.attr)
            return tuple(name and name + "." + node.attr for name in inner) if any(inner) else ()
        if isinstance(node, ast.Call):
            inner = self.of(node.func) or (() if self.foreign_star else self.of_stars(node.func))
            short = any(inner) and all(name is None or name.count(CALL) < LONGEST for name in inner)
            return tuple(name and name + CALL for name in inner) if short else ()
        return self._of_name(node.id) if isinstance(node, ast.Name) else ()

    def _of_name(self, name: str) -> Meanings:
        for scope in reversed(self.scopes):
            if name in scope.names:
                ever = scope.ever[name] if name in scope.ever and scope is not self.scopes[-1] else ()
                return ever if any(map(is_object, ever)) else scope.names[name]
        return ("tensorflow",) if name == "tf" and NPU_INIT in self.stars and "tf" not in self.known.bound else ()

    def _of_self(self, attribute: str) -> Meanings:
        homes = self.known.homes.get(self.function.rpartition(".")[0], ())
        if not homes or {attribute, "*"} & self.known.foreign:
            return ()
        return _union(*(self.known.attributes.get((home, attribute), ()) for home in ("", *sorted(homes))))

    def of_stars(self, node: ast.AST) -> Tuple[str, ...]:
        """What a bare name can mean that only a star import can have bound; () for any other expression."""
        if not isinstance(node, ast.Name) or node.id in self.known.bound or node.id.startswith("__"):
            return ()
        return () if node.id in BUILTINS else tuple(star + "." + node.id for star in self.stars)

    def set_attribute(self, attribute: str, meanings: Meanings) -> None:
        """Takes note of `self.attribute = ...` in the function that is read."""
        key = self.function.rpartition(".")[0], attribute  # a function inside a method has no class of its own
        objects = tuple(meaning if is_object(meaning) else None for meaning in meanings) or (None,)
        self.attributes[key] = _union(self.attributes.get(key, ()), objects)


def is_self(node: ast.AST) -> bool:
    """Whether an expression is `self`."""
    return isinstance(node, ast.Name) and node.id == "self"


def through(node: ast.AST) -> str:
    """The attribute of `self` with which an expression of dots and calls begins, or ""."""
    while isinstance(node, (ast.Attribute, ast.Call)):
        if isinstance(node, ast.Attribute) and is_self(node.value):
            return node.attr
        node = node.value if isinstance(node, ast.Attribute) else node.func
    return ""


def is_tracked(module: str) -> bool:
    """Whether a module, or a name in one, is TensorFlow's, the bridge's or NumPy's."""
    return root(module) in ROOTS


def root(name: str) -> str:
    """The package with which a dotted name begins."""
    return name.split(".")[0]


def _union(*parts: Meanings) -> Meanings:
    return tuple(dict.fromkeys(meaning for part in parts for meaning in part))


def _homes(nodes: Iterable[ast.AST]) -> Dict[str, FrozenSet[str]]:
    """Class -> the classes that may set attributes of its objects: itself, and those that may derive from it."""
    nodes = list(nodes)
    ours = {"object"}
    for node in nodes:
        if isinstance(node, ast.Import):
            ours |= {alias.asname or alias.name.split(".")[0] for alias in node.names if is_tracked(alias.name)}
        elif isinstance(node, ast.ImportFrom) and not node.level and is_tracked(node.module or ""):
            ours |= {alias.asname or alias.name for alias in node.names}
    defined = [node for node in nodes if isinstance(node, ast.ClassDef)]
    classes = {node.name: {_root(base) for base in node.bases} - ours for node in defined}
    derived = {name for name, bases in classes.items() if bases}
    return {
        name: frozenset(classes) if bases else frozenset({name} | derived)
        for name, bases in classes.items()
        if bases <= set(classes)
    }


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
