"""Where the newest value of each variable is: in the session, on the device, or in both.

Every run declares which variables it touches and which it writes. A value is copied only when the other side needs it
and has an older one.
"""

from __future__ import annotations

import threading
from typing import Any, Collection, Iterable


class Truth:
    """Tracks the newest values of a session's variables. Threads share it: code that copies values holds `lock`.

    Args:
        session: `values.SessionValues`, or an object with its `read` and `write`.
        device: `device.InProcess`, `worker.remote.Worker`, or an object with its `put` and `get`.

    Attributes:
        lock: held while values are copied and while a program runs; never while the session runs.
        moved: counts of copied values, {"to the device": n, "to the session": n}.
    """

    def __init__(self, session: Any, device: Any) -> None:
        self._session, self._device = session, device
        self._there: set[str] = set()  # names of the variables whose value on the device is up to date
        self._newer: set[str] = set()  # those of them whose value in the session is older
        self._own: set[str] = set()  # names of variables that the session does not have
        self.lock = threading.RLock()
        self.moved = {"to the device": 0, "to the session": 0}

    def before_session(self, touched: Collection[str], written: Collection[str]) -> None:
        """Prepares for a run of the session that touches and writes these variables."""
        if self._there.isdisjoint(touched):
            return
        with self.lock:
            self.to_session(touched)
            self.forget(written)

    def after_session(self, written: Collection[str]) -> None:
        """Records a run of the session that wrote variables."""
        if not self._there.isdisjoint(written):
            with self.lock:
                self.forget(written)

    def to_session(self, names: Iterable[str] | None = None) -> None:
        """Copies newer values to the session, None for all variables."""
        pending = sorted(self._newer if names is None else self._newer.intersection(names))
        if pending:
            self._session.write(self._device.get(pending))
            self._newer.difference_update(pending)
            self.moved["to the session"] += len(pending)

    def to_device(self, names: Iterable[str]) -> None:
        """Copies the values of variables to the device where they are missing or older.

        Raises:
            tf.errors.FailedPreconditionError: a variable has no value in the session.
        """
        pending = sorted(set(names) - self._there - self._own)
        if pending:
            self._device.put(self._session.read(pending))
            self._there.update(pending)
            self.moved["to the device"] += len(pending)

    def own(self, name: str, value: Any) -> None:
        """Puts a variable that the session does not have onto the device, once."""
        if name not in self._own:
            self._device.put({name: value})
            self._own.add(name)

    def written_on_device(self, names: Iterable[str]) -> None:
        """Records that a program writes variables; those from `own` stay on the device."""
        self._newer.update(set(names) - self._own)

    def forget(self, names: Iterable[str]) -> None:
        """Records that the session has newer values."""
        self._there.difference_update(names)
        self._newer.difference_update(names)

    def turn_back(self) -> None:
        """Records that the device has older values than it had, which are the newest nevertheless."""
        self._newer.update(self._there)

    def release(self) -> None:
        """Copies everything to the session, whose values are the newest from then on."""
        with self.lock:
            self.to_session()
            self._there.clear()
