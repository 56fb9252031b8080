"""Calls in other threads, which their callers can leave to themselves. Standard library only."""

from __future__ import annotations

import os
import queue
import threading
from typing import Any, Callable

_spare: list[_Runner] = []  # for `last`
_local = threading.local()  # .runner: the _Runner of this thread


def prepare() -> None:
    """Starts the thread of `last`: Python 3.12 starts none when the program has ended."""
    _spare.append(_Runner())


def last(function: Callable[[], Any]) -> Call:
    """Calls a function in another thread when the program has ended."""
    return _spare[0].call(function)


def apart(function: Callable[[], Any]) -> Call:
    """Calls a function in another thread, always the same one for this thread as long as its calls end."""
    runner = getattr(_local, "runner", None)
    if runner is None or not runner.is_free:
        runner = _local.runner = _Runner()
    return runner.call(function)


def _forget() -> None:
    """In a forked process, which has no thread but the one that forked."""
    global _local
    _local = threading.local()
    _spare.clear()


os.register_at_fork(after_in_child=_forget)


class Call:
    """A call in another thread; `value` and `error` are what came of it."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function, self._ended = function, threading.Event()
        self.value: Any = None
        self.error: BaseException | None = None

    def __call__(self) -> None:
        """Makes the call."""
        try:
            self.value = self._function()
        except BaseException as error:
            self.error = error
        self._ended.set()

    def ends(self, seconds: float) -> bool:
        """Whether it ends within some seconds."""
        return self._ended.wait(seconds)

    def result(self) -> Any:
        """Returns what it returned, or raises what it raised."""
        if self.error is not None:
            raise self.error
        value, self.value = self.value, None  # the thread remembers its last call
        return value


class _Runner:
    """A thread that makes one call after the other."""

    def __init__(self) -> None:
        self._calls: Any = queue.SimpleQueue()
        self._last: Call | None = None
        threading.Thread(target=self._make, daemon=True).start()

    @property
    def is_free(self) -> bool:
        return self._last is None or self._last.ends(0)

    def call(self, function: Callable[[], Any]) -> Call:
        self._last = Call(function)
        self._calls.put(self._last)
        return self._last

    def _make(self) -> None:
        while True:
            self._calls.get()()
