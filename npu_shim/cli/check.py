"""npu-shim check: every problem of a configuration at once."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any, Mapping

from npu_shim.options import table
from npu_shim.rewriter.errors import ConfigError

_TRUTH = {"true": True, "false": False}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds --config and one flag for each option of the table."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="a ConfigProto as text, or a JSON object of options; - for standard input",
    )
    for name, option in table.parameter_keys().items():
        metavar = {"s": "TEXT", "b": "true|false", "i": "N"}[str(option.field)]
        text = option.meaning.replace("%", "%%")
        parser.add_argument("--" + name.replace("_", "-"), dest="option_" + name, metavar=metavar, help=text)


def main(args: argparse.Namespace) -> int:
    """Prints what is wrong, or that nothing is. Returns the exit status."""
    from npu_shim import check_config

    problems = []
    flags = {}
    for name, option in table.parameter_keys().items():
        text = getattr(args, "option_" + name)
        if text is not None:
            try:
                flags[name] = _value(text, str(option.field))
            except ValueError as reason:
                problems.append("%s: %s" % (name, reason))
    warnings: tuple[str, ...] = ()
    try:
        warnings = check_config(_config(args.config, flags))
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(*problems)
    for warning in warnings:
        print("warning: %s" % warning)
    print("no problem found")
    return 0


def _value(text: str, field: str) -> Any:
    """A flag's text as the value of an option of that field; raises ValueError with what was expected."""
    if field == "b":
        if text.lower() not in _TRUTH:
            raise ValueError("must be true or false, got '%s'" % text)
        return _TRUTH[text.lower()]
    if field == "i":
        try:
            return int(text)
        except ValueError:
            raise ValueError("must be an int, got '%s'" % text) from None
    return text


def _config(path: str | None, flags: Mapping[str, Any]) -> Any:
    """The options of --config, overridden by the flags."""
    if path is None:
        return flags
    text = _text(path)
    if text.lstrip().startswith("{"):
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as reason:
            raise ConfigError("--config %s is not JSON: %s" % (path, reason)) from reason
        return {**values, **flags}
    import tensorflow.compat.v1 as tf
    from google.protobuf import text_format

    from npu_shim.options.entrances import config_proto

    try:
        config = text_format.Parse(text, tf.ConfigProto())
    except text_format.ParseError as reason:
        expected = "neither a JSON object nor a ConfigProto as text"
        raise ConfigError("--config %s is %s: %s" % (path, expected, reason)) from reason
    return config_proto.with_values(config, flags)


def _text(path: str) -> str:
    if path == "-":
        return sys.stdin.read()
    try:
        with open(path, encoding="utf-8-sig") as f:
            return f.read()
    except (OSError, ValueError) as reason:
        what = getattr(reason, "strerror", None) or reason
        raise ConfigError("--config %s cannot be read: %s" % (path, what)) from reason
