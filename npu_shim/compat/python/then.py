"""What libraries had in TensorFlow 1's time and have no more: names are told of, arguments by position are taken.

`then.json` is written by `scripts/compare_versions --library NAME --write`. Of each library it has

    title       what the library is called
    gone        version -> module -> name, or Class.name -> what stands in its place today, or ""
    modules     module that is gone -> [the last version with it that was looked at, what stands in its place, or ""]
    positions   module -> function or Class.method -> the parameters that followed by position, in their order
    renamed     likewise -> a parameter -> what it is called today
"""

from __future__ import annotations

import contextlib
import functools
import json
import pathlib
import sys
from typing import Any, Iterator

from npu_shim.compat import callers
from npu_shim.compat.names import missing
from npu_shim.compat.python import libraries, parameters

FILE = pathlib.Path(__file__).resolve().parent / "then.json"


@functools.lru_cache(maxsize=None)
def table() -> dict[str, dict[str, Any]]:
    """The table: library -> what it had."""
    return dict(json.loads(FILE.read_text(encoding="utf-8")))


def patched() -> set[str]:
    """Names of the modules that `patch` has something to do for."""
    rows = table().values()
    gone = {module for row in rows for names in row["gone"].values() for module in names}
    return gone.union(*(row[part] for row in rows for part in ("positions", "renamed")))


def lost_modules() -> dict[str, str]:
    """Module that is gone -> "!" and a sentence that says which version had it, as `missing.Finder` takes them."""
    return {
        module: "!" + _sentence(row["title"], version, instead)
        for row in table().values()
        for module, (version, instead) in row["modules"].items()
    }


def wrap(module: Any, say: parameters.Say) -> None:
    """Lets functions of a module take arguments by position, and by name, as they did; `say` is told of their use."""
    name = module.__name__
    for library, row in table().items():
        if name == library or name.startswith(library + "."):
            for path, names in row["renamed"].get(name, {}).items():
                _wrap(module, path, parameters.takes_names(names), say)
            for path, places in row["positions"].get(name, {}).items():
                _wrap(module, path, libraries.takes_positions(*places), say)


def tell(module: Any) -> None:
    """Lets a module, and its classes, tell of what they had."""
    name = module.__name__
    for library, row in table().items():
        if name == library or name.startswith(library + "."):
            _tell(module, library, row)


def _wrap(module: Any, path: str, wrapper: parameters.Wrapper, say: parameters.Say) -> None:
    holder, _, last = path.rpartition(".")
    owner = getattr(module, holder, None) if holder else module
    kept = vars(owner).get(last) if holder and owner is not None else getattr(owner, last, None)
    kind = type(kept) if isinstance(kept, (staticmethod, classmethod)) else None
    function = kept.__func__ if isinstance(kept, (staticmethod, classmethod)) else kept
    if owner is None or not callable(function):
        return
    with contextlib.suppress(TypeError, ValueError):  # classes in C take no attributes, and some have no signature
        wrapped = parameters.wrapped(wrapper, function, say)
        if wrapped is not function:
            parameters.placed(wrapped, module.__name__, path)
        setattr(owner, last, wrapped if kind is None else kind(wrapped))


def _tell(module: Any, library: str, row: dict[str, Any]) -> None:
    texts = {}
    for version, modules in row["gone"].items():
        for name, instead in modules.get(module.__name__, {}).items():
            full = "%s.%s is not in %s %s" % (
                *(module.__name__, name, row["title"]),
                getattr(sys.modules.get(library), "__version__", "as it is installed"),
            )
            texts[name] = "%s: %s" % (full, _sentence(row["title"], version, instead))
    missing.tell(module, {name: text for name, text in texts.items() if "." not in name})
    for path, text in texts.items():
        holder, _, last = path.rpartition(".")
        owner = getattr(module, holder, None) if holder else None
        if isinstance(owner, type) and not any(hasattr(cls, last) for cls in _family(owner)):
            with contextlib.suppress(TypeError):  # classes in C take no attributes
                setattr(owner, last, _Told(text))


def _family(cls: type) -> Iterator[type]:
    """A class and all of its subclasses, which may have from another class what it lacks."""
    yield cls
    heirs: list[type] = type.__subclasses__(cls)
    for heir in heirs:
        yield from _family(heir)


def _sentence(title: str, version: str, instead: str) -> str:
    return "%s %s had it%s" % (title, version, "; use %s" % instead if instead else "")


class _Told:
    """An attribute that is not there: AttributeError says where it was. Subclasses and objects may have their own."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        raise AttributeError(callers.message(self._text))
