"""The options of a session: read once, when it is made, and resolved once, at its first run, as in the original."""

from __future__ import annotations

import os
import weakref
from typing import Any, Mapping

from npu_shim.options import table
from npu_shim.options.entrances import config_proto, forced, plugin
from npu_shim.options.ops.mixlist import OPTION as MIXLIST
from npu_shim.options.precision import Precision, resolve
from npu_shim.options.reports import doors, ledger
from npu_shim.options.table import MIXED, PRECISION_MODES
from npu_shim.session import devices, lines

UNCHANGED = "must_keep_origin_dtype"  # the mode of scripts that ask for none

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
            ledger.note(ledger.SESSION)  # now, since a session that runs nothing takes nothing
            _ask(self.values)
            self._precision = resolve(self.values)
        return self._precision


def _ask(values: Mapping[str, Any]) -> None:
    """Notes what a session's options ask for; what a command line or `enable` asks for is noted already."""
    outside, everywhere = forced.of_environment(), forced.asked()
    for name, value in values.items():
        door = doors.of_option(name, value)
        if door is None or (name in everywhere and (name not in outside or ledger.VARIABLE in os.environ)):
            continue
        ledger.ask("%s: %s" % (forced.VARIABLE if name in outside else "option", name), value, door)


def of_config(config: Any) -> SessionOptions:
    """Returns the SessionOptions of a ConfigProto with an NpuOptimizer entry.

    Raises:
        ConfigError: NPU_SHIM_OPTIONS cannot be read.
    """
    own = plugin.with_defaults(config_proto.read(config))
    values = with_forced(own)
    if not config_proto.is_added(config_proto.find_npu_optimizer(config)):
        _tell_of_another_mode(own, values)
        _leave_mixlist(own, values)
    elif not any(name in values for name in PRECISION_MODES):  # a mode was taken away: the script asks for none
        values["precision_mode"] = UNCHANGED
    return SessionOptions(values, config)


def with_forced(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns option values with those that go before them (`forced.over`), and `auto` as the device has it.

    Raises:
        ConfigError: NPU_SHIM_OPTIONS cannot be read.
    """
    values = forced.over(values)
    if values.get("precision_mode") == forced.AUTO and forced.asked().get("precision_mode") == forced.AUTO:
        values["precision_mode"] = devices.mixed_mode()
    return values


def _tell_of_another_mode(own: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    for name in PRECISION_MODES:
        mode = next((values[other] for other in PRECISION_MODES if other in values), None)
        if own.get(name) and mode not in (None, own[name]):
            text = "%s '%s' of the session's config is overridden by '%s', which was asked for outside of the script"
            lines.once(text % (name, own[name], mode))


def _leave_mixlist(own: Mapping[str, Any], values: dict[str, Any]) -> None:
    """Leaves out the script's mixlist where another mode is asked for that takes none."""
    if not own.get(MIXLIST) or MIXLIST in forced.asked():
        return
    for name in PRECISION_MODES:
        mode = values.get(name)
        if mode != own.get(name) and mode in (table.options()[name].accepted or ()) and mode not in MIXED[name]:
            del values[MIXLIST]
            text = "%s of the session's config has no effect with '%s', which was asked for outside of the script"
            lines.once(text % (MIXLIST, mode))
            return


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
    return known or SessionOptions(with_forced(config_proto.read_values(entry)))
