"""Installs npu_shim, npu_bridge and hccl, and builds the Grappler hook when TensorFlow is already there.

The folders of this repository and the import names differ on purpose: `rewriter/` and `configs/` become
`npu_shim.rewriter` and `npu_shim.configs`, because many training repositories have a top-level `configs` of their own.
"""

import os
import runpy
import sys

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDERS = {
    "npu_shim": "npu_shim",
    "npu_shim.rewriter": "rewriter",
    "npu_shim.configs": "configs",
    "npu_bridge": os.path.join("npu_shim", "bridge"),
    "hccl": os.path.join("npu_shim", "hccl"),
}


def packages():
    """Every Python package below the folders above, by its import name."""
    found = {}
    for name, folder in FOLDERS.items():
        for path, folders, files in os.walk(os.path.join(HERE, folder)):
            folders[:] = [f for f in folders if f != "__pycache__" and (name, f) not in OWN_NAMES]
            if "__init__.py" in files:
                inner = os.path.relpath(path, os.path.join(HERE, folder)).replace(os.sep, ".")
                found[name if inner == "." else name + "." + inner] = os.path.relpath(path, HERE)
    return found


# these folders lie inside npu_shim but are installed under their own names only
OWN_NAMES = {("npu_shim", "bridge"), ("npu_shim", "hccl")}


class BuildWithHook(build_py):
    """Builds the hook into its cache after the Python files; without TensorFlow it is built at first use instead."""

    def run(self):
        """Runs the ordinary build, then tries the hook, and says in one line why when it cannot be built now."""
        super().run()
        try:
            build = runpy.run_path(os.path.join(HERE, "npu_shim", "native", "build.py"))
            print("npu_shim: hook built: %s" % build["build"]())
        except Exception as reason:  # no TensorFlow in an isolated build: the first use builds it
            print("npu_shim: hook not built now, the first use will build it (%s)" % reason, file=sys.stderr)


PACKAGES = packages()
setup(
    packages=sorted(PACKAGES),
    package_dir=PACKAGES,
    package_data={"npu_shim.native": ["*.cc"], "npu_shim.compat": ["*.json"], "npu_shim.configs": ["*.json", "*/*.json"]},
    cmdclass={"build_py": BuildWithHook},
)
