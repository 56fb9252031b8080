"""What watches a session's runs as its options ask: dumps, the profiler, shapes; and what has no effect here."""

import functools
import logging

import tensorflow.compat.v1 as tf

from npu_shim.options import table
from npu_shim.rewriter.errors import ConfigError
from npu_shim.session import clusters as xla
from npu_shim.session import doors, dump, profiling

LOG = logging.getLogger("npu_shim")


def attach(session, values):
    """Makes a session watch its runs as its options say.

    Args:
        session: tf.Session.
        values: dict of option values.

    Raises:
        tf.errors.InternalError: profiling_options that cannot be read. Wrong dump options raise at the first run.
    """
    for name in without_effect(values):
        _log_once(name)
    shapes = xla.prepare(values)
    if shapes is not None:
        doors.watch(session, shapes.run)
    if values.get("enable_dump") or values.get("enable_dump_debug"):
        dump.attach(session, values)
    if values.get("profiling_mode"):
        try:
            profiling.attach(session, values.get("profiling_options"))
        except ConfigError as error:
            raise tf.errors.InternalError(None, None, str(error)) from error


def without_effect(values):
    """Returns the names of the options in `values` (dict) that somebody set and that have no effect off the NPU.

    NPUEstimator writes some options whether they were given or not: a value that NPURunConfig has by itself counts as
    not set.
    """
    known = table.options()
    return [
        name
        for name, value in values.items()
        if known[name].status == "accepted" and value not in (*_unset(known[name]), None, "")
    ]


def _unset(option):
    return (option.default, option.run_config["default"]) if option.run_config is not None else (option.default,)


@functools.lru_cache(maxsize=None)
def _log_once(name):
    LOG.info("npu_shim: option %s is accepted and has no effect here", name)
