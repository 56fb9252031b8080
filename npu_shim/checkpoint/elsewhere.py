"""Checkpoints and summaries that another host writes for all: here they go to a folder of their own, and found there.

    Saver.save(session, "out/model")   ->   FOLDER/home/me/out/model-7, and the script is told "out/model-7"
    latest_checkpoint("out")           ->   what this host has saved, else what is in "out"

So hosts that share a file system do not write the same files, and those that do not share one find what they saved.
"""

from __future__ import annotations

import contextlib
import functools
import os
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals

_replaced = contextlib.ExitStack()


def install(folder: str) -> None:
    """Has Savers and summary writers of this process write into a folder from now on.

    Args:
        folder: path; what a script writes to /a/b is in FOLDER/a/b.
    """
    uninstall()
    inside = functools.partial(_inside, os.path.abspath(folder))
    saver = tf.train.Saver
    _replace(saver, "save", lambda original: _saving(original, inside))
    _replace(saver, "restore", lambda original: _restoring(original, inside))
    _replace(tf.summary.FileWriter, "__init__", lambda original: _writing(original, inside))
    checkpoints = tf_internals.checkpoint_management()
    _replace(checkpoints, "_GetCheckpointFilename", lambda original: _naming(original, inside))


def uninstall() -> None:
    """Takes `install` back."""
    _replaced.close()


def _replace(owner: Any, name: str, wrap: Any) -> None:
    original = getattr(owner, name)
    setattr(owner, name, functools.wraps(original)(wrap(original)))
    _replaced.callback(setattr, owner, name, original)


def _inside(folder: str, path: Any) -> str:
    """Where a path of the script's is in the folder; one that is there already, as it is."""
    text = os.fspath(path) if isinstance(path, os.PathLike) else tf.compat.as_str_any(path)
    if "://" in text:
        return os.path.join(folder, text.replace("://", "/"))
    text = os.path.abspath(text)
    return text if text == folder or text.startswith(folder + os.sep) else os.path.join(folder, text.lstrip(os.sep))


def _saving(original: Any, inside: Any) -> Any:
    def save(self: Any, sess: Any, save_path: Any, *arguments: Any, **options: Any) -> Any:
        if not save_path:
            return original(self, sess, save_path, *arguments, **options)
        there = inside(save_path)
        os.makedirs(os.path.dirname(there), exist_ok=True)
        written = original(self, sess, there, *arguments, **options)
        return written and str(save_path) + written[len(there) :]

    return save


def _restoring(original: Any, inside: Any) -> Any:
    def restore(self: Any, sess: Any, save_path: Any) -> Any:
        own = save_path and inside(save_path)
        return original(self, sess, own if own and tf.train.checkpoint_exists(own) else save_path)

    return restore


def _writing(original: Any, inside: Any) -> Any:
    def init(self: Any, logdir: Any = None, *arguments: Any, **options: Any) -> None:
        original(self, logdir and inside(logdir), *arguments, **options)

    return init


def _naming(original: Any, inside: Any) -> Any:
    def named(save_dir: Any, latest_filename: Any) -> Any:
        own = original(inside(save_dir), latest_filename)
        return own if os.path.exists(own) or inside(save_dir) == save_dir else original(save_dir, latest_filename)

    return named
