"""What the installed TensorFlow and bridge give for a dotted name, and the arguments that it takes.

A name may have calls in it, as `meanings` has them: "tensorflow.data.Dataset.range().map".
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import re
from typing import Any, Iterable, NamedTuple

from npu_shim.compat.scan import meanings, objects
from npu_shim.rewriter.graph.walks import reached

_NOTHING = object()


class Way(NamedTuple):
    """How far a dotted name leads.

    Attributes:
        target: the last thing on it that is known: a module, a class, a function, an objects.Object, ... or _NOTHING.
        path: str, the dotted name of that; of an object, that of its class.
        owner: what the last part was asked of; None at the beginning.
        is_whole: bool, whether the name ends there.
    """

    target: Any
    path: str
    owner: Any = None
    is_whole: bool = True


@functools.lru_cache(maxsize=None)
def symbol(name: str) -> str | None:
    """The part of a dotted name that modules, classes and known objects show; None: it is not here."""
    way = _walk(name)
    return None if way.target is _NOTHING else way.path


def lacking(name: str) -> tuple[str, str, list[str]]:
    """The first part of a name that is not here: (the dotted name of what lacks it, the part, what that has)."""
    way = _walk(name)
    where, _, part = way.path.rpartition(".")
    if isinstance(way.owner, objects.Object):
        have = {member for kind in way.owner.kinds for member in objects.members(kind) if not member.startswith("_")}
        return where, part, sorted(have)
    return where, part, _public(way.owner) if where else []


def is_of_nothing(name: str) -> bool:
    """Whether a name is that of an object which nothing here gives: what gives it is a name of its own."""
    return meanings.CALL in name and symbol(name.rpartition(".")[0]) is None


@functools.lru_cache(maxsize=None)
def _walk(name: str) -> Way:
    first, *parts = re.findall(r"\(\)|[^.()]+", name) or [""]
    way = Way(_member(None, first), first)
    for part in parts:
        following = None if way.target is _NOTHING else _follow(way, part)
        if following is None:
            return way._replace(is_whole=False)
        way = following
    return way


def _follow(way: Way, part: str) -> Way | None:
    """One part further; None where it is not known what comes."""
    owner, path = way.target, way.path + "." + part
    if part == meanings.CALL:
        given = _given(way)
        return Way(given, given.path, owner) if given else None
    if isinstance(owner, objects.Member):
        held = objects.result(owner, "", _results())
        return _follow(Way(held, held.path), part) if held else None
    if isinstance(owner, objects.Object):
        return Way(objects.Member(owner, part) if objects.has(owner, part) else _NOTHING, path, owner)
    if inspect.ismodule(owner) or inspect.isclass(owner):
        return Way(_member(owner, part, path), path, owner)
    return None


def _given(way: Way) -> Any:
    """What calling the end of a way gives, as an objects.Object, or None."""
    if inspect.isclass(way.target):
        return objects.constructed(way.target, way.path)
    member = way.target
    if isinstance(member, objects.Object):
        member = objects.Member(member, "__call__")
    elif inspect.isclass(way.owner):
        member = objects.Member(objects.Object(way.path, (way.owner,)), way.path.rpartition(".")[2])
    if isinstance(member, objects.Member):
        return objects.result(member, meanings.CALL, _results())
    return _results().get(_identity(way.target))


@functools.lru_cache(maxsize=None)
def _results() -> dict[Any, Any]:
    """objects.rows by what their names mean here: functions, and members of classes."""
    results = {}
    for name, classes in objects.rows().items():
        kinds = [(path, way.target) for path in classes for way in [_plain_walk(path)] if inspect.isclass(way.target)]
        owner, _, last = name.rpartition(".")
        above, function = _plain_walk(owner).target, _plain_walk(name.replace(meanings.CALL, "")).target
        key = (above, last) if inspect.isclass(above) else _identity(function)
        if kinds and function is not _NOTHING:
            derived = [member for _, kind in kinds for member in objects.with_derived(kind)]
            results[key] = objects.Object(kinds[0][0], tuple(dict.fromkeys(derived)))
    return results


def _plain_walk(name: str) -> Way:
    """The whole way of a name without calls."""
    target = functools.reduce(lambda owner, part: _member(owner, part), name.split("."), None)
    return Way(target, name)


def _identity(function: Any) -> int:
    """A number that a function shares with its decorated forms, of the same behaviour."""
    while hasattr(function, "_tf_decorator"):
        function = function._tf_decorator.decorated_target
    return id(function)


def _member(owner: Any, name: str, module: str | None = None) -> Any:
    """What `owner.name` gives, or the module of that dotted name, or _NOTHING."""
    try:
        return getattr(owner, name) if owner is not None else importlib.import_module(name)
    except Exception:  # whatever a lazy module raises: the script would get nothing either
        pass
    try:
        return importlib.import_module(module or name) if owner is None or inspect.ismodule(owner) else _NOTHING
    except Exception:
        return _NOTHING


def public(name: str) -> list[str]:
    """The public names of a module or class of this dotted name, those of files included."""
    return _public(_plain_walk(name).target)


def _public(owner: Any) -> list[str]:
    folders = [folder for folder in getattr(owner, "__path__", ()) if isinstance(folder, str)]
    files = [module.name for module in pkgutil.iter_modules(folders)]
    return [n for n in (*dir(owner), *files) if not n.startswith("_")]


def refused(name: str, keywords: Iterable[str]) -> tuple[str, Any]:
    """The first of some keywords that a function or class takes no argument by, and the names that it does take.

    Args:
        name: dotted.
        keywords: names of arguments.

    Returns:
        (str, list of str); ("", []) where it takes them all, or where that cannot be told.
    """
    way = _walk(name)
    functions = objects.functions(way.target) if isinstance(way.target, objects.Member) else [way.target]
    if not way.is_whole or not all(map(callable, functions)):
        return "", []
    taken = [_arguments(function) for function in functions]
    if any(arguments is None for arguments in taken):
        return "", []
    wrong = [keyword for keyword in keywords if not any(keyword in arguments for arguments in taken)]
    return (wrong[0], taken[0]) if wrong else ("", [])


def _arguments(function: Any) -> Any:
    """The names by which a function, or a protocol buffer, takes arguments; None where it takes any."""
    fields = getattr(getattr(function, "DESCRIPTOR", None), "fields_by_name", None)
    if fields is not None:
        return list(fields)
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None
    named = [
        parameter.name
        for parameter in parameters.values()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        allowed = _allowed(function)
        return allowed and [*named, *allowed]
    return named


def _allowed(kind: Any) -> list[str] | None:
    """What the **kwargs of a Keras optimizer may hold, which its base class compares with `allowed_kwargs`.

    None where that cannot be told: of another class. What stands around a constructor names what it takes besides.
    """
    constructors = [vars(base)["__init__"] for base in getattr(kind, "__mro__", ()) if "__init__" in vars(base)]
    plain = [init for init in constructors if inspect.isfunction(init)]
    if not plain or "optimizer" not in kind.__module__:
        return None
    if "allowed_kwargs" not in inspect.unwrap(plain[-1]).__code__.co_varnames:
        return None
    inits = list(reached(plain, lambda init: [init.__wrapped__] if hasattr(init, "__wrapped__") else []))
    texts = [text for init in inits for const in init.__code__.co_consts for text in _texts(const)]
    own = [name for init in inits for name in inspect.signature(init).parameters]
    return sorted({text for text in (*texts, *own) if text.isidentifier()} - {"self", "kwargs"})


def _texts(const: Any) -> list[str]:
    parts = const if isinstance(const, (frozenset, tuple)) else [const]
    return [part for part in parts if isinstance(part, str)]
