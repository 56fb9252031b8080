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


def writes(folder: str) -> bool:
    """Whether this rank writes into a folder; all ranks must ask at the same time.

    Args:
        folder: path of this rank's folder, which is made if it is not there.
    """
    mine = _identity(folder)
    shared = tuple(_of_the_first(mine)) == mine
    return not shared or ranks.world_rank() == 0


def wait() -> None:
    """Waits for all ranks: what one of them has written is there for the others then."""
    _of_the_first((0, 0))


def _of_the_first(numbers):
    """Returns rank 0's two numbers."""
    with tf.Graph().as_default():
        given = broadcast(tf.constant(numbers, tf.int64), 0)
        with tf.Session() as session:
            return session.run(given)


def _identity(folder):
    """Two numbers that a folder has on every machine that sees it."""
    if "://" in folder:
        return zlib.crc32(folder.encode()), 0
    os.makedirs(folder, exist_ok=True)
    return os.stat(folder).st_ino, os.statvfs(folder).f_blocks


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
