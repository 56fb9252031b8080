"""Messages over one end of a socket pair: a dict as JSON, bytes, and file descriptors."""

from __future__ import annotations

import array
import contextlib
import json
import select
import socket
import struct
import time
from typing import Any, Sequence, Tuple

HEAD = struct.Struct("<QQB")  # bytes of JSON, other bytes, file descriptors
MOST = 4  # file descriptors of a message
Message = Tuple[Any, bytes, Tuple[int, ...]]


class Closed(EOFError):
    """The other side has closed its end, or is dead."""


class Channel:
    """One end of a socket pair. Its users take turns: one thread at a time sends, one at a time receives.

    Args:
        end: connected socket of the family AF_UNIX, a stream.
    """

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def send(self, message: Any, data: bytes = b"", descriptors: Sequence[int] = ()) -> None:
        """Sends a message.

        Args:
            message: what JSON can hold.
            data: further bytes.
            descriptors: file descriptors, MOST at most, of which the receiver gets copies.

        Raises:
            Closed: nobody receives it.
        """
        text = json.dumps(message).encode()
        rights = array.array("i", descriptors).tobytes()
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if rights else []
        try:
            # at once if it is small: who waits for a message never has half of it
            whole = HEAD.pack(len(text), len(data), len(descriptors)) + text
            sent = self._end.sendmsg([whole, data], ancillary)  # descriptors travel with the first byte
            for part in (whole, data):
                self._end.sendall(memoryview(part)[min(sent, len(part)) :])
                sent -= min(sent, len(part))
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed from error

    def receive(self) -> Message:
        """Waits for a message and returns (message, data, file descriptors), which the caller closes.

        Raises:
            Closed: there will be none.
        """
        try:
            room = socket.CMSG_SPACE(MOST * array.array("i").itemsize)
            head, ancillary, _, _ = self._end.recvmsg(HEAD.size, room)
            if not head:
                raise Closed
            head += self._exactly(HEAD.size - len(head))
            text, data, count = HEAD.unpack(head)
            descriptors = array.array("i")
            for _, _, rights in ancillary:
                descriptors.frombytes(rights)
            assert len(descriptors) == count, "lost file descriptors"
            return json.loads(self._exactly(text)), bytes(self._exactly(data)), tuple(descriptors)
        except ConnectionResetError as error:
            raise Closed from error

    def wait(self, seconds: float = float("inf")) -> bool:
        """Returns whether something can be received, after at most this time; Ctrl-C may interrupt it."""
        poll = select.poll()  # select() takes no descriptors above 1023
        poll.register(self._end, select.POLLIN)
        until = time.monotonic() + seconds
        while not poll.poll(1000 * min(seconds, 1)):  # a signal that comes just before poll() does not end it
            if time.monotonic() > until:
                return False
        return True

    def close(self) -> None:
        """Ends the connection for both sides, also if a forked process holds a copy of this end."""
        with contextlib.suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        self._end.close()

    def _exactly(self, count: int) -> bytearray:
        received = bytearray(count)
        view = memoryview(received)
        while view:
            read = self._end.recv_into(view)
            if not read:
                raise Closed
            view = view[read:]
        return received
