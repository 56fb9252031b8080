"""What the installed TensorFlow and bridge give for a dotted name, and the arguments that it takes."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from typing import Any, Iterable

_NOTHING = object()


@functools.lru_cache(maxsize=None)
def symbol(name: str) -> str | None:
    """The part of a dotted name that modules and classes show, up to a function or an object; None: it is not here."""
    found, done = _walk(name)
    return None if found is _NOTHING else ".".join(name.split(".")[:done])


def _walk(name: str) -> tuple[Any, int]:
    """What a dotted name gives as far as modules and classes show it, and how many of its parts that are."""
    parts = name.split(".")
    found, done = _member(None, parts[0]), 1
    while done < len(parts) and (inspect.ismodule(found) or inspect.isclass(found)):
        found = _member(found, parts[done], ".".join(parts[: done + 1]))
        done += 1
    return found, done


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
    owner = functools.reduce(lambda o, part: _member(o, part), name.split("."), None)
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
    found, done = _walk(name)
    if found is _NOTHING or done < name.count(".") + 1:
        return "", []
    taken = _arguments(found)
    wrong = [] if taken is None else [keyword for keyword in keywords if keyword not in taken]
    return (wrong[0], taken) if wrong else ("", [])


def _arguments(function: Any) -> Any:
    """The names by which a function, or a protocol buffer, takes arguments; None where it takes any."""
    fields = getattr(getattr(function, "DESCRIPTOR", None), "fields_by_name", None)
    if fields is not None:
        return list(fields)
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return None
    return [each.name for each in parameters.values() if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
