"""The option table: each option's name, where it is written, what it accepts and what it does here. No TensorFlow.

The table itself is `configs/options.json`: every NPURunConfig argument and every parameter_map key of the releases of
the Ascend adapter from 2021 (r1.1.1) to 2026 (CANN 9.0), in the order of NPURunConfig's signature of 2023 (its 76
arguments), then the later ones, the removed ones, and the keys that only a parameter_map has.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import os
from typing import Any, Iterator, Mapping

from npu_shim.options import amp, profiles
from npu_shim.rewriter.errors import ConfigError, nearest
from npu_shim.rewriter.tables.policy import PRECISION_MODE, PRECISION_MODE_V2, mixed_modes

LOG = logging.getLogger("npu_shim")

# the value of an absent or wrong proto field, by the field that the option is written to
ZERO: dict[str, Any] = {"s": "", "b": False, "i": 0}

# a mixlist needs a mixed mode, whichever of the two options gives it (adapter r1.13 and later)
MIXED = {"precision_mode": mixed_modes(PRECISION_MODE), "precision_mode_v2": mixed_modes(PRECISION_MODE_V2)}
PREFIX = "npu_shim_"  # of our own options
PRECISION_MODES = ("precision_mode", "precision_mode_v2")

# accelerate_train_mode: training starts in float16 or bfloat16, up to a share of the steps or to a multiple of the
# target loss, and ends in a mode that does not mix
ACCELERATE = "experimental_accelerate_train_mode"
FAST_MODES = ("fast", "fast1")
FAST_ENDS = {"step": (0.2, 0.9), "loss": (1.01, 1.5)}
SLOW_MODES = {"precision_mode": ("allow_fp32_to_fp16", "must_keep_origin_dtype"), "precision_mode_v2": ("origin",)}

_reported: set[str] = set()  # unknown keys are reported once a process


@dataclasses.dataclass(frozen=True)
class Option:
    """One row of the table.

    Attributes:
        name: the NPURunConfig argument or parameter_map key.
        field: proto field of the parameter_map entry: "s" string, "b" bool, "i" int; None when it is no key.
        default: what an absent key means, None when that is left to the device.
        run_config: None, or how NPURunConfig takes it: `default`; `parent` when RunConfig keeps it; `public` when its
            attribute has no underscore.
        source: path of the NPURunConfig attribute it is read from when that is not the option's own name.
        write: "always" when NPUEstimator writes the key even if the value is None, else only a value is written.
        accepted: the values taken, or None for any.
        minimum: least int taken, or None.
        refused_values: values the vendor takes and this platform cannot, each with the reason.
        code: "INVALID_ARGUMENT" or "INTERNAL", what the vendor's bridge answers to another value. Where it ends the
            process instead, INVALID_ARGUMENT.
        status: "honored", "accepted" (taken, but without meaning off the NPU) or "refused" (see `because`).
        because: why it is refused, else "".
        meaning: one line.
    """

    name: str
    field: str | None
    default: Any
    status: str
    meaning: str
    run_config: Mapping[str, Any] | None = None
    source: str | None = None
    write: str | None = None
    accepted: tuple[Any, ...] | None = None
    minimum: int | None = None
    refused_values: Mapping[str, str] = dataclasses.field(default_factory=dict)
    code: str = "INVALID_ARGUMENT"
    because: str = ""


@dataclasses.dataclass(frozen=True)
class Problem:
    """One thing wrong with the options: `option` is the user's key, `code` a TensorFlow error code."""

    option: str
    message: str
    code: str

    def __str__(self) -> str:
        return "%s: %s" % (self.option, self.message)


@functools.lru_cache(maxsize=None)
def options() -> dict[str, Option]:
    """Returns the table: option by name, in the order of NPURunConfig's signature."""
    path = os.path.join(os.path.dirname(_configs_file()), "options.json")
    with open(path, encoding="utf-8") as file:
        rows = json.load(file)
    table = {}
    for row in rows:
        if "accepted" in row:
            row["accepted"] = tuple(row["accepted"])
        table[row["name"]] = Option(**row)
    return table


def _configs_file() -> str:
    from npu_shim import configs

    return str(configs.__file__)


def parameter_keys() -> dict[str, Option]:
    """Returns the options that are keys of a parameter_map, by key."""
    return {name: option for name, option in options().items() if option.field}


def read_values(parameter_map: Mapping[str, tuple[str | None, Any]]) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """Reads a parameter_map.

    Args:
        parameter_map: key to (proto field that is set, value); the field is "s", "b", "i", another one, or None for an
            entry that sets none. Strings may be bytes.

    Returns:
        (values, unknown): the Python value of each known key, see `read_field`; and a tuple of (unknown key, " (did you
        mean 'x'?)" or ""). An unknown key changes nothing, as in the original, but is logged once in a process.
    """
    known = parameter_keys()
    unknown = tuple((key, nearest(key, known)) for key in sorted(parameter_map) if key not in known)
    values = {key: read_field(known[key], *parameter_map[key]) for key in sorted(parameter_map) if key in known}
    for key, suggestion in unknown:
        if key not in _reported:
            _reported.add(key)
            LOG.warning("npu_shim: parameter_map key '%s' is unknown and ignored%s", key, suggestion)
    return values, unknown


class Misplaced(str):
    """The value of an entry in the wrong field whose meaning is unclear: empty, and a Problem of its option."""

    written: str  # "field 'b'"


# words that mean a bool, however they are capitalized
_WORDS = {"true": True, "1": True, "false": False, "0": False}


def read_field(option: Option, field: str | None, value: Any) -> Any:
    """Returns the value of a parameter_map entry; an entry in the wrong field is converted if its meaning is clear.

    `.s = b"true"` and `.i = 1` are True for a bool, `.s = b"3"` and `.b = True` are ints, `.i = 1024` is "1024" and
    `.b = True` is "true" for an option that accepts that word. The vendor's reader returns the zero of the expected
    field instead, so that use_off_line in `.s` switched the NPU off; here only an entry that sets no field reads so.

    Args:
        option: the key's row.
        field: the field that is set, or None.
        value: its value; bytes for "s".

    Returns:
        The Python value, or Misplaced.
    """
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")  # a path may be any bytes
    if field == option.field:
        return value
    if field is None:
        return ZERO[str(option.field)]
    read = _READERS[str(option.field)](option, value)
    if read is None:
        read = Misplaced()
        read.written = "field '%s'" % field
    return read


def _as_bool(option: Option, value: Any) -> bool | None:
    return _WORDS.get(str(value).lower()) if isinstance(value, (str, int)) else None


def _as_int(option: Option, value: Any) -> int | None:
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    try:
        return int(value)
    except (TypeError, ValueError):
        return None


def _as_str(option: Option, value: Any) -> str | None:
    if not isinstance(value, int):
        return None
    text = str(value).lower()
    taken = text in option.accepted if option.accepted is not None else not isinstance(value, bool)
    return text if taken else None


_READERS = {"b": _as_bool, "i": _as_int, "s": _as_str}


def completed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Fills in the options that an amp level, a custom list or a profile implies."""
    return profiles.implied(amp.implied(values))


def check_values(values: Mapping[str, Any]) -> tuple[Problem, ...]:
    """Returns every problem of the values from `read_values`, in the order in which the original finds them.

    Source: Ascend adapter r1.13 to 2026; the precision options come first (value of precision_mode, value of
    precision_mode_v2, mixlist without a mixed mode, both modes at once), then contradictions with amp levels and
    profiles, which are our own options, then the others in the table's order.
    """
    return _problems(values, completed(values))


def _problems(values: Mapping[str, Any], full: Mapping[str, Any]) -> tuple[Problem, ...]:
    clashes = [*amp.problems(values), *profiles.problems(values)]
    levels = tuple(Problem(option, message, "INVALID_ARGUMENT") for option, message in clashes)
    return tuple(_precision_problems(full)) + levels + tuple(_other_problems(values))


def validate(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the `completed` values.

    Raises:
        ConfigError: the first problem of `check_values`, with the TensorFlow error code that the original answers with.
    """
    full = completed(values)
    for problem in _problems(values, full)[:1]:
        raise ConfigError(str(problem), code=problem.code)
    return full


def of_keywords(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Converts keyword arguments into option values; None means not given.

    Our own options may omit their prefix: `profile` for npu_shim_profile, `ops_info_dir`, `amp_level`, `xla`.

    Raises:
        ConfigError: an unknown name.
    """
    known = options()
    own = {name[len(PREFIX) :]: name for name in known if name.startswith(PREFIX)}
    values = {own.get(name, name): value for name, value in keywords.items() if value is not None}
    unknown = ["unknown option '%s'%s" % (name, nearest(name, [*known, *own])) for name in values if name not in known]
    if unknown:
        raise ConfigError(*unknown)
    return values


def _precision_problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    given = [name for name in PRECISION_MODES if name in values]
    wrong = [problem for name in given for problem in value_problems(options()[name], values[name])]
    yield from wrong
    # an unknown mode is one mistake: whether a mixlist goes with it cannot be said
    if not isinstance(values.get("modify_mixlist", Misplaced()), Misplaced) and not wrong:
        yield from _mixlist_problems(values, given)
    if len(given) == 2:
        yield Problem("precision_mode_v2", "cannot be assigned at the same time as precision_mode", "INTERNAL")


def _mixlist_problems(values: Mapping[str, Any], given: Any) -> Iterator[Problem]:
    # the first of the two modes that is given decides, as in the original
    for name in given[:1]:
        if values[name] not in MIXED[name]:
            message = "needs %s to be one of %s, got '%s'" % (name, ", ".join(MIXED[name]), values[name])
            yield Problem("modify_mixlist", message, "INTERNAL")
    if not given:
        every = "precision_mode one of %s or precision_mode_v2 one of %s" % tuple(
            ", ".join(MIXED[name]) for name in PRECISION_MODES
        )
        yield Problem("modify_mixlist", "needs a mixed mode: %s; neither is given" % every, "INTERNAL")


def value_problems(option: Option, value: Any) -> Iterator[Problem]:
    """Yields what is wrong with an option's value, whatever the other options are."""
    if isinstance(value, Misplaced):
        text = "written to %s, expected field '%s'" % (value.written, option.field)
        yield Problem(option.name, text, option.code)
    elif option.status == "refused":
        yield Problem(option.name, "is refused: %s" % option.because, option.code)
    elif value in option.refused_values:
        yield Problem(option.name, "'%s' is refused: %s" % (value, option.refused_values[value]), option.code)
    elif option.accepted is not None and value not in option.accepted:
        expected = ", ".join(str(accepted) for accepted in option.accepted)
        unset = " (a parameter_map entry must be written to its field 's')" if value == "" else ""
        hint = unset or nearest(value, map(str, option.accepted))
        yield Problem(option.name, "'%s' is not one of %s%s" % (value, expected, hint), option.code)
    elif option.minimum is not None and value < option.minimum:
        yield Problem(option.name, "must be at least %d, got %d" % (option.minimum, value), option.code)


def _other_problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    for name, option in options().items():
        if name in values and name not in PRECISION_MODES:
            yield from value_problems(option, values[name])
    if "optypelist_for_implmode" in values and "op_select_implmode" not in values:
        yield Problem("optypelist_for_implmode", "needs op_select_implmode", "INVALID_ARGUMENT")
    shapes = ("input_shape", "dynamic_dims", "dynamic_node_type")
    missing = [name for name in shapes if name not in values]
    if missing and len(missing) < len(shapes):
        given = ", ".join(name for name in shapes if name in values)
        yield Problem(given, "also needs %s" % ", ".join(missing), "INVALID_ARGUMENT")
    # the original refuses the pair even for enable_compress_weight=False, which NPURunConfig always writes
    if values.get("enable_compress_weight") and "compress_weight_conf" in values:
        yield Problem("compress_weight_conf", "cannot go with enable_compress_weight", "INVALID_ARGUMENT")
    if ACCELERATE in values:
        yield from (Problem(ACCELERATE, message, "INTERNAL") for message in _accelerate_problems(values))


def _accelerate_problems(values: Mapping[str, Any]) -> Iterator[str]:
    """Checks "fast|step|0.9": the mode, the measure of progress, the end; the last two are optional."""
    mode, *rest = values[ACCELERATE].split("|")
    kind, end = (rest + ["step", ""][len(rest) :])[:2]
    if mode not in FAST_MODES or kind not in FAST_ENDS or len(rest) > 2:
        yield "'%s' is not of the form fast|step|0.9 (%s; %s)" % (
            values[ACCELERATE],
            " or ".join(FAST_MODES),
            " or ".join(FAST_ENDS),
        )
    else:
        low, high = FAST_ENDS[kind]
        try:
            within = not end or low <= float(end) <= high
        except ValueError:
            within = False
        if not within:
            yield "'%s': %s must end between %g and %g" % (values[ACCELERATE], kind, low, high)
    for name, slow in SLOW_MODES.items():
        # an unknown mode is one mistake
        if name in values and values[name] in (options()[name].accepted or ()) and values[name] not in slow:
            yield "needs %s to be one of %s or unset, got '%s'" % (name, ", ".join(slow), values[name])
