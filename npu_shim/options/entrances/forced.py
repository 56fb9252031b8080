"""Option values that go before those of every session's own config: NPU_SHIM_OPTIONS, and `npu_shim.enable`'s.

`npu-shim run --set` and `--precision-mode` write NPU_SHIM_OPTIONS, which goes before `enable`'s. No TensorFlow.
"""

from __future__ import annotations

import json
import os
from typing import Any, Iterable, Mapping

from npu_shim.options import table
from npu_shim.rewriter.errors import ConfigError, nearest, one_of
from npu_shim.rewriter.tables.policy import PRECISION_MODE, PRECISION_MODE_V2

VARIABLE = "NPU_SHIM_OPTIONS"
AUTO = "auto"  # as a mode: bfloat16 where the device computes in it, else float16
FILES = ("modify_mixlist", "customize_dtypes")  # a script may change its folder before it makes a session
_enabled: dict[str, Any] = {}  # values of npu_shim.enable


def parsed(words: Iterable[str], what: str) -> dict[str, Any]:
    """Reads option values as a user types them.

    Args:
        words: "KEY=VALUE" each; "KEY=" takes the option away. Files are relative to the working directory.
        what: where the words stand, for messages.

    Raises:
        ConfigError: a word of another form, an unknown key, a value of another type, or one that the option refuses.
    """
    known = table.parameter_keys()
    parsed: dict[str, Any] = {}
    wrong: list[str] = []
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise ConfigError("%s is '%s', expected KEY=VALUE" % (what, word))
        if name not in known:
            raise ConfigError("%s: no such option '%s'%s" % (what, name, nearest(name, known)))
        if name in table.PRECISION_MODES and text == AUTO:
            parsed["precision_mode"] = AUTO
            continue
        value = table.read_field(known[name], "s", text)
        if text and isinstance(value, table.Misplaced):
            kind = {"b": "true or false", "i": "a whole number"}[str(known[name].field)]
            raise ConfigError("%s: %s is '%s', expected %s" % (what, name, text, kind))
        if text:  # now, and not when the script has come to its first session
            wrong += ["%s: %s" % (what, problem) for problem in table.value_problems(known[name], value)]
        parsed[name] = None if not text else os.path.abspath(text) if name in FILES else value
    if wrong:
        raise ConfigError(*wrong)
    return parsed


def of_environment() -> dict[str, Any]:
    """Returns the values in NPU_SHIM_OPTIONS, a JSON object; None takes an option away.

    Raises:
        ConfigError: it is no such object, has an unknown option, or a value that the option does not take.
    """
    text = os.environ.get(VARIABLE)
    if not text:
        return {}
    try:
        values = json.loads(text)
    except ValueError as reason:
        raise ConfigError("%s is not JSON: %s" % (VARIABLE, reason)) from reason
    if not isinstance(values, dict):
        raise ConfigError("%s is '%s', expected a JSON object of options" % (VARIABLE, text))
    known = table.parameter_keys()
    unknown = [name for name in values if name not in known]
    if unknown:
        raise ConfigError(*("%s: no such option '%s'%s" % (VARIABLE, name, nearest(name, known)) for name in unknown))
    problems = [
        "%s: %s" % (VARIABLE, problem)
        for name, value in values.items() if value is not None and not (name in table.PRECISION_MODES and value == AUTO)
        for problem in _problems(known[name], value)
    ]  # fmt: skip
    if problems:
        raise ConfigError(*problems)
    return values


def _problems(option: table.Option, value: Any) -> Iterable[Any]:
    """What is wrong with a value of JSON."""
    if not isinstance(value, (str, int) if option.field == "s" else int):
        expected = {"s": "a text", "b": "true or false", "i": "a whole number"}[str(option.field)]
        return ["%s is %s, expected %s" % (option.name, json.dumps(value), expected)]
    return table.value_problems(option, value)


def of_mode(word: Any, what: str) -> dict[str, Any]:
    """Returns the option value of a precision mode: of precision_mode or of precision_mode_v2, or AUTO.

    Args:
        word: the user's.
        what: where it stands, for messages.

    Raises:
        ConfigError: there is no such mode.
    """
    modes = (AUTO, *PRECISION_MODE)
    key = "precision_mode" if word in modes else "precision_mode_v2"
    return {key: one_of(word, dict.fromkeys([*modes, *PRECISION_MODE_V2]), what)}


def checked_scale(scale: Any, what: str) -> str | float | None:
    """Returns a loss scale: "auto", a float above 0, or None for none; raises ConfigError for something else."""
    if scale in (None, "off"):
        return None
    if scale == AUTO:
        return AUTO
    try:
        number = float(scale)
    except (TypeError, ValueError):
        number = 0.0
    if isinstance(scale, bool) or not 0 < number < float("inf"):
        near = nearest(scale, [AUTO, "off"]) if isinstance(scale, str) else ""
        raise ConfigError("%s is %r%s, expected 'auto', 'off' or a number above 0" % (what, scale, near))
    return number


def enable(values: Mapping[str, Any]) -> None:
    """Replaces the values of `npu_shim.enable`; none for a process in which it is not on."""
    global _enabled
    _enabled = dict(values)


def enabled() -> dict[str, Any]:
    """Returns the values of `npu_shim.enable`."""
    return dict(_enabled)


def asked() -> dict[str, Any]:
    """Returns the values that go before every session's own; None takes one away. Raises as `of_environment`."""
    return replaced(_enabled, of_environment())


def over(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a session's option values with those of `asked` over them. Raises as `of_environment`."""
    return merged(values, asked())


def merged(values: Mapping[str, Any], forced: Mapping[str, Any]) -> dict[str, Any]:
    """Returns option values with others over them: None takes one away, and a mode replaces either mode."""
    both = replaced(values, forced)
    return {name: value for name, value in both.items() if name not in forced or value is not None}


def replaced(values: Mapping[str, Any], forced: Mapping[str, Any]) -> dict[str, Any]:
    """Returns option values with others over them, None too; a mode replaces either mode."""
    modes = table.PRECISION_MODES if any(forced.get(name) for name in table.PRECISION_MODES) else ()
    return {**{name: value for name, value in values.items() if name not in modes}, **forced}
