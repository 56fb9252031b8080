"""The ledger of a run: what was asked of it, and what happened. No TensorFlow.

Whoever finds something out notes it, once, in whichever process of the script it is: a session has met a request, a
graph was lowered, a step was taken, or why not. `doors` says at the end what was asked and had no effect.

`npu-shim run` and `npu-shim tune` name a folder in the environment, and tell at their own end. Without one a process
tells at its end, of what its own configs and `npu_shim.enable` asked.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import logging
import os
import threading
from typing import Any, Callable, NamedTuple

LOG = logging.getLogger("npu_shim")
VARIABLE = "NPU_SHIM_REQUESTS"  # a folder with a file of facts
FILE = "ledger"
# kinds of facts. A session has read its options; one has that names no engine itself
SESSION, FREE_SESSION = "session", "session without an engine"
# a graph that trains, or any, was lowered; it was not, though its mode lowers: why
LOWERED_IN_TRAINING, LOWERED, KEPT_IN_TRAINING, KEPT = "lowered in training", "lowered", "kept in training", "kept"
# the engine has run a step; it has left one, or a run that may be one, or one that updates nothing, to the session: why
TAKEN, LEFT, SMALL, NO_UPDATE = "step taken", "step left", "small run left", "run without an update"
# an optimizer was given a loss scale; it was not: why; a mode without float16 wants none
SCALED, UNSCALED, WITHOUT_FLOAT16 = "scaled", "unscaled", "mode without float16"
# of a loss scale, as JSON: [[attempted, skipped, in a row at the smallest, first, last, scale or null], whose they are]
STEPS = "steps"
CLUSTERS, DUMPED, PROFILED, WATCHED, REPEATED = "clusters", "dumped", "profiled", "watched", "steps repeated"
SHARED = "variables divided among devices"
AHEAD = "iterator read ahead"
MASTERED = "float32 master made"
CASTING = "saver that casts made"
ASKED = "asked"  # by a config, enable or the environment, as JSON: [name, word, door]


class Fact(NamedTuple):
    """Something that happened: one of the kinds above, and what is to be told of it."""

    kind: str
    detail: str


_lock = threading.Lock()
_noted: dict[str, dict[Fact, None]] = {}  # folder, "" for none -> what this process has noted there
_before_the_end: list[Callable[[], Any]] = []


def note(kind: str, detail: str = "") -> None:
    """Notes something, once."""
    folder, fact = os.environ.get(VARIABLE, ""), Fact(kind, detail)
    if fact in _noted.get(folder, ()):
        return
    with _lock:
        known = _noted.setdefault(folder, {})
        if fact in known:
            return
        known[fact] = None
    if folder:
        with contextlib.suppress(OSError), open(os.path.join(folder, FILE), "ab", buffering=0) as f:
            f.write(json.dumps(fact).encode() + b"\n")  # in one piece, beside those of other processes


def ask(name: str, word: Any, door: str) -> None:
    """Notes what a config, `enable` or the environment asks: by what name, which word, and the door (`doors.DOORS`)."""
    _tell_at_the_end()
    note(ASKED, json.dumps([name, str(word), door]))


def take_back(name: str) -> None:
    """Forgets what was asked by a name in this process, where it tells itself."""
    with _lock:
        known = _noted.get("", {})
        for fact in [fact for fact in known if fact.kind == ASKED and json.loads(fact.detail)[0] == name]:
            del known[fact]


def before_the_end(function: Callable[[], Any]) -> None:
    """Calls a function, once, before this process, or the command that it is, tells of what happened."""
    _tell_at_the_end()
    if function not in _before_the_end:
        _before_the_end.append(function)


def close() -> None:
    """Calls what `before_the_end` was given; errors of theirs are no errors of the script."""
    for function in _before_the_end:
        with contextlib.suppress(Exception):
            function()


def of_folder(folder: str) -> tuple[Fact, ...]:
    """Returns what all processes have noted in a folder, in the order of time, equal facts once."""
    with contextlib.suppress(OSError), open(os.path.join(folder, FILE), "rb") as f:
        return tuple(dict.fromkeys(Fact(*json.loads(line)) for line in f.read().splitlines()))
    return ()


def of_process() -> tuple[Fact, ...]:
    """Returns what this process has noted while no folder was named."""
    return tuple(_noted.get("", ()))


@functools.lru_cache(maxsize=None)
def _tell_at_the_end() -> None:
    atexit.register(_tell_at_exit, os.getpid())


def _tell_at_exit(owner: int) -> None:
    if os.getpid() != owner:  # a forked child
        return
    close()
    if VARIABLE in os.environ:
        return
    from npu_shim.options.reports import doors

    for line in doors.lines(of_process()):
        LOG.warning("npu_shim: %s", line)
