"""Other interpreters that this process starts, such as one with JAX."""

from __future__ import annotations

import os


def environment() -> dict[str, str]:
    """Returns this process's environment without Python's variables, which mean this interpreter's packages."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
