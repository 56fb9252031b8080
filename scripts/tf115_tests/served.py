"""A process with one TensorFlow that runs test files, each in a fork of it: the import is paid once.

Runs in the environment of that TensorFlow (1.15.5's is Python 3.7). Reads a job as one JSON object a line from standard
input, and answers each with one line: {"tests": {name: verdict}, "file": why the file itself stopped, or "",
"cpu": seconds of CPU time}.

A job: {"file": path, "folder": working directory, "only": names or null, "method_s", "file_s": seconds of CPU time that
a method and a file may take, "idle_s": seconds that a method may wait}
A verdict: {"state": pass, fail, skip, timeout or crash, "error": its last line, "trace": its end, "seconds": float}

Usage: served.py SUITE npu-shim OPTIONS... (a file runs as `npu-shim run OPTIONS... FILE`), or served.py SUITE plain
"""

import atexit
import faulthandler
import importlib.util
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time

from suites import SUITES

WITH_PYTEST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "with_pytest.py")
POLLING = 0.5  # seconds of CPU time that a process may use while it waits: its threads look now and then
KEPT = 6000  # characters of a traceback, or of what a process that died had written


def serve(suite, words):
    """Answers jobs until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what TensorFlow prints is no answer
    prepare(suite, words)
    for line in sys.stdin:
        answers.write(json.dumps(run(dict(json.loads(line), by_pytest=suite.by_pytest), words)) + "\n")
        answers.flush()


def prepare(suite, words):
    """Imports what nearly every file imports, as the file will see it."""
    original = bool(importlib.util.find_spec("tensorflow_core"))  # TensorFlow 1's own: later npu-shim finds one too
    if words[0] == "npu-shim":
        from npu_shim.compat import tensorflow_v1

        tensorflow_v1.install()
    import tensorflow

    assert tensorflow.__version__
    for name in suite.imports:
        importlib.import_module(name)
    import methods

    if not suite.by_pytest:
        import adapter

        adapter.install(os.getcwd(), original=original)
    assert methods


def run(job, words):
    """Runs a file until each of its methods has a verdict: a process that hangs or dies costs one method only."""
    answer = {"tests": {}, "file": "", "cpu": 0.0}
    while not attempt(job, words, answer):
        pass
    return answer


def attempt(job, words, answer):
    """Runs in a fork what has no verdict yet; returns whether nothing is left to do."""
    receiving, sending = os.pipe()
    with tempfile.TemporaryFile() as written:
        child = os.fork()
        if not child:
            os.close(receiving)
            in_fork(job, words, list(answer["tests"]), sending, written)
        os.close(sending)
        with os.fdopen(receiving, "rb", 0) as events:
            watched = watch(child, events, answer, job)
        reap(child, watched["hung"])
        if watched["over"]:
            return True
        written.seek(0)
        tail = written.read().decode("utf-8", "replace")[-KEPT:]
    return settle(watched, answer, tail)


def reap(child, hung):
    """Ends a fork, and what it started; one that hangs writes first where each of its threads stands."""
    if hung:
        os.kill(child, signal.SIGUSR1)
        time.sleep(1)
    try:
        os.killpg(child, signal.SIGKILL)
    except OSError:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


class Clock:
    """How long a process has computed, in seconds of CPU time: on a busy machine those of the wall say little."""

    def __init__(self, pid):
        self._stat = "/proc/%d/stat" % pid
        self._moved, self._then = 0.0, time.time()  # the CPU time that was new, and when

    def cpu(self):
        """Seconds of CPU time of the process."""
        with open(self._stat) as f:
            fields = f.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def idle(self):
        """Seconds since the process last computed."""
        now = self.cpu()
        if now > self._moved + POLLING:
            self._moved, self._then = now, time.time()
        return time.time() - self._then


def watch(child, events, answer, job):
    """Takes down what a fork says, until it ends, or a method or the file has taken too long."""
    state = {"over": False, "running": None, "left": None, "hung": False, "late": False}
    buffer, clock, began = b"", Clock(child), 0.0
    while True:
        ready, _, _ = select.select([events], [], [], 1)
        if not ready:
            cpu = clock.cpu()
            state["late"] = answer["cpu"] + cpu > job["file_s"]
            state["hung"] = state["late"] or cpu - began > job["method_s"] or clock.idle() > job["idle_s"]
        read = os.read(events.fileno(), 1 << 16) if ready else b""
        if state["hung"] or (ready and not read):
            answer["cpu"] += clock.cpu()
            return state
        began = clock.cpu() if read else began
        buffer += read
        while b"\n" in buffer:
            line, _, buffer = buffer.partition(b"\n")
            take(json.loads(line.decode()), state, answer)


def take(event, state, answer):
    """Takes down one event."""
    kind = event.pop("event")
    if kind == "methods":
        state["left"] = event["names"]
    elif kind == "begin":
        state["running"] = event["name"]
    elif kind == "end":
        name = event.pop("name")
        answer["tests"][name] = event
        state["running"] = None
    elif kind == "broken":
        answer["file"] = event["error"]
        answer["trace"] = event["trace"]
    elif kind == "over":
        state["over"] = True


def settle(watched, answer, tail):
    """Gives verdicts after a fork that hung or died; returns whether nothing is left to do."""
    names = [name for name in watched["left"] or () if name not in answer["tests"]]
    stopped = [watched["running"]] if watched["running"] else []
    if watched["late"]:
        stopped = names
    elif not stopped and not answer["file"]:
        answer["file"] = "hangs before its first method" if watched["hung"] else "the process died"
        answer["trace"] = tail
    for name in stopped:
        state = "timeout" if watched["hung"] else "crash"
        answer["tests"][name] = {"state": state, "error": last_line(tail), "trace": tail, "seconds": 0.0}
    return bool(answer["file"]) or not set(names) - set(stopped)


def last_line(text):
    """The last line that says something."""
    return ([line.strip() for line in text.splitlines() if line.strip()] or [""])[-1][:300]


def in_fork(job, words, done, sending, written):
    """The life of a fork: does not return."""
    os.setpgid(0, 0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(written.fileno(), 1)
    os.dup2(written.fileno(), 2)
    atexit._clear()  # the parent's own
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
    folder = tempfile.mkdtemp(prefix="tf115_tests_")
    os.environ["TEST_TMPDIR"] = folder + "/"
    os.chdir(job["folder"])
    import methods

    reporter = methods.Reporter(sending)
    try:
        capture = methods.capture_pytest if job["by_pytest"] else methods.capture
        capture(reporter, job["only"], done)
        program = [WITH_PYTEST, job["file"]] if job["by_pytest"] else [job["file"]]
        start(program, words, reporter)
        reporter.say("over")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def start(program, words, reporter):
    """Runs a file, with its arguments, as `__main__`."""
    sys.excepthook = reporter.broken
    try:
        if words[0] == "npu-shim":
            from npu_shim import cli

            cli.main(["run", *words[1:], *program])
        else:
            import runpy

            sys.argv = list(program)
            sys.path[0] = os.path.dirname(program[0])
            runpy.run_path(program[0], run_name="__main__")
    except SystemExit as end:
        if end.code and not reporter.told:
            reporter.broken(type(end), end, end.__traceback__)
    except BaseException:
        reporter.broken(*sys.exc_info())


if __name__ == "__main__":
    serve(SUITES[sys.argv[1]], sys.argv[2:])
