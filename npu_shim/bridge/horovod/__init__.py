"""`horovod` for scripts that run where Horovod is not installed: a face over our collectives.

`npu-shim run` and `launch` install it; where Horovod itself is installed, scripts get that. The modules are
`horovod.tensorflow`, `horovod.keras` and `horovod.tensorflow.keras`. Source: Horovod 0.28's documentation and the
signatures of 0.19 (the last that names TensorFlow 1.15 as tested) to 0.28.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from typing import Any

ROOT = "horovod"
VERSION = "0.28.1"  # the last release, which `horovod.__version__` names
# module that a script imports -> ours
FACES = {
    "horovod.tensorflow": "npu_shim.bridge.horovod.tensorflow",
    "horovod.keras": "npu_shim.bridge.horovod.keras",
    "horovod.keras.callbacks": "npu_shim.bridge.horovod.callbacks",
    "horovod.tensorflow.keras": "npu_shim.bridge.horovod.tensorflow_keras",
    "horovod.tensorflow.keras.callbacks": "npu_shim.bridge.horovod.callbacks",
    "horovod.tensorflow.compression": "npu_shim.bridge.horovod.compression",
    "horovod.tensorflow.functions": "npu_shim.bridge.horovod.tensorflow",
    "horovod.tensorflow.mpi_ops": "npu_shim.bridge.horovod.tensorflow",
}
REFUSED = {
    "elastic": "a job here has as many workers from beginning to end",
    "torch": "it is for PyTorch",
    "mxnet": "it is for MXNet",
    "spark": "start the workers with npu-shim launch",
    "ray": "start the workers with npu-shim launch",
    "run": "start the workers with npu-shim launch",
}


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds FACES, and names what is not here."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """Returns the spec of a module of Horovod, or None for another module.

        Raises:
            ImportError: a module of Horovod that is not here, with what to do instead.
        """
        if fullname.partition(".")[0] != ROOT:
            return None
        if fullname != ROOT and fullname not in FACES:
            why = REFUSED.get(fullname.rpartition(".")[2], "npu_shim has %s" % ", ".join(sorted(FACES)))
            raise ImportError("npu_shim: %s is not here: %s; or install Horovod" % (fullname, why), name=fullname)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: Any) -> Any:
        """Returns a module of its own for `horovod`, a copy of our face's names for the others."""
        module = types.ModuleType(spec.name)
        if spec.name in FACES:
            face = importlib.import_module(FACES[spec.name])
            shown = {name: value for name, value in vars(face).items() if not name.startswith("__")}
            if hasattr(face, "__getattr__"):
                shown["__getattr__"] = face.__getattr__
            vars(module).update(shown, __doc__=face.__doc__)
        else:
            vars(module).update(__version__=VERSION)
        return module

    def exec_module(self, module: Any) -> None:
        """Does nothing: the module is as `create_module` made it."""


def install() -> None:
    """Makes Horovod's modules importable where they are not; a second call does nothing."""
    if any(isinstance(finder, Finder) for finder in sys.meta_path) or importlib.util.find_spec(ROOT) is not None:
        return
    sys.meta_path.append(Finder())  # last: a folder of the script's own goes before
