"""Python's cyclic collector, off while graphs are rewritten."""

import contextlib
import gc
import threading
from typing import Iterator


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Turns Python's cyclic collector off: we drop few cycles, and each of its passes walks all of the user's objects.

    For a graph of 26,000 nodes it took as long as the planning itself. The collector belongs to the process: of several
    threads that rewrite at once, the first turns it off, and the last turns it on again if it was on.
    """
    with _collector.lock:
        if not _collector.users:
            _collector.was_on = gc.isenabled()
            gc.disable()
        _collector.users += 1
    try:
        yield
    finally:
        with _collector.lock:
            _collector.users -= 1
            if not _collector.users and _collector.was_on:
                gc.enable()


class _Collector:
    def __init__(self) -> None:
        self.lock, self.users, self.was_on = threading.Lock(), 0, True


_collector = _Collector()
