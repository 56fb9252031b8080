"""`tensorflow_core`, as 1.15 called the package behind `tensorflow`: the same modules under that name."""

import importlib
import importlib.abc
import importlib.machinery
import sys

CORE = "tensorflow_core"


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `tensorflow_core.NAME` as `tensorflow.NAME`."""

    def find_spec(self, fullname, path=None, target=None):
        """The spec of a module below tensorflow_core, or None."""
        if not (fullname + ".").startswith(CORE + "."):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module):
        """Puts TensorFlow's module where the import system looks for it after this call."""
        name = module.__spec__.name
        # `tensorflow_core._api.v1` is the v1 API, which `tensorflow` shows
        inner = name[len(CORE) :].replace("._api.v1.v1", "").replace("._api.v1", "")
        sys.modules[name] = importlib.import_module("tensorflow" + inner)


def install():
    """Makes tensorflow_core importable where it is not, as in every TensorFlow but 1.15."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
