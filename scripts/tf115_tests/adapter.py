"""What TensorFlow 1.15's test files import that no TensorFlow installs: helpers in their tree, and `portpicker`.

Nothing here changes what a method tests.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import socket
import sys
import types

from tree import HELPERS

PACKAGES = ("tensorflow.contrib.graph_editor.tests",)


def install(folder):
    """Gives the files `portpicker`, and the helpers that lie in `folder`, the tree."""
    sys.meta_path.insert(0, _Helpers(folder))
    if importlib.util.find_spec("portpicker") is None:
        module = types.ModuleType("portpicker")
        module.pick_unused_port = pick_unused_port
        sys.modules["portpicker"] = module


class _Helpers(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, folder):
        self._files = {path[:-3].replace("/", "."): os.path.join(folder, path) for path in HELPERS}

    def find_spec(self, fullname, path=None, target=None):
        if fullname in PACKAGES:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        file = self._files.get(fullname)
        return file and importlib.util.spec_from_file_location(fullname, file)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        pass


def pick_unused_port():
    """A TCP port of this machine that nothing listens on."""
    with socket.socket() as listening:
        listening.bind(("", 0))
        return listening.getsockname()[1]
