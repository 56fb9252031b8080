"""Starts a script as a trial training, by `npu-shim run` in a process of its own, and reads what it left."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from typing import Any, Callable, Iterator, Mapping, Sequence

POLL = 0.2  # seconds
MANY = 1000
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
    """Makes a folder whose files are links to those of another, folders in it too: what a trial makes is its own.

    A folder with MANY entries, a data set most likely, is a link itself.
    """
    os.mkdir(place)
    for entry in os.scandir(source):
        path = os.path.join(place, entry.name)
        if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".") and _is_small(entry.path):
            _link_all(entry.path, path)
        else:
            os.symlink(entry.path, path)


def _is_small(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            return sum(1 for _ in itertools.islice(entries, MANY)) < MANY
    except PermissionError:
        return False


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
