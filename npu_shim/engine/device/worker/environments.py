"""Which environments of the engine run a worker: a new one takes the place of another, which is not removed under it.

    installation() -> engine.abc, a link            a worker runs engine.abc/bin/python, and holds engine.abc/in-use

A worker imports modules as it needs them. Its interpreter is that of the folder and not of the link, behind which there
may soon be another release of JAX.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import IO, Iterator

from npu_shim.options import engine as options

IN_USE = "in-use"  # a file of an environment, on which each of its workers has a shared lock


@contextlib.contextmanager
def held(interpreter: str) -> Iterator[tuple[str, list[int]]]:
    """Scope in which an interpreter's environment is in use, and stays so for who inherits the descriptors.

    Yields:
        (path of the interpreter, descriptors); one that is no installation of ours, or cannot be marked, as it is.
    """
    folder = os.path.dirname(os.path.dirname(interpreter))
    with contextlib.ExitStack() as scope:
        descriptors = []
        if os.path.islink(folder) and os.path.abspath(folder) == os.path.abspath(options.installation()):
            with contextlib.suppress(OSError):  # it may be another user's
                target = os.path.realpath(folder)
                mark = scope.enter_context(_mark(target))
                fcntl.flock(mark, fcntl.LOCK_SH | fcntl.LOCK_NB)
                descriptors, interpreter = [mark.fileno()], os.path.join(target, "bin", os.path.basename(interpreter))
        yield interpreter, descriptors


def is_used(folder: str) -> bool:
    """Whether a worker runs in an environment."""
    try:
        with _mark(folder) as mark:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _mark(folder: str) -> IO[bytes]:
    return open(os.path.join(folder, IN_USE), "ab")
