"""Watches the runs that have collectives: where a rank is missing, all others end with one error that names it.

TensorFlow waits for ever for a rank that is stopped, busy with something else or at other collectives, and 1.15.5 also
for one whose process has gone; nothing in 1.15.5 ends a collective that waits, neither a time limit nor closing its
session. So a run goes on in a thread of its own, and its caller looks after the other ranks meanwhile: each second at
one of them, after the time limit at all. What it finds it tells all of them, and raises. The run's thread and session
are left to themselves then.
"""

from __future__ import annotations

import logging
import os
import time
from typing import Any, Callable, Mapping, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.distributed.job import ranks
from npu_shim.distributed.liveness import channel, progress, threads
from npu_shim.distributed.liveness.progress import Arrival, Collective, Fault, Progress, behind, judged, of_json
from npu_shim.rewriter.errors import ConfigError

LOG = logging.getLogger("npu_shim")
LIMIT, CONNECT_LIMIT = "HCCL_EXEC_TIMEOUT", "HCCL_CONNECT_TIMEOUT"  # the vendor's, in seconds
SECONDS = 120  # that a rank may take to reach a collective, where neither an option nor the environment says more
EARLY = 0.95  # of a time limit: then all look at all, so that the error is there within the limit
PATIENCE = 2.0  # seconds of a run in which nobody looks after the others
TICK = 1.0  # seconds between two looks
WAKE = 0.25  # seconds in which another rank's fault is noticed
ANSWER = 2.0  # seconds for an answer
SILENT = 15.0  # seconds without an answer that mean something once the limit is over
AGREED = 3 * ANSWER  # seconds in which a rank that has proposed a fault brings the others to agree on it
ERRORS = {
    "INTERNAL": tf.errors.InternalError,
    "DEADLINE_EXCEEDED": tf.errors.DeadlineExceededError,
    "INVALID_ARGUMENT": tf.errors.InvalidArgumentError,
}
# what a collective fails with because another rank has gone
OF_OTHERS = (tf.errors.UnavailableError, tf.errors.CancelledError, tf.errors.AbortedError, tf.errors.InternalError,
             tf.errors.DeadlineExceededError, tf.errors.UnknownError)  # fmt: skip
GONE = "gone"
RELEASE = "tensorflow"  # what each rank tells of its TensorFlow

_progress = Progress()
_own: list[int] = []  # this process's rank, once it answers
_states: dict[int, Mapping[str, Any]] = {}  # rank -> what it answered last
_kept: list[Any] = []  # sessions with runs that do not end: to close or to forget them would wait for ever
_warned: set[int | None] = set()  # ranks, and None for slow runs that all ranks are in, that a warning has named
_told: dict[str, Any] = {}  # what this process tells whoever asks for it, by name
_arrivals: list[Callable[[], Mapping[int, Arrival]]] = []  # what tells what has come to this process's collectives


def arrivals_by(function: Callable[[], Mapping[int, Arrival]]) -> None:
    """Has a function tell from now on what has come to this process's collectives, by instance key."""
    _arrivals[:] = [function]


def tell(name: str, value: Any) -> None:
    """Tells a value, which JSON can hold, to the ranks that ask for it from now on."""
    _told[name] = value


def told(rank: int, name: str) -> Any:
    """Returns what a rank tells under a name, None if it tells nothing."""
    return channel.ask(rank, {"do": "told", "name": name}, ANSWER)


def has_fault() -> bool:
    """Whether the ranks have agreed to end the job."""
    return _progress.fault is not None


def _arrived():
    return _arrivals[0]() if _arrivals else {}


def begin() -> None:
    """Makes this process answer the other ranks."""
    _own[:] = [ranks.world_rank()]
    tell(RELEASE, tf.__version__)
    channel.answer_by(_answer)
    threads.prepare()


def deregister(how: str) -> bool:
    """Says that this process is about to end; returns whether the other ranks are to be waited for.

    Args:
        how: the error that ends it, or "".
    """
    _progress.deregister(how)
    if how and _progress.fault is None:
        own = ranks.world_rank()
        _agree(Fault("INTERNAL", own, "npu_shim: %s has ended: %s" % (name_of(own), how)))
    return _progress.fault is None


def is_waited_for() -> bool:
    """Whether another rank is in a run, so that this process stays and its error tells less than theirs."""
    if _progress.fault is not None:
        return False
    states = channel.for_each(_others(), _state)
    return any(isinstance(state, dict) and state["running"] for state in states.values())


def shutdown_barrier(seconds: float) -> None:
    """Stays until the other ranks are through the final barrier, as they may still be reading this rank's data of it.

    Args:
        seconds: how long at most.
    """
    until, others = time.monotonic() + seconds, _others()
    _broadcast(others, {"do": "through", "rank": ranks.world_rank()}, seconds)
    while not _progress.through.issuperset(others) and time.monotonic() < until:
        time.sleep(WAKE / 16)
    time.sleep(WAKE / 4)  # for the answer to the last one


def _answer(message):
    if message["do"] == "propose":
        return _progress.propose(Fault(*message["fault"]))
    if message["do"] == "through":
        _progress.through.add(message["rank"])
        return True
    if message["do"] == "fault":
        _adopt(message["fault"])
        return None
    if message["do"] == "told":
        return _told.get(message["name"])
    if message["do"] == "run":
        return _progress.of_run(message["group"], message["number"])
    return {**_progress.state(), "arrived": _arrived()}


def _adopt(fault):
    """Takes a fault that another rank has found, if this one has found none."""
    _progress.fault = _progress.fault or Fault(*fault)


def _agree(fault):
    """Ends the job with one fault on all ranks, also where several find one at the same time.

    A rank that finds one proposes it to all before anyone ends with it. Who has been proposed another one leaves it to
    that rank; ranks that propose at the same time hear of each other, and choose the same of theirs.
    """
    first = _progress.propose(fault)[1]
    until = time.monotonic() + (0 if first is fault else AGREED)
    while time.monotonic() < until and _progress.fault is None:
        time.sleep(WAKE / 4)
    if _progress.fault is None:  # or the other has gone since
        others = _others()
        replies = _broadcast(others, {"do": "propose", "fault": first}, ANSWER)
        heard = [(agreed, Fault(*fault)) for agreed, fault in replies.values()]
        agreed = [fault for is_agreed, fault in heard if is_agreed]
        _adopt(min(agreed or [first, *(fault for _, fault in heard)], key=Fault.weight))
        _broadcast(replies, {"do": "fault", "fault": _progress.fault}, ANSWER)
        _broadcast([rank for rank in others if rank not in replies], {"do": "fault", "fault": _progress.fault}, WAKE)


def _broadcast(of, message, seconds):
    """Sends a message to some ranks; returns the replies of those that reply in time, by rank."""

    def ask(rank):
        return channel.ask(rank, message, seconds) if channel.listens(rank) else None

    return {rank: reply for rank, reply in channel.for_each(of, ask).items() if reply is not None}


def _others():
    own = ranks.world_rank()
    return [rank for rank in range(ranks.world_size()) if rank != own]


def name_of(rank: int) -> str:
    """A rank as messages name it."""
    return "rank %d (%s)" % (rank, ranks.addresses()[rank])


def seconds_of(variable: str) -> float:
    """Returns a time limit of the environment, in seconds.

    Raises:
        ConfigError: it is no positive number.
    """
    text = os.environ.get(variable) or str(SECONDS)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise ConfigError("%s=%r in the environment, expected a number of seconds" % (variable, text))
    return seconds


def run(
    what: Mapping[int, list[Collective]],
    members: Mapping[int, Sequence[int]],
    seconds: float | None,
    session: tf.Session,
    once: Callable[[], Any],
) -> Any:
    """Returns `once()`, a run of a session with collectives, if all ranks of their groups come to it.

    Args:
        what: the collectives by the key of their group.
        members: the world ranks of each group by its key.
        seconds: how long a rank may take to reach a collective; None or 0 where the environment says it.
        session: the session.
        once: function.

    Raises:
        tf.errors.OpError: InternalError where another rank has failed or ended, DeadlineExceededError where one does
            not come, InvalidArgumentError where one has other collectives; or the run's own.
    """
    _raise_fault()
    begun = _progress.begin(what)
    failed: str | None = "interrupted"
    try:
        result = _Waiting(what, begun, members, seconds or seconds_of(LIMIT)).result(session, once)
        failed = None
        return result
    except Exception as error:
        failed = _line(error)
        raise
    finally:
        _progress.end(begun, failed)


def run_alone(once: Callable[[], Any]) -> Any:
    """Returns `once()`, a run without collectives, which the other ranks know to be none that hangs."""
    _progress.touch()
    try:
        return once()
    finally:
        _progress.touch()


def run_ahead(session: tf.Session, once: Callable[[], Any]) -> Any:
    """Returns `once()`, what a rank does on its way to a run with others, unless these end the job meanwhile.

    Args:
        session: the session that it is done in.
        once: function.
    """
    call = threads.apart(once)
    try:
        while not call.ends(WAKE):
            _raise_fault()
    except BaseException:
        _keep(session)
        raise
    return call.result()


class _Waiting:
    """One run, and the looks after the other ranks while it lasts."""

    def __init__(self, what, begun, members, limit):
        self._what, self._begun, self._limit = what, begun, limit * EARLY
        self._members, self._own = members, _own[0]
        others = {rank for member in members.values() for rank in member if rank != self._own}
        self._others = sorted(others, key=lambda rank: (rank < self._own, rank))  # the next one first
        self._since = time.monotonic()
        self._silent: dict[int, float] = {}  # rank -> since when it gives no answer
        self._looks, self._looked = 0, 0.0

    def result(self, session, once):
        """Returns what the run returns; raises its error or the job's."""
        self._compare()
        call = threads.apart(once)
        try:
            while not call.ends(WAKE):
                self._look()
        except BaseException:
            _keep(session)
            raise
        if isinstance(call.error, OF_OTHERS):
            self._explain()
        return call.result()

    def _waited(self):
        return time.monotonic() - self._since

    # -- before the run

    def _compare(self):
        """Compares collectives that are new with those of the group's first rank."""
        for group, (number, new) in self._begun.items():
            first = self._members[group][0]
            if new and first != self._own:
                theirs = self._asked_for_run(first, group, number)
                self._compare_releases(first)
                self._compare_with(first, group, theirs)

    def _compare_releases(self, rank):
        """Ends the job where a rank has TensorFlow 1 and this one 2, whose servers do not understand each other."""
        theirs, own = told(rank, RELEASE), tf.__version__
        if theirs and theirs.partition(".")[0] != own.partition(".")[0]:
            words = (name_of(rank), theirs, name_of(self._own), own)
            text = "%s has TensorFlow %s, and %s has %s: ranks of one job need the same TensorFlow" % words
            self._end_job("INVALID_ARGUMENT", rank, text)

    def _asked_for_run(self, rank, group, number):
        """Waits until a rank has come to a run; returns what it has there."""
        pause = 0.01
        while True:
            theirs = channel.ask(rank, {"do": "run", "group": group, "number": number}, ANSWER)
            if theirs is not None:
                return theirs
            self._look()
            time.sleep(pause)
            pause = min(pause * 2, WAKE)

    def _compare_with(self, rank, group, theirs):
        what = progress.difference(self._what[group], of_json(theirs), name_of(self._own), name_of(rank))
        if what is not None:
            words = (self._begun[group][0], what)
            self._end_job("INVALID_ARGUMENT", rank, "run %d has other collectives on other ranks: %s" % words)

    # -- during the run

    def _look(self):
        """Looks at one other rank; at all of them where the run has lasted longer than a rank may take."""
        _raise_fault()
        now = time.monotonic()
        if self._waited() < PATIENCE or now - self._looked < TICK or not self._others:
            return
        of = self._others if self._waited() > self._limit else [self._others[self._looks % len(self._others)]]
        self._looks += 1
        for rank, state in channel.for_each(of, _state).items():
            self._judge(rank, state)
        self._looked = time.monotonic()

    def _explain(self):
        """Raises the job's error if a run has failed because of another rank, which may take a moment to show."""
        began = time.monotonic()
        until = began + PATIENCE
        while time.monotonic() < until:
            _raise_fault()
            states = channel.for_each(self._others, _state)
            for rank in sorted(states, key=lambda rank: states[rank] != GONE):
                self._judge(rank, states[rank], settled=0.0)
            if None in states.values():  # a process that is ending takes a question for a while, and does not answer it
                until = min(began + SILENT, time.monotonic() + PATIENCE)
            time.sleep(WAKE)

    def _judge(self, rank, state, settled=None):
        """Raises the job's error if something is wrong with a rank, whose state is a dict, None (no answer) or GONE."""
        if state == GONE:
            self._judge_gone(rank)
        elif state is None:
            silent = time.monotonic() - self._silent.setdefault(rank, time.monotonic() - ANSWER)
            if silent > self._limit or (self._waited() > self._limit and silent > min(SILENT, self._limit / 2)):
                text = "it does not answer (for %d s); is its process stopped?" % silent
                self._fail(rank, "DEADLINE_EXCEEDED", text)
        else:
            self._silent.pop(rank, None)
            if state["fault"] is not None:
                _adopt(state["fault"])
                _raise_fault()
            for group, (number, _) in self._begun.items():
                if rank in self._members[group]:
                    self._judge_progress(rank, state, group, number, settled)

    def _judge_gone(self, rank):
        last = _states.get(rank)
        if last is None and all(number == 1 for number, _ in self._begun.values()):  # nor has it been in any run
            limit = seconds_of(CONNECT_LIMIT) * EARLY
            if self._waited() > limit:
                text = "nothing listens there after %d s: it has not started" % self._waited()
                self._fail(rank, "DEADLINE_EXCEEDED", text)
        elif last is None or not all(_has_done(last, group, number) for group, (number, _) in self._begun.items()):
            self._fail(rank, "INTERNAL", "its process has ended")

    def _judge_progress(self, rank, state, group, number, settled):
        known = {} if settled is None else {"settled": settled, "caused": tuple(other.__name__ for other in OF_OTHERS)}
        wrong = judged(state, group, number, self._waited(), self._limit, **known)
        if wrong is not None:
            self._fail(rank, *wrong)
        if self._waited() > self._limit and group in state["running"]:
            theirs = channel.ask(rank, {"do": "run", "group": group, "number": number}, ANSWER)
            if theirs is not None:
                self._compare_with(rank, group, theirs)
            where = behind(_arrived(), state["arrived"], [group], state["still"], self._limit)
            if where is not None:
                self._fail(rank, "DEADLINE_EXCEEDED", where)
            text = "a run lasts longer than %d s, and other ranks are in it too: %s"
            _warn_once(None, text % (self._limit / EARLY, self._where()))
        elif self._waited() > self._limit:
            text = "%s makes other runs for longer than %d s: %s"
            _warn_once(rank, text % (name_of(rank), self._limit / EARLY, self._where()))

    def _where(self):
        """What this rank waits in."""
        group, collectives = next(iter(self._what.items()))
        count = sum(map(len, self._what.values()))
        more = " and %d more" % (count - 1) if count > 1 else ""
        return "run %d, with the collective %s%s" % (self._begun[group][0], collectives[0], more)

    def _fail(self, rank, code, text):
        """Ends the job because of a rank that does not come."""
        words = (name_of(rank), text, name_of(self._own), self._where())
        self._end_job(code, rank, "%s: %s; %s waits in %s" % words)

    def _end_job(self, code, rank, text):
        """Raises the error that the ranks agree on."""
        _agree(Fault(code, rank, "npu_shim: " + text))
        _raise_fault()


def _has_done(state, group, number):
    theirs = state["runs"].get(str(group), 0)
    return theirs > number or (theirs == number and group not in state["running"])


def _state(rank):
    """A rank's state: a dict, None if it gives no answer, GONE if nothing listens at its address."""
    if not channel.listens(rank):
        return GONE
    state = channel.ask(rank, {"do": "state"}, ANSWER)
    if state is not None:
        _states[rank] = state
    return state


def _raise_fault():
    fault = _progress.fault
    if fault is not None:
        raise ERRORS[fault.code](None, None, fault.text)


def _keep(session):
    _kept.append(session)
    vars(session)["close"] = lambda: None


def _line(error):
    """An error in one line: around it TensorFlow's messages have the stack of the node's construction."""
    lines = [line.strip() for line in str(getattr(error, "message", "") or error).splitlines() if line.strip()]
    places = [at for at, line in enumerate(lines) if line.startswith("[[") and at]  # [[{{node name}}]] comes after it
    return "%s: %s" % (type(error).__name__, lines[places[0] - 1] if places else "".join(lines[:1]))


def _warn_once(rank: int | None, text: str) -> None:
    """Warns of the first run that takes long, or of the first for which a rank is elsewhere; later runs add nothing."""
    if rank not in _warned:
        _warned.add(rank)
        LOG.warning("npu_shim: %s", text)
