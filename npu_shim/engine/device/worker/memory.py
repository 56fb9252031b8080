"""Memory that two processes share: it has no name in any file system, so that nothing is left behind.

Linux counts it like a process's own memory. The size of /dev/shm, 64 MB in many containers, does not limit it, unless
the C library lacks memfd_create: then it is an unlinked file there.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
from typing import Any, Iterable, NamedTuple, Sequence

from npu_shim.pjrt import arrays

FOLDER = "/dev/shm"
CLOSE_ON_EXEC = 1  # MFD_CLOEXEC


class NoRoom(RuntimeError):
    """There is not enough shared memory."""


class Tensor(NamedTuple):
    """The name, dtype (its name) and shape of an array in shared memory."""

    name: str
    dtype: str
    shape: Sequence[int]


class Block:
    """A piece of shared memory.

    Args:
        descriptor: of its file; this object closes it.

    Attributes:
        descriptor: of its file, for the other process.
        size: bytes.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        try:
            self.size = os.fstat(descriptor).st_size
            self._memory = mmap.mmap(descriptor, self.size)
        except BaseException:
            os.close(descriptor)
            raise

    @classmethod
    def of(cls, size: int) -> Block:
        """Returns a new block of zeros. Raises NoRoom if there is not enough memory."""
        size = max(size, 1)
        try:
            descriptor = _descriptor()
        except OSError as error:
            raise _no_room(size, error) from error
        try:
            # takes all of the memory now: later, a page that cannot be had would kill the process that touches it
            os.posix_fallocate(descriptor, 0, size)
        except OSError as error:
            os.close(descriptor)
            raise _no_room(size, error) from error
        return cls(descriptor)

    def arrays(self, tensors: Iterable[Any], start: int = 0) -> dict[str, Any]:
        """Returns dict of name to np.ndarray in this memory, see `pjrt.arrays.laid_out`."""
        return arrays.laid_out(self._memory, tensors, start)

    def __del__(self) -> None:
        if hasattr(self, "_memory"):
            os.close(self.descriptor)


def _descriptor() -> int:
    """Returns the descriptor of a new file that has no name."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("npu_shim")
    library = ctypes.CDLL(None, use_errno=True)
    if hasattr(library, "memfd_create"):  # Python 3.7
        descriptor: int = library.memfd_create(b"npu_shim", CLOSE_ON_EXEC)
        if descriptor >= 0:
            return descriptor
    with tempfile.TemporaryFile(dir=FOLDER) as file:
        return os.dup(file.fileno())


def _no_room(size: int, error: OSError) -> NoRoom:
    return NoRoom("%.1f MB of shared memory is not available: %s" % (size / 1e6, error.strerror))
