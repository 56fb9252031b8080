"""Runs a TensorFlow 1 script as `python SCRIPT` would, under `tensorflow_v1.install`."""

import os
import runpy
import sys
import traceback
import types

from . import aliases, tensorflow_v1


def run(script, args):
    """Runs a script and returns its exit status.

    The script is `__main__`; argv, sys.path[0], tracebacks and the status are its own.

    Args:
        script: path of a Python file, or "-m" with the module's name as the first of `args`.
        args: list of str, the script's arguments.

    Raises:
        OSError: the script cannot be read.
        ImportError: no TensorFlow is installed.
    """
    module = script == "-m"
    source = None if module else _read(script)
    tensorflow_v1.install()
    aliases.install()
    sys.argv = list(args) if module else [script, *args]
    sys.path[0:1] = [os.getcwd() if module else os.path.dirname(os.path.abspath(script))]
    try:
        if module:
            runpy.run_module(args[0], run_name="__main__", alter_sys=True)
        else:
            _execute(source, script)
    except SystemExit:
        raise
    except BaseException as error:
        _print_without_us(error)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _read(script):
    with open(script, "rb") as f:
        return f.read()


def _execute(source, script):
    main = types.ModuleType("__main__")
    main.__file__ = script
    main.__builtins__ = __builtins__
    sys.modules["__main__"] = main
    exec(compile(source, script, "exec"), main.__dict__)


def _print_without_us(error):
    """Prints the traceback from the script's own first line on."""
    start = error.__traceback__
    while start is not None and start.tb_frame.f_code.co_filename in (__file__, runpy.__file__):
        start = start.tb_next
    traceback.print_exception(type(error), error, start)
