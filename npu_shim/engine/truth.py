"""Where the newest value of each variable is: in the session, on the device, or in both.

Every run says which variables it touches and which it writes. A value moves only when the other side is to use it and
has an older one.
"""

import threading


class Truth:
    """One truth for the variables of a session. Threads share it: what moves values holds `lock`.

    Args:
        session: `values.SessionValues`, or what reads and writes as it does.
        device: `device.InProcess`, or what has its `put`, `get` and `drop`.

    Attributes:
        lock: held while values move and while a program runs; never while the session runs.
        moved: counts of values that went, {"to the device": n, "to the session": n}.
    """

    def __init__(self, session, device):
        self._session, self._device = session, device
        self._there = set()  # names of the variables whose value on the device is the newest, or as new
        self._newer = set()  # those of them whose value in the session is older
        self._own = set()  # names of what the session does not know
        self.lock = threading.RLock()
        self.moved = {"to the device": 0, "to the session": 0}

    def before_session(self, touched, written):
        """Prepares for a run of the session; dicts or sets of names."""
        if self._there.isdisjoint(touched):
            return
        with self.lock:
            self.to_session(touched)
            self.forget(written)

    def after_session(self, written):
        """Takes note of a run of the session that wrote variables."""
        if not self._there.isdisjoint(written):
            with self.lock:
                self.forget(written)

    def to_session(self, names=None):
        """Gives the session the newer values of variables, None for all."""
        pending = sorted(self._newer if names is None else self._newer.intersection(names))
        if pending:
            self._session.write(self._device.get(pending))
            self._newer.difference_update(pending)
            self.moved["to the session"] += len(pending)

    def to_device(self, names):
        """Gives the device the values of variables that it has not, or older.

        Raises:
            tf.errors.FailedPreconditionError: one has no value in the session.
        """
        pending = sorted(set(names) - self._there - self._own)
        if pending:
            self._device.put(self._session.read(pending))
            self._there.update(pending)
            self.moved["to the device"] += len(pending)

    def own(self, name, value):
        """Puts a variable onto the device that the session does not have, once."""
        if name not in self._own:
            self._device.put({name: value})
            self._own.add(name)

    def written_on_device(self, names):
        """Takes note that a program writes variables; those that `own` put there stay the device's."""
        self._newer.update(set(names) - self._own)

    def forget(self, names):
        """Takes note that the session has newer values."""
        self._there.difference_update(names)
        self._newer.difference_update(names)

    def release(self):
        """Gives the session everything, and takes its values as the newest from now on."""
        with self.lock:
            self.to_session()
            self._there.clear()
