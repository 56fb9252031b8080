"""What is published: the sdist, and for each TensorFlow a wheel with the session's hook inside.

The TensorFlow stands in the wheel's version: npu_shim-VERSION+tf215-py3-none-linux_x86_64.whl. Such a wheel needs no
compiler where it is installed. On another TensorFlow it builds its hook at first use, as an installation from source
does.
"""

import os
import re
import subprocess
import tempfile
from typing import Dict, List

import tiers

DIST = tiers.ROOT / "dist"
# the extra that brings a user the TensorFlow of a wheel, without CUDA
EXTRAS = {"1.15": "tf115", "2.15": "cpu", "2.21": "cpu-tf221"}
BUILD = """
import sys
from npu_shim.session.native import build
build.build_for_wheel(sys.argv[1])
"""


def rows() -> Dict[str, tiers.Tier]:
    """Returns the tiers that wheels are made for, by minor version: "2.15" -> that of TensorFlow 2.15.1."""
    return {tier.tensorflow.rpartition(".")[0]: tier for tier in reversed(tiers.TIERS)}


def version() -> str:
    """Returns the version of this checkout, which stands in npu_shim/__init__.py alone."""
    text = (tiers.ROOT / "npu_shim" / "__init__.py").read_text(encoding="utf-8")
    match = re.search('^__version__ = "(.*)"', text, re.MULTILINE)
    assert match, "npu_shim/__init__.py has no __version__"
    return match.group(1)


def label(minor: str) -> str:
    """Returns "tf215" for "2.15"."""
    return "tf" + minor.replace(".", "")


def sdist(python: str) -> bool:
    """Writes the sdist to dist/ with a Python that has the package `build`; returns whether it could."""
    return _quietly([python, "-m", "build", "--sdist", "--outdir", str(DIST), str(tiers.ROOT)])


def wheel(minor: str, source: str) -> bool:
    """Writes the wheel for a TensorFlow to dist/, from a folder with the sources; returns whether it could."""
    tier = rows()[minor]
    trouble = tiers.install(tier)
    if trouble:
        print(trouble)
        return False
    python = str(tier.bin / "python")
    with tempfile.TemporaryDirectory() as folder:
        carried = {"NPU_SHIM_WHEEL": folder, "NPU_SHIM_LABEL": label(minor)}
        pip = [python, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", str(DIST), source]
        return _quietly([python, "-c", BUILD, folder]) and _quietly(pip, **carried)


def _quietly(command: List[str], **variables: str) -> bool:
    """Runs a command, prints what it says if it fails, and returns whether it did not."""
    env = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", **variables)
    done = subprocess.run(
        command, cwd=str(tiers.ROOT), env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode:
        print(done.stdout.decode("utf-8", "replace"))
    return not done.returncode
