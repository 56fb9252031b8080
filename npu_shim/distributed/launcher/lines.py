"""The output of several processes as one: whole lines, each with the name of who wrote it. Standard library only."""

from __future__ import annotations

import re
from typing import Callable

LONGEST = 1 << 16  # bytes of a line; a longer one is cut, so that output without line ends takes no memory
OFTEN = 1.0  # seconds between two states of a line that is written over and over, such as a progress bar's
_END = re.compile(rb"\r\n|\n|\r(?=.)", re.DOTALL)  # what follows a carriage return decides what it is


class Lines:
    r"""Cuts one stream of bytes into lines, which may come in any pieces and be anything.

    A line ends with "\n" or "\r\n". What a lone "\r" overwrites is a state of a progress bar: of those one is written
    each OFTEN seconds, and the last of them.

    Args:
        write: function of one line in bytes, without its end.
    """

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._rest = b""
        self._state = b""  # of a progress bar, not written yet
        self._written = float("-inf")  # when a state was

    def feed(self, data: bytes, now: float) -> None:
        """Takes the next bytes; `now` is the time in seconds of any clock."""
        self._rest += data
        begin = 0
        for end in _END.finditer(self._rest):
            text, begin = self._rest[begin : end.start()], end.end()
            if end.group() == b"\r":
                self._state = text or self._state
            else:
                self._line(text)
        self._rest = self._rest[begin:]
        while len(self._rest) > LONGEST:
            self._line(self._rest[:LONGEST])
            self._rest = self._rest[LONGEST:]
        self.tick(now)

    def tick(self, now: float) -> None:
        """Writes the state of a progress bar if it is time to."""
        if self._state and now - self._written >= OFTEN:
            self._write(self._state)
            self._state, self._written = b"", now

    def end(self) -> None:
        """Writes what has no line end yet: the stream is at its end."""
        left = self._rest.rstrip(b"\r") or self._state
        self._rest = self._state = b""
        if left:
            self._write(left)

    def _line(self, text: bytes) -> None:
        self._write(text if text else self._state)
        self._state = b""
