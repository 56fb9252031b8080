"""keras.legacy.interfaces of the package keras until 2.3: decorators for constructors that take Keras 1's names."""

from __future__ import annotations

from typing import Any, Callable

from npu_shim.compat import callers
from npu_shim.compat.keras import keras_1

BEFORE, AFTER = "legacy_", "_support"


def __getattr__(name: str) -> Callable[[Any], Any]:
    if name.startswith(BEFORE) and name.endswith(AFTER):
        return _decorator(name[len(BEFORE) : -len(AFTER)])
    raise AttributeError(callers.message("keras.legacy.interfaces.%s is not here" % name))


def _decorator(what: str) -> Callable[[Any], Any]:
    """Lets a constructor take Keras 1's names of, say, a "conv2d"; methods have no others here."""
    kinds = {kind.lower(): names for kind, names in keras_1.LAYERS.items()}
    names = kinds.get({"recurrent": "lstm"}.get(what, what.replace("_", "")))
    return lambda function: keras_1.renaming(function, names) if names else function
