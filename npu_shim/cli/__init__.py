"""The command npu-shim: run, plan, options, check, ... Each subcommand is a module with `add_arguments` and `main`."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import Any, Callable, Sequence

from npu_shim.compat import quiet
from npu_shim.compat.tensorflow_v1 import without_tensorflow
from npu_shim.options.engine import nvidia_here
from npu_shim.rewriter.errors import ConfigError, PlanError

COMMANDS = {
    "run": "run an unmodified TensorFlow 1 script under the installed TensorFlow",
    "launch": "run a script in several workers that train together",
    "tune": "find the few ops that must stay in float32 for a script to train as in float32, by trial trainings",
    "scan": "list the names of TensorFlow and npu_bridge that scripts use, and which of them are missing; runs nothing",
    "plan": "show what a precision mode does to a graph, and why; write the rewritten graph",
    "ops": "show the op table: lists, dtypes and names of an op, or of all; copy its files to edit them",
    "options": "show the option table: what each option means, takes and does here",
    "export": "write a training step as a program that runs without TensorFlow, on any GPU that JAX supports",
    "cost": "show what a training step costs: operations by dtype, bytes moved, memory; float32 beside a mode",
    "opt": "list the passes that make a training step one program, or run some of them on a graph",
    "plot": "draw the scalars of TensorBoard's event files as a picture",
    "check": "check options and the files they name, and report every problem at once",
    "migrate-checkpoint": "rewrite a checkpoint in another floating-point dtype",
    "engine": "install JAX for the engine, in an environment of its own, where TensorFlow's has none",
    "doctor": "report what is installed and whether sessions can be hooked, and test it",
}
# the folder of a command's module; the others stand here
FOLDERS = {
    **dict.fromkeys(("run", "launch", "tune", "scan", "engine"), "scripts."),
    **dict.fromkeys(("plan", "export", "cost", "opt"), "graphs."),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `npu-shim` with `argv` (default: the process's) and returns the exit status: 0 fine, 2 bad input."""
    argv = sys.argv[1:] if argv is None else list(argv)
    runs = argv[:1] in (["run"], ["launch"])
    if not runs or not nvidia_here():  # where there is a GPU, TensorFlow's log says why a script sees none
        os.environ.setdefault(quiet.LEVEL, quiet.ERRORS_ONLY)
    if runs and argv[1:2] not in ([], ["-h"], ["--help"]):
        # before argparse: all that follows belongs to the script
        return _guarded(lambda: _module(argv[0]).main(argv[1:]))
    if argv[:1] in (["migrate-checkpoint"], ["tune"]):  # flags of its own, and words that belong to a script
        return _guarded(lambda: _module(argv[0]).main(argv[1:]))
    parser = _parser()
    if not argv:
        parser.print_help()
        return 0
    args = parser.parse_args([_with_dashes(word) for word in argv])
    return _guarded(lambda: args.main(args))


def _with_dashes(word: str) -> str:
    """An option as argparse spells it: users also write --precision_mode, as in their scripts."""
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value if name.startswith("--") else word


def _module(name: str) -> Any:
    return importlib.import_module("npu_shim.cli." + FOLDERS.get(name, "") + name.replace("-", "_"))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="npu-shim", description=sys.modules["npu_shim"].__doc__)
    parser.add_argument("--version", action="version", version="npu-shim " + sys.modules["npu_shim"].__version__)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.required = True
    for name, text in COMMANDS.items():
        module = _module(name)
        command = commands.add_parser(name, help=text, description=text)
        module.add_arguments(command)
        command.set_defaults(main=module.main)
    return parser


def _guarded(command: Callable[[], int]) -> int:
    """Runs a subcommand; a user's mistake gives one line on standard error and exit status 2."""
    try:
        return command()
    except ModuleNotFoundError as error:
        if error.name not in ("tensorflow", "absl"):  # absl comes with TensorFlow
            raise
        print(without_tensorflow(error), file=sys.stderr)
    except (ConfigError, PlanError, ImportError) as error:
        if isinstance(error, ImportError) and not str(error).startswith("npu_shim:"):
            raise
        print(error, file=sys.stderr)
    except BrokenPipeError:  # the reader of our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 2
