"""Makes the processes that a script spawns see the same `tensorflow`: they import the script again.

multiprocessing sends a new process a pickle before that process imports the script. Unpickling our entry in it installs
everything. A forked process needs nothing.
"""

from __future__ import annotations

import multiprocessing.spawn
from typing import Any, Callable

from npu_shim.compat import tensorflow_v1
from npu_shim.compat.python import aliases


def install(before: Callable[[], None] | None = None) -> None:
    """Installs everything in processes that are spawned from now on; a second call does nothing.

    Args:
        before: called in each of them once TensorFlow is as the script will see it; it can be pickled.
    """
    if _is_installed():
        return
    original = multiprocessing.spawn.get_preparation_data

    def get_preparation_data(name: str) -> dict[str, Any]:
        return {**original(name), "npu_shim": _Installed(before)}

    vars(get_preparation_data)["installs_npu_shim"] = True
    multiprocessing.spawn.get_preparation_data = get_preparation_data


def _is_installed() -> bool:
    return getattr(multiprocessing.spawn.get_preparation_data, "installs_npu_shim", False)


class _Installed:
    """An object whose unpickling in the new process calls `start`."""

    def __init__(self, before: Callable[[], None] | None) -> None:
        self._before = before

    def __reduce__(self) -> tuple[Callable[..., None], tuple[Any]]:
        return start, (self._before,)


def start(before: Callable[[], None] | None = None) -> None:
    """Installs in a new process what the process that started it has; a second call does nothing."""
    if _is_installed():
        return
    install(before)  # first: the import of TensorFlow may come here again
    tensorflow_v1.install()
    aliases.install()
    if before is not None:
        before()
