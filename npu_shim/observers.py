"""What watches a session's runs because its options ask for it: dumps and the profiler."""

import tensorflow.compat.v1 as tf

from npu_shim import dump, options, profiling
from npu_shim.rewriter.errors import ConfigError

DUMP = ("enable_dump", "enable_dump_debug", "dump_path", "dump_step", "dump_mode", "dump_data", "dump_layer")
PROFILE = ("profiling_mode", "profiling_options")


def attach(session, entry):
    """Makes a session watch its runs as its NpuOptimizer entry (a CustomGraphOptimizer) says.

    Raises:
        tf.errors.InternalError: profiling_options that cannot be read. Wrong dump options raise at the first run.
    """
    dumping, profile = _values(entry, DUMP), _values(entry, PROFILE)
    if dumping.get("enable_dump") or dumping.get("enable_dump_debug"):
        dump.attach(session, dumping)
    if profile.get("profiling_mode"):
        try:
            profiling.attach(session, profile.get("profiling_options"))
        except ConfigError as error:
            raise tf.errors.InternalError(None, None, str(error)) from error


def _values(entry, names):
    found = {}
    for name in names:
        if name in entry.parameter_map:  # asking for an absent key would add it
            value = getattr(entry.parameter_map[name], options.options()[name].field)
            found[name] = value.decode() if isinstance(value, bytes) else value
    return found
