"""Installed packages in versions that TensorFlow 2 cannot use: libraries of TensorFlow 1's time pin such.

`npu-shim doctor` and `npu-shim scan` print a line for each, with the command that mends it; `npu-shim
run` logs the line of gast, and importing a package whose row says so is an error with it, where it would stop with
another that names neither. Versions are read from
what pip has installed; nothing is imported for it.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import logging
import re
import sys
from typing import Any, NamedTuple

from npu_shim.compat import callers
from npu_shim.rewriter.errors import ConfigError

LOG = logging.getLogger("npu_shim")


class Pin(NamedTuple):
    """A package of which versions below `below` do not work; `module`: it stops where this is imported, or ""."""

    package: str
    below: tuple[int, ...]
    breaks: str
    mends: str
    module: str = ""


# TensorFlow's series -> what it needs in no earlier version and does not say, or not well enough
PINS = {
    "2.15": [
        Pin(
            "tensorflow-probability",
            (0, 23),
            "importing it stops with 'Arg specs do not match'",
            "tensorflow-probability==0.23.0",
            "tensorflow_probability",
        ),
    ],
}
ALWAYS = [
    Pin(
        "gast",
        (0, 3),
        "AutoGraph reads no 'if' and no loop in a tf.function, whose error says that a tensor is no Python bool",
        "gast>=0.4",
    ),
]
PACKAGES = ("tensorflow", "tensorflow-cpu", "tensorflow-intel")
_KERAS = "keras"  # what an old one breaks, and what mends it, real_keras says


def broken(tensorflow: str) -> list[str]:
    """A sentence for each installed package in a version that does not work with a TensorFlow; [] for TensorFlow 1.

    Args:
        tensorflow: version of the installed TensorFlow.
    """
    if tensorflow.startswith("1."):
        return []
    return [_sentence(pin, tensorflow) for pin in _pins(tensorflow) if _is_old(pin)]


def unmet(tensorflow: str) -> list[str]:
    """A sentence for each package that TensorFlow 2 says it needs in another version than the installed one.

    Args:
        tensorflow: version of the installed TensorFlow.
    """
    if tensorflow.startswith("1.") or importlib.util.find_spec("packaging") is None:  # TensorFlow 2 brings it
        return []
    from importlib import metadata

    package = next((name for name in PACKAGES if _version(name) is not None), None)
    told = []
    for line in (package and metadata.requires(package)) or ():
        name, wanted, present = _unmet(line)
        if wanted and name != _KERAS:
            text = "%s %s is not what TensorFlow %s needs: pip install --no-deps '%s'"
            told.append(text % (name, present, tensorflow, wanted))
    return told


def require_numpy() -> None:
    """Raises ConfigError for a NumPy 2 that the installed TensorFlow does not take; its own error names no remedy."""
    if sys.version_info < (3, 8) or (_version("numpy") or "1.").startswith("1."):  # TensorFlow 1's Python
        return
    for package in PACKAGES:
        lines = [line for line in unmet(_version(package) or "1.") if line.startswith("numpy ")]
        if lines:
            raise ConfigError(lines[0])


def refuse(tensorflow: str) -> None:
    """From now on importing a package that cannot work with a TensorFlow raises ImportError; others are logged."""
    if not tensorflow.startswith("1."):
        for pin in filter(_is_old, ALWAYS):
            _tell(_sentence(pin, tensorflow))
    pins = {} if tensorflow.startswith("1.") else {pin.module: pin for pin in _pins(tensorflow) if pin.module}
    if pins and not any(isinstance(finder, _Refusing) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Refusing(pins, tensorflow))


@functools.lru_cache(maxsize=None)
def _tell(text: str) -> None:
    LOG.warning("npu_shim: %s", text)


class _Refusing(importlib.abc.MetaPathFinder):
    def __init__(self, pins: dict[str, Pin], tensorflow: str) -> None:
        self.pins, self.tensorflow = pins, tensorflow

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        pin = self.pins.get(fullname)
        if pin is not None and _is_old(pin):
            raise ImportError(callers.message(_sentence(pin, self.tensorflow)), name=fullname)
        return None


def _pins(tensorflow: str) -> list[Pin]:
    return [*PINS.get(".".join(tensorflow.split(".")[:2]), ()), *ALWAYS]


def _sentence(pin: Pin, tensorflow: str) -> str:
    present = _version(pin.package)
    text = "%s %s does not work with TensorFlow %s: %s. pip install --no-deps '%s'"
    return text % (pin.package, present, tensorflow, pin.breaks, pin.mends)


def _is_old(pin: Pin) -> bool:
    present = _version(pin.package)
    return present is not None and tuple(map(int, re.findall(r"\d+", present)[: len(pin.below)])) < pin.below


def _version(package: str) -> str | None:
    """The installed version of a package, or None."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _unmet(line: str) -> tuple[str, str, str | None]:
    """Name, needed versions and installed one for a line of what a package requires; needs "" where it has them."""
    from packaging.requirements import Requirement

    needed = Requirement(line)
    present = _version(needed.name)
    applies = present is not None and (needed.marker is None or needed.marker.evaluate({"extra": ""}))
    if not applies or needed.specifier.contains(present or "", prereleases=True):
        return needed.name, "", present
    return needed.name, "%s%s" % (needed.name, needed.specifier), present
