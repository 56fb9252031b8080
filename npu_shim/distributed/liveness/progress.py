"""How far each rank is, and what is wrong with it: the states that ranks tell each other, judged. No TensorFlow.

A run is a run of a session that has collectives; every rank counts those of each group. All ranks of a group must run
the same collectives in the same order, as on an NPU, so that run 17 of one is run 17 of all.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Mapping, NamedTuple, Sequence

CODES = ("INTERNAL", "DEADLINE_EXCEEDED", "INVALID_ARGUMENT")
SETTLED = 10.0  # seconds after a rank's run has failed in which the others' may fail by themselves
ABSENT = "not at all"
ONE_KEY = (
    "the key %d is that of %s, labelled '%s', at %s, and that of %s, labelled '%s', at %s: two labels have fallen on "
    "one key; build their collectives in the same order on all ranks"
)
KEPT = 64  # kinds of runs of a group that are remembered, newest last


class Collective(NamedTuple):
    """One collective of a run.

    Attributes:
        node: name of its op.
        kind: its type, "CollectiveReduce".
        dtype: "float32".
        shape: of this rank's part, None where the graph does not say.
        group: the key of the group of ranks.
        instance: the key by which the ranks find each other's; None where the graph does not say.
        reduction: "Add", or "" where it reduces nothing.
        moves: (name of a variable, dtype and shape) of each gradient in it, where it is known.
        label: what its key was made of, "" where that is not known.
    """

    node: str
    kind: str
    dtype: str
    shape: tuple[int, ...] | None
    group: int
    instance: int | None
    reduction: str
    moves: tuple[tuple[str, str], ...] = ()
    label: str = ""

    def __str__(self) -> str:
        shape = "of unknown shape" if self.shape is None else "[%s]" % ",".join(map(str, self.shape))
        return "'%s' (%s, %s %s)" % (self.node, " ".join(filter(None, (self.kind, self.reduction))), self.dtype, shape)


def of_json(rows: Sequence[Sequence[Any]]) -> list[Collective]:
    """Returns collectives that were sent as JSON."""
    return [
        Collective(*row)._replace(shape=None if row[3] is None else tuple(row[3]), moves=tuple(map(tuple, row[7])))
        for row in rows
    ]


def difference(ours: Sequence[Collective], theirs: Sequence[Collective], here: str, there: str) -> str | None:
    """Says in what the collectives of a run differ between two ranks; None if they fit together.

    Ranks may name their nodes and build them as they like: it is keys that must meet, see `keys`.

    Args:
        ours: of this rank.
        theirs: of the other.
        here: this rank as messages name it.
        there: the other.
    """
    mine, other = ({_key(collective): collective for collective in side} for side in (ours, theirs))
    for key in sorted(mine.keys() & other.keys()):
        if not _is_one_label(mine[key], other[key]):
            return ONE_KEY % (key[0], mine[key], mine[key].label, here, other[key], other[key].label, there)
        if not _fit(mine[key], other[key]):
            return "%s at %s, %s at %s" % (mine[key], here, other[key], there)
    only = [collective for key, collective in sorted(mine.items()) if key not in other]
    others = [collective for key, collective in sorted(other.items()) if key not in mine]
    if not only and not others:
        return None
    return _moved_apart(only, others, here, there) or _one_more(only, others, here, there)


def _moved_apart(ours: Sequence[Collective], theirs: Sequence[Collective], here: str, there: str) -> str | None:
    """The first variable (or other name) whose gradient the collectives of two ranks move differently."""
    sides = [{name: ("as " + what, collective) for collective in side for name, what in collective.moves}
             for side in (ours, theirs)]  # fmt: skip
    mine, other = sides
    for name in sorted(mine.keys() | other.keys()):
        (what, node), (their_what, their_node) = mine.get(name, (ABSENT, None)), other.get(name, (ABSENT, None))
        if what != their_what:
            words = (name, what, here, their_what, there, (node or their_node or ours[0]).node)
            return "%s travels %s at %s, %s at %s, in '%s'" % words
    return None


def _one_more(ours: Sequence[Collective], theirs: Sequence[Collective], here: str, there: str) -> str:
    for our in ours:
        same = next((one for one in theirs if one.node == our.node), None)
        return "%s at %s, %s at %s" % (our, here, "none" if same is None else same, there)
    return "%s at %s, none at %s" % (theirs[0], there, here)


def _key(collective: Collective) -> tuple[int, str]:
    return (-1, collective.node) if collective.instance is None else (collective.instance, "")


def _is_one_label(one: Collective, other: Collective) -> bool:
    return "" in (one.label, other.label) or one.label == other.label


def _fit(one: Collective, other: Collective) -> bool:
    same = one.shape == other.shape or None in (one.shape, other.shape)
    return same and (one.kind, one.dtype, one.reduction) == (other.kind, other.dtype, other.reduction)


class Fault(NamedTuple):
    """What ends a job: one of CODES, the rank that it is about, and the sentence."""

    code: str
    rank: int
    text: str


    def weight(self) -> tuple[int, int, str]:
        """Of faults that several ranks find at the same time, all take the least."""
        return CODES.index(self.code), self.rank, self.text


class Arrival(NamedTuple):
    """What has come to a collective since this process began.

    Attributes:
        node: its name.
        group: the key of its group.
        times: how often its input has come.
        ago: seconds since the last time.
    """

    node: str
    group: int
    times: int
    ago: float


class Progress:
    """How far this process is. Threads may call it at any time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[int, int] = {}  # group -> its runs so far
        self._kinds: dict[int, list[tuple[int, Sequence[Collective]]]] = {}  # group -> [(from which run on, what)]
        self._running: list[int] = []
        self._failed: dict[int, tuple[int, str, float]] = {}  # group -> the last run that failed, why, when
        self._threads: set[int] = set()  # those that run collectives
        self._changed = self._moved = time.monotonic()  # any run; a run with collectives
        self._ended: str | None = None
        self._proposed: Fault | None = None
        self.through: set[int] = set()  # ranks that have said that they are through the final barrier
        self.fault: Fault | None = None

    def begin(self, what: Mapping[int, Sequence[Collective]]) -> dict[int, tuple[int, bool]]:
        """Begins a run of some groups' collectives; returns each group's (number of the run, whether they are new)."""
        begun = {}
        with self._lock:
            for group, collectives in what.items():
                number = self._runs[group] = self._runs.get(group, 0) + 1
                kinds = self._kinds.setdefault(group, [])
                known = any(collectives is known_ones for _, known_ones in kinds)
                if not kinds or kinds[-1][1] is not collectives:
                    kinds.append((number, collectives))
                    del kinds[:-KEPT]
                begun[group] = number, not known
                self._running.append(group)
            self._threads.add(threading.get_ident())
            self._changed = self._moved = time.monotonic()
        return begun

    def end(self, begun: Mapping[int, tuple[int, bool]], error: str | None) -> None:
        """Ends a run; `error` is what it failed with."""
        with self._lock:
            self._changed = self._moved = time.monotonic()
            for group, (number, _) in begun.items():
                self._running.remove(group)
                if error is not None:
                    self._failed[group] = number, error, self._changed

    def touch(self) -> None:
        """Notes that this process does something: begins or ends a run without collectives.

        Where some threads run collectives, the others (of queues, of a supervisor) do not say whether it comes to any.
        """
        if not self._threads or threading.get_ident() in self._threads:
            self._changed = time.monotonic()

    def propose(self, fault: Fault) -> tuple[bool, Fault]:
        """Takes a fault as that which shall end the job, unless another one came first.

        Returns:
            (whether all have agreed on it already, the one that came first).
        """
        with self._lock:
            self._proposed = self.fault or self._proposed or fault
            return self.fault is not None, self._proposed

    def deregister(self, how: str) -> None:
        """Says that this process is about to end."""
        self._ended = how

    def of_run(self, group: int, number: int) -> Sequence[Collective] | None:
        """Returns what a group's run had; None if it has not begun, or is forgotten."""
        with self._lock:
            if self._runs.get(group, 0) < number:
                return None
            return next((what for first, what in reversed(self._kinds[group]) if first <= number), None)

    def state(self) -> dict[str, Any]:
        """Returns all of it for other ranks, as JSON has it."""
        now = time.monotonic()
        with self._lock:
            return {
                "runs": {str(group): number for group, number in self._runs.items()},
                "running": list(self._running),
                "since": now - self._changed,
                "still": now - self._moved,
                "failed": {str(group): (n, why, now - at) for group, (n, why, at) in self._failed.items()},
                "ended": self._ended,
                "fault": self.fault,
            }


def judged(
    state: Mapping[str, Any],
    group: int,
    number: int,
    waited: float,
    limit: float,
    settled: float = SETTLED,
    caused: Sequence[str] = (),
) -> tuple[str, str] | None:
    """Says what is wrong with a rank that answers, seen from one that waits in a run; None if nothing is.

    Args:
        state: the other rank's `Progress.state`.
        group: the run's.
        number: the run's.
        waited: seconds that the run has lasted.
        limit: seconds that a rank may take to reach a collective.
        settled: seconds after which a failed run of the other's counts.
        caused: names of errors that do not count, as other ranks cause them.

    Returns:
        (one of CODES, what the rank does).
    """
    theirs = state["runs"].get(str(group), 0)
    failed, why, ago = state["failed"].get(str(group), (0, "", 0.0))
    if failed == number and ago >= settled and not why.startswith(tuple(caused)):
        return "INTERNAL", "its run %d has failed: %s" % (number, why)
    if state["ended"] is not None and theirs < number:
        return "INTERNAL", "it has ended after run %d" % theirs
    if waited <= limit:
        return None
    if theirs < number and state["since"] > limit:  # else it is busy: an evaluation on one rank takes its time
        text = "it has not come to run %d in %d s, and has run nothing for %d s"
        return "DEADLINE_EXCEEDED", text % (number, waited, state["since"])
    if theirs > number:
        return "INVALID_ARGUMENT", "it is in run %d already, and did without this rank" % theirs
    return None


def behind(
    ours: Mapping[int, Arrival], theirs: Mapping[str, Sequence[Any]], groups: Sequence[int], still: float, limit: float
) -> str | None:
    """Says where a rank stands still that is in the same run; None if it moves, or this rank does not wait for it.

    Args:
        ours: what has come to this rank's collectives, by instance key.
        theirs: what has come to the other's, as JSON has it.
        groups: keys of the groups that both ranks run collectives of.
        still: seconds since the other's run began.
        limit: seconds that a rank may take to reach a collective that this one waits in.
    """
    other = {int(key): Arrival(*row) for key, row in theirs.items()}
    still = min([still, *(state.ago for state in other.values() if state.times)])
    for key, own in sorted(ours.items()):
        if own.group in groups and key in other and other[key].times < own.times and min(own.ago, still) > limit:
            return "it has not come to the collective '%s', and stands still in its run for %d s" % (own.node, still)
    return None
