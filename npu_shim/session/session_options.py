"""The options of a session: read once, when it is made, and resolved once, at its first run, as in the original."""

from __future__ import annotations

import weakref
from typing import Any, Mapping

from npu_shim.options import config_proto, forced, plugin
from npu_shim.options.precision import Precision, resolve

# number of a session -> its SessionOptions
_known: weakref.WeakValueDictionary[int | None, SessionOptions] = weakref.WeakValueDictionary()


class SessionOptions:
    """The options of one session.

    Attributes:
        values: option name -> value, including npu_resource_init's and those of NPU_SHIM_OPTIONS.
        config: the ConfigProto as the script wrote it, None where another process made the session.
    """

    def __init__(self, values: Mapping[str, Any], config: Any = None) -> None:
        self.values, self.config = values, config
        self._precision: Precision | None = None

    def precision(self) -> Precision:
        """Returns the `precision.Precision` of the values; the first call reads the files that they name.

        Raises:
            ConfigError: as `precision.resolve`, at every call.
        """
        if self._precision is None:
            self._precision = resolve(self.values)
        return self._precision


def of_config(config: Any) -> SessionOptions:
    """Returns the SessionOptions of a ConfigProto with an NpuOptimizer entry.

    Raises:
        ConfigError: NPU_SHIM_OPTIONS cannot be read.
    """
    return SessionOptions(forced.over(plugin.with_defaults(config_proto.read(config))), config)


def keep(session: Any, number: int, options: SessionOptions) -> None:
    """Keeps a session's options for as long as the session exists."""
    session._npu_shim_options = _known[number] = options


def of_session(session: Any) -> SessionOptions:
    """Returns the SessionOptions of a session whose config has an NpuOptimizer entry."""
    kept = getattr(session, "_npu_shim_options", None)
    return kept if kept is not None else of_config(session._config)


def of_entry(entry: Any) -> SessionOptions:
    """Returns the SessionOptions of the NpuOptimizer entry that TensorFlow passes with a graph.

    The entry of another process's session contains all of its values.
    """
    known = _known.get(config_proto.session_number(entry)) if config_proto.is_local(entry) else None
    return known or SessionOptions(forced.over(config_proto.read_values(entry)))
