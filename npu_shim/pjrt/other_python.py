"""Other interpreters that this process starts, such as one with JAX."""

from __future__ import annotations

import os

# Python's variables that mean one interpreter: its packages, its build, its name, and what it does when it has run.
# All others are what the user wants of Python (PYTHONDONTWRITEBYTECODE, PYTHONWARNINGS, ...) and hold there too.
OWN = frozenset([
    "PYTHONHOME", "PYTHONPATH", "PYTHONPLATLIBDIR", "PYTHONEXECUTABLE", "PYTHON_GIL", "PYTHONSTARTUP", "PYTHONINSPECT",
])  # fmt: skip


def environment() -> dict[str, str]:
    """Returns this process's environment without the variables of Python that mean this interpreter."""
    return {name: value for name, value in os.environ.items() if name not in OWN}
