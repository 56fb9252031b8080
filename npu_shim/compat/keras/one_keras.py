"""One Keras, whatever path a script imports it by: `tensorflow.python.keras` and `keras` mean what `tf.keras` is.

In TensorFlow 1.15 they are one package. In TensorFlow 2 `tensorflow.python.keras` is a separate copy: a session that is
set in one does not reach the other's models, nor does the precision mode; and `keras` has TensorFlow 2's names. Here
each of their modules is a face, which takes its names from the one installed Keras 2.

The rows are in names.json:

    keras        module -> modules to look in, in this order; "api." is tf.keras, "src." what lies behind it.
                 A module without a row is looked for in both. What it lacks may be in its package.
    keras_names  module.name -> what it means, or "!" and what to use instead; "*" stands for any module
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import os
import sys
import types
from typing import Any, Iterable, Iterator, Mapping

from npu_shim.compat import after_215, callers
from npu_shim.compat.keras import keras_classes, real_keras
from npu_shim.compat.names import exports, missing, names
from npu_shim.rewriter.errors import closest

TF_KERAS = "2.2.4-tf"  # tf.keras.__version__ in TensorFlow 1.15
# root -> what stays below it: what TensorFlow's own modules subclass, and what the faces look in
ROOTS = {
    "tensorflow.python.keras": ("legacy_tf_layers", "layers.legacy_rnn", "optimizer_v2.legacy_learning_rate_decay"),
    "keras": ("src", "api", "_tf_keras", "protobuf", "__internal__", "version"),
}

# what is public -> the modules whose own classes are TensorFlow 2's copies of it
_LAYERS = ("base", "convolutional", "core", "layers", "normalization", "pooling")
_SUBCLASSES = {
    "tf.layers": tuple("tensorflow.python.layers." + name for name in _LAYERS),
    "src.layers.rnn.legacy_cells": ("tensorflow.python.ops.rnn_cell_impl", "tensorflow.python.ops.rnn_cell"),
}


# the packages that TensorFlow 1.15 installed beside itself -> their modules, which lie in Keras
_PARTS = {
    "applications": keras_classes.APPLICATIONS,
    "preprocessing": ("image", "sequence", "text"),
}

# modules of tf.keras that are gone
_LOST_MODULES = ("mixed_precision.experimental", "wrappers", "wrappers.scikit_learn")

# what TensorFlow's lazy loaders import `keras` for, each when it is first asked
_LAZY = ("tf.keras.layers", "tf.layers.Dense", "tf.nn.rnn_cell.RNNCell", "tf.compat.v2.keras.layers")


def install() -> None:
    """Makes both roots faces of tf.keras; without a Keras 2, or when called again, it does nothing."""
    if names.tensorflow_1() or package() is None or any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    _one_class_each()
    folders = {root: os.path.dirname(str(exports.file_of(root))) for root in _roots() if exports.file_of(root)}
    for name in [name for name in sys.modules if _path(name) is not None]:
        del sys.modules[name]
    sys.meta_path.insert(0, _Finder(folders))
    patches = {_full(name): patch for name, patch in keras_classes.PATCHES.items()}
    lost = _lost_names()
    missing.when_loaded(dict.fromkeys({*patches, *lost}, functools.partial(_patch_module, patches, lost)))
    sys.meta_path.append(missing.Finder(_parts()))
    public = importlib.import_module(_full("api"))
    vars(public).setdefault("__version__", TF_KERAS)
    private: Any = sys.modules["tensorflow.python"]
    private.keras = importlib.import_module("tensorflow.python.keras")


def _roots() -> dict[str, tuple[str, ...]]:
    """Those of ROOTS that are faces: not a package keras of TensorFlow 1's time, which is itself."""
    return {root: kept for root, kept in ROOTS.items() if root != real_keras.ROOT or real_keras.version() is None}


def _parts() -> dict[str, str]:
    """{module of a package of `_PARTS`, or of tf.keras as it was: where it is}."""
    modules = {name: [name, *(name + "." + last for last in lasts)] for name, lasts in _PARTS.items()}
    parts = {"keras_" + path: "tensorflow.python.keras." + path for paths in modules.values() for path in paths}
    return {**parts, **{"tensorflow.keras." + path: "tensorflow.python.keras." + path for path in _LOST_MODULES}}


def make_room() -> None:
    """Loads TensorFlow's Keras where `keras` is the script's own: what TensorFlow imports later is not the script's."""
    for finder in sys.meta_path:
        if isinstance(finder, _Finder) and finder.is_scripts_own():
            finder.load_parts()


def _lost_names() -> dict[str, dict[str, str]]:
    """{module of tf.keras: {name that is gone: its path below the root}}, of all rows of the table that are names."""
    lost: dict[str, dict[str, str]] = {}
    for path in (*_LOST_MODULES, *names.table()["keras_names"]):
        above, _, name = path.rpartition(".")
        module = _full("api." + above if above else "api")
        if exports.file_of(module):
            lost.setdefault(module, {})[name] = path
    return lost


def _patch_module(patches: Mapping[str, Any], lost: Mapping[str, Mapping[str, str]], module: Any) -> None:
    name = module.__name__
    if name in lost:
        missing.answer(module, lost[name], load=_load_lost)
    if name in patches:
        patches[name](module)


def _load_lost(path: str) -> Any:
    row = names.table()["keras_names"].get(path)
    if row is None:
        return importlib.import_module("tensorflow.python.keras." + path)
    return of_row("tf.keras." + path, row)


def of_row(name: str, row: str) -> Any:
    """What a row of the table means; AttributeError, or ImportError of a `from`, with its sentence if it is gone."""
    if row.startswith("!"):
        error = ImportError if callers.imports_a_name() else AttributeError
        raise error(callers.message("%s is not here: %s" % (name, row[1:].strip())))
    return names.load(_full(row))


def _one_class_each() -> None:
    """Gives the modules that subclass the copy the classes and functions of tf.layers and tf.nn.rnn_cell."""
    for space, modules in _SUBCLASSES.items():
        public = names.load(_full(space))
        for name in filter(exports.file_of, modules):
            module = importlib.import_module(name)
            for own, value in list(vars(module).items()):  # Convolution2D is Conv2D by its own name
                one = getattr(public, str(getattr(value, "__name__", own)), None)
                if one is not None and not own.startswith("__"):
                    setattr(module, own, one)


@functools.lru_cache(maxsize=None)
def package() -> str | None:
    """Name of the package that tf.keras lies in, "keras" or "tf_keras"; None where it is not Keras 2."""
    api = after_215.MOVED.get("tensorflow.keras") or names.home(names.V1 + ".keras")
    return api.split(".")[0] if "._v1." in api and exports.file_of(api) else None


def _path(fullname: str) -> str | None:
    """The path below the root of a module that we provide ("" for the root itself), or None."""
    for root, kept in _roots().items():
        if (fullname + ".").startswith(root + "."):
            path = fullname[len(root) + 1 :]
            return None if any((path + ".").startswith(name + ".") for name in kept) else path
    return None


def _full(target: str) -> str:
    """A target of the table as a dotted Python name."""
    top, _, rest = target.partition(".")
    home = {"api": "%s.api._v1.keras" % package(), "src": "%s.src" % package()}.get(top)
    return target if home is None else home + (rest and "." + rest)


def sources(path: str) -> tuple[str, ...]:
    """The modules, as dotted names, in which the names of a module of Keras are looked for, in order; () for none."""
    if (path + ".").startswith("_impl.keras."):  # where it was until TensorFlow 1.5
        path = path[len("_impl.keras.") :]
    row = names.table()["keras"].get(path)
    own = row.split() if row is not None else ["api." + path, "src." + path] if path else ["api", "src"]
    return tuple(name for name in map(_full, own) if exports.file_of(name))


def _own(module: Any, name: str) -> bool:
    """Whether `from module import *` gives a name: not TensorFlow 2, which today's modules of Keras import as `tf`."""
    value = getattr(module, name, None)
    foreign = isinstance(value, types.ModuleType) and not value.__name__.startswith(module.__name__.split(".")[0])
    return not name.startswith("_") and not foreign


def _below(path: str, name: str) -> str:
    return path + "." + name if path else name


class Face(types.ModuleType):
    """A module of Keras under an old path; names are looked up at use, and assigned in the module that defines them."""

    def __init__(self, fullname: str, path: str, folders: list[str]) -> None:
        super().__init__(fullname)
        self.__path__ = folders
        self.__dict__["_path"] = path
        self.__dict__["_sources"] = sources(path)

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            return sorted({n for module in self._modules() for n in dir(module) if _own(module, n)})
        if name == "__version__" and not self._path:  # TensorFlow, too, asks for it
            return importlib.import_module(_full("src")).__version__
        if name.startswith("__"):
            raise AttributeError(name)
        if self.__name__.split(".")[0] == real_keras.ROOT and callers.by_script():
            real_keras.tell_of_face()
        value = self._find(name)
        self.__dict__[name] = value
        return value

    def _find(self, name: str) -> Any:
        rows, inner = names.table()["keras_names"], _below(self._path, name)
        if inner in rows:
            return of_row(self.__name__ + "." + name, rows[inner])
        entry = _first_value(self._modules(), name)
        if sources(inner) and (entry is None or isinstance(entry[0], types.ModuleType)):
            return importlib.import_module(self.__name__ + "." + name)
        if entry is None and "*." + name in rows:
            return of_row(self.__name__ + "." + name, rows["*." + name])
        entry = entry or _first_value(_enclosing_modules(self._path), name)
        if entry is None:
            raise AttributeError(callers.message(_without(self, name)))
        return entry[0]

    def _modules(self) -> list[Any]:
        return [importlib.import_module(source) for source in self._sources]

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if not name.startswith("__") and not isinstance(value, types.ModuleType):
            for module in self._modules():
                if hasattr(module, name):
                    setattr(module, name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__all__})


def _without(face: Any, name: str) -> str:
    inner = _below(face._path, name)
    row = names.table()["keras_names"].get(inner) or names.table()["moved"].get("tensorflow.python.keras." + inner, "")
    if row.startswith("!"):
        return "%s.%s is not here: %s" % (face.__name__, name, row[1:].strip())
    rows = [row.rpartition(".")[2] for row in names.table()["keras"] if row.rpartition(".")[0] == face._path]
    near = closest(name, [*face.__all__, *rows])
    return "%s.%s is not here%s" % (face.__name__, name, " (did you mean '%s'?)" % near if near else "")


def _first_value(modules: Iterable[Any], name: str) -> tuple[Any] | None:
    """(value,) of the first module that has the name, or None."""
    return next(((getattr(module, name),) for module in modules if hasattr(module, name)), None)


def _enclosing_modules(path: str) -> Iterator[Any]:
    """The modules of the packages around a module: "layers.merge" has what "layers" has."""
    while "." in path:
        path = path.rpartition(".")[0]
        yield from map(importlib.import_module, sources(path))


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, folders: Mapping[str, Any]) -> None:
        self._folders = folders

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        inner = _path(fullname)
        if inner is None or (fullname.split(".")[0] == "keras" and self._scripts_own(fullname)):
            return None
        if inner and not sources(inner):
            if callers.imports_by_call():
                return None  # whose names are tried only
            above, _, last = fullname.rpartition(".")
            raise ImportError(callers.message(_without(importlib.import_module(above), last)), name=fullname)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def _scripts_own(self, fullname: str) -> bool:
        """Whether `keras` is a folder or file of the script, which goes before an installed one, as in plain Python."""
        if "." in fullname:
            return not isinstance(sys.modules.get("keras"), Face)
        if not self.is_scripts_own():
            return False
        self.load_parts()
        return True

    def is_scripts_own(self) -> bool:
        """Whether Python finds another `keras` than the installed one, which is a face."""
        if "keras" not in _roots():
            return False
        spec = importlib.machinery.PathFinder.find_spec("keras")
        folders = [] if spec is None else spec.submodule_search_locations or [str(spec.origin)]
        return spec is not None and self._folders.get("keras") not in folders

    def load_parts(self) -> None:
        """Loads what TensorFlow has of Keras while the name `keras` is Keras's; then the name is free."""
        sys.modules["keras"] = Face("keras", "", [self._folders["keras"]] if "keras" in self._folders else [])
        for part in ("api", "src", *_LAZY):  # tf.keras and the others load when they are first asked
            names.load(_full(part))
        del sys.modules["keras"]

    def create_module(self, spec: Any) -> Any:
        root = next(root for root in _roots() if (spec.name + ".").startswith(root + "."))
        inner = spec.name[len(root) :].split(".")[1:]
        folder = os.path.join(self._folders[root], *inner)
        return Face(spec.name, ".".join(inner), [folder])

    def exec_module(self, module: Any) -> None:
        pass
