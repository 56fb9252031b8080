"""Processes that a script spawns: they import the script again, and must see the same `tensorflow`.

multiprocessing hands a new process a pickle before that process imports the script; what we add to the pickle installs
everything as it is read. A forked process has it already.
"""

import multiprocessing.spawn

from npu_shim.compat import aliases, tensorflow_v1


def install():
    """Makes processes that are spawned from now on run as this one does; a second call does nothing."""
    original = multiprocessing.spawn.get_preparation_data
    if getattr(original, "installs_npu_shim", False):
        return

    def get_preparation_data(name):
        return {**original(name), "npu_shim": _Installed()}

    get_preparation_data.installs_npu_shim = True
    multiprocessing.spawn.get_preparation_data = get_preparation_data


class _Installed:
    """Pickled here, it is the call of `start` there."""

    def __reduce__(self):
        return start, ()


def start():
    """Makes a new process like the one that spawned it."""
    tensorflow_v1.install()
    aliases.install()
    install()
