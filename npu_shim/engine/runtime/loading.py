"""The compiled programs of a session's steps: which serves a step's feeds, and what has it compiled."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from dataclasses import replace
from typing import Any, Mapping, NamedTuple, Sequence

import numpy as np

from npu_shim.engine.device.programs import Loading
from npu_shim.engine.device.worker import starting
from npu_shim.engine.partition.cut import Place
from npu_shim.engine.runtime import sparse_feeds
from npu_shim.engine.runtime.runs import Known
from npu_shim.engine.step import PASSED
from npu_shim.export.traced import Refused
from npu_shim.options.reports import ledger
from npu_shim.session import lines
from npu_shim.session.interception import interceptors
from npu_shim.step.counters import CHECKED
from npu_shim.xla import recent

LOG = logging.getLogger("npu_shim")
AT_FIRST_SIGHT = 4  # sets of shapes that a step is compiled for as they come; others are when they come again
SEEN = 10_000  # sets that are remembered until they come again; where all vary, they begin anew
KEY = 3  # parts of a program's key; that of one whose feeds are padded has their bundles, too
LONG = 5.0  # seconds of compiling after which a line says what the wait is for


class OnDevice(NamedTuple):
    """Stands for the value of a tensor that a program has left on the device for a later one."""

    shape: tuple[int, ...]


class Programs:
    """The programs of a session's steps on its device.

    Args:
        session: tf.Session.
        cache: path of the folder for compiled programs, "" for none.
        bound: programs of one step, one for each set of feed shapes; further ones run in the session.

    Attributes:
        device: as in `residency.Residency`; None before the first step.
        most: number of a program -> steps of a run of it, at most.
        alone: numbers of the programs whose steps run one by one, since the session may have to run any of them.
        left: number of a program -> {name of a tensor that it leaves on the device: OnDevice}.
        exchanges: number of a program of several ranks -> what it does when it meets the others, in its order.
        own: of several hosts with an input of their own, the `own_input.OwnInput`; else None.
        rows: number of a program -> rows of a host's own, as `OwnInput.rows` has them.
        padded: number of a program -> the `sparse_feeds.Bundles` that are padded for it.
    """

    def __init__(self, session: Any, cache: str, bound: int = recent.MOST) -> None:
        self.device: Any = None
        self.most: dict[int, int] = {}
        self.alone: set[int] = set()
        self.left: dict[int, dict[str, OnDevice]] = {}
        self.exchanges: dict[int, Sequence[str]] = {}
        self.own: Any = None
        self.rows: dict[int, Mapping[str, int]] = {}
        self.padded: dict[int, sparse_feeds.Bundles] = {}
        self._session, self._cache, self._bound = session, cache, bound
        self._building = threading.RLock()
        self._replaced: dict[int, int] = {}  # number of a program of one step -> of the loop that has taken its place
        self._idle: list[int] = []  # of these, those that the device still holds

    def loaded(self, known: Known, request: Any, group: Sequence[Mapping[str, Any]], part: int = 0) -> int | None:
        """Returns the number of the program for these steps; None if the session must run them.

        Args:
            known: their `runs.Known`.
            request: their `requests.Request`.
            group: of each step, dict of tensor name to value.
            part: number of the step's part.

        Raises:
            tf.errors.OpError: the session cannot compute what XLA must know.
            starting.Gone: the worker has ended.
        """
        while known.step is not None:
            step = known.step
            constants, key = self.constants_and_key(step, group[0], part)
            rows = self.own_rows(step, request, group[0], part)
            try:
                with self._building:
                    number = known.programs.get(key)
                    serves = number is None or len(group) == 1 or self.most[number] > 1 or number in self.alone
                    if key in known.programs and serves:
                        return number
                    if key not in known.programs and self._pads(known, step, key, part):
                        continue
                    if key not in known.programs and self.own is None and _waits(known, key):
                        return None
                    known.programs[key] = self._load(known, step, request, key, constants, len(group), rows)
                    self._replace(number, known.programs[key])
            except starting.Gone:
                raise
            except Exception as reason:
                if len(key) > KEY:  # padded feeds are not taken: each shape has a program of its own
                    LOG.info("npu_shim: engine: %s: each number of sparse values has a program: %s", known.text, reason)
                    known.step = step.padding((), part)
                    continue
                more = step.knowing(reason, part) if isinstance(reason, Refused) else None
                if more is None:  # RuntimeError: XLA does not compile it
                    known.refuse(reason, isinstance(reason, RuntimeError), key)
                else:
                    known.step = more
        return None

    def _pads(self, known: Known, step: Any, key: Any, part: int) -> bool:
        """Whether sparse feeds of a step are padded from now on: its shapes are the latest of several."""
        now, seen = step.parts[part], [k[1] for k in (*known.programs, key) if k[0] == part and len(k) == KEY]
        if now.bundles is not None or self.own is not None or now.meeting is not None or len(seen) < sparse_feeds.MANY:
            return False
        fixed = {constant.name for constant in now.constants}.union(now.program.taken)
        feeds = {feed.name: feed.dtype for feed in now.prepared.feeds.values()}
        bundles = sparse_feeds.bundles_among(feeds, seen)
        bundles = tuple(bundle for bundle in bundles if fixed.isdisjoint(bundle.names))
        if bundles:
            known.step = step.padding(bundles, part)
        return bool(bundles)

    def own_rows(self, step: Any, request: Any, given: Mapping[str, Any], part: int = 0) -> Mapping[str, int]:
        """The rows of a step's feeds that are this host's own, as `OwnInput.rows` returns them; errors as of that."""
        if self.own is None:
            return {}
        feeds = {name: given[name] for name in step.parts[part].feeds if not isinstance(given[name], OnDevice)}
        rows: Mapping[str, int] = self.own.rows(feeds, request.feeds, step.parts[part].constants)
        return rows

    def _replace(self, number: int | None, by: int | None) -> None:
        """Has a program serve in the place of another one, which threads may still be about to run."""
        if number is not None and by is not None:
            self._replaced[number] = by
            self._idle.append(number)

    def current(self, number: int) -> int:
        """The number of the program that serves where `loaded` has named one; frees those that another one replaces.

        Nothing runs on the device meanwhile.

        Raises:
            RuntimeError: as `unload` of the device.
        """
        while self._idle:
            idle = self._idle.pop()
            self.device.unload(idle)
            del self.most[idle], self.left[idle], self.rows[idle], self.padded[idle]
        return self._replaced.get(number, number)

    def constants_and_key(self, step: Any, given: Mapping[str, Any], part: int = 0) -> tuple[dict[Any, Any], Any]:
        """(dict of the Constants that are part of the program, key of the program for these feeds).

        Raises:
            tf.errors.OpError: as Session.run.
        """
        constants: dict[Any, Any] = {}
        asked = step.parts[part].constants
        if asked:
            fed = {name: value for name, value in given.items() if not isinstance(value, OnDevice)}
            values = interceptors.plain_run(self._session, [constant.source for constant in asked], fed)
            constants = {constant: constant.of(value) for constant, value in zip(asked, values)}
        names, bundles = step.parts[part].feeds, step.parts[part].bundles or ()
        shapes = tuple(np.shape(given[name]) for name in names)
        known = tuple((constant, value.tobytes()) for constant, value in constants.items())
        if not bundles or not sparse_feeds.fits(bundles, given):
            return constants, (part, shapes, known)
        open_ones = {name for bundle in bundles for name in bundle.names}
        sizes = (sparse_feeds.shape_of(shape) if name in open_ones else shape for name, shape in zip(names, shapes))
        return constants, (part, tuple(sizes), known, bundles)

    def stages(self, number: int, steps: Sequence[Any]) -> bool:
        """Whether the feeds of these steps may be brought to the device before: those of one, as they are."""
        return len(steps) == 1 and not self.padded[number]

    def fitted(self, number: int, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        """The feeds of a program as it takes them."""
        bundles = self.padded.get(number)
        return sparse_feeds.padded(bundles, feeds) if bundles else feeds

    def _load(
        self, known: Known, step: Any, request: Any, key: Any, constants: Any, steps: int, rows: Mapping[str, int]
    ) -> int | None:
        """Compiles a program for so many steps at a time; None if there are too many."""
        more, (part, shapes) = key not in known.programs, key[:2]
        others = sum(program[0] == part for program in known.programs)
        if more and others == self._bound:
            LOG.warning(
                "npu_shim: engine: %s was fed %d sets of shapes and sizes; steps with others run in the session: pad "
                "to fewer, or allow more (%s)", request.text, self._bound, recent.KEY,
            )  # fmt: skip
        if more and others >= self._bound:
            return None
        nodes = len(step.parts[part].prepared.graph_def.node)
        start = time.perf_counter()
        with lines.after(LONG, "engine: still compiling %s, %d ops; large steps take minutes" % (request.text, nodes)):
            whole = self.own.shapes(step.parts[part].feeds, shapes, rows) if rows else shapes
            bundles = key[KEY] if len(key) > KEY else ()
            described, content = step.parts[part].compiled(whole, constants, self.device, self._cache, bundles)
            is_alone = any(tensor.name == CHECKED for tensor in described.results)
            steps = 1 if is_alone else steps
            asked = replace(described, iterations=steps, own_rows=dict(rows))
            loading: Loading = self.device.load(asked, content, self._cache)
        self.most[loading.number], self.rows[loading.number] = steps, rows
        self.padded[loading.number] = bundles
        self.alone.update([loading.number] if is_alone else ())
        self.left[loading.number] = {t.name: OnDevice(t.shape) for t in described.results if t.kind == PASSED}
        if loading.exchanges:
            self.exchanges[loading.number] = loading.exchanges
        text = "from the cache in %.1f s" if loading.cache_hit else "compiled in %.1f s"
        took = text % (time.perf_counter() - start)
        new = " for feeds of shapes %s" % ", ".join(str(list(shape)) for shape in shapes) if others and more else ""
        LOG.info("npu_shim: engine: %s%s; %s", _describe_step(step, request, self.device, part, steps), new, took)
        if loading.share:
            ledger.note(ledger.SHARED)
        for line in loading.lines():
            lines.once(line)
        return loading.number


def _waits(known: Known, key: Any) -> bool:
    """Whether a step's shapes and sizes, seen for the first time, run in the session: most that vary never return."""
    if key in known.seen or sum(other[0] == key[0] for other in known.programs) < AT_FIRST_SIGHT:
        return False
    if len(known.seen) >= SEEN:
        known.seen.clear()
    known.seen.add(key)
    return True


def _describe_step(step: Any, request: Any, on: Any, part: int, steps: int) -> str:
    counts = Counter(step.cut.places.values())
    places = [(Place.FEED, "before it"), (Place.MIDDLE, "in its middle"), (Place.READ, "after it")]
    hosts = ["%d ops %s" % (counts[place], where) for place, where in places if counts[place]]
    around = " (in the session: %s)" % ", ".join(hosts) if hosts else ""
    loop = ", a loop of up to %d steps" % steps if steps > 1 else ""
    count, meeting = len(step.parts), step.parts[part].meeting
    which = "one program" if count == 1 else "%d programs, and this is number %d," % (count, part + 1)
    together = ", which %d ranks run together: what they exchange is inside of it"
    ranks = "" if meeting is None else together % len(meeting.ranks)
    return "%s is %s on %s%s%s%s" % (request.text, which, on.where, ranks, loop, around)
