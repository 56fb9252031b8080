"""Steps that several hosts run together, for a script that knows of no ranks: one program on the devices of all.

    feeds | hosts meet: "I run this program, with these feeds and variables" | variables of the first host | the program

Every host runs the whole script, with the same input, and gives its devices their parts of it. So all of them come to
the same runs, and what differs is an error before it runs: a program of several hosts waits for ever for one that runs
something else. Where one host has no program for a step, all run that step in their sessions.

JAX lives in a worker here too, as in `together`: a host that is lost ends the worker, and the error names the host.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import Any, Collection, Mapping, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.distributed.hosts import coming, job
from npu_shim.distributed.hosts.meeting import Fault, Meeting
from npu_shim.distributed.launcher.layout import free_ports
from npu_shim.distributed.liveness import watch
from npu_shim.engine.device.worker import remote
from npu_shim.options import devices, engine, words
from npu_shim.pjrt.ranks import Job
from npu_shim.rewriter.errors import ConfigError, unnamed
from npu_shim.session import lines

TEXT = (
    "hosts: %d of them (%s) run each training step as one program on %s; %s; host %s writes checkpoints and summaries"
)
SAME = "all have the same input, of which each feeds its part"
OWN = "each has an input of its own, and a step's batch is the batches of all of them"
ALONE = (
    "npu_shim: hosts: %s has no program for %s (its output says why), and in its session it would train of its own "
    "input alone: give all hosts the same input, without --input-per-host"
)

_lock = threading.Lock()
_meetings: list[Meeting] = []  # this process's, once it is there
_started: list[Any] = []  # the worker of this process, likewise


def worker(values: Mapping[str, Any], hosts: job.Hosts) -> remote.Worker:
    """Returns a worker whose devices run programs with those of the other hosts.

    Args:
        values: option values.
        hosts: the job.

    Raises:
        ConfigError: hosts do not come, or were given different numbers of devices, or have them.
        ImportError: there is no JAX.
    """
    asked: dict[str, Any] = {"devices": devices.of(values), "shard_state": words.SHARD_STATE.of(values)}
    with _lock:
        if not _meetings:
            _meetings.append(_met(hosts, asked))
        (meeting,) = _meetings
        try:
            opened = _opened(hosts, meeting, asked)
        except (ImportError, ConfigError, RuntimeError) as reason:
            why = meeting.fault or unnamed(str(reason).partition("\n")[0])
            meeting.fail("host %s: %s" % (hosts.name, why))
            raise ConfigError("hosts: %s" % why) from None
        lines.once(
            TEXT % (
                len(hosts.names), ", ".join(hosts.names), opened.where.partition(",")[0],
                OWN if hosts.own_input else SAME, hosts.names[0],
            )
        )
    return opened


def _opened(hosts: job.Hosts, meeting: Meeting, asked: Mapping[str, Any]) -> remote.Worker:
    if meeting.fault:
        raise RuntimeError(meeting.fault)
    address = "%s:%d" % (hosts.names[0], meeting.about[0]["port"])
    seconds = int(watch.seconds_of(watch.CONNECT_LIMIT))
    own = Job(address, len(hosts.names), hosts.index, 0, seconds, tuple(hosts.names))
    python = sys.executable if engine.has_jax() else engine.interpreter()
    opened = remote.Worker(str(python), job=own, **asked)
    if opened.started not in _started:
        _started.append(opened.started)
        meeting.at_loss(opened.started.kill)
        atexit.register(_end, os.getpid(), meeting, opened)
    return opened


def _met(hosts: job.Hosts, asked: Mapping[str, Any]) -> Meeting:
    """The Meeting of hosts that were given the same devices; errors as of `worker`."""
    connect, limit = (watch.seconds_of(variable) for variable in (watch.CONNECT_LIMIT, watch.LIMIT))
    port = free_ports(1)[0] if hosts.index == 0 else 0
    try:
        asked = {**asked, "input-per-host": hosts.own_input}
        meeting = Meeting(hosts, {**asked, "port": port}, connect, limit)
    except Fault as reason:
        raise ConfigError("hosts: %s" % reason) from None
    for name in asked:
        for host, about in zip(hosts.names, meeting.about):
            if about[name] != meeting.about[0][name]:
                given = host, name, about[name], hosts.names[0], meeting.about[0][name]
                raise ConfigError("hosts: %s was given %s=%s, and %s %s: they must be the same" % given)
    return meeting


def _end(process: int, meeting: Meeting, opened: remote.Worker) -> None:
    if process != os.getpid():  # a fork of it
        return
    error = getattr(sys, "last_value", None)  # what Python has shown as it let the program end
    if error is not None:
        meeting.fail("host %s has ended: %s: %s" % (meeting.hosts.name, type(error).__name__, error))
    if meeting.hosts.index:  # the first one's JAX serves all, and must end last
        opened.started.end()
    meeting.end()


def fault() -> str:
    """Why the hosts' job has ended, "" while it goes on, or where there is none."""
    return _meetings[0].fault if _meetings else ""


def fail(why: str) -> None:
    """Tells the other hosts that this one gives up."""
    for meeting in _meetings:
        meeting.fail("host %s: %s" % (meeting.hosts.name, why))


def agree(
    text: str, exchanges: Sequence[str] | None, feeds: Sequence[Mapping[str, Any]], missing: Sequence[str],
    own: Collection[str] = (),
) -> bool:
    """Meets the other hosts before a run on the devices; returns whether all have a program for it.

    Args:
        text: the run in a few words.
        exchanges: what its program exchanges, in order; None where this host has no program.
        feeds: of each step, dict of tensor name to value.
        missing: names of the variables that are brought to the devices first.
        own: names of the feeds of which each host gives rows of its own.

    Raises:
        tf.errors.InternalError: a host does not come.
        tf.errors.InvalidArgumentError: another host would run something else; or one has no program, and an input of
            its own.
    """
    row = coming.told(text, exchanges, feeds, missing, own)
    meeting = _meetings[0]
    try:
        rows = meeting.meet(row, text)
    except Fault as reason:
        raise tf.errors.InternalError(None, None, "npu_shim: hosts: %s" % reason) from None
    ready = all(one["ready"] for one in rows)
    why = coming.different(meeting.hosts.names, rows, ready, meeting.hosts.own_input)
    if why:
        raise tf.errors.InvalidArgumentError(None, None, "npu_shim: hosts: %s" % why)
    if not ready and meeting.hosts.own_input:
        without = [name for name, one in zip(meeting.hosts.names, rows) if not one["ready"]]
        raise tf.errors.InvalidArgumentError(None, None, ALONE % (" and ".join(without), text))
    return ready


def refuse(what: str) -> None:
    """Raises ConfigError where several hosts run the script as one, which `what` does not do."""
    if job.of(os.environ) is not None:
        raise ConfigError("%s runs on one host, and several run this script as one (--hosts): use Session.run" % what)
