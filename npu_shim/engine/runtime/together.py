"""Steps that ranks run together: one program on all of them, with what they exchange inside of it.

    feeds | ranks meet: "I have a program, and meet you in this order" | the program, or the session's step | summaries

Ranks build graphs of their own: one writes summaries, one has a last batch of another size, one is traced. So before
each such step they tell each other, over the devices that run it, whether each has a program and what that exchanges,
as a hash. Where all have one and the exchanges are the same, in the same order, all run it; else all run the step in
their sessions, with TensorFlow's collectives, that once. Ranks never wait in programs that do not meet.

JAX's distributed runtime, which carries that, ends a process when another one is lost. So JAX lives in a worker here,
also where this process could import it: a worker that ends is an error of one step, and our own liveness names the rank
that is to blame.
"""

from __future__ import annotations

import hashlib
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.distributed.job import cluster, ranks
from npu_shim.distributed.job.description import host_of
from npu_shim.distributed.launcher.layout import free_ports
from npu_shim.distributed.liveness import watch
from npu_shim.engine.device.worker import remote
from npu_shim.engine.runtime.runs import Known
from npu_shim.options import devices, engine, words
from npu_shim.pjrt.ranks import Job, is_of_all
from npu_shim.rewriter.errors import ConfigError, unnamed
from npu_shim.session import lines

TOLD = "jax"  # the name under which rank 0 tells where its service is, "" where there is none
PAUSE = 0.25  # seconds between two questions
MOST = 3  # steps one after the other for which ranks have no program together; then they ask no more
NOTHING = (0, 0, 0, 0)  # what a rank brings that has no program

_lock = threading.Lock()
_jobs: list[Job | None] = []  # this process's, once that is decided


class Unlike(ConfigError):
    """Ranks were given different numbers of devices."""


def is_wanted(session: tf.Session) -> bool:
    """Whether a session's steps shall be programs of all ranks."""
    return ranks.world_size() > 1 and engine.ranks_meet_inside() and cluster.is_own(session)


def worker(values: Mapping[str, Any]) -> remote.Worker | None:
    """Returns a worker that meets those of the other ranks, None where they do not come together.

    Args:
        values: option values.

    Raises:
        Unlike: rank 0 was given another number of devices.
    """
    with _lock:
        if _jobs == [None]:
            return None
        python, count = sys.executable if engine.has_jax() else engine.interpreter(), devices.of(values)
        try:
            job = (_jobs[0] if _jobs else None) or _own_job(count)
            opened = remote.Worker(str(python), devices=count, job=job, shard_state=words.SHARD_STATE.of(values))
            if not _jobs and job.rank != 0:  # whose service must not end before what listens to it
                cluster.before_end(opened.started.end)
            _jobs[:] = [job]
            return opened
        except Unlike:
            raise
        except (ImportError, ConfigError, RuntimeError) as reason:
            _jobs[:] = [None]
            watch.tell(TOLD, "")
            text = "engine: the ranks' steps are cut where they meet: JAX's distributed runtime: %s"
            lines.once(text % _plain(reason))
            return None


def _own_job(count: int | str) -> Job:
    """This process's job; rank 0's address is told by it.

    Args:
        count: of this rank's devices.

    Raises:
        ConfigError: rank 0 tells no address in time.
        Unlike: it has another number of devices.
    """
    own, seconds = ranks.world_rank(), watch.seconds_of(watch.CONNECT_LIMIT)
    if own == 0:
        address = "%s:%d" % (host_of(ranks.addresses()[0]), free_ports(1)[0])
        watch.tell(TOLD, [address, count])
    else:
        until, told = time.monotonic() + seconds, watch.told(0, TOLD)
        while told is None and time.monotonic() < until:
            time.sleep(PAUSE)
            told = watch.told(0, TOLD)
        if not told:
            raise ConfigError("%s has none" % watch.name_of(0))
        address, first = told
        if first != count:
            words = watch.name_of(own), count, watch.name_of(0), first
            raise Unlike("%s has devices=%s, and %s %s: give all ranks the same number" % words)
    local = ranks.get_local_rank_id(), int(seconds), (), count, ranks.get_local_rank_size()
    return Job(address, ranks.world_size(), own, *local)


@dataclass
class Shared(Known):
    """A run with its exchanges inside of one program; where that cannot be had, ranks meet outside of it.

    Attributes:
        misses: steps one after the other for which the ranks had no program together.
    """

    misses: int = 0

    def refuse(self, reason: Any, is_expected: bool = False, key: Any = None) -> None:
        """Gives the program up, and says why."""
        if key is not None and any(number is not None for number in self.programs.values()):
            self.programs[key] = None
        else:
            self.step, self.reason = None, _plain(reason)
        lines.once("engine: ranks meet outside of the program of %s: %s" % (self.text, _plain(reason)))

    def missed(self, why: str) -> None:
        """Notes that the ranks had no program together; after a few times it is given up."""
        self.misses += 1
        if self.misses == MOST:
            self.refuse(why)


def brought(meeting: cluster.Meeting, exchanges: Sequence[str] | None) -> tuple[int, ...]:
    """What a rank brings to a meeting.

    Args:
        meeting: the Meeting.
        exchanges: what its program exchanges, in order; None where it has no program.
    """
    if exchanges is None:
        return NOTHING
    of_all = [exchange for exchange in exchanges if is_of_all(exchange, len(meeting.ranks))]
    return 1, _hash(of_all), _hash(sorted(map(str, meeting.groups))), _hash(exchanges)


def apart(meeting: cluster.Meeting, rows: Sequence[Sequence[int]]) -> str:
    """Why ranks have no program together, in words; "" where they have one.

    All ranks of a meeting find the same in the same rows. Those in the same groups must exchange the same in the same
    order; the others, what all exchange.

    Args:
        meeting: the Meeting.
        rows: what each of its ranks has brought.
    """
    without = [rank for rank, row in zip(meeting.ranks, rows) if not row[0]]
    if without:
        return "%s has no program of it" % ", ".join(watch.name_of(rank) for rank in sorted(without))
    first: dict[int, tuple[int, int]] = {}  # groups -> (rank, what it exchanges)
    for rank, (_, of_all, groups, all_) in zip(meeting.ranks, rows):
        other, theirs = first.setdefault(groups, (rank, all_))
        if of_all != rows[0][1] or theirs != all_:
            other = other if theirs != all_ else meeting.ranks[0]
            words = watch.name_of(other), watch.name_of(rank)
            return "%s and %s exchange in another order, or in other sizes" % words
    return ""


def _plain(reason: Any) -> str:
    """The first line of an error, without our name in front."""
    return unnamed(str(reason).partition("\n")[0])


def _hash(parts: Sequence[str]) -> int:
    """A number of 62 bits."""
    return int.from_bytes(hashlib.sha256("\n".join(parts).encode()).digest()[:8], "big") >> 2
