"""The package `keras` of TensorFlow 1's time, 2.0 to 2.3, where it is installed: scripts get it, not a face of ours.

It is written in Python on TensorFlow 1's API, which `npu-shim run` offers. TensorFlow 2 needs another Keras for itself,
the package tf_keras, and decides by an environment variable, when it is imported, which one tf.keras is.

What this module says of versions it reads from files.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
import os
import re
import sys
import types
from typing import Any

from npu_shim.compat import callers
from npu_shim.configs import extras
from npu_shim.rewriter.errors import ConfigError

LOG = logging.getLogger("npu_shim")
ROOT = "keras"
SUCCESSOR = (2, 4)  # from this version on the package keras is tf.keras
EXTRA_VERSION = "2.3.1"  # what the extra keras1 installs
LEGACY = "TF_USE_LEGACY_KERAS"  # environment variable of TensorFlow: 1 makes tf.keras the package tf_keras
LAST_WITH_KERAS_2 = "2.15"  # TensorFlows after it have Keras 3
# module that an old Keras imports -> the package that it is in
NEEDS = {
    "yaml": "pyyaml", "scipy": "scipy", "six": "six", "keras_applications": "keras-applications==1.0.8",
    "keras_preprocessing": "keras-preprocessing==1.1.2",
}  # fmt: skip
_late: list[str] = []  # what had been imported when `choose` was first called
_VERSION = re.compile(r"""^__version__ = ["'](\d+)\.(\d+)([\w.-]*)["']""", re.MULTILINE)


def version() -> str | None:
    """Version of the installed package keras, such as "2.3.1", if it is one of TensorFlow 1's time; else None."""
    return _version_in(_installed(ROOT))


@functools.lru_cache(maxsize=None)
def _version_in(file: str | None) -> str | None:
    if file is None:
        return None
    with open(file, encoding="utf-8", errors="replace") as f:
        line = _VERSION.search(f.read())
    if line is None or (int(line.group(1)), int(line.group(2))) >= SUCCESSOR:
        return None
    return "%s.%s%s" % line.groups()


def _installed(name: str) -> str | None:
    """The `__init__.py` of an installed package, not of a folder of the script's, or None."""
    return _file_in(tuple(sys.path), name)


@functools.lru_cache(maxsize=None)
def _file_in(folders: tuple[str, ...], name: str) -> str | None:
    installed = [folder for folder in folders if callers.INSTALLED.intersection(str(folder).split(os.sep))]
    files = [os.path.join(folder, name, "__init__.py") for folder in installed]
    return next(filter(os.path.isfile, files), None)


def _version_3() -> str | None:
    """Version of the installed package keras if it is Keras 3, else None."""
    file = _installed(ROOT)
    if file is None:
        return None
    inner = os.path.join(os.path.dirname(file), "src", "version.py")
    if not os.path.exists(inner):
        return None
    with open(inner, encoding="utf-8", errors="replace") as f:
        line = _VERSION.search(f.read())
    return None if line is None or line.group(1) != "3" else "%s.%s%s" % line.groups()


def _is_chosen() -> bool:
    """Whether a TensorFlow that is imported now takes tf_keras."""
    return os.environ.get(LEGACY) in ("1", "true", "True") and _installed("tf_keras") is not None


def choose() -> None:
    """Lets a TensorFlow that is imported after this call use tf_keras where an old package keras stands beside it."""
    if version() is not None and _installed("tf_keras") is not None and not _is_chosen():
        _late.extend(["tensorflow"] if "tensorflow" in sys.modules else [])
        os.environ[LEGACY] = "1"


def require(tensorflow: str) -> None:
    """Looks at the installed package keras.

    Logs, once, which packages an old one lacks.

    Args:
        tensorflow: version of the installed TensorFlow.

    Raises:
        ConfigError: a package keras that TensorFlow cannot use has replaced its own, or TensorFlow was imported before
            `choose`; the message has what mends it.
    """
    series = ".".join(tensorflow.split(".")[:2])
    if tensorflow.startswith("1."):
        return
    old, new = version(), _version_3()
    if old is not None and _late:
        raise ConfigError(
            "TensorFlow %s was imported before npu_shim, and took keras %s for its own: use npu-shim run, or import "
            "npu_shim before tensorflow, or set %s=1" % (tensorflow, old, LEGACY)
        )
    if old is not None and _installed("tf_keras") is None:
        text = "%s. Scripts keep keras %s with: pip install --no-deps 'tf_keras==%s.*'; without it: %s"
        raise ConfigError(text % (_replaced(old, tensorflow), old, series, _install(series)))
    if new is not None and series == LAST_WITH_KERAS_2 and not _is_chosen():
        raise ConfigError("%s: %s" % (_replaced(new, tensorflow), _install(series)))
    if old is not None:
        _tell_of_lacking(old)


def _replaced(old: str, tensorflow: str) -> str:
    text = "keras %s has replaced the Keras that TensorFlow %s needs: tf.keras, tf.layers and Estimator stop"
    return text % (old, tensorflow)


def _install(series: str) -> str:
    return "pip install 'keras==%s.*'" % series


@functools.lru_cache(maxsize=None)
def _tell_of_lacking(old: str) -> None:
    lacking = [package for module, package in NEEDS.items() if importlib.util.find_spec(module) is None]
    if lacking:
        text = "npu_shim: import keras needs packages that are not installed beside keras %s: pip install --no-deps %s"
        LOG.warning(text, old, " ".join(lacking))


def is_its_own(frame: types.FrameType) -> bool:
    """Whether a frame is of the package keras of TensorFlow 1's time."""
    return version() is not None and str(frame.f_globals.get("__name__")).split(".")[0] == ROOT


def backend() -> Any:
    """The backend of the Keras that scripts import as `keras`: its session holds their models."""
    return _module("backend")


def models() -> Any:
    """The module `models` of the Keras that scripts import as `keras`."""
    return _module("models")


def _module(name: str) -> Any:
    if version() is not None:
        return importlib.import_module("%s.%s" % (ROOT, name))
    import tensorflow.compat.v1 as tf

    return getattr(tf.keras, name)


@functools.lru_cache(maxsize=None)
def tell_of_face() -> None:
    """Logs, once, whose numbers a script gets that imports `keras` where that is tf.keras by another name."""
    LOG.warning(
        "%s",
        callers.message(
            "keras is tf.keras here, with its numbers: an optimizer given by name has the learning rate 0.001 "
            "(adadelta has 1.0 in Keras %s, adagrad 0.01, adamax and nadam 0.002), LSTM and GRU have "
            "hard_sigmoid (sigmoid), and BatchNormalization, UpSampling2D, hinge, weighted losses, "
            "ImageDataGenerator and names of layers differ. "
            "Keras %s itself, on TensorFlow 2.15: %s" % (EXTRA_VERSION, EXTRA_VERSION, extras.pip_install("keras1"))
        ),
    )


def face_is_used() -> bool:
    """Whether a script has taken something from `keras` where that is tf.keras by another name."""
    return tell_of_face.cache_info().currsize > 0


def describe() -> str:
    """What `import keras` gives a script of `npu-shim run`, in words."""
    old = version()
    if old is not None:
        return "%s, of TensorFlow 1's time" % old
    return "tf.keras by another name; Keras %s itself: %s" % (EXTRA_VERSION, extras.pip_install("keras1"))
