"""Starts a script as a trial training, by `npu-shim run` in a process of its own, and reads what it left."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from typing import Any, Callable, Iterator, Mapping, Sequence

POLL = 0.2  # seconds
LINES = 8  # of what a trial printed last
TRIAL = "{trial}"  # in the script's arguments: the number of the trial


def start(words: Sequence[str], folder: str, environment: Mapping[str, str], printed: Any) -> Any:
    """Starts `npu-shim` with words.

    Args:
        words: its arguments.
        folder: its working directory.
        environment: all of its variables.
        printed: a file that takes all that it prints.

    Returns:
        subprocess.Popen, or what has its `pid` and `poll`; the leader of a process group of its own.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "npu_shim", *words], cwd=folder, env=dict(environment), stdin=subprocess.DEVNULL,
        stdout=printed, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip


def run(
    argv: Sequence[str], number: int, folder: str, environment: Mapping[str, str], watch: Callable[[], Any]
) -> tuple[int, str]:
    """Runs a script to its end.

    Args:
        argv: the script and its arguments, as behind `npu-shim run`.
        number: of the trial.
        folder: an empty folder for it.
        environment: variables beside this process's own.
        watch: called several times a second while it runs.

    Returns:
        (exit status, all that it printed). All processes that it has started are ended, also when this one is.
    """
    place = os.path.join(folder, "place")
    _link_all(os.getcwd(), place)
    words = ["run", *(word.replace(TRIAL, str(number)) for word in argv)]
    path = os.path.join(folder, "printed")
    with open(path, "wb") as printed:
        process = start(words, place, {**os.environ, **environment}, printed)
        with _ended(process.pid):
            while process.poll() is None:
                watch()
                time.sleep(POLL)
    with open(path, encoding="utf-8", errors="replace") as f:
        return process.poll(), f.read()


def _link_all(source: str, place: str) -> None:
    """Makes a folder whose entries are links to those of another: what a trial makes there is its own."""
    os.mkdir(place)
    for name in os.listdir(source):
        os.symlink(os.path.join(source, name), os.path.join(place, name))


@contextlib.contextmanager
def _ended(group: int) -> Iterator[None]:
    """Ends the processes of a group behind the block, whatever way it ends."""
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


def last_lines(printed: str) -> str:
    """Returns the last lines of what a trial printed, indented."""
    lines = [line for line in printed.splitlines() if line.strip()]
    return "\n".join("  " + line for line in lines[-LINES:])


def metric(pattern: str, printed: str) -> float | None:
    """Returns the last number that a regular expression finds: its first group, or all that it matches; else None."""
    for match in reversed(list(re.finditer(pattern, printed, re.MULTILINE))):
        with contextlib.suppress(ValueError, TypeError):
            return float(match.group(1) if match.re.groups else match.group())
    return None
