"""Writes files and folders that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from typing import BinaryIO, Iterator

from npu_shim.rewriter.errors import ConfigError


@contextlib.contextmanager
def file(path: str) -> Iterator[BinaryIO]:
    """Context that writes a file, which replaces what is at `path` when the context ends without an error.

    Raises:
        ConfigError: it cannot be written; no partial file stays.
    """
    unfinished = _beside(path)
    try:
        with _errors_of(path):
            with open(unfinished, "xb") as f:
                yield f
            os.replace(unfinished, path)
    finally:
        if os.path.exists(unfinished):
            os.unlink(unfinished)


@contextlib.contextmanager
def folder(path: str, parents: bool = False) -> Iterator[str]:
    """Context that fills a folder, whose path it gives; it becomes `path` when the context ends without an error.

    Args:
        path: where nothing is, or an empty folder.
        parents: whether to make the folders above it.

    Raises:
        ConfigError: it cannot be written; nothing partial stays.
    """
    unfinished = _beside(path)
    try:
        with _errors_of(path):
            if parents:
                os.makedirs(os.path.dirname(unfinished), exist_ok=True)
            os.mkdir(unfinished)
            yield unfinished
            os.replace(unfinished, path)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _beside(path: str) -> str:
    """An unused path in the same folder: what is made there has the usual permissions, and a rename moves it."""
    return "%s.%s.unfinished" % (os.path.abspath(path), uuid.uuid4().hex[:8])


@contextlib.contextmanager
def _errors_of(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as reason:
        raise ConfigError("'%s' cannot be written: %s" % (path, reason.strerror or reason)) from reason
