"""The options of a session: read once, when it is made, and resolved once, at its first run, as in the original."""

import weakref

from npu_shim.options import config_proto, plugin, precision

_known = weakref.WeakValueDictionary()  # number of a session -> its SessionOptions


class SessionOptions:
    """What the config of one session asks for.

    Attributes:
        values: option name -> value, those of npu_resource_init among them.
    """

    def __init__(self, values):
        self.values = values
        self._precision = None

    def precision(self):
        """Returns the `precision.Precision` of the values; the files that they name are read at the first call.

        Raises:
            ConfigError: as `precision.resolve`, at every call.
        """
        if self._precision is None:
            self._precision = precision.resolve(self.values)
        return self._precision


def of_config(config):
    """Returns the SessionOptions of a ConfigProto with an NpuOptimizer entry."""
    return SessionOptions(plugin.with_defaults(config_proto.read(config)))


def keep(session, number, options):
    """Keeps a session's options as long as the session is there."""
    session._npu_shim_options = _known[number] = options


def of_entry(entry):
    """Returns the SessionOptions of an NpuOptimizer entry that TensorFlow hands back with a graph.

    The entry of a session of another process has all values in it.
    """
    known = _known.get(config_proto.session_number(entry)) if config_proto.is_local(entry) else None
    return known or SessionOptions(config_proto.read_values(entry))
