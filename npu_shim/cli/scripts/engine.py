"""npu-shim engine install [cpu|cuda12|cuda13]: JAX for the engine's worker, in an environment of its own."""

from __future__ import annotations

import argparse

KINDS = ("cpu", "cuda12", "cuda13")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the subcommand."""
    parser.add_argument("action", choices=["install"], help="make the environment, or replace it")
    parser.add_argument(
        "kind", nargs="?", choices=KINDS, help="for what JAX computes on; default: where an NVIDIA GPU is, the newest "
        "that its driver takes, else cpu",
    )  # fmt: skip
    parser.add_argument("--python", metavar="PYTHON", help="the interpreter to make it with, of Python 3.11 or later; "
                        "default: the newest on the PATH or in pyenv")  # fmt: skip


def main(args: argparse.Namespace) -> int:
    """Installs, and says what is there now. Returns the exit status."""
    from npu_shim.cli.doctor import describe_worker
    from npu_shim.engine import installing
    from npu_shim.options import engine
    from npu_shim.pjrt import driver

    kind = args.kind or (driver.best_kind(driver.seen()) or "cuda12" if engine.nvidia_here() else "cpu")
    print("engine: %s" % describe_worker(installing.install(kind, args.python)))
    if engine.has_jax():
        print("this interpreter has JAX of its own, which the engine takes first")
    return 0
