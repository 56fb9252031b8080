"""Tells scripts the version of TensorFlow whose API they find, 1.15.0, and libraries that of the one they run on.

    tf.__version__, tf.VERSION, tf.version.VERSION, tf.compat.v1.__version__, tensorflow.python.framework.versions

Scripts branch on it, and so does a Keras of that time, and what OF_THEN has. Other installed libraries, TensorFlow
itself among them, were chosen for the one that runs.
"""

from __future__ import annotations

import functools
import re
import sys
import types
from typing import Any

from npu_shim.compat import callers
from npu_shim.compat.keras import real_keras
from npu_shim.rewriter import tf_internals

SCRIPTS_VERSION = "1.15.0"  # CANN's TensorFlow 1 is this one
_COMMIT = "v1.15.0-rc3-22-g590d6ee"  # of that release
TOLD = {"__version__": SCRIPTS_VERSION, "VERSION": SCRIPTS_VERSION, "GIT_VERSION": _COMMIT, "__git_version__": _COMMIT}

# libraries that refuse TensorFlow 2, or take another way with it, though the one way that they know is TensorFlow 1's:
# package -> (its name for pip, the first version that is written for TensorFlow 2)
OF_THEN = {
    "gpt_2_simple": ("gpt-2-simple", (0, 8)),
    "privacy": ("tensorflow-privacy", (0, 3)),
    "tensorflow_privacy": ("tensorflow-privacy", (0, 3)),
}


def tell(module: Any, real: Any) -> None:
    """Makes a module of TensorFlow answer each name of TOLD by who asks.

    Args:
        module: changed in place: it gets a class of its own with a property for each name. What is set is told to all.
        real: the module that has the versions that libraries are told.
    """
    wrapper = tf_internals.python_module("util.module_wrapper")
    shown = {name: _told(name, getattr(real, name), wrapper.__file__) for name in TOLD if hasattr(real, name)}
    if isinstance(module, wrapper.TFModuleWrapper):
        _tell_through_table(module, shown)
    else:
        module.__class__ = type(type(module).__name__, (type(module),), shown)


def _tell_through_table(module: Any, shown: dict[str, property]) -> None:
    """The same for a module of TensorFlow's class, which answers from a table of what was asked before."""
    base: Any = type(module)

    class Wrapper(base):  # type: ignore[misc]
        def _fastdict_insert(self, name: str, value: Any) -> None:
            if name not in shown:
                base._fastdict_insert(self, name, value)

        def __setattr__(self, name: str, value: Any) -> None:
            if name in shown:
                shown[name].__set__(self, value)
            else:
                base.__setattr__(self, name, value)

    Wrapper.__name__ = Wrapper.__qualname__ = base.__name__
    for name, told in shown.items():
        setattr(Wrapper, name, told)
    above: Any = super(base, module)  # TensorFlow's own method hands on what is set
    above.__setattr__("__class__", Wrapper)
    for name in filter(module._fastdict_key_in, ["_fastdict_insert", *shown]):
        module._fastdict_pop(name)


def _told(name: str, own: str, wrapper: str) -> property:
    """The property of a module; `wrapper` is the file of TensorFlow's class, which stands between it and who asks."""
    given = "_given_" + name

    def get(self: Any) -> Any:
        frame = sys._getframe(1)
        while frame.f_code.co_filename == wrapper and frame.f_back is not None:
            frame = frame.f_back
        as_then = callers.is_script(frame) or real_keras.is_its_own(frame) or _is_of_then(_package(frame))
        return vars(self).get(given) or (TOLD[name] if as_then else own)

    def set_(self: Any, value: Any) -> None:
        vars(self)[given] = None if value in (TOLD[name], own) else value  # a mock sets back what it was told

    return property(get, set_, lambda self: vars(self).pop(given, None))


def _package(frame: types.FrameType) -> str:
    return str(frame.f_globals.get("__name__")).split(".")[0]


@functools.lru_cache(maxsize=None)
def _is_of_then(package: str) -> bool:
    """Whether a package is one of OF_THEN, installed in a version before the first for TensorFlow 2."""
    if package not in OF_THEN:
        return False
    from importlib import metadata

    name, first = OF_THEN[package]
    try:
        present = metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return tuple(map(int, re.findall(r"\d+", present)[: len(first)])) < first
