"""Starts the worker: one for this process, with a connection for each session.

Nothing here ends it when this process ends: it sees that itself (serving.py), whatever way that is.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from typing import Any

import npu_shim
from npu_shim.engine.device.worker import environments
from npu_shim.engine.device.worker.channel import Channel, Closed
from npu_shim.pjrt import other_python
from npu_shim.pjrt.ranks import Job
from npu_shim.rewriter.errors import ConfigError

# it runs our own package, whatever is installed there, and takes nothing from the folder that the script runs in
CODE = """
import json, sys
sys.path[:1] = []
import importlib.util as util
spec = util.spec_from_file_location("npu_shim", sys.argv[1])
sys.modules["npu_shim"] = util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["npu_shim"])
from npu_shim.engine.device.worker import serving
count = int(sys.argv[4]) if sys.argv[4].isdigit() else sys.argv[4]
serving.main(int(sys.argv[2]), sys.argv[3] == "main", count, json.loads(sys.argv[5]))
"""
START = 300  # seconds until the worker must have answered: importing JAX and finding GPUs can take a minute
END = 5  # seconds that a worker that is told to end may take
ERRORS = {"ConfigError": ConfigError, "ImportError": ImportError}

_lock = threading.Lock()
_started: dict[tuple[Any, ...], Started] = {}  # (our process, interpreter, devices, its job) -> its worker


class Gone(RuntimeError):
    """The worker has ended."""


class Started:
    """A running worker.

    Args:
        interpreter: path of a Python.
        devices: how many it shall have where it makes them of a CPU, or "all".
        job: the `ranks.Job` that it joins, None for none.

    Attributes:
        about: {"python": its version, "jax": JAX's, "platform": "cpu", "devices": ["TFRT_CPU_0"]}.

    Raises:
        ConfigError: the interpreter cannot be run, or does not become a worker.
        ImportError: it has no JAX.
    """

    def __init__(self, interpreter: str, devices: int | str = 1, job: Job | None = None) -> None:
        self._ours = os.getpid()
        self._lock = threading.Lock()
        own, other = socket.socketpair()
        with own, other:
            self._running = _run(interpreter, other, devices, job)
            self._control = Channel(own.dup())
        self.about = self._welcome(interpreter)

    def connect(self, message: Any) -> tuple[Channel, Channel]:
        """Returns the two channels of a new connection to the worker, opened with a message.

        Raises:
            Gone: it has ended.
        """
        pairs = socket.socketpair(), socket.socketpair()
        own = tuple(Channel(pair[0]) for pair in pairs)
        try:
            with self._lock:  # of the threads that open sessions one sends at a time
                self._control.send(message, b"", [other.fileno() for _, other in pairs])
        except Closed:
            for channel in own:
                channel.close()
            raise self.gone() from None
        finally:
            for _, other in pairs:
                other.close()
        return own[0], own[1]

    @property
    def usable(self) -> bool:
        """Whether it runs."""
        return self._running.poll() is None

    @property
    def pid(self) -> int:
        """Its process."""
        return self._running.pid

    @property
    def is_ours(self) -> bool:
        """Whether this process started it; a forked one has only a copy of this object."""
        return os.getpid() == self._ours

    def gone(self) -> Gone:
        """Waits until the worker has ended and returns the error that says how."""
        try:
            status = self._running.wait(END)
        except subprocess.TimeoutExpired:
            return Gone("the engine's worker has closed its connection")
        how = "killed by signal %d" % -status if status < 0 else "status %d" % status
        return Gone("the engine's worker has ended (%s)" % how)

    def kill(self) -> None:
        """Ends the worker at once."""
        if self.is_ours:
            self._running.kill()

    def end(self) -> None:
        """Ends the worker and waits for it."""
        if not self.is_ours:
            return
        self._control.close()
        try:
            self._running.wait(END)
        except subprocess.TimeoutExpired:
            self._running.kill()
            self._running.wait()

    def _welcome(self, interpreter: str) -> Any:
        """Waits for the worker's first message."""
        try:
            if not self._control.wait(START):
                raise ConfigError("'%s' did not start as the engine's worker within %d s" % (interpreter, START))
            about = self._control.receive()[0]
        except Closed:
            text = "'%s' is not an interpreter for the engine: %s" % (interpreter, self.gone())
            raise ConfigError(text) from None
        except BaseException:
            self._running.kill()
            self.end()
            raise
        if "error" in about:
            self.end()
            raise ERRORS.get(about["error"], ConfigError)("%s (in '%s')" % (about["text"], interpreter))
        return about


def _run(interpreter: str, end: socket.socket, devices: int | str, job: Job | None) -> subprocess.Popen[bytes]:
    """Starts the interpreter, which has one end of the socket pair."""
    thread = "main" if threading.current_thread() is threading.main_thread() else "other"
    own = other_python.environment()
    try:
        with environments.held(interpreter) as (python, marks):
            code = [python, "-c", CODE, os.path.abspath(npu_shim.__file__), str(end.fileno()), thread, str(devices)]
            return subprocess.Popen(
                [*code, json.dumps(job or ())], env=own, pass_fds=[end.fileno(), *marks], stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )  # fmt: skip
    except OSError as error:
        raise ConfigError("'%s' cannot be run: %s" % (interpreter, error.strerror)) from error


def worker(interpreter: str, devices: int | str = 1, job: Job | None = None) -> Started:
    """Returns this process's worker on an interpreter, started if it does not run; errors as `Started`."""
    key = os.getpid(), interpreter, devices, job
    with _lock:
        running = _started.get(key)
        if running is None or not running.usable:
            if running is not None:
                running.end()
            running = _started[key] = Started(interpreter, devices, job)
        return running


def _forget() -> None:
    """In a forked process: what it has copies of belongs to its parent, whose lock may be held."""
    global _lock
    _lock = threading.Lock()
    _started.clear()


os.register_at_fork(after_in_child=_forget)
