"""Runs a TensorFlow 1 script as `python SCRIPT` would, under `tensorflow_v1.install`."""

from __future__ import annotations

import builtins
import os
import runpy
import sys
import types
from typing import Any, Callable

from npu_shim.compat import spawn, tensorflow_v1
from npu_shim.compat.keras import one_keras
from npu_shim.compat.python import aliases

STDIN = "-"
_RUNNING = (__file__, runpy.__file__, "<frozen runpy>")


def run(script: str, args: list[str], before: Callable[[], None] | None = None) -> int:
    """Runs a script and returns its exit status.

    The script is `__main__`; argv, sys.path[0], `__file__`, tracebacks, sys.excepthook and the status are as Python's
    own, also in processes that it spawns.

    Args:
        script: path of a Python file, "-" for standard input, or "-m" with the module's name as the first of `args`.
        args: list of str, the script's arguments.
        before: called once TensorFlow is as the script will see it, also in processes that it spawns; can be pickled.

    Raises:
        OSError: the script cannot be read.
        ImportError: no TensorFlow is installed.
    """
    module = script == "-m"
    source = None if module else _read(script)
    del sys.path[0]  # of this process; what lies in it is nothing that TensorFlow should find
    tensorflow_v1.install()
    aliases.install()
    spawn.install(before)
    if before is not None:
        before()
    sys.argv = list(args) if module else [script, *args]
    sys.path.insert(0, _folder(script))
    one_keras.make_room()
    try:
        if module:
            runpy.run_module(args[0], {"__builtins__": builtins}, "__main__", alter_sys=True)
        else:
            _execute(source, script)
    except SystemExit:
        raise
    except BaseException as error:
        return _report_uncaught(error)
    return 0


def _read(script: str) -> bytes:
    if script == STDIN:
        return sys.stdin.buffer.read()
    with open(script, "rb") as f:
        return f.read()


def _folder(script: str) -> str:
    """sys.path[0]: the folder of the script itself, not of a link to it."""
    if script == STDIN:
        return ""
    return os.getcwd() if script == "-m" else os.path.dirname(os.path.realpath(script))


def _execute(source: Any, script: str) -> None:
    main: Any = types.ModuleType("__main__")
    main.__builtins__ = builtins
    main.__spec__ = None
    # from Python 3.9 on the path is absolute, so that the script may change its folder
    path = os.path.abspath(script) if sys.version_info >= (3, 9) else script
    main.__file__ = "<stdin>" if script == STDIN else path
    sys.modules["__main__"] = main
    if "__mp_main__" in sys.modules:  # multiprocessing was imported before: spawned children pickle by this name
        sys.modules["__mp_main__"] = main
    exec(compile(source, main.__file__, "exec", dont_inherit=True), main.__dict__)  # without this file's __future__


def _report_uncaught(error: BaseException) -> int:
    """Hands what the script let through to sys.excepthook, from the script's own first line on; returns the status."""
    start = error.__traceback__
    while start is not None and start.tb_frame.f_code.co_filename in _RUNNING:
        start = start.tb_next
    error = error.with_traceback(start)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, start  # as Python does
    sys.excepthook(type(error), error, start)
    return 130 if isinstance(error, KeyboardInterrupt) else 1
