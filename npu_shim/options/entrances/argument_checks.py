"""The vendor's argument checks, which its own modules and some scripts call. Standard library only.

Source: Ascend adapter of 2021 to 2023-12 (r1.15), util.
"""

from __future__ import annotations

import os
from typing import Any, Sequence

from npu_shim.rewriter.errors import ConfigError, nearest

PROFILING_OPTIONS = ("training_trace", "task_trace", "op_trace")
TUNE_MODES = ("1", "2", "3", "4")


def check_not_none(value: Any, name: str) -> None:
    """Raises ConfigError, a ValueError, if `value` is None."""
    if value is None:
        raise ConfigError("%s must not be None" % name)


def check_positive_integer(value: Any, name: str) -> None:
    """Raises TypeError if `value` is not an int, ConfigError if it is not above 0."""
    _check_int(value, name)
    if value <= 0:
        raise ConfigError("%s must be positive, got %d" % (name, value))


def check_nonnegative_integer(value: Any, name: str) -> None:
    """Raises TypeError if `value` is not an int, ConfigError if it is negative."""
    _check_int(value, name)
    if value < 0:
        raise ConfigError("%s must not be negative, got %d" % (name, value))


def _check_int(value: Any, name: str) -> None:
    if not isinstance(value, int):
        raise TypeError("npu_shim: %s must be int, got %s" % (name, type(value)))


def check_bool_type(value: Any, name: str) -> None:
    """Raises TypeError if `value` is neither True nor False."""
    if not isinstance(value, bool):
        raise TypeError("npu_shim: %s must be True or False, got %r" % (name, value))


def convert_bool_to_int(value: Any) -> int:
    """Returns 1 for True, 0 for False, -1 for anything else."""
    return int(value) if isinstance(value, bool) else -1


def format_string(value: Any, name: str) -> str:
    """Returns a str unchanged, "" for None.

    Raises:
        TypeError: anything else.
    """
    if value is not None and not isinstance(value, str):
        raise TypeError("npu_shim: %s must be str, got %s" % (name, type(value)))
    return value or ""


def check_profiling_options(profiling_options: Sequence[str] | None = None) -> str:
    """Returns the options joined by ":".

    Args:
        profiling_options: list of "training_trace", "task_trace" or "op_trace", at least one.

    Raises:
        ConfigError: another option, or none.
    """
    given = profiling_options or ("",)
    wrong = [option for option in given if option not in PROFILING_OPTIONS]
    if wrong:
        words = (", ".join(PROFILING_OPTIONS), profiling_options, nearest(wrong[0], PROFILING_OPTIONS))
        raise ConfigError("profiling options must be among %s, got %r%s" % words)
    return ":".join(given)


def check_path(path: str) -> str:
    """Returns the real path of a folder that can be read and written.

    Raises:
        ConfigError: there is no such folder.
    """
    if not os.path.isdir(path) or not os.access(path, os.R_OK | os.W_OK):
        raise ConfigError("%r must be a folder that can be read and written" % (path,))
    return os.path.realpath(path)


def check_aoe_mode(aoe_mode: Any) -> None:
    """Raises ConfigError if `aoe_mode` is not one of "1", "2", "3", "4"."""
    _check_tuning("aoe_mode", aoe_mode)


def check_mstune_mode(mstune_mode: Any) -> None:
    """Raises ConfigError if `mstune_mode`, the name of aoe_mode in 2021, is not one of "1", "2", "3", "4"."""
    _check_tuning("mstune_mode", mstune_mode)


def _check_tuning(name: str, mode: Any) -> None:
    if mode not in TUNE_MODES:
        raise ConfigError("%s must be one of %s, got %r" % (name, ", ".join(TUNE_MODES), mode))
