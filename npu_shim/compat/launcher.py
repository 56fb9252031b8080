"""Runs a TensorFlow 1 script as `python SCRIPT` would, under `tensorflow_v1.install`."""

from __future__ import annotations

import builtins
import importlib.util
import os
import runpy
import sys
import types
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any, Callable

from npu_shim.compat import children, spawn, tensorflow_v1
from npu_shim.compat.keras import one_keras
from npu_shim.compat.python import aliases

STDIN = "-"
_RUNNING = (__file__, runpy.__file__, "<frozen runpy>")


def run(
    script: str, args: list[str], before: Callable[[], None] | None = None, first: Callable[[], None] | None = None
) -> int:
    """Runs a script and returns its exit status.

    The script is `__main__`; argv, sys.path[0], `__file__`, tracebacks, sys.excepthook and the status are as Python's
    own, also in processes that it starts.

    Args:
        script: path of a Python file, of a folder or an archive with `__main__.py`, "-" for standard input, or "-m"
            with the module's name as the first of `args`.
        args: list of str, the script's arguments.
        before: called once TensorFlow is as the script will see it, also in processes that it starts; can be pickled.
        first: called before anything else, also in processes that it starts; can be pickled.

    Raises:
        OSError: the script cannot be read.
        ImportError: no TensorFlow is installed.
        KeyboardInterrupt: the script let it through, and sys.excepthook has reported it: uncaught, it ends the process
            by the signal, as Python does.
    """
    if first is not None:
        first()
    module = script == "-m"
    packed = packed_main(script)
    source: Any = None if module or packed else _read(script)
    children.forget()
    del sys.path[0]  # of this process; what lies in it is nothing that TensorFlow should find
    tensorflow_v1.install()
    aliases.install()
    spawn.install(before)
    if before is not None:
        before()
    sys.argv = list(args) if module else [script, *args]
    sys.path.insert(0, _path(script) if packed else _folder(script))
    one_keras.make_room()
    try:
        with children.reached(before, first):
            if module:
                runpy.run_module(args[0], {"__builtins__": builtins}, "__main__", alter_sys=True)
            elif packed:
                _execute(packed.loader.get_code("__main__"), importlib.util.module_from_spec(packed))
            else:
                main = _main_of(script)
                _execute(compile(source, main.__file__, "exec", dont_inherit=True), main)  # without our __future__
    except SystemExit:
        raise
    except BaseException as error:
        _report_uncaught(error)
        if isinstance(error, KeyboardInterrupt):
            sys.excepthook = lambda *_: None  # reported once
            raise
        return 1
    return 0


def packed_main(script: str) -> Any:
    """Returns the ModuleSpec of the `__main__.py` in a folder or an archive; None for a script that is neither."""
    if script in (STDIN, "-m"):
        return None
    spec: ModuleSpec | None = PathFinder.find_spec("__main__", [_path(script)])
    return spec if spec is not None and spec.loader is not None else None


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


def _path(script: str) -> str:
    """As Python has it: from 3.9 on absolute, so that the script may change its folder."""
    return os.path.abspath(script) if sys.version_info >= (3, 9) else script


def _main_of(script: str) -> Any:
    main: Any = types.ModuleType("__main__")
    main.__spec__ = None
    main.__file__ = "<stdin>" if script == STDIN else _path(script)
    return main


def _execute(code: Any, main: Any) -> None:
    main.__builtins__ = builtins
    sys.modules["__main__"] = main
    if "__mp_main__" in sys.modules:  # multiprocessing was imported before: spawned children pickle by this name
        sys.modules["__mp_main__"] = main
    exec(code, main.__dict__)


def _report_uncaught(error: BaseException) -> None:
    """Hands what the script let through to sys.excepthook, from the script's own first line on."""
    start = error.__traceback__
    while start is not None and start.tb_frame.f_code.co_filename in _RUNNING:
        start = start.tb_next
    error = error.with_traceback(start)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, start  # as Python does
    sys.excepthook(type(error), error, start)
