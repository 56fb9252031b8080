"""Restores lost names of modules and lost modules, and patches modules as they are loaded."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import warnings
from typing import Any, Callable, Mapping, Sequence

from npu_shim.compat import callers


def load(target: str) -> Any:
    """The module or object of a dotted name; "threading.Thread.is_alive" is of a class."""
    above, _, name = target.rpartition(".")
    if not above:
        return importlib.import_module(target)
    try:
        owner = importlib.import_module(above)
    except ModuleNotFoundError as reason:
        if "." not in above or not (above + ".").startswith("%s." % reason.name):
            raise
        owner = load(above)
    return getattr(owner, name)


def answer(
    module: Any,
    targets: Mapping[str, str],
    used: Callable[[str], None] | None = None,
    load: Callable[[str], Any] = load,
    others: Sequence[str] = (),
) -> None:
    """Makes a module resolve names that it lacks; its own names, and its own `__getattr__`, take precedence.

    Args:
        module: the module.
        targets: dict of name -> the dotted name that it means.
        used: function that is called with the full name at its first use, or None.
        load: function that gives what a dotted name means.
        others: dotted names of modules all of whose names it has as well.
    """
    before = module.__dict__.get("__getattr__")

    def own(name: str) -> Any:
        if before is None:
            raise AttributeError("module '%s' has no attribute '%s'" % (module.__name__, name))
        return before(name)

    def __getattr__(name: str) -> Any:
        if name not in targets and (name.startswith("__") or not others):
            return own(name)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # NumPy 1.24 says that np.bool will come again
                return own(name)
        except (AttributeError, ImportError):
            pass
        value = load(targets[name]) if name in targets else _first(module, others, name)
        setattr(module, name, value)  # this was the first use
        if used:
            used(module.__name__ + "." + name)
        return value

    module.__getattr__ = __getattr__


def tell(module: Any, texts: Mapping[str, str]) -> None:
    """Makes a module say what became of names that it lacks, where its own error does not.

    Args:
        module: the module.
        texts: dict of name -> the text of the AttributeError, or of the ImportError of `from module import name`.
    """
    before = module.__dict__.get("__getattr__")

    def __getattr__(name: str) -> Any:
        try:
            if before is not None:
                return before(name)
        except AttributeError:
            pass
        if name not in texts:
            raise AttributeError("module '%s' has no attribute '%s'" % (module.__name__, name))
        error = ImportError if callers.imports_a_name() else AttributeError
        raise error(callers.message(texts[name]))

    if texts:
        module.__getattr__ = __getattr__


def _first(module: Any, others: Sequence[str], name: str) -> Any:
    for other in others:
        try:
            return getattr(importlib.import_module(other), name)
        except (AttributeError, ImportError):
            continue
    raise AttributeError("module '%s' has no attribute '%s'" % (module.__name__, name))


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds lost modules, after every other finder has failed.

    Args:
        targets: dict of module -> its substitute, or "!" and a sentence that says why there is none.
        used: function that is called with the name of each module that is imported this way, or None.
    """

    def __init__(self, targets: Mapping[str, str], used: Callable[[str], None] | None = None) -> None:
        self.targets = targets
        self.used = used

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """The spec of a lost module, or None."""
        if fullname not in self.targets:
            return None
        target = self.targets[fullname]
        if target.startswith("!"):
            text = "%s is not here: %s" % (fullname, target[1:].strip())
            raise ModuleNotFoundError(callers.message(text), name=fullname)
        if self.used:
            self.used(fullname)
        return importlib.machinery.ModuleSpec(fullname, self)

    def exec_module(self, module: Any) -> None:
        """Puts the substitute where the import system looks for the module after this call."""
        name = module.__spec__.name
        sys.modules[name] = importlib.import_module(self.targets[name])


def when_loaded(patches: Mapping[str, Callable[[Any], None]]) -> None:
    """Calls a function with a module once the module is loaded, at once for loaded modules.

    Args:
        patches: dict of a module's name -> function of the module.
    """
    sys.meta_path.insert(0, _Patcher(patches))
    for name in sorted(set(patches) & set(sys.modules)):
        patches[name](sys.modules[name])


class _Patcher(importlib.abc.MetaPathFinder):
    """Lets a module be found as usual, and patches it once it is loaded."""

    def __init__(self, patches: Mapping[str, Callable[[Any], None]]) -> None:
        self._patches = patches

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname not in self._patches:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._patches[fullname])
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: Any, patch: Callable[[Any], None]) -> None:
        self._loader = loader
        self._patch = patch

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        # its files are asked of its own loader
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._patch(module)
