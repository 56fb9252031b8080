"""Reads the next batches of a step's iterators while the step runs on the device, and brings the next one there.

    step k on the device            |  host: IteratorGetNext for step k + 1, and its way to the device
    run that needs IteratorGetNext  |  it is fed what was read: whichever run it is

So elements, the end of the input and errors come in their order, to the runs that would have met them. A run that has
the iterator begin anew drops what was read. What else could see the difference is looked up in the graph first
(`partition.iterators`), and then nothing is read ahead.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import weakref
from collections import deque
from concurrent.futures import CancelledError, Future
from typing import Any, Callable, Collection, Iterable, Iterator, Mapping, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.engine.partition import iterators
from npu_shim.engine.partition.iterators import Reads
from npu_shim.options import prefetch
from npu_shim.options.reports import ledger
from npu_shim.session import lines
from npu_shim.session.interception import interceptors

LOG = logging.getLogger("npu_shim")


class Prefetching:
    """What is read ahead for one session.

    Args:
        session: tf.Session.
        count: batches of each iterator, or `prefetch.AUTO`.
        library: function that returns the FunctionDefs of the session's graph by name.
    """

    def __init__(self, session: tf.Session, count: int | str, library: Callable[[], Mapping[str, Any]]) -> None:
        self._session, self._library = session, library
        self._is_auto = count == prefetch.AUTO
        # TensorFlow 1 hands no optimizer a graph in which something other than a placeholder is fed: such a run of what
        # was read ahead would keep its dtypes
        self._count = int(not tf.__version__.startswith("1.")) if self._is_auto else int(count)
        self._lock = threading.Lock()  # of the tables
        self._reads: dict[Any, Reads] = {}
        self._ahead: dict[str, _Ahead | None] = {}  # an iterator's node -> what was read of it, None where nothing was
        self._may: dict[str, tuple[int, bool]] = {}  # an iterator's node -> (version of the graph, whether to read on)
        self._reader: Background | None = None
        self._stager: Background | None = None
        self._staging: tuple[list[Any], Future[Any]] | None = None  # elements that are staged -> what `stage` returns

    @property
    def reads_any(self) -> bool:
        """Whether an iterator is read ahead."""
        return any(self._ahead.values())

    def ask(self, nodes: Iterable[str], feeds: Collection[str]) -> None:
        """Begins to read what the next run of a step would read.

        Args:
            nodes: names of what the session's part in front of the step fetches or runs.
            feeds: names of the tensors that the step is fed.
        """
        for operation in self._of_run(nodes, feeds).nexts if self._count else ():
            with self._lock:
                ahead = self._of(operation) if self._count else None
                if ahead is not None:
                    self._reader = self._reader or Background()
                    ahead.fill(self._reader, self._count)

    def stage(self, nodes: Iterable[str], feeds: Collection[str], bring: Callable[[Mapping[str, Any]], Any]) -> None:
        """Begins to bring what the next run of a step will be fed to the device.

        Args:
            nodes: as of `ask`.
            feeds: as of `ask`.
            bring: function of a dict of tensor name to array that does it, and returns what the step is to be given.
        """
        reads = [(one, self._ahead.get(one.inputs[0].op.name)) for one in self._of_run(nodes, feeds).nexts]
        elements = [(one, ahead.first) for one, ahead in reads if ahead is not None and ahead.has_any]
        with self._lock:
            self._stager = self._stager or Background()
            self._staging = [read for _, read in elements], self._stager.submit(_brought, elements, bring)

    @contextlib.contextmanager
    def fed(self, nodes: Iterable[str], feeds: Any, staged: list[Any] | None = None) -> Iterator[dict[str, Any]]:
        """Scope of a run: what it is to be fed in the place of its iterators, dict of tensor name to value.

        It is taken, unless TensorFlow refuses the run before it reads anything: a TypeError or ValueError. An iterator
        that the run has begin anew loses what was read of it.

        Args:
            nodes: names of what the run fetches or runs.
            feeds: what it feeds: tensors or their names.
            staged: of a step's part in front of its program: the list to which what `bring` has returned is added.

        Raises:
            tf.errors.OpError: as the run would: the end of the input, ...
            tf.errors.FailedPreconditionError: the run does something else with an iterator of which something is held.
        """
        if not self.reads_any:
            yield {}
            return
        names = {getattr(tensor, "name", tensor) for tensor in feeds or ()}
        reads = self._of_run(nodes, names)
        self._require_none_held(reads)
        begun = [self._ahead.get(iterator.name) for iterator in reads.begun]
        dropped = [(ahead, ahead.drop()) for ahead in begun if ahead is not None]
        taken = []
        for operation in reads.nexts:
            ahead = self._ahead.get(operation.inputs[0].op.name)
            element = None if ahead is None or ahead in begun else ahead.take()
            if element is not None:
                taken.append((operation, ahead, element))
        # all are taken before one raises: the run would have read all of them
        values = [(x.name, value) for one, _, read in taken for x, value in zip(one.outputs, read.result())]
        there = self._staged([read for _, _, read in taken])
        if staged is not None and there is not None:
            staged.append(there)
        try:
            yield {name: value for name, value in values if name not in names}
        except (TypeError, ValueError):
            for ahead, elements in [*dropped, *((ahead, [element]) for _, ahead, element in reversed(taken))]:
                ahead.give_back(elements)
            raise

    def _staged(self, taken: list[Any]) -> Any:
        """What `bring` has returned for elements that are taken, None where it has not begun: then it does not."""
        with self._lock:
            if self._staging is None or not any(read in self._staging[0] for read in taken):
                return None
            (_, done), self._staging = self._staging, None
        return None if done.cancel() else done.result()

    def _require_none_held(self, reads: Reads) -> None:
        """Refuses a run that does more with an iterator than it could when elements of it were read, see `others`."""
        for operation, iterator in reads.others:
            known = self._ahead.values() if iterator is None else [self._ahead.get(iterator.name)]
            if any(ahead is not None and ahead.has_any for ahead in known):
                text = "'%s' (%s) would miss a batch that was read ahead: make it before the first step, or set %s=0"
                raise tf.errors.FailedPreconditionError(
                    None, None, text % (operation.name, operation.type, prefetch.KEY)
                )

    def require_elements(self, targets: Iterable[str]) -> None:
        """Refuses a run of operations alone, by name, one of which would read an iterator of which something is held.

        Raises:
            tf.errors.FailedPreconditionError: what it would read is held here, and operations cannot be fed.
        """
        for target in targets if self.reads_any else ():
            operation = self._session.graph.get_operation_by_name(target)
            ahead = self._ahead.get(operation.inputs[0].op.name) if operation.type in iterators.NEXT else None
            if ahead is not None and ahead.has_any:
                text = "'%s' is run without its tensors, and a batch of it was read ahead: fetch one, or set %s=0"
                raise tf.errors.FailedPreconditionError(None, None, text % (target, prefetch.KEY))

    def leave(self, what: str, nodes: Iterable[str] | None) -> None:
        """Reads no more, since nothing watches `what`; what was read is for the runs that are watched.

        Args:
            what: in words.
            nodes: names of what it fetches or runs; None where no run is watched from now on.

        Raises:
            tf.errors.FailedPreconditionError: as of `fed`.
        """
        with self._lock:
            self._count = 0
        if nodes is None:
            lost = sorted(name for name, ahead in self._ahead.items() if ahead is not None and ahead.drop())
            self._ahead = dict.fromkeys(self._ahead)
            text = "%s misses a batch of '%s' that was read ahead: set %s=0"
        else:
            reads = self._of_run(nodes, ())
            self._require_none_held(reads)
            of = {iterator.name: self._ahead.get(iterator.name) for iterator in reads.begun}
            for ahead in filter(None, of.values()):
                ahead.drop()
            names = (one.inputs[0].op.name for one in reads.nexts)
            held = ((name, self._ahead.get(name)) for name in names if name not in of)
            lost = sorted(name for name, ahead in held if ahead is not None and ahead.has_any)
            text = "%s reads '%s' behind a batch that was read ahead, which the next run is given: set %s=0"
        if lost:
            lines.once("engine: " + text % (what, lost[0], prefetch.KEY))

    def close(self) -> None:
        """Reads no more, when the session closes."""
        with self._lock:
            self._count = 0
        self._ahead = {}
        self._reader = self._stager = self._staging = None

    def _of_run(self, nodes: Iterable[str], fed: Collection[str]) -> Reads:
        key = tuple(nodes), frozenset(fed)
        if key not in self._reads:
            self._reads[key] = iterators.of_run(self._session.graph, *key)
        return self._reads[key]

    def _of(self, operation: Any) -> _Ahead | None:
        """What is read ahead of the iterator that an operation reads, None where nothing is to be."""
        graph, iterator = self._session.graph, operation.inputs[0].op
        if self._may.get(iterator.name, (-1, False))[0] != graph.version:
            why = iterators.why_not_ahead(graph, iterator, self._library() if self._is_auto else None)
            if iterator.name not in self._ahead:
                self._note(iterator.name, why)
            if self._ahead.get(iterator.name) is None:
                self._ahead[iterator.name] = None if why else _Ahead(self._session, operation)
            self._may[iterator.name] = graph.version, not why
        return self._ahead[iterator.name] if self._may[iterator.name][1] else None

    def _note(self, name: str, why: str) -> None:
        if not why:
            LOG.info("npu_shim: engine: '%s' is read ahead, %d at a time", name, self._count)
            ledger.note(ledger.AHEAD)
        elif self._is_auto:
            LOG.info("npu_shim: engine: '%s' is not read ahead: %s", name, why)
        else:
            lines.once("engine: '%s' is not read ahead: %s" % (name, why))


class _Ahead:
    """What was read of one iterator, in its order.

    Args:
        session: tf.Session.
        operation: one that reads the iterator.
    """

    def __init__(self, session: tf.Session, operation: Any) -> None:
        self._session, self._outputs = session, list(operation.outputs)
        self._lock = threading.Lock()
        self._elements: deque[Future[Any]] = deque()  # each gives an element's values, or raises what reading raised

    @property
    def has_any(self) -> bool:
        """Whether an element is held."""
        return bool(self._elements)

    @property
    def first(self) -> Future[Any]:
        """The oldest element."""
        return self._elements[0]

    def fill(self, reader: Background, count: int) -> None:
        """Has so many elements read, those that are held among them."""
        with self._lock:
            while len(self._elements) < count:
                self._elements.append(reader.submit(interceptors.plain_run, self._session, self._outputs))

    def take(self) -> Future[Any] | None:
        """Returns the oldest element and no longer has it, None if it has none."""
        with self._lock:
            return self._elements.popleft() if self._elements else None

    def drop(self) -> list[Future[Any]]:
        """Forgets the elements, when none is being read any more; returns those that were read."""
        with self._lock:
            held, self._elements = self._elements, deque()
        read = [element for element in held if not element.cancel()]
        for element in read:
            element.exception()
        return read

    def give_back(self, elements: Iterable[Future[Any]]) -> None:
        """Has these elements again, before those that it has."""
        with self._lock:
            self._elements.extendleft(reversed(list(elements)))


def _brought(elements: Sequence[tuple[Any, Future[Any]]], bring: Callable[[Mapping[str, Any]], Any]) -> Any:
    """What `bring` returns for (operation, what it has read); None where that failed, or is wanted no more."""
    try:
        read = [(one, element.result()) for one, element in elements]
    except (tf.errors.OpError, CancelledError):
        return None
    return bring({x.name: value for one, values in read for x, value in zip(one.outputs, values)})


class Background:
    """A thread that calls functions one after the other, and ends with this object. No exit of a program waits for it.

    It waits for a ThreadPoolExecutor's: a dataset whose next element does not come would keep the program for ever.
    """

    def __init__(self) -> None:
        self._calls: Any = queue.SimpleQueue()
        threading.Thread(target=_call_all, args=[self._calls], daemon=True, name="npu_shim_ahead").start()
        weakref.finalize(self, self._calls.put, None).atexit = False

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Has it call a function, behind those before; returns its Future."""
        done: Future[Any] = Future()
        self._calls.put((done, function, arguments))
        return done


def _call_all(calls: Any) -> None:
    for done, function, arguments in iter(calls.get, None):
        if done.set_running_or_notify_cancel():
            try:
                done.set_result(function(*arguments))
            except BaseException as error:
                done.set_exception(error)
        del done, function, arguments  # what they hold is not held until the next call
