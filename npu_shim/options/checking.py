"""Checks a configuration before any run and reports every problem; a session stops at the first one."""

from __future__ import annotations

import functools
from typing import Any, Callable, Iterable, Iterator, Mapping

from npu_shim.options import precision, profiles, table, watch_options
from npu_shim.options.ops import mixlist
from npu_shim.rewriter.errors import ConfigError, nearest

_TYPES = {"s": str, "b": bool, "i": int}


def check_config(config: Any) -> tuple[str, ...]:
    """Checks every option of a configuration, and reads the files that it names.

    Args:
        config: a tf.compat.v1.ConfigProto, an NPURunConfig, or a dict of option name to value (None: not given).

    Returns:
        Tuple of str: warnings, for example an op type of a mixlist that stands for no op.

    Raises:
        ConfigError: with every problem, one a line: `option: message (did you mean ...?)`. `code` is the TensorFlow
            error code of the first. Unknown keys count as problems here, though a session only logs them.
    """
    if isinstance(config, dict):
        given = {name: value for name, value in config.items() if value is not None}
        return _collect_problems(given, _problems_of_types(given))
    import tensorflow.compat.v1 as tf

    from npu_shim.options.entrances import config_proto, run_config

    if isinstance(config, run_config.NPURunConfig):
        unwritten = list(_unwritable_values(run_config.values_of(config)))
        if unwritten:
            wrong = {problem.option for problem in unwritten}
            values = {name: value for name, value in run_config.values_of(config).items() if name not in wrong}
            return _collect_problems(values, unwritten)
        config = run_config.session_config_of(config)
    if not isinstance(config, tf.ConfigProto):
        expected = "a ConfigProto, an NPURunConfig or a dict of options"
        raise ConfigError("check_config needs %s, got %s" % (expected, type(config).__name__))
    fields = config_proto.fields(config)
    known = table.parameter_keys()
    given = {name: table.read_field(known[name], *entry) for name, entry in fields.items() if name in known}
    return _collect_problems(given, _problems_of_fields(fields))


def _unwritable_values(values: Mapping[str, Any]) -> Iterator[table.Problem]:
    """Yields a Problem for each option value that its parameter_map field cannot hold."""
    import tensorflow.compat.v1 as tf

    from npu_shim.options.entrances import config_proto

    for name, value in values.items():
        try:
            config_proto.with_values(tf.ConfigProto(), {name: value})
        except TypeError as reason:
            text = str(reason).split(name, 1)[1].strip()
            yield table.Problem(name, text, "INVALID_ARGUMENT")


def _problems_of_types(values: Mapping[str, Any]) -> Iterator[table.Problem]:
    """Yields the problems of a dict's keys and of the types of its values."""
    known = table.parameter_keys()
    for name in values:
        if name not in known:
            yield table.Problem(name, "no such option%s" % nearest(name, known), "INVALID_ARGUMENT")
            continue
        expected = _TYPES[str(known[name].field)]
        if type(values[name]) is not expected:
            got = "%s %r" % (type(values[name]).__name__, values[name])
            yield table.Problem(name, "must be %s, got %s" % (expected.__name__, got), "INVALID_ARGUMENT")


def _problems_of_fields(fields: Mapping[str, tuple[str | None, Any]]) -> Iterator[table.Problem]:
    """Yields the problems of a parameter_map's keys, and of entries that set no field."""
    known = table.parameter_keys()
    for name, (field, _) in sorted(fields.items()):
        if name not in known:
            yield table.Problem(name, "unknown key, ignored%s" % nearest(name, known), "INVALID_ARGUMENT")
        elif field is None:
            expected = str(known[name].field)
            text = "written to no field, so it reads as %r; expected field '%s'" % (table.ZERO[expected], expected)
            yield table.Problem(name, text, "INVALID_ARGUMENT")


def _collect_problems(given: Mapping[str, Any], shapes: Iterable[table.Problem]) -> tuple[str, ...]:
    """Raises all problems in one error, or returns the warnings.

    Args:
        given: option name -> value.
        shapes: the problems of keys and types that are known already.
    """
    problems = list(shapes)
    wrong = {problem.option for problem in problems}
    values = {name: value for name, value in given.items() if name not in wrong}
    unread = bool(wrong & set(table.PRECISION_MODES))  # whether a mixlist goes with it cannot be said
    problems += [problem for problem in table.check_values(values) if not (unread and problem.option == mixlist.OPTION)]
    texts = list(map(str, problems))
    codes = [problem.code for problem in problems]
    warnings: list[str] = []
    for read in (*_resolve_steps(values, {problem.option for problem in problems}), *watch_options.problems(values)):
        try:
            warnings += read() or ()
        except ConfigError as error:
            texts += error.problems
            codes.append(error.code)
    if texts:
        raise ConfigError(*texts, code=codes[0])
    return tuple(dict.fromkeys(warnings))


def _resolve_steps(values: Mapping[str, Any], wrong: set[str]) -> Iterator[Callable[[], Iterable[str]]]:
    """Yields a function for each step of `precision.resolve`: it returns warnings or raises ConfigError.

    A bad file does not hide the mistakes of another one: the steps after a failed step run without its result. An
    option in `wrong` that names a mode or a profile counts as not given.
    """
    left_out = wrong.intersection((*table.PRECISION_MODES, precision.RUN_MODE, profiles.OPTION))
    full = table.completed({name: value for name, value in values.items() if name not in left_out})
    chosen = [precision.shipped(full)]

    def run(step: Callable[[Mapping[str, Any], precision.Precision], precision.Precision]) -> tuple[str, ...]:
        chosen.append(step(full, chosen[-1]))
        return chosen[-1].warnings + chosen[-1].unmatched

    for step in precision.STEPS:
        yield functools.partial(run, step)
