"""Other interpreters that this process starts, such as one with JAX."""

from __future__ import annotations

import os
import subprocess

from npu_shim.rewriter.errors import ConfigError

# Python's variables that mean one interpreter: its packages, its build, its name, and what it does when it has run.
# All others are what the user wants of Python (PYTHONDONTWRITEBYTECODE, PYTHONWARNINGS, ...) and hold there too.
OWN = frozenset([
    "PYTHONHOME", "PYTHONPATH", "PYTHONPLATLIBDIR", "PYTHONEXECUTABLE", "PYTHON_GIL", "PYTHONSTARTUP", "PYTHONINSPECT",
])  # fmt: skip


PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "__init__.py")
# makes our own package importable, whatever is installed there, and nothing else of the folder that it lies in, or of
# the one that the script runs in
FIND = """
import sys
sys.path[:1] = []
import importlib.util as util
spec = util.spec_from_file_location("npu_shim", sys.argv[1])
sys.modules["npu_shim"] = util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["npu_shim"])
"""
CALL = FIND + """
spec = util.spec_from_file_location("called", sys.argv[2])
called = util.module_from_spec(spec)
spec.loader.exec_module(called)
called.main(*sys.argv[3:])
"""


def environment() -> dict[str, str]:
    """Returns this process's environment without the variables of Python that mean this interpreter."""
    return {name: value for name, value in os.environ.items() if name not in OWN}


def run(python: str, file: str, *arguments: str) -> str:
    """Calls `main` of a file of ours in another interpreter; returns the last line that it said.

    Args:
        python: path of the interpreter.
        file: path of a module, whose package is imported if it asks for it.
        *arguments: of `main`.

    Raises:
        ConfigError: the interpreter cannot be run.
    """
    command = [python, "-c", CALL, PACKAGE, os.path.abspath(file), *arguments]
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment(), check=False
        )
    except OSError as reason:
        why = reason if reason.errno is None else os.strerror(reason.errno)  # Python 3.7 has the path in strerror
        raise ConfigError("'%s' cannot be run: %s" % (python, why)) from reason
    lines = done.stdout.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it ended with status %d" % done.returncode
