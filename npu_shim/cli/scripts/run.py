"""npu-shim run [--precision-mode MODE] [--loss-scale S] [--engine E] [--set KEY=VALUE] [...] SCRIPT ARGS..."""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
from typing import Any, Callable, Iterator, Mapping, Sequence

from npu_shim.cli.scripts import arguments
from npu_shim.cli.scripts.arguments import Option
from npu_shim.compat import quiet
from npu_shim.options import devices, engine, table
from npu_shim.options.entrances import forced
from npu_shim.options.reports import doors, ledger
from npu_shim.rewriter.errors import ConfigError

MODE, ENGINE, REPORT, CALIBRATE, SET = doors.MODE, doors.ENGINE, doors.REPORT, doors.CALIBRATE, doors.SET
SCALE, JAX, VERBOSE, MASTERS, RESTORE = doors.SCALE, doors.JAX, doors.VERBOSE, doors.MASTERS, doors.RESTORE
DEVICES = doors.DEVICES
OPTIONS = {
    MODE: Option(
        "a precision mode, or auto", "MODE", "the precision mode of every session, whatever its config says: a mode of "
        "precision_mode or precision_mode_v2, or auto: bfloat16 where the device has it, else float16",
    ),
    SCALE: Option(
        "auto, off or a number above 0", "S", "in modes with float16, for optimizers of scripts that scale no "
        "losses themselves: auto (default) scales them dynamically, a number by that factor, off not at all",
    ),
    ENGINE: Option(
        "one of " + ", ".join(engine.ENGINES), "E", "what runs the training steps of sessions that name no engine "
        "themselves: auto (default), session or pjrt; as NPU_SHIM_ENGINE",
    ),
    DEVICES: Option(
        "a number of devices, or all", "N", "run each training step on N of this machine's devices as one program, a "
        "part of the batch on each; the engine does so; as NPU_SHIM_DEVICES",
    ),
    JAX: Option(
        "the path of an interpreter with JAX", "PYTHON", "an interpreter with JAX, for the engine's worker where this "
        "one has none; as NPU_SHIM_JAX",
    ),
    REPORT: Option(
        "the name of a file", "OUT.html", "write a page about each graph that the script trains or evaluates: what "
        "runs in low precision, what does not, and why",
    ),
    CALIBRATE: Option(
        "a number of training steps", "N", "measure the ranges of the tensors of the first N training steps; say at "
        "the end what leaves float16, what is lost below it, and what to change",
    ),
    SET: Option(
        "KEY=VALUE", "KEY=VALUE", "an option that overrides that of every session's own config, as a key of "
        "NpuOptimizer's parameter_map; KEY= removes it; may be given several times; as NPU_SHIM_OPTIONS",
    ),
    MASTERS: Option(
        "", "", "give the script's own float16 and bfloat16 variables float32 masters, which its optimizers update in "
        "their place; as NPU_SHIM_MASTER_WEIGHTS=1",
    ),
    RESTORE: Option(
        "", "", "restore float32, float16 and bfloat16 checkpoints into variables of another of these dtypes; as "
        "NPU_SHIM_RESTORE_CASTING=1",
    ),
    VERBOSE: Option(
        "", "", "show all that TensorFlow says: which names of TensorFlow 1 it calls deprecated, and what it logs as "
        "it is loaded; as NPU_SHIM_VERBOSE=1",
    ),
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describes the arguments, for help only: `main` takes them as they are."""
    parser.usage = (
        "npu-shim run [OPTIONS] SCRIPT ARGS...   or   npu-shim run [OPTIONS] -m MODULE ARGS...   or   "
        "npu-shim run [OPTIONS] - ARGS..."
    )
    arguments.describe(parser, OPTIONS)
    parser.add_argument(
        "script", metavar="SCRIPT", nargs="?", help="a Python file, a shell script that starts some, a folder or an "
        "archive with __main__.py, - for standard input, or -m and a module's name"
    )
    parser.set_defaults(script=None)


def main(argv: Sequence[str]) -> int:
    """Runs the script behind the options with the rest as its arguments; returns its exit status."""
    given, argv = arguments.split("run", argv, OPTIONS)
    options = dict(given)
    if argv[0] not in ("-", "-m"):  # before anything is done for it
        require_readable(argv[0])
    if VERBOSE in options:
        show_all()
    of_environment = _asked_by_environment(options)
    if MASTERS in options:
        os.environ["NPU_SHIM_MASTER_WEIGHTS"] = "1"
    if RESTORE in options:
        os.environ["NPU_SHIM_RESTORE_CASTING"] = "1"
    if ENGINE in options:  # all later sessions and processes see it
        os.environ[engine.VARIABLE] = engine.checked(options[ENGINE], ENGINE)
    if DEVICES in options:
        os.environ[devices.VARIABLE] = str(checked_devices(options))
    if JAX in options:
        os.environ[engine.JAX] = os.path.abspath(options[JAX]) if os.sep in options[JAX] else options[JAX]
    export_values(given)
    scale = checked_scale(options)
    told = {REPORT, CALIBRATE} & options.keys()
    every = told or any(map(os.environ.get, (forced.VARIABLE, engine.VARIABLE, devices.VARIABLE)))
    asked = [request for pair in (*of_environment, *given) for request in doors.asked_by(*pair)]
    begin = functools.partial(_begin, bool(every), scale, asked)
    with _telling_what_happened(asked):
        return _run_and_tell(argv, options, begin) if told else _run(argv, begin)


def show_all() -> None:
    """Lets TensorFlow say everything, here and in all later processes."""
    os.environ[quiet.VARIABLE] = "1"
    if os.environ.get(quiet.LEVEL) == quiet.ERRORS_ONLY:
        del os.environ[quiet.LEVEL]


def export_values(given: Sequence[tuple[str, str]]) -> None:
    """Lets all later sessions, and those of other processes, see the option values that the command line asks for."""
    asked = asked_values(given)
    if asked:
        os.environ[forced.VARIABLE] = json.dumps(forced.replaced(forced.of_environment(), asked))


def asked_values(given: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Returns the option values that the command line asks for; raises ConfigError for what is none."""
    values = forced.parsed([word for name, word in given if name == SET], SET)
    for word in (word for name, word in given if name == MODE):
        values = forced.replaced(values, forced.of_mode(word, MODE))
    return values


def checked_devices(options: Mapping[str, str]) -> int | str:
    """Returns the devices that the command line asks for; raises ConfigError where they cannot be."""
    count = devices.checked(options[DEVICES], DEVICES)
    if count != 1 and options.get(ENGINE) == "session":
        raise ConfigError("%s %s needs the engine, and %s is session: leave it out" % (DEVICES, count, ENGINE))
    return count


def checked_scale(options: Mapping[str, str]) -> str | float | None:
    """Returns the loss scale that the command line asks for; raises ConfigError where it cannot be."""
    scale = forced.checked_scale(options.get(SCALE, forced.AUTO), SCALE)
    if SCALE in options and not any(forced.of_environment().get(name) for name in table.PRECISION_MODES):
        raise ConfigError("%s needs %s, %s: without one nothing is lowered" % (SCALE, MODE, OPTIONS[MODE].expected))
    return scale


def _asked_by_environment(options: Mapping[str, str]) -> list[tuple[str, str]]:
    """Returns what the environment asks for, (variable, word) each; the command line goes before it."""
    words = {name: os.environ[name] for name in doors.ENVIRONMENT if os.environ.get(name)}
    for flag, variable in ((ENGINE, engine.VARIABLE), (DEVICES, devices.VARIABLE)):
        if flag in options:
            words.pop(variable, None)
    by_flag = {MASTERS: "NPU_SHIM_MASTER_WEIGHTS", RESTORE: "NPU_SHIM_RESTORE_CASTING"}
    for name in (forced.VARIABLE, *(variable for flag, variable in by_flag.items() if flag in options)):
        words.pop(name, None)
    values = {} if MODE in options else forced.of_environment()
    options_set = [(forced.VARIABLE, "%s=%s" % pair) for pair in values.items() if pair[1] is not None]
    return [*words.items(), *options_set]


@contextlib.contextmanager
def _telling_what_happened(asked: Sequence[tuple[str, str, str]]) -> Iterator[None]:
    """Scope at whose end a line tells of each request without an effect, and of skipped steps; of wrong input not."""
    if ledger.VARIABLE in os.environ:  # a script of ours runs another, or tune does: that one tells
        yield
        return
    with tempfile.TemporaryDirectory(prefix="npu_shim_run_") as folder:
        os.environ[ledger.VARIABLE] = folder
        is_wrong = False
        try:
            yield
        except ConfigError:  # before the script has begun
            is_wrong = True
            raise
        finally:
            ledger.close()
            os.environ.pop(ledger.VARIABLE, None)
            for line in () if is_wrong else doors.lines(ledger.of_folder(folder), asked):
                print("npu-shim: %s" % line, file=sys.stderr)


def require_readable(script: str) -> None:
    """Raises ConfigError where a script cannot be read, or is neither source text nor what holds a `__main__.py`."""
    from npu_shim.compat import launcher

    if launcher.packed_main(script):
        return
    try:
        with open(script, "rb") as f:
            text = f.read() if os.path.isfile(script) else b""  # a pipe gives its text once
    except OSError as reason:
        raise ConfigError("script '%s' cannot be read: %s" % (script, reason.strerror)) from reason
    if b"\0" in text:
        raise ConfigError("script '%s' is not Python source text: give its .py file, or -m MODULE" % script)


def _run(argv: list[str], begin: Callable[[], None]) -> int:
    from npu_shim.compat import launcher, shell
    from npu_shim.distributed.job import ranks

    program = shell if shell.is_script(argv[0]) else launcher
    status: int = program.run(argv[0], argv[1:], begin, ranks.export)
    return status


def _begin(every: bool, scale: str | float | None, asked: Sequence[tuple[str, str, str]]) -> None:
    """Begins a process of a run; those that a script spawns too."""
    from npu_shim.bridge import horovod
    from npu_shim.checkpoint import elsewhere, restoring
    from npu_shim.distributed.hosts import job
    from npu_shim.session.interception import eager, enabling
    from npu_shim.session.trial import protocol, recording

    if quiet.is_on():
        quiet.install()
    horovod.install()
    enabling.begin_run(every or protocol.is_asked(), scale)
    eager.refuse_training(asked)
    hosts = job.of(os.environ)
    if hosts is not None and hosts.files:
        elsewhere.install(hosts.files)
    if os.environ.get(restoring.VARIABLE) == "1":
        restoring.install(functools.partial(ledger.note, ledger.CASTING))
    if protocol.is_asked():
        recording.begin()


def _run_and_tell(argv: list[str], options: Mapping[str, str], begin: Callable[[], None]) -> int:
    """Runs a script and tells of its graphs and their ranges, whatever way the script ends."""
    from npu_shim.cli import pages

    # before the script runs for hours, and before it changes its folder
    out = pages.checked(options[REPORT], REPORT) if REPORT in options else None
    steps = pages.checked_steps(options[CALIBRATE], CALIBRATE) if CALIBRATE in options else 0
    heading = " ".join([os.path.basename(argv[0]), *argv[1:]])
    with tempfile.TemporaryDirectory(prefix="npu_shim_run_") as folder:
        with quiet.loading():
            switches = pages.switches(folder, out, steps)
        os.environ.update(switches)

        def tell() -> None:
            for name in switches:
                os.environ.pop(name, None)
            print(pages.tell(folder, out, steps, heading), file=sys.stderr)

        def tell_at_last() -> None:
            tell()
            shutil.rmtree(folder, ignore_errors=True)

        with before_sigterm(tell_at_last):
            try:
                return _run(argv, begin)
            finally:
                tell()


@contextlib.contextmanager
def before_sigterm(tell: Callable[[], None]) -> Iterator[None]:
    """Scope in which SIGTERM, by which schedulers end what takes too long, calls `tell` before it ends the process.

    A script that handles SIGTERM itself takes this away.
    """
    owner = os.getpid()

    def last(number: int, _: Any) -> None:
        signal.signal(number, signal.SIG_DFL)
        try:
            if os.getpid() == owner:  # a forked child has this handler too
                tell()
        finally:
            os.kill(os.getpid(), number)

    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, last)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is last:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
