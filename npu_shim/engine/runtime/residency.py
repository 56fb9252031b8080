"""Where the newest value of each variable is: in the session, on the device, or in both.

Every run declares which variables it touches and which it writes. A value is copied only when the other side needs it
and has an older one. One rule says who may write while somebody else runs:

    a run of the session that may write v is in flight   ->   v belongs to the session, and no step on the device has it

A step that touches v waits for such runs, or is the session's as well: where one of them may wait for other threads
(a py_func, a queue), waiting could be for ever. So no side copies over what the other one writes.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Collection, Iterable, Iterator

from npu_shim.engine.runtime.access import Access

PATIENCE = 1.0  # seconds that a step waits for runs of the session; then it is the session's as well


class Residency:
    """Tracks the newest values of a session's variables. Threads share it: code that copies values holds `lock`.

    Args:
        session: `values.SessionValues`, or an object with its `read` and `write`.

    Attributes:
        device: `programs.InProcess`, `worker.remote.Worker`, or an object with its `put` and `get`; None before the
            first step.
        lock: held while values are copied and while a program runs; never while the session runs what the script asks.
        adopts: whether the device may have other values than it was given: those of the first of several hosts.
        moved: counts of copied values, {"to the device": n, "to the session": n}.
    """

    def __init__(self, session: Any) -> None:
        self.device: Any = None
        self._session = session
        self.lock = threading.RLock()
        self._changed = threading.Condition()  # guards the next two; taken behind `lock`, and held for moments only
        self._there: set[str] = set()  # names of the variables whose value on the device is up to date, or on its way
        self._in_flight: list[Access] = []  # of the session's runs
        self._newer: set[str] = set()  # of those in _there: the names of those whose value in the session is older
        self.adopts = False
        self.moved = {"to the device": 0, "to the session": 0}

    @contextlib.contextmanager
    def session_run(self, access: Access) -> Iterator[None]:
        """Scope of a run of the session, which has the newest values of what it touches.

        Raises:
            RuntimeError: as `get` of the device.
        """
        self._enter(access)
        try:
            yield
        finally:
            with self._changed:
                self._in_flight.remove(access)
                self._changed.notify_all()

    def _enter(self, access: Access) -> None:
        with self._changed:
            if not access.unknown and self._there.isdisjoint(access.touched):
                self._in_flight.append(access)
                return
        with self.lock:
            self._to_session(None if access.unknown else access.touched)
            with self._changed:
                self._in_flight.append(access)
                if access.unknown:
                    self._there.clear()
                self._there.difference_update(access.written)

    def wait_for_session(self, touched: Collection[str], written: Collection[str]) -> bool:
        """Waits until a step that touches and writes these variables may run on the device.

        Returns:
            Whether it may; False where the session must run it.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_settled(touched, written), PATIENCE)
            return not self._excluding(touched, written)

    def to_device(self, touched: Collection[str], written: Collection[str]) -> bool:
        """Copies variables that a step touches to the device, where they are missing or older; it will write some.

        Returns:
            Whether it may run there; False where a run of the session has begun meanwhile.

        Raises:
            tf.errors.FailedPreconditionError: a variable has no value in the session.
        """
        with self._changed:
            if self._excluding(touched, written):
                return False
            pending = sorted(set(touched) - self._there)
            self._there.update(pending)
        try:
            if pending:
                self.device.put(self._session.read(pending))
        except BaseException:
            with self._changed:
                self._there.difference_update(pending)
            raise
        self.moved["to the device"] += len(pending)
        self._newer.update(written, pending if self.adopts else ())
        return True

    def missing(self, touched: Collection[str]) -> list[str]:
        """Names of the variables that `to_device` would copy."""
        with self._changed:
            return sorted(set(touched) - self._there)

    def roll_back(self) -> None:
        """Records that the device has older values than it had, which are the newest nevertheless."""
        self._newer.update(self._there)

    def release(self) -> None:
        """Copies everything to the session, whose values are the newest from then on."""
        with self.session_run(Access(unknown=True)):
            pass

    def drop(self) -> None:
        """Forgets the device: nobody asks for its values any more."""
        with self.lock, self._changed:
            self._there.clear()
            self._newer.clear()

    def _excluding(self, touched: Collection[str], written: Collection[str]) -> list[Access]:
        return [access for access in self._in_flight if access.excludes(touched, written)]

    def _is_settled(self, touched: Collection[str], written: Collection[str]) -> bool:
        excluding = self._excluding(touched, written)
        return not excluding or any(access.blocks for access in excluding)

    def _to_session(self, names: Iterable[str] | None) -> None:
        """Copies newer values to the session, None for all variables."""
        pending = sorted(self._newer if names is None else self._newer.intersection(names))
        if pending:
            self._session.write(self.device.get(pending))
            self._newer.difference_update(pending)
            self.moved["to the session"] += len(pending)
