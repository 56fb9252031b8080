"""What the options say about watching a session's runs: dump_path, dump_step, profiling_options. No TensorFlow."""

import json
import os

from npu_shim.rewriter.errors import ConfigError

MOST_STEPS = 100


def asked_for(values):
    """Returns the names of the switches that are on in a dict of option values."""
    return [name for name in ("enable_dump", "enable_dump_debug", "profiling_mode") if values.get(name)]


def chosen_steps(text):
    """Returns the (first, last) pairs that dump_step means, "0|5|10-20", or None for every step.

    >>> chosen_steps("0|5|10-20")
    [(0, 0), (5, 5), (10, 20)]

    Raises:
        ConfigError: another form, or more than 100 parts.
    """
    if not text:
        return None
    parts = [part.split("-") for part in text.split("|")]
    if len(parts) > MOST_STEPS:
        raise ConfigError("dump_step has %d parts, expected at most %d" % (len(parts), MOST_STEPS), code="INTERNAL")
    if not all(len(part) <= 2 and all(each.isdigit() for each in part) for part in parts):
        raise ConfigError("dump_step='%s' is not of the form 0|5|10-20" % text, code="INTERNAL")
    return [(int(part[0]), int(part[-1])) for part in parts]


def dump_folder(path):
    """Returns dump_path.

    Raises:
        ConfigError: it is no folder that can be read and written.
    """
    if not path or not os.path.isdir(path) or not os.access(path, os.R_OK | os.W_OK):
        raise ConfigError("dump_path=%r must be a folder that can be read and written" % (path,), code="INTERNAL")
    return path


def profile_folder(text):
    """Returns the folder that profiling_options (JSON) names as "output".

    Raises:
        ConfigError: no JSON object, or no folder in it.
    """
    try:
        return os.fspath(json.loads(text or "{}")["output"])
    except (ValueError, KeyError, TypeError):
        raise ConfigError('profiling_options=%r must be JSON with "output"' % (text,), code="INTERNAL") from None


def problems(values):
    """Yields a function for each of these options that is asked for: it raises ConfigError or does nothing.

    Args:
        values: dict of option values.
    """
    if values.get("enable_dump") or values.get("enable_dump_debug"):
        yield lambda: dump_folder(values.get("dump_path"))
        yield lambda: chosen_steps(values.get("dump_step"))
    if values.get("profiling_mode"):
        yield lambda: profile_folder(values.get("profiling_options"))
