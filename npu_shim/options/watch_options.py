"""Options that watch a session's runs: dump_path, dump_step, profiling_options. No TensorFlow."""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Iterator, Mapping

from npu_shim.rewriter.errors import ConfigError

MOST_STEPS = 100


def switched_on(values: Mapping[str, Any]) -> list[str]:
    """Returns the names of the watching options that are switched on in a dict of option values."""
    return [name for name in ("enable_dump", "enable_dump_debug", "profiling_mode") if values.get(name)]


def parse_steps(text: str | None) -> list[tuple[int, int]] | None:
    """Parses dump_step, such as "0|5|10-20", into (first, last) pairs; None means every step.

    >>> parse_steps("0|5|10-20")
    [(0, 0), (5, 5), (10, 20)]

    Raises:
        ConfigError: another form, or more than 100 parts.
    """
    if not text:
        return None
    parts = [part.split("-") for part in text.split("|")]
    if len(parts) > MOST_STEPS:
        raise ConfigError("dump_step has %d parts, expected at most %d" % (len(parts), MOST_STEPS), code="INTERNAL")
    if not all(len(part) <= 2 and all(number.isdigit() for number in part) for part in parts):
        raise ConfigError("dump_step='%s' is not of the form 0|5|10-20" % text, code="INTERNAL")
    return [(int(part[0]), int(part[-1])) for part in parts]


def dump_folder(path: str | None) -> str:
    """Returns dump_path.

    Raises:
        ConfigError: it is not a folder that can be read and written.
    """
    if not path or not os.path.isdir(path) or not os.access(path, os.R_OK | os.W_OK):
        raise ConfigError("dump_path=%r must be a folder that can be read and written" % (path,), code="INTERNAL")
    return path


def profile_folder(text: str | None) -> str:
    """Returns the folder that profiling_options (JSON) names as "output".

    Raises:
        ConfigError: it is not a JSON object, or it names no folder.
    """
    try:
        return str(os.fspath(json.loads(text or "{}")["output"]))
    except (ValueError, KeyError, TypeError):
        raise ConfigError('profiling_options=%r must be JSON with "output"' % (text,), code="INTERNAL") from None


def problems(values: Mapping[str, Any]) -> Iterator[Callable[[], Any]]:
    """Yields a check for each of these options that is set: a function that raises ConfigError or does nothing.

    Args:
        values: dict of option values.
    """
    if values.get("enable_dump") or values.get("enable_dump_debug"):
        yield lambda: dump_folder(values.get("dump_path"))
        yield lambda: parse_steps(values.get("dump_step"))
    if values.get("profiling_mode"):
        yield lambda: profile_folder(values.get("profiling_options"))
