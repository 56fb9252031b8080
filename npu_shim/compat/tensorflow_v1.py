"""Makes `import tensorflow` mean TensorFlow 1's API, with TensorFlow 2's behaviour off.

Real subpackages (`tensorflow.python`, `tensorflow.core`, ...) import as usual; names of the v1 API import as modules
too (`import tensorflow.keras.layers`). On TensorFlow 1 there is nothing to do.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import logging
import os
import sys
import types
from typing import Any

from npu_shim.compat import after_215, callers, quiet
from npu_shim.compat.behaviour import arguments, debug_hooks
from npu_shim.compat.keras import one_keras, real_keras
from npu_shim.compat.names import core_alias, faces, moved, names
from npu_shim.compat.python import pins
from npu_shim.configs import extras
from npu_shim.rewriter import tf_internals

V1 = "tensorflow.compat.v1"


def install() -> None:
    """Replaces the module `tensorflow` for every import from now on; a second call does nothing.

    Raises:
        ImportError: no TensorFlow is installed; the message says how to install one.
    """
    real = import_tensorflow()
    if isinstance(real, Facade) or real.__version__.startswith("1."):
        return
    v1 = importlib.import_module(V1)
    logger = logging.getLogger("tensorflow")
    level = logger.level  # its own, not what it has from the root logger
    logger.setLevel(logging.ERROR)  # it warns that what follows is deprecated
    v1.disable_v2_behavior()
    logger.setLevel(level)
    sys.modules["tensorflow"] = facade = Facade(real, v1)
    sys.meta_path.insert(0, _V1Modules(real))
    # they import TensorFlow
    from npu_shim.compat.behaviour import (
        arrays,
        casts,
        dimensions,
        feature_columns,
        function_results,
        inferred,
        kernel_labels,
        members,
        remapper,
        strategies,
        tensors,
        versions,
    )

    v2 = importlib.import_module("tensorflow.compat.v2")
    for module in (v1, v1.version, v2, v2.version, tf_internals.python_module("framework.versions")):
        versions.tell(module, module)
    for name, module in (("", v1), (".compat.v1", v1), (".compat.v2", v2)):
        sys.modules["tensorflow%s.version" % name] = module.version  # import would make another of the same file
    versions.tell(facade, v1)
    tensors.install()
    moved.install()
    dimensions.install()
    inferred.install()
    kernel_labels.install()
    arrays.install()
    casts.install()
    function_results.install()
    members.install()
    strategies.install()
    feature_columns.install()
    arguments.install(v1, arguments.TENSORFLOW)
    arguments.install_numbers(v1, dimensions.whole)
    arguments.install_shapes(v1)
    one_keras.install()
    core_alias.install()
    debug_hooks.install()
    remapper.install()


def import_tensorflow() -> Any:
    """Returns the module `tensorflow`.

    Raises:
        ImportError: none is installed; the message has the remedy.
        ConfigError: an old package keras has replaced the one that it needs, or NumPy is 2 where it takes 1; the
            message has the remedy.
    """
    real_keras.choose()
    pins.require_numpy()
    try:
        with quiet.loading():
            import tensorflow as tf
    except ImportError as reason:
        raise without_tensorflow(reason) from reason
    real_keras.require(tf.__version__)
    pins.refuse(tf.__version__)
    after_215.restore(importlib.import_module(V1))
    return tf


def without_tensorflow(reason: ImportError) -> ImportError:
    """Returns the error, with its remedy, for an ImportError of TensorFlow itself."""
    return ImportError(
        "npu_shim: TensorFlow cannot be imported (%s); install one with: %s (CUDA) or %s"
        % (reason, extras.pip_install("gpu"), extras.pip_install("cpu"))
    )


class Facade(types.ModuleType):
    """The module that `import tensorflow` gives: the v1 API first, the real package's submodules behind it."""

    def __init__(self, real: Any, v1: Any) -> None:
        super().__init__("tensorflow", real.__doc__)
        self.__dict__.update({name: getattr(real, name) for name in ("__file__", "__path__", "__spec__", "__loader__")})
        self.__package__ = "tensorflow"
        self.__dict__["_real"] = real
        self.__dict__["_v1"] = v1

    def __getattr__(self, name):
        if name == "contrib":
            return importlib.import_module(names.CONTRIB)
        # v1's own `compat.v1` is a poorer copy of itself
        for module in (self._real,) if name == "compat" else (self._v1, self._real):
            try:
                return getattr(module, name)
            except AttributeError:
                continue
        target = names.moved("tensorflow." + name)
        if target and not target.startswith("!"):
            return names.load(target)
        raise AttributeError(callers.message(names.explain("tensorflow." + name)))

    def __dir__(self):
        return sorted(set(dir(self._v1)) | {"core", "python"})


class _V1Modules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `tensorflow.NAME...` in the v1 API and in the table where the real package has no such folder."""

    def __init__(self, real):
        # the package's own folder: the others on its path hold TensorFlow 2's API
        self._folder = os.path.dirname(real.__file__)

    def find_spec(self, fullname, path=None, target=None):
        if not fullname.startswith("tensorflow."):
            return None
        origin = _contrib(fullname) if (fullname + ".").startswith(names.CONTRIB + ".") else self._module(fullname)
        if origin is None:
            return None
        spec = importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        spec.loader_state = origin
        return spec

    def _module(self, fullname):
        top = fullname.split(".")[1]
        v1 = names.V1 + fullname[len("tensorflow") :]
        home = names.home(v1)
        for prefix, place in after_215.MOVED.items():
            if (fullname + ".").startswith(prefix + "."):
                home = place + fullname[len(prefix) :]
        own = home != v1
        real = top == "compat" or any(os.path.exists(os.path.join(self._folder, top + end)) for end in ("", ".py"))
        if real and not own:
            return None
        try:
            return importlib.import_module(home)
        except ImportError:
            return None

    def exec_module(self, module):
        # the import system hands out what stands in sys.modules after this call
        sys.modules[module.__spec__.name] = module.__spec__.loader_state


def _contrib(fullname):
    face = faces.find(fullname[len(names.CONTRIB) + 1 :])
    if face is None and names.resolve(fullname) is None:
        raise ImportError(callers.message(names.explain(fullname)), name=fullname)
    return face
