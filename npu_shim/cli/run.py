"""npu-shim run [--engine E] SCRIPT ARGS..."""

from __future__ import annotations

import argparse
import os
from typing import Sequence

from npu_shim.options import engine
from npu_shim.rewriter.errors import ConfigError

OPTION = "--engine"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describes the arguments, for help only: `main` takes them as they are."""
    parser.usage = (
        "npu-shim run [--engine E] SCRIPT ARGS...   or   npu-shim run -m MODULE ARGS...   or   npu-shim run - ARGS..."
    )
    parser.add_argument(
        OPTION, metavar="E", help="what runs the training steps of sessions that name no engine themselves: auto "
        "(default), session or pjrt; as NPU_SHIM_ENGINE",
    )  # fmt: skip
    parser.add_argument(
        "script", metavar="SCRIPT", nargs="?", help="a Python file, - for standard input, or -m and a module's name"
    )
    parser.set_defaults(script=None)


def main(argv: Sequence[str]) -> int:
    """Runs the script `argv[0]` with the rest as its arguments; returns its exit status."""
    from npu_shim.compat import launcher

    argv = _without_engine(argv) if isinstance(argv, list) else argv
    if not isinstance(argv, list) or argv in ([], ["-m"]):
        raise ConfigError("npu-shim run needs a SCRIPT, or -m MODULE")
    try:
        status: int = launcher.run(argv[0], argv[1:])
        return status
    except OSError as reason:
        if reason.filename != argv[0]:
            raise
        raise ConfigError("script '%s' cannot be read: %s" % (argv[0], reason.strerror)) from reason


def _without_engine(argv: Sequence[str]) -> Sequence[str]:
    """Takes the option in front of the script, which all later sessions and processes see."""
    if not argv or argv[0].partition("=")[0] != OPTION:
        return argv
    name, given, word = argv[0].partition("=")
    if not given and len(argv) < 2:
        raise ConfigError("%s needs one of %s" % (name, ", ".join(engine.ENGINES)))
    os.environ[engine.VARIABLE] = engine.checked(word if given else argv[1], OPTION)
    return argv[1:] if given else argv[2:]
