"""Checks a configuration at once and completely, where a session stops at the first problem of its first run."""

import functools

from npu_shim.options import mixlist, precision, profiles, watch_options
from npu_shim.options import table as options
from npu_shim.rewriter.errors import ConfigError, nearest

_TYPES = {"s": str, "b": bool, "i": int}


def check_config(config):
    """Checks every option of a configuration, and reads the files that it names.

    Args:
        config: a tf.compat.v1.ConfigProto, an NPURunConfig, or a dict of option name to value (None: not given).

    Returns:
        Tuple of str: what is no mistake but may surprise, for example an op type of a mixlist that stands for no op.

    Raises:
        ConfigError: with every problem, one a line: `option: message (did you mean ...?)`. `code` is the TensorFlow
            error code of the first. Unknown keys count as problems here, though a session only logs them.
    """
    if isinstance(config, dict):
        given = {name: value for name, value in config.items() if value is not None}
        return _check(given, _problems_of_types(given))
    import tensorflow.compat.v1 as tf

    from npu_shim.options import config_proto, run_config

    if isinstance(config, run_config.NPURunConfig):
        unwritten = list(_unwritten(run_config.values_of(config)))
        if unwritten:
            wrong = {problem.option for problem in unwritten}
            values = {name: value for name, value in run_config.values_of(config).items() if name not in wrong}
            return _check(values, unwritten)
        config = run_config.session_config_of(config)
    if not isinstance(config, tf.ConfigProto):
        expected = "a ConfigProto, an NPURunConfig or a dict of options"
        raise ConfigError("check_config needs %s, got %s" % (expected, type(config).__name__))
    fields = config_proto.fields(config)
    known = options.parameter_keys()
    given = {name: options.read_field(known[name], *entry) for name, entry in fields.items() if name in known}
    return _check(given, _problems_of_fields(fields))


def _unwritten(values):
    """Problems of option values that their parameter_map fields cannot hold."""
    import tensorflow.compat.v1 as tf

    from npu_shim.options import config_proto

    for name, value in values.items():
        try:
            config_proto.with_values(tf.ConfigProto(), {name: value})
        except TypeError as reason:
            text = str(reason).split(name, 1)[1].strip()
            yield options.Problem(name, text, "INVALID_ARGUMENT")


def _problems_of_types(values):
    """Problems of a dict's keys and of the types of its values."""
    known = options.parameter_keys()
    for name in values:
        if name not in known:
            yield options.Problem(name, "no such option%s" % nearest(name, known), "INVALID_ARGUMENT")
            continue
        expected = _TYPES[known[name].field]
        if type(values[name]) is not expected:
            got = "%s %r" % (type(values[name]).__name__, values[name])
            yield options.Problem(name, "must be %s, got %s" % (expected.__name__, got), "INVALID_ARGUMENT")


def _problems_of_fields(fields):
    """Problems of a parameter_map's keys, and of entries that set no field."""
    known = options.parameter_keys()
    for name, (field, _) in sorted(fields.items()):
        if name not in known:
            yield options.Problem(name, "unknown key, ignored%s" % nearest(name, known), "INVALID_ARGUMENT")
        elif field is None:
            expected = str(known[name].field)
            text = "written to no field, so it reads as %r; expected field '%s'" % (options.ZERO[expected], expected)
            yield options.Problem(name, text, "INVALID_ARGUMENT")


def _check(given, shapes):
    """Collects all problems; `given` maps a key to its value, `shapes` are the problems of keys and types."""
    problems = list(shapes)
    wrong = {problem.option for problem in problems}
    values = {name: value for name, value in given.items() if name not in wrong}
    unread = bool(wrong & set(options.PRECISION_MODES))  # whether a mixlist goes with it cannot be said
    problems += [found for found in options.check_values(values) if not (unread and found.option == mixlist.OPTION)]
    texts = list(map(str, problems))
    codes = [problem.code for problem in problems]
    warnings = []
    for read in (*_readers(values, {problem.option for problem in problems}), *watch_options.problems(values)):
        try:
            warnings += read() or ()
        except ConfigError as error:
            texts += error.problems
            codes.append(error.code)
    if texts:
        raise ConfigError(*texts, code=codes[0])
    return tuple(dict.fromkeys(warnings))


def _readers(values, wrong):
    """Yields a function for each step of `precision.resolve`: it returns warnings or raises ConfigError.

    A bad file does not hide what is wrong with another one: a step that fails is left out for those behind it. Of the
    options in `wrong` those that name a mode or a profile count as not given.
    """
    left_out = wrong.intersection((*options.PRECISION_MODES, profiles.OPTION))
    full = options.completed({name: value for name, value in values.items() if name not in left_out})
    chosen = [precision.shipped(full)]

    def run(step):
        chosen.append(step(full, chosen[-1]))
        return chosen[-1].warnings + chosen[-1].unmatched

    for step in precision.STEPS:
        yield functools.partial(run, step)
