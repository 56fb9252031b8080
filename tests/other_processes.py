"""What tests see and do of other processes."""

import glob
import os
import signal
import time


def lives(pid):
    """Whether a process runs; a zombie does not."""
    return _state("/proc/%d/stat" % pid) not in ("Z", None)


def ends(pid, seconds=10):
    """Whether a process ends within some seconds."""
    until = time.time() + seconds
    while lives(pid) and time.time() < until:
        time.sleep(0.01)
    return not lives(pid)


def stop(pid):
    """Stops a process, and waits until each of its threads has stopped."""
    os.kill(pid, signal.SIGSTOP)
    while any(_state(path) not in ("T", None) for path in glob.glob("/proc/%d/task/*/stat" % pid)):
        time.sleep(0.01)


def _state(path):
    """The letter for the state of a process or thread, None if it is gone."""
    try:
        with open(path) as file:
            return file.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None
