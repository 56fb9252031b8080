"""Lets the hooks and sessions of tfdbg take `log_usage`, which TensorFlow has dropped; it changes nothing."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from npu_shim.compat.names import missing

PACKAGE = "tensorflow.python.debug.wrappers."
MODULES = ("dumping_wrapper", "grpc_wrapper", "hooks", "local_cli_wrapper")


def install() -> None:
    """Patches the modules as they are loaded."""
    missing.when_loaded({PACKAGE + name: take_log_usage for name in MODULES})


def take_log_usage(module: Any) -> None:
    """Lets each class that a module defines take the argument."""
    for kind in list(vars(module).values()):
        if inspect.isclass(kind) and kind.__module__ == module.__name__ and "__init__" in vars(kind):
            owner: Any = kind
            owner.__init__ = _without(owner.__init__)


def _without(init: Any) -> Any:
    if "log_usage" in inspect.signature(init).parameters:
        return init

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, log_usage: bool = True, **kwargs: Any) -> None:
        init(self, *args, **kwargs)

    return __init__
