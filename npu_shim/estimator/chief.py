"""Which ranks write checkpoints and summaries: of those that share a folder, rank 0 alone.

Ranks with folders of their own write all, as their scripts have it. Ranks that do not write compute the same summaries,
since these may need collectives.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from typing import Any, Iterator, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.distributed.collectives.hccl import broadcast
from npu_shim.distributed.job import ranks

_URL, _PATH = range(2)  # kinds of folders: what a URL names is the same on all machines

def writes(folder: str) -> bool:
    """Whether this rank writes into a folder; all ranks must ask at the same time.

    Rank 0 puts a file with a random name into its folder: who finds it there shares the folder. Numbers of the folder
    and its disk do not tell, since machines that were set up from one image have equal ones.

    Args:
        folder: path of this rank's folder, which is made if it is not there.

    Raises:
        OSError: the folder cannot be made, or rank 0 cannot write into it.
    """
    first, kind, number = ranks.world_rank() == 0, _URL, zlib.crc32(folder.encode())
    if "://" not in folder:
        os.makedirs(folder, exist_ok=True)
        kind, number = _PATH, int.from_bytes(os.urandom(7), "big")
    mark = _mark(folder, number)
    try:
        if first and kind == _PATH:
            with open(mark, "wb"):
                pass
        given = tuple(_of_the_first((kind, number)))
        shared = os.path.exists(_mark(folder, given[1])) if given[0] == kind == _PATH else given == (kind, number)
        wait()  # until all have looked
    finally:
        if first and kind == _PATH:
            with contextlib.suppress(OSError):
                os.remove(mark)
    return first or not shared


def wait() -> None:
    """Waits for all ranks: what one of them has written is there for the others then."""
    _of_the_first((0, 0))


def _of_the_first(numbers):
    """Returns rank 0's two numbers, once all ranks have asked."""
    with tf.Graph().as_default():
        given = broadcast(tf.constant(numbers, tf.int64), 0)
        with tf.Session() as session:
            return session.run(given)


def _mark(folder, number):
    return os.path.join(folder, ".npu_shim_shared_%014x" % number)


def without_savers(hooks: Sequence[Any]) -> list[Any]:
    """Returns the hooks that save no checkpoints."""
    return [hook for hook in hooks if not isinstance(hook, tf.train.CheckpointSaverHook)]


@contextlib.contextmanager
def not_writing(config: Any, folder: str) -> Iterator[None]:
    """Scope in which a RunConfig asks for no checkpoints, and summaries of a folder are not written."""
    names = ("_save_checkpoints_steps", "_save_checkpoints_secs")
    before = {name: getattr(config, name) for name in names}
    writers = tf.summary.FileWriterCache._cache
    writer = writers.get(folder)
    writers[folder] = _NoWriter()
    for name in names:
        setattr(config, name, None)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(config, name, value)
        del writers[folder]
        if writer is not None:
            writers[folder] = writer


class _NoWriter:
    """A summary writer that writes nothing."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None
