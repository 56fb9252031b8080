"""Restoring across dtypes for an unmodified script: every Saver that names no builder gets the one that casts."""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable

import tensorflow.compat.v1 as tf

VARIABLE = "NPU_SHIM_RESTORE_CASTING"  # environment variable: "1" for all processes of a run
_replaced = contextlib.ExitStack()
_originals: list[Any] = []  # the Saver's own __init__, while it is replaced


def install(told: Callable[[], Any] = lambda: None) -> None:
    """Lets Savers, `init_from_checkpoint` and warm starts cast between float32, float16 and bfloat16 from now on.

    Variables that only a loss scale, or float32 masters, have added, and that a file lacks, keep their initial values.

    Args:
        told: function that is called when a Saver gets the casts.
    """
    if _originals:
        return
    from npu_shim.checkpoint.saver import CastingSaverBuilder, casting_initializers

    original = tf.train.Saver.__init__

    @functools.wraps(original)
    def init(self, *arguments, **options):
        if options.get("builder") is None and options.get("saver_def") is None and len(arguments) < 8:
            told()
            options["builder"] = CastingSaverBuilder(init_missing_loss_scale=True)
        original(self, *arguments, **options)

    _originals.append(original)
    tf.train.Saver.__init__ = init
    _replaced.enter_context(casting_initializers())


def uninstall() -> None:
    """Takes `install` back; Savers that were made meanwhile cast on."""
    while _originals:
        tf.train.Saver.__init__ = _originals.pop()
        _replaced.close()
