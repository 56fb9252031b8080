"""Runs the workers of one machine: their output as one, signals handed on, all ended when one fails.

Each worker leads a process group of its own, so that what it starts ends with it. However this process ends, nothing is
left behind: the kernel kills the workers with it (`parent`), and a guard, a process that only waits for that, kills
their groups. Standard library only.
"""

from __future__ import annotations

import collections
import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from typing import Any, Callable, Mapping, NamedTuple, Sequence

import npu_shim
from npu_shim.distributed.launcher.lines import OFTEN, Lines

# it runs our own package, wherever that lies, and takes nothing from the folder that it is started in
CODE = """
import sys
sys.path[0] = sys.argv[1]
from npu_shim.distributed.liveness import parent
parent.die_with(int(sys.argv[2]))
from npu_shim import cli
sys.exit(cli.main(sys.argv[3:]))
"""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# schedulers announce the end of a job by these two
FORWARDED = (*ENDING, signal.SIGUSR1, signal.SIGUSR2)
KEPT = 12  # lines of each worker, to show those of the one that failed
DRAINED = 1.0  # seconds that the output of an ended worker is read, if a process that it started holds it open


class Worker(NamedTuple):
    """A worker to start: its name, its place as messages say it, npu-shim's arguments, its environment."""

    name: str
    place: str
    arguments: Sequence[str]
    environment: Mapping[str, str]


class Failure(NamedTuple):
    """The worker that failed first: its status as subprocess has it (negative for a signal), its last lines."""

    worker: Worker
    status: int
    lines: Sequence[str]

    def how(self) -> str:
        """Says how it ended."""
        if self.status >= 0:
            return "exit status %d" % self.status
        names = {int(known): known.name for known in signal.Signals}
        return "killed by signal %d (%s)" % (-self.status, names.get(-self.status, "unknown"))


def run(workers: Sequence[Worker], grace: float) -> Failure | None:
    """Runs workers until all have ended; returns the first failure, or None.

    Args:
        workers: list of Worker.
        grace: seconds that the others have to end after the first failure, before they are killed.

    Raises:
        OSError: a worker cannot be started; those that run already are ended.
    """
    with _Job(grace) as job:
        for worker in workers:
            job.start(worker)
        return job.watch()


class _Running:
    """A worker that has been started."""

    def __init__(self, worker: Worker, process: subprocess.Popen[bytes]) -> None:
        self.worker, self.process = worker, process
        self.kept: collections.deque[bytes] = collections.deque(maxlen=KEPT)
        self.ended: float | None = None  # when it was seen to have

    def signal(self, number: int) -> None:
        """Sends a signal to it and to what it has started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):  # all of them have ended
            os.killpg(self.process.pid, number)

    def writer(self, out: Any) -> Callable[[bytes], None]:
        """Returns the function that writes a line of it to a stream."""
        prefix = b"[%s] " % self.worker.name.encode()

        def write(line: bytes) -> None:
            self.kept.append(line)
            out.write(prefix + line + b"\n")

        return write


class _Job:
    """The running workers of this machine."""

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._running: list[_Running] = []
        self._failed: _Running | None = None
        self._kill_at: float | None = None
        self._told_to_end = False  # by a signal that was handed on
        self._open: dict[Any, tuple[_Running, Lines]] = {}  # our end of a pipe -> whose it is
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> _Job:
        self._guard = _Guard()
        self._handlers = {number: signal.getsignal(number) for number in (*FORWARDED, signal.SIGCHLD)}
        self._awake, self._wakes = os.pipe()
        for end in (self._awake, self._wakes):
            os.set_blocking(end, False)
        self._selector.register(self._awake, selectors.EVENT_READ)
        self._woken_before = signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # a worker's end wakes us
        for number in FORWARDED:
            if self._handlers[number] is not signal.SIG_IGN:  # as under nohup; the workers inherit that
                signal.signal(number, self._forward)
        return self

    def __exit__(self, *_: Any) -> None:
        for running in self._running:
            if running.process.poll() is None:
                running.signal(signal.SIGKILL)
                running.process.wait()
        self._guard.dismiss()
        signal.set_wakeup_fd(self._woken_before)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._selector.close()
        for end in (self._awake, self._wakes):
            os.close(end)
        for end in self._open:
            end.close()

    def start(self, worker: Worker) -> None:
        """Starts a worker."""
        home = os.path.dirname(os.path.dirname(os.path.abspath(npu_shim.__file__)))
        command = [sys.executable, "-c", CODE, home, str(os.getpid()), *worker.arguments]
        process = subprocess.Popen(
            command, env=dict(worker.environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, bufsize=0, start_new_session=True,
        )  # fmt: skip
        self._guard.watch(process.pid)
        running = _Running(worker, process)
        self._running.append(running)
        for end, out in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
            self._open[end] = running, Lines(running.writer(out.buffer))
            self._selector.register(end, selectors.EVENT_READ)  # type: ignore[arg-type]  # pipes were asked for

    def watch(self) -> Failure | None:
        """Writes what the workers write until all have ended; returns the first failure, or None."""
        while self._open or any(running.ended is None for running in self._running):
            for key, _ in self._selector.select(OFTEN / 2):
                self._read(key.fileobj)
            now = time.monotonic()
            for _, lines in self._open.values():
                lines.tick(now)
            sys.stdout.flush()
            sys.stderr.flush()
            self._reap(now)
        if self._failed is None:
            return None
        kept = [line.decode("utf-8", "backslashreplace") for line in self._failed.kept]
        return Failure(self._failed.worker, self._failed.process.returncode, kept)

    def _read(self, end: Any) -> None:
        data = os.read(end if end == self._awake else end.fileno(), 1 << 16)
        if end == self._awake:
            return
        if data:
            self._open[end][1].feed(data, time.monotonic())
        else:
            self._finish(end)

    def _finish(self, end: Any) -> None:
        _, lines = self._open.pop(end)
        lines.end()
        self._selector.unregister(end)
        end.close()

    def _reap(self, now: float) -> None:
        """Sees which workers have ended, and ends the others when one has failed."""
        for running in self._running:
            if running.ended is None and running.process.poll() is not None:
                running.ended = now
                if running.process.returncode and self._failed is None:
                    self._failed = running
                    self._stop(now)
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = None
            for running in self._running:
                running.signal(signal.SIGKILL)
        for end, (running, _) in list(self._open.items()):
            if running.ended is not None and now - running.ended > DRAINED:
                self._finish(end)

    def _stop(self, now: float) -> None:
        """Asks all to end, also those that are stopped; those that a signal has told already are left in peace."""
        self._kill_at = now + self._grace
        for running in self._running:
            if not self._told_to_end:
                running.signal(signal.SIGTERM)
            running.signal(signal.SIGCONT)

    def _forward(self, number: int, _: Any) -> None:
        self._told_to_end = self._told_to_end or number in ENDING
        for running in self._running:
            running.signal(number)


class _Guard:
    """A process that kills the groups that it watches when this process ends without having dismissed it."""

    def __init__(self) -> None:
        reads, self._tells = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            status = 1
            try:
                os.close(self._tells)
                status = _guard(reads)
            finally:
                os._exit(status)
        os.close(reads)

    def watch(self, group: int) -> None:
        """Adds a process group."""
        os.write(self._tells, b"%d\n" % group)

    def dismiss(self) -> None:
        """Ends the guard, which kills nothing then."""
        with contextlib.suppress(BrokenPipeError):  # somebody has killed it
            os.write(self._tells, b"done\n")
        os.close(self._tells)
        os.waitpid(self._pid, 0)


def _guard(reads: int) -> int:
    """The guard's life: waits until the pipe is closed."""
    os.setsid()
    for number in FORWARDED:
        signal.signal(number, signal.SIG_IGN)
    with os.fdopen(reads, "rb") as told:
        groups = told.read().split()
    if b"done" in groups:
        return 0
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(int(group), signal.SIGKILL)
    return 0
