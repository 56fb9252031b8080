"""Installs npu_shim, npu_bridge and hccl, and builds the Grappler hook when TensorFlow is already there.

The folders of this repository and the import names differ on purpose: `rewriter/` and `configs/` become
`npu_shim.rewriter` and `npu_shim.configs`, because many training repositories have a top-level `configs` of their own.

`scripts/build_wheels` sets NPU_SHIM_WHEEL to a folder with hooks that are built for one TensorFlow and NPU_SHIM_LABEL
to that TensorFlow's label: they go into the wheel, and the label into its version.
"""

import os
import re
import runpy
import shutil
import sys

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1
    from wheel.bdist_wheel import bdist_wheel

HERE = os.path.dirname(os.path.abspath(__file__))
WHEEL = os.environ.get("NPU_SHIM_WHEEL")
LABEL = os.environ.get("NPU_SHIM_LABEL")
FOLDERS = {
    "npu_shim": "npu_shim",
    "npu_shim.rewriter": "rewriter",
    "npu_shim.configs": "configs",
    "npu_bridge": os.path.join("npu_shim", "bridge", "npu_bridge"),
    "hccl": os.path.join("npu_shim", "bridge", "hccl"),
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
OWN_NAMES = {("npu_shim", "npu_bridge"), ("npu_shim", "hccl")}


def version():
    """The version in npu_shim/__init__.py, with the label of a wheel for one TensorFlow."""
    with open(os.path.join(HERE, "npu_shim", "__init__.py"), encoding="utf-8") as f:
        own = re.search('^__version__ = "(.*)"', f.read(), re.MULTILINE).group(1)
    return own + ("+" + LABEL if LABEL else "")


class BuildWithHook(build_py):
    """Builds the hook into its cache after the Python files; without TensorFlow it is built at first use instead."""

    def run(self):
        """Runs the ordinary build, then tries the hook, and says in one line why when it cannot be built now."""
        super().run()
        if WHEEL:
            target = os.path.join(self.build_lib, "npu_shim", "session", "native", "built")
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(WHEEL, target)
            return
        try:
            build = runpy.run_path(os.path.join(HERE, "npu_shim", "session", "native", "build.py"))
            print("npu_shim: hook built: %s" % build["build"]())
        except Exception as reason:  # no TensorFlow in an isolated build: the first use builds it
            print("npu_shim: hook not built now, the first use will build it (%s)" % reason, file=sys.stderr)


class Platform(Distribution):
    """A distribution that is for one platform when it carries hooks."""

    def has_ext_modules(self):
        """Tells setuptools so."""
        return bool(WHEEL)


class WheelWithHook(bdist_wheel):
    """A wheel that carries hooks fits any Python, but one platform only."""

    def get_tag(self):
        """Returns (python, abi, platform)."""
        tag = super().get_tag()
        return ("py3", "none", tag[2]) if WHEEL else tag


PACKAGES = packages()
setup(
    version=version(),
    license="Apache-2.0",
    packages=sorted(PACKAGES),
    package_dir=PACKAGES,
    # the table below says what goes in: by the manifest setuptools takes folders of data for packages, and warns
    include_package_data=False,
    package_data={
        "npu_shim": ["py.typed"],
        "npu_shim.session.native": ["*.cc"],
        "npu_shim.compat": ["started/sitecustomize.py"],
        "npu_shim.compat.names": ["*.json"],
        "npu_shim.compat.python": ["*.json"],
        "npu_shim.compat.scan": ["*.json"],
        "npu_shim.rewriter.page": ["page.*"],
        "npu_shim.configs": ["*.json", "*/*.json"],
    },
    distclass=Platform,
    cmdclass={"build_py": BuildWithHook, "bdist_wheel": WheelWithHook},
)
