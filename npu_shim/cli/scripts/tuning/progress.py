"""How far tuning is: a bar of tqdm's on a terminal, lines where tqdm is not installed, nothing elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any, Callable, Iterator


class Progress:
    """Tells of trials on standard error.

    Attributes:
        began: when tuning began, in seconds since the epoch.
    """

    def __init__(self, trials: int, ended: int = 0):
        self.began = time.time()
        self._trials, self._is_shown = trials, sys.stderr.isatty()
        self._bar: Any = None
        if self._is_shown:
            with contextlib.suppress(ImportError):
                from tqdm import tqdm

                self._bar = tqdm(total=trials, initial=ended, unit="trial", leave=False)

    @contextlib.contextmanager
    def trial(self, number: int, name: str, steps: Callable[[], int]) -> Iterator[Callable[[], Any]]:
        """Tells of a trial while the block runs; gives a function to call meanwhile, often."""
        if self._is_shown and self._bar is None:
            print("npu-shim tune: trial %d of at most %d: %s" % (number, self._trials, name), file=sys.stderr)
        if self._bar is None:
            yield lambda: None
        else:
            yield lambda: self._bar.set_description("%s, step %d" % (name, steps()))
            self._bar.update()

    def close(self) -> None:
        """Ends the bar."""
        if self._bar is not None:
            self._bar.close()
