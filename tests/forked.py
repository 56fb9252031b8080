"""Runs command lines, each in a fork of one process that has TensorFlow: its import is paid once for all files.

What a command does to its process, importing npu_bridge first of all, is gone with its fork.
"""

import atexit
import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from typing import NamedTuple

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}


class Done(NamedTuple):
    """A command's exit status, and what it wrote to standard output and standard error, as they came."""

    status: int
    output: str


def run(commands, timeout=600):
    """Runs each of `commands`, (line, folder), in its folder, one after another; returns a Done for each.

    A line is what a user types: assignments to environment variables, then `npu-shim ...` or `python SCRIPT ...`.
    """
    with server(timeout) as together:
        return [done for command in commands for done in together([command])]


@contextlib.contextmanager
def server(timeout=600):
    """Gives a function that runs commands at the same time, as `run` does, and may be called until `timeout` seconds.

    The process that has TensorFlow is shared by all that call this: the first call starts it, and a fork has the
    environment of the call that asked for it.
    """
    begun = _living()
    stopped = threading.Timer(timeout, os.killpg, [begun.pid, signal.SIGKILL])  # its forks too
    stopped.start()

    def together(commands):
        env = {**os.environ, **QUIET}
        begun.stdin.write(json.dumps([env, [[line, str(folder)] for line, folder in commands]]) + "\n")
        begun.stdin.flush()
        answer = begun.stdout.readline()
        assert answer, "the process with TensorFlow ended, after %d s at the latest" % timeout
        return [Done(*fields) for fields in json.loads(answer)]

    try:
        yield together
    finally:
        stopped.cancel()


_shared = []  # the process that has TensorFlow


def _living():
    if not _shared or _shared[0].poll() is not None:
        begun = subprocess.Popen(
            [sys.executable, "-W", "ignore", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, **QUIET}, start_new_session=True,
        )  # fmt: skip
        atexit.register(_stop, begun)
        _shared[:] = [begun]
    return _shared[0]


def _stop(begun):
    begun.stdin.close()  # it reads no more, and ends
    begun.stdout.close()
    begun.wait()


def _serve():
    import tensorflow  # noqa: F401  the forks have it

    for asked in sys.stdin:
        env, commands = json.loads(asked)
        started = [_fork(line, folder, env) for line, folder in commands]
        print(json.dumps([_end(*process) for process in started]), flush=True)


def _fork(line, folder, env):
    """Starts a command in an environment; returns its process and the file of what it writes."""
    written = tempfile.TemporaryFile()  # noqa: SIM115  `_end` closes it
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(written.fileno(), 1)
        os.dup2(written.fileno(), 2)
        atexit._clear()  # the parent's own
        os.environ.clear()
        os.environ.update(env)
        status = 70  # of a fork that dies without a word of Python's
        try:
            status = _typed(line, folder)
            atexit._run_exitfuncs()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    return child, written


def _end(child, written):
    _, ended = os.waitpid(child, 0)
    with written:
        written.seek(0)
        return (ended >> 8 if not ended & 0x7F else -(ended & 0x7F)), written.read().decode("utf-8", "replace")


def _typed(line, folder):
    """Does what a shell does with a line; returns the exit status."""
    os.chdir(folder)
    words = shlex.split(line, comments=True)
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        os.environ[name] = value
    return _ended(words)


def _ended(words):
    """Calls a command; returns the exit status that its process would have."""
    try:
        return _called(words) or 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    except BaseException:
        sys.last_type, sys.last_value, sys.last_traceback = sys.exc_info()  # as Python does, for what runs at exit
        sys.excepthook(*sys.exc_info())
        return 1


def _called(words):
    if words[0] == "npu-shim":
        from npu_shim import cli
        from npu_shim.cli.scripts.tuning import launch

        launch.start = _Trial
        return cli.main(words[1:])
    assert words[0] == "python", words
    import runpy

    sys.argv = words[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(words[1]))
    runpy.run_path(words[1], run_name="__main__")
    return 0


class _Trial:
    """A trial of `npu-shim tune` in a fork, in place of `launch.start`: it has TensorFlow already."""

    def __init__(self, words, folder, environment, printed):
        self._status = None
        self.pid = os.fork()
        if not self.pid:
            atexit._clear()  # the parent's own, which removes its temporary folders
            os.setsid()
            os.dup2(printed.fileno(), 1)
            os.dup2(printed.fileno(), 2)
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(environment)
            status = 70
            try:
                status = _ended(["npu-shim", *words])
                atexit._run_exitfuncs()  # what was measured is written there
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)

    def poll(self):
        if self._status is None:
            child, ended = os.waitpid(self.pid, os.WNOHANG)
            if child:
                self._status = ended >> 8 if not ended & 0x7F else -(ended & 0x7F)
        return self._status


if __name__ == "__main__":
    _serve()
