"""Tells scripts the version of TensorFlow whose API they find, 1.15.0, and libraries that of the one they run on.

    tf.__version__, tf.VERSION, tf.version.VERSION, tf.compat.v1.__version__, tensorflow.python.framework.versions

Scripts branch on it, and so does a Keras of that time. Other installed libraries, TensorFlow itself among them,
were chosen for the one that runs.
"""

from __future__ import annotations

import sys
from typing import Any

from npu_shim.compat import callers
from npu_shim.compat.keras import real_keras
from npu_shim.rewriter import tf_internals

SCRIPTS_VERSION = "1.15.0"  # CANN's TensorFlow 1 is this one
_COMMIT = "v1.15.0-rc3-22-g590d6ee"  # of that release
TOLD = {"__version__": SCRIPTS_VERSION, "VERSION": SCRIPTS_VERSION, "GIT_VERSION": _COMMIT, "__git_version__": _COMMIT}


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
        as_then = callers.is_script(frame) or real_keras.is_its_own(frame)
        return vars(self).get(given) or (TOLD[name] if as_then else own)

    def set_(self: Any, value: Any) -> None:
        vars(self)[given] = None if value in (TOLD[name], own) else value  # a mock sets back what it was told

    return property(get, set_, lambda self: vars(self).pop(given, None))
