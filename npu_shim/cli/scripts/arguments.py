"""The options of commands that run a script: they stand in front of it, and what stands behind it is its own."""

from __future__ import annotations

import argparse
from typing import Mapping, NamedTuple, Sequence

from npu_shim.rewriter.errors import ConfigError, nearest


class Option(NamedTuple):
    """What is expected behind an option, and its word for that in its help; "" for one that stands alone."""

    expected: str
    metavar: str
    help: str


def describe(parser: argparse.ArgumentParser, options: Mapping[str, Option]) -> None:
    """Describes options, for help only: `split` takes them as they are."""
    for name, option in options.items():
        if option.expected:
            parser.add_argument(name, metavar=option.metavar, help=option.help)
        else:
            parser.add_argument(name, action="store_true", help=option.help)


def split(
    command: str, argv: Sequence[str], options: Mapping[str, Option]
) -> tuple[list[tuple[str, str]], list[str]]:
    """Splits the options in front of the script from it: (each option with its word, the script with its own).

    Args:
        command: of npu-shim.
        argv: its arguments; no list if it has none.
        options: option -> Option.

    Raises:
        ConfigError: nothing stands behind an option, or something behind one that stands alone; there is no script, or
            an option that is none.
    """
    given: list[tuple[str, str]] = []
    argv = argv if isinstance(argv, list) else []
    while argv and argv[0].partition("=")[0] in options:
        name, equals, word = argv[0].partition("=")
        expected = options[name].expected
        if equals and not expected:
            raise ConfigError("%s takes no value, got '%s'" % (name, word))
        if not equals and expected:
            if len(argv) < 2:
                raise ConfigError("%s needs %s" % (name, expected))
            word, argv = argv[1], argv[1:]
        given.append((name, word))
        argv = argv[1:]
    if argv in ([], ["-m"]):
        raise ConfigError("npu-shim %s needs a SCRIPT, or -m MODULE" % command)
    if argv[0].startswith("-") and argv[0] not in ("-", "-m"):
        name = argv[0].partition("=")[0]
        raise ConfigError("npu-shim %s has no option '%s'%s" % (command, name, nearest(name, options)))
    return given, argv
