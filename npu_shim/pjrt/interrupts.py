"""Ctrl-C in the middle of a step."""

from __future__ import annotations

import threading
from signal import SIGINT, getsignal, signal
from typing import Any


class uninterrupted:
    """Scope that defers Ctrl-C: until a step's new state is stored, an interrupt would lose the state."""

    def __enter__(self) -> None:
        self._handler = getsignal(SIGINT)
        self._deferred: list[Any] = []
        self._defers = threading.current_thread() is threading.main_thread() and callable(self._handler)
        if self._defers:
            signal(SIGINT, lambda *arguments: self._deferred.append(arguments))

    def __exit__(self, *_: Any) -> None:
        if self._defers:
            signal(SIGINT, self._handler)
            if self._deferred and callable(self._handler):
                self._handler(*self._deferred[-1])
