"""Ctrl-C, and other signals that a script handles, in the middle of a step."""

from __future__ import annotations

import signal
import threading
from typing import Any, Callable

# those whose handlers end a script, as a scheduler's or a time limit's do; a platform may lack some
NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGUSR2")
SIGNALS = tuple(getattr(signal, name) for name in NAMES if hasattr(signal, name))


class uninterrupted:
    """Scope that defers signals' handlers: what one raises before a step's new state is stored would lose the state."""

    def __enter__(self) -> None:
        self._deferred: dict[int, Any] = {}  # signal -> the frame that it came in last
        self._handlers: dict[int, Callable[..., Any]] = {}
        if threading.current_thread() is threading.main_thread():  # the others handle none
            for number in SIGNALS:
                handler = signal.getsignal(number)
                if callable(handler):
                    self._handlers[number] = handler
                    signal.signal(number, self._defer)

    def _defer(self, number: int, frame: Any) -> None:
        self._deferred[number] = frame

    def __exit__(self, *_: Any) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        for number, frame in self._deferred.items():
            self._handlers[number](number, frame)
