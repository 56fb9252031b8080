"""tensorflow.python.training.tensorboard_logging: messages for the log and the events file (as of 1.15.5)."""

from __future__ import annotations

import functools
import time
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.names import names

DEBUG, INFO, WARN, ERROR, FATAL = LEVELS = ("DEBUG", "INFO", "WARN", "ERROR", "FATAL")
_UNSET: Any = object()
# the writer, or _UNSET until one, or None, is set; messages below the verbosity are not written
_STATE: dict[str, Any] = {"writer": _UNSET, "verbosity": WARN}


def get_verbosity() -> str:
    """The lowest level that is written to the events file, WARN at first."""
    return str(_STATE["verbosity"])


def set_verbosity(verbosity: str) -> None:
    """Sets the lowest level that is written; ValueError for what is no level."""
    _STATE["verbosity"] = _checked(verbosity)


def set_summary_writer(summary_writer: Any) -> None:
    """Sets the tf.summary.FileWriter that messages go to; None for the log only."""
    _STATE["writer"] = summary_writer


def _clear_summary_writer() -> None:
    """As before `set_summary_writer`."""
    _STATE["writer"] = _UNSET


def log(level: str, message: str, *args: Any) -> None:
    """Logs `message % args`, and writes it as an event if its level is high enough.

    Raises:
        RuntimeError: before `set_summary_writer`.
        ValueError: `level` is none.
    """
    if _STATE["writer"] is _UNSET:
        raise RuntimeError("tensorboard_logging: call set_summary_writer first, with None for no events")
    if LEVELS.index(_checked(level)) >= LEVELS.index(_STATE["verbosity"]) and _STATE["writer"] is not None:
        # the protocol buffer says DEBUGGING for DEBUG, and the others as they are
        said = tf.LogMessage(level="DEBUGGING" if level == DEBUG else level, message=message % args)
        _STATE["writer"].add_event(tf.Event(wall_time=time.time(), log_message=said))
    names.load("tensorflow.python.platform.tf_logging.log")(getattr(tf.logging, level), message, *args)


def _checked(level: str) -> str:
    if level not in LEVELS:
        raise ValueError("'%s' is no level of tensorboard_logging: %s" % (level, ", ".join(LEVELS)))
    return level


debug, info, warn, error, fatal = (functools.partial(log, level) for level in LEVELS)
