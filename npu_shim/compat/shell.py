"""Runs a shell script that starts TensorFlow 1 scripts, such as the `train_performance_1p.sh` of a model."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from typing import Any, Callable, Iterator, Sequence

from npu_shim.compat import children
from npu_shim.rewriter.errors import ConfigError

ENDINGS = (".sh", ".bash")
PYTHONS = ("python", "python3", "python3.5", "python3.6", "python3.7", "python3.7.5")  # by which 1.15's scripts call it
SPLITS = re.compile(r"^(-[iv]*S|--split-string=?)")  # the option of env behind which a line's words stand
SHELLS = ("bash", "dash", "ksh", "sh", "zsh")


def is_script(path: str) -> bool:
    """Whether a file is a shell script, by its name or by its first line."""
    return os.path.isfile(path) and (path.endswith(ENDINGS) or bool(_interpreter(path)))


def run(
    path: str, args: Sequence[str], before: Callable[[], None] | None = None, first: Callable[[], None] | None = None
) -> int:
    """Runs a shell script and returns its exit status, 128 and the signal's number if one ended it.

    PYTHONS are this interpreter in it, and the Python programs that it starts see TensorFlow 1, also where it sets
    PYTHONPATH anew.

    Args:
        path: the script's.
        args: its arguments.
        before: called in each program once TensorFlow is as the program will see it; can be pickled.
        first: called here, and in each program, before anything else; can be pickled.

    Raises:
        ConfigError: no shell is here, or NPU_SHIM_CHILDREN is off.
    """
    if os.environ.get(children.VARIABLE) == "off":
        raise ConfigError("'%s' is a shell script, whose programs %s=off leaves alone" % (path, children.VARIABLE))
    if first is not None:
        first()
    shell = _interpreter(path) or [shutil.which("bash") or shutil.which("sh") or ""]
    if not shell[0]:
        raise ConfigError("'%s' is a shell script, and neither bash nor sh is on the PATH" % path)
    with children.reached(before, first), tempfile.TemporaryDirectory(prefix="npu_shim_run_") as folder:
        _write_pythons(folder)
        environment = dict(os.environ, PATH=os.pathsep.join([folder, os.environ.get("PATH", os.defpath)]))
        with _forwarded_sigterm() as forward_to, subprocess.Popen([*shell, path, *args], env=environment) as process:
            forward_to(process)
            status = process.wait()
    return status if status >= 0 else 128 - status


def _write_pythons(folder: str) -> None:
    """Writes the commands that stand for this interpreter; links would lose a virtual environment."""
    path = '%s${PYTHONPATH:+":$PYTHONPATH"}' % shlex.quote(children.FOLDER)
    lines = ["#!/bin/sh", "PYTHONPATH=%s exec %s \"$@\"" % (path, shlex.quote(os.path.abspath(sys.executable))), ""]
    for name in PYTHONS:
        command = os.path.join(folder, name)
        with open(command, "w", encoding="utf-8") as f:
            f.write("\n".join(lines))
        os.chmod(command, 0o755)


def _interpreter(path: str) -> list[str]:
    """The words of a first line like `#!/bin/bash -e` that names a shell which is here; none for another."""
    with open(path, "rb") as f:
        first = f.readline(200)
    if not first.startswith(b"#!"):
        return []
    words = shlex.split(first[2:].decode("utf-8", "replace"))
    program = os.path.basename(words[0]) if words else ""
    if program == "env":
        program = _started_by_env(words[1:])
    return words if program in SHELLS and shutil.which(words[0]) else []


def _started_by_env(words: Sequence[str]) -> str:
    """The name of the program that env starts: `bash` of `bash`, of `-S bash -e`, of `-S LANG=C bash`; "" for none.

    Behind the option -S, which env also takes in one word with the program, stand its words one by one here.
    """
    programs = [SPLITS.sub("", word) for word in words]
    first = next((word for word in programs if word and not word.startswith("-") and "=" not in word), "")
    return os.path.basename(first)


@contextlib.contextmanager
def _forwarded_sigterm() -> Iterator[Callable[[Any], None]]:
    """Scope in which the shell gets the SIGTERM by which schedulers end what takes too long, before who handles it.

    It gives a function that takes the shell's process, which gets what came before it too.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) == signal.SIG_IGN:
        yield lambda process: None
        return
    processes: list[Any] = []
    early: list[int] = []

    def forward(number: int, frame: Any) -> None:
        early.extend([] if processes else [number])
        for process in processes:
            process.send_signal(number)
        if callable(own):
            own(number, frame)

    def forward_to(process: Any) -> None:
        processes.append(process)
        for number in early:
            process.send_signal(number)

    own = signal.signal(signal.SIGTERM, forward)
    try:
        yield forward_to
    finally:
        signal.signal(signal.SIGTERM, own)
