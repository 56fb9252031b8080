"""Where hosts meet before each step: all tell what they are about to run, and each finds out who is missing.

    b: {"run": "train", ...} -->  a (the first host) waits for a line of each  --> [a's, b's] to all

A line of JSON over one TCP connection of each host to the first. A thread reads, and says every few seconds that this
process is alive. A host that has ended, is stopped, or does not come in time is a fault, which all others learn of and
raise: one program of several hosts waits for ever for a host that does not run it. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
import time
from typing import Any, Callable, Sequence

from npu_shim.distributed.hosts.job import Hosts

TICK = 2.0  # seconds between two signs of life
PAUSE = 0.2  # seconds between two attempts to connect
LATER = 10.0  # seconds for which the others wait longer than the first host, which knows more
MOST = 1 << 16  # bytes that are read at a time
ROW, ROWS, FAULT, END, ALIVE = "row", "rows", "fault", "end", "alive"  # kinds of lines


class Fault(RuntimeError):
    """A host has ended, or does not come; the text names it."""


class Meeting:
    """This host's connection to the others, which are there once it is made.

    Args:
        hosts: the job.
        about: what this host says of itself, a value that JSON can hold.
        connect: seconds for the others to come.
        limit: seconds for another host to come to a meeting.

    Attributes:
        hosts: the job.
        about: what each host has said of itself, in their order.
        fault: why the hosts' job has ended, "" while it goes on.

    Raises:
        Fault: a host does not come in time, or is given another list of hosts; or the port is taken.
    """

    def __init__(self, hosts: Hosts, about: Any, connect: float, limit: float) -> None:
        self.hosts, self.fault = hosts, ""
        self._limit = limit
        self._changed = threading.Condition()
        self._ended: set[int] = set()
        self._rows: dict[int, list[Any]] = {}  # host -> what it has brought, to meetings that have not been
        self._told: list[Any] = []  # rows of meetings that the first host has told
        self._losses: list[Callable[[], Any]] = []
        until = time.monotonic() + connect
        self._peers = self._accepted(until, connect) if hosts.index == 0 else {0: self._connected(until, connect)}
        self._heard = dict.fromkeys(self._peers, time.monotonic())
        threading.Thread(target=self._read, daemon=True, name="npu_shim_hosts").start()
        self.about = self.meet(about, "the start", connect)

    def at_loss(self, function: Callable[[], Any]) -> None:
        """Has a function called as soon as a fault is known, by another thread."""
        self._losses.append(function)

    def meet(self, row: Any, what: str, seconds: float | None = None) -> list[Any]:
        """Waits for the other hosts, and returns what each has brought, in the order of hosts.

        Args:
            row: what this host brings, a value that JSON can hold.
            what: what it is about to do, for messages.
            seconds: how long to wait; None for the limit.

        Raises:
            Fault: a host does not come.
        """
        limit = self._limit if seconds is None else seconds
        if self.hosts.index:
            self._send(0, ROW, row)
            return list(self._wait(lambda: bool(self._told), limit + LATER, lambda: [0], what, self._next_told))
        others = range(1, len(self.hosts.names))
        rows = [row, *self._wait(lambda: all(map(self._rows.get, others)), limit, self._missing, what, self._next_rows)]
        for host in others:
            self._send(host, ROWS, rows)
        return rows

    def fail(self, why: str) -> None:
        """Tells the others that this host ends, and why."""
        with self._changed:
            is_new, self.fault = not self.fault, self.fault or why
            self._changed.notify_all()
        if is_new:
            self._tell(why)

    def end(self, seconds: float = LATER) -> None:
        """Says that this host is done; the first waits a while for the others to be, since their JAX needs its."""
        for host in self._peers:
            with contextlib.suppress(OSError):
                self._send(host, END, None)
        if self.hosts.index == 0:
            with self._changed:
                self._changed.wait_for(lambda: bool(self.fault) or len(self._ended) == len(self._peers), seconds)
        with self._changed:
            self._ended.update(self._peers)

    def _wait(
        self, there: Callable[[], bool], seconds: float, missing: Callable[[], Sequence[int]], what: str,
        taken: Callable[[], Any],
    ) -> Any:  # fmt: skip
        with self._changed:
            arrived = self._changed.wait_for(lambda: bool(self.fault) or there() or self._are_done(missing), seconds)
            if self.fault:
                raise Fault(self.fault)
            if arrived and there():
                return taken()
            absent = missing()
            done = [host for host in absent if host in self._ended]
            named, own = self._named(done or absent), self.hosts.name
            if done:
                text = "%s has come to the end of the script, and host %s is at %s" % (named, own, what)
            else:
                text = "%s has not come to %s within %g s" % (named, what, seconds)
        self.fail(text)
        raise Fault(text)

    def _are_done(self, missing: Callable[[], Sequence[int]]) -> bool:
        return any(host in self._ended for host in missing())

    def _named(self, numbers: Sequence[int]) -> str:
        return ", ".join("host %s" % self.hosts.names[number] for number in numbers)

    def _missing(self) -> list[int]:
        return [host for host in range(1, len(self.hosts.names)) if not self._rows.get(host)]

    def _next_told(self) -> Any:
        return self._told.pop(0)

    def _next_rows(self) -> list[Any]:
        return [self._rows[host].pop(0) for host in range(1, len(self.hosts.names))]

    def _accepted(self, until: float, seconds: float) -> dict[int, socket.socket]:
        """The first host's connections, by number of the host."""
        peers: dict[int, socket.socket] = {}
        with socket.socket() as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listening.bind(("", self.hosts.port))
            except OSError as error:
                raise Fault("port %d of host %s: %s" % (self.hosts.port, self.hosts.name, error.strerror)) from None
            listening.listen(len(self.hosts.names))
            while len(peers) + 1 < len(self.hosts.names):
                absent = [number for number in range(1, len(self.hosts.names)) if number not in peers]
                listening.settimeout(max(until - time.monotonic(), 0.01))
                try:
                    one = listening.accept()[0]
                except socket.timeout:
                    text = "%s has not come within %g s: is npu-shim launch running there, with the same --hosts?"
                    raise Fault(text % (self._named(absent), seconds)) from None
                number = self._greeted(one, until)
                if number in absent:
                    peers[number] = one
                else:
                    one.close()
        return peers

    def _greeted(self, one: socket.socket, until: float) -> int:
        """The number of the host that has connected, 0 for none of the job."""
        one.settimeout(max(min(until - time.monotonic(), LATER), 0.01))
        with contextlib.suppress(OSError, ValueError, TypeError):
            text = b""
            while not text.endswith(b"\n") and len(text) < MOST:  # a byte at a time: what follows is the thread's
                byte = one.recv(1)
                if not byte:
                    return 0
                text += byte
            names, index = json.loads(text)
            if names == list(self.hosts.names):
                one.settimeout(None)
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return int(index)
            given = self.hosts.name, ",".join(self.hosts.names), ",".join(names)
            why = "host %s was given --hosts %s, and another one --hosts %s: they must be the same" % given
            one.sendall(json.dumps([FAULT, why]).encode() + b"\n")
        return 0

    def _connected(self, until: float, seconds: float) -> socket.socket:
        address = self.hosts.names[0], self.hosts.port
        while True:
            try:
                one = socket.create_connection(address, max(until - time.monotonic(), 0.01))
                break
            except OSError as error:
                if time.monotonic() > until:
                    text = "host %s does not listen at port %d within %g s (%s)"
                    raise Fault(text % (*address, seconds, error.strerror or error)) from None
                time.sleep(PAUSE)
        one.settimeout(None)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one.sendall(json.dumps([list(self.hosts.names), self.hosts.index]).encode() + b"\n")
        return one

    def _send(self, host: int, kind: str, value: Any) -> None:
        line = json.dumps([kind, value]).encode() + b"\n"
        # lines of two threads must not mix; of a host that has ended, the thread that reads says so
        with self._changed, contextlib.suppress(OSError):
            self._peers[host].sendall(line)

    def _tell(self, why: str) -> None:
        for host in self._peers:
            self._send(host, FAULT, why)
        for function in self._losses:
            function()

    def _read(self) -> None:
        """Reads what the others send, until the job ends."""
        texts, of = dict.fromkeys(self._peers, b""), {peer: host for host, peer in self._peers.items()}
        said = time.monotonic()
        while of and not self.fault:
            ready = select.select(list(of), [], [], TICK)[0]
            for peer in ready:
                host = of[peer]
                try:
                    read = peer.recv(MOST)
                except OSError:
                    read = b""
                *lines, texts[host] = (texts[host] + read).split(b"\n")
                for line in lines:
                    self._heed(host, *json.loads(line))
                self._heard[host] = time.monotonic()
                if not read:
                    del of[peer]
                    self._lost(host, "has ended: see its own output")
            if time.monotonic() - said > TICK:
                said = time.monotonic()
                self._look(of.values())

    def _look(self, hosts: Any) -> None:
        """Says that this host is alive, and looks whether the others have said so."""
        for host in list(hosts):
            self._send(host, ALIVE, None)
            silent = time.monotonic() - self._heard[host]
            if silent > max(self._limit, 3 * TICK):
                self._lost(host, "has not answered for %.0f s: is its process stopped?" % silent)

    def _lost(self, host: int, how: str) -> None:
        if host not in self._ended:
            self.fail("%s %s" % (self._named([host]), how))

    def _heed(self, host: int, kind: str, value: Any) -> None:
        if kind == FAULT:
            self.fail(value)  # the first host tells all others
            return
        with self._changed:
            if kind == ROW:
                self._rows.setdefault(host, []).append(value)
            elif kind == ROWS:
                self._told.append(value)
            elif kind == END:
                self._ended.add(host)
            self._changed.notify_all()
