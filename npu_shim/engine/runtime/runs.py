"""The runs of a session that were seen so far: each is a training step that is taken, or is left to the session."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from npu_shim.engine import step
from npu_shim.engine.device.programs import STOPPED
from npu_shim.engine.partition import facts, step_detection
from npu_shim.engine.runtime import loops, own_input
from npu_shim.engine.runtime.access import UNKNOWN, Access
from npu_shim.options.reports import ledger
from npu_shim.rewriter.errors import ConfigError, PlanError
from npu_shim.xla.sources import Source

LOG = logging.getLogger("npu_shim")
NO_UPDATE = "it writes no variable"
MOST_STOPS = 3
DATASET = "a dataset reads variable '%s'"  # why a step that writes it is not taken


@dataclass
class Known:
    """A run that was seen before: taken as a step, or left to the session.

    Attributes:
        text: the run in a few words.
        access: the variables that the run reads and writes in the session.
        step: step.Step, None where the session runs it.
        reason: why it is not taken, "" where it is.
        programs: shapes of the program's feeds -> its number on the device, None where the session runs them.
        seen: keys as in `programs` that were fed once and have no program yet.
        learns: of several hosts with an input of their own, whether it trains variables of what it is fed or reads.
        loops: names of the repeated operations -> why they run one by one, None where they are a loop on the device.
        stops: how many of its last steps were the session's after all, since what programs check did not hold.
    """

    text: str
    access: Access = UNKNOWN
    step: Any = None
    reason: str = ""
    programs: dict[Any, Any] = field(default_factory=dict)
    seen: set[Any] = field(default_factory=set)
    learns: bool = False
    loops: dict[frozenset[str], str | None] = field(default_factory=dict)
    stops: int = 0

    def stopped(self) -> None:
        """Counts a step that its program has left to the session; behind MOST_STOPS of them all are."""
        self.stops += 1
        if self.stops == MOST_STOPS:
            self.refuse(STOPPED)

    def refuse(self, reason: str | Exception, is_expected: bool = False, key: Any = None) -> None:
        """Leaves the run to the session from now on, and logs why.

        Args:
            reason: in words, or an exception; one that nobody expects is a warning.
            is_expected: whether exceptions of its type are expected; PlanError and ConfigError always are.
            key: of the program that cannot be had, in `programs`: where others serve that part of the step for other
                shapes, they are kept.
        """
        expected = is_expected or isinstance(reason, (str, PlanError, ConfigError))
        name = "" if expected else type(reason).__name__ + ": "
        why, which = name + str(reason).partition("\n")[0], self.text
        if key is not None and any(n is not None and other[0] == key[0] for other, n in self.programs.items()):
            self.programs[key] = None
            which += " with feeds of shapes %s" % ", ".join(str(list(shape)) for shape in key[1])
        else:
            self.step, self.reason = None, why
        ledger.note(ledger.LEFT, "%s: %s" % (which, why))
        level = logging.INFO if expected else logging.WARNING
        LOG.log(level, "npu_shim: engine: %s runs in the session: %s", which, why)
        if isinstance(reason, Exception) and not expected:
            LOG.debug("npu_shim: engine: where that was raised", exc_info=reason)


def _note_left(known: Known) -> None:
    """Notes a run that is no step: of small ones, those that compute something of variables may be meant as one."""
    if known.reason == NO_UPDATE:
        ledger.note(ledger.NO_UPDATE)
    elif known.reason.startswith(step_detection.LITTLE) and not known.reason.endswith(" 0 floating-point ops"):
        ledger.note(ledger.SMALL, "%s: %s" % (known.text, known.reason))


class Run(NamedTuple):
    """One run of the session that holds training steps.

    Attributes:
        known: its Known.
        step: its `step.Step`; another thread may refuse it meanwhile.
        request: its `requests.Request`.
        once: runs the session, as `interceptors.watch` says.
        options, metadata: tf.RunOptions and tf.RunMetadata or None.
        staged: what was staged of what its steps are fed, as `feeding.Staged`; the last one's last.
    """

    known: Any
    step: Any
    request: Any
    once: Any
    options: Any
    metadata: Any
    staged: list[Any]


class Runs:
    """The runs of one session.

    Args:
        session: tf.Session.
        options: its `session_options.SessionOptions`.
        admit: function of a step.Step that returns "" if its programs can be run, else why not; or it raises PlanError.
        release: function that copies all values that are newer on the device to the session.

    Attributes:
        known: `requests.Request.key` -> Known.
        own_input: whether this is one of several hosts with an input of their own.
    """

    def __init__(self, session: Any, options: Any, admit: Callable[[Any], str], release: Callable[[], Any]) -> None:
        self.known: dict[Any, Known] = {}
        self.own_input = False
        self._session, self._options = session, options
        self._admit, self._release = admit, release
        self._source: tuple[int, Source] | None = None
        self._read_elsewhere: set[str] = set()  # variables that datasets read, whenever they are asked for data
        self._inspecting = threading.RLock()

    def shared(self, known: Known, request: Any, meeting: Any) -> Known:
        """Describes in a new Known the step of a run as a program of the ranks that meet in it, and returns it.

        Args:
            known: the new one.
            request: its `requests.Request`.
            meeting: its `cluster.Meeting`.
        """
        with self._inspecting:
            try:
                step = self._step(known, request, meeting)
                refused = "" if step is None else self._admit(step)
                known.step = None if refused else step
            except tf.errors.OpError:  # the engine was asked for by name, and there is none
                raise
            except Exception as reason:
                known.refuse(reason)
        return known

    def of(self, request: Any) -> Known:
        """Returns the Known of a `requests.Request`."""
        known = self.known.get(request.key)
        if known is None:
            with self._inspecting:
                known = self.known.get(request.key) or self._inspect(request)
                self.known[request.key] = known
        return known

    def are_a_loop(self, known: Known, step: Any, request: Any, operations: frozenset[str]) -> bool:
        """Whether steps `made` of a run, all but the last one of `operations` (names) only, may be a loop."""
        if operations not in known.loops:
            reason = known.loops[operations] = loops.why_none(step, operations)
            if reason:
                LOG.info("npu_shim: engine: the steps of %s run one by one: %s", request.text, reason)
        return known.loops[operations] is None

    def _inspect(self, request: Any) -> Known:
        """Decides about a run that is seen for the first time; what fails on the way leaves it to the session."""
        known = Known(request.text)
        try:
            step = self._step(known, request)
        except Exception as reason:
            known.refuse(reason)
            return known
        try:
            refused: str | Exception = "" if step is None else self._admit(step)
        except tf.errors.OpError:  # the engine was asked for by name, and there is none
            raise
        except Exception as reason:
            refused = reason
        known.step = step
        if refused:
            known.refuse(refused)
        if step is None:
            _note_left(known)
        return known

    def _step(self, known: Known, request: Any, meeting: Any = None) -> Any:
        """Returns the Step of a run, None if it is not taken, and describes the run in its Known.

        Raises:
            PlanError or ConfigError: why it is not taken.
        """
        graph = self._session.graph
        nodes, bodies, taken = self._touched(known, request)
        if not known.access.written:
            known.reason = NO_UPDATE
            return None
        described = facts.of(nodes, bodies, taken, request.feeds, meeting is not None)
        starts, local = facts.initializers(graph), facts.local_variables(graph)
        known.learns = self.own_input and own_input.learns(described, request.feeds, local)
        known.reason = step_detection.refusal(described, local, starts) or ""
        if known.reason:
            return None
        step = self._make_step(known, request, described, taken, meeting)
        shared = sorted(self._read_elsewhere.intersection(step.updated))
        if shared:
            known.refuse(DATASET % shared[0])
        return None if shared else step

    def _touched(self, known: Known, request: Any) -> tuple[Any, Any, Any]:
        """(The nodes of a run, bodies of functions, variables that it touches); sets the access of its Known."""
        graph = self._session.graph
        nodes = facts.needed_by(lambda name: graph.get_operation_by_name(name).node_def, request.nodes, request.feeds)
        bodies = self._bodies(nodes)
        taken = facts.variables_touched(nodes, bodies)
        self._exclude_dataset_variables(nodes, taken)
        known.access = facts.access_of(nodes, taken)
        return nodes, bodies, taken

    def _make_step(self, known: Known, request: Any, described: Any, taken: Any, meeting: Any) -> Any:
        """Makes the Step of a run, with the programs of an earlier run where these serve."""
        same_feeds = [other for key, other in self.known.items() if key[-1] == request.key[-1]]
        owners = {id(feed.step): feed for feed in same_feeds if feed.step is not None and feed.step.earlier is None}
        steps = [] if meeting else [other.step for other in owners.values()]
        new = step.make(self._source_now(), request, described, taken, self._options, steps, meeting)
        if new.earlier is not None:
            owner = owners[id(new.earlier)]
            known.programs = owner.programs
            LOG.info("npu_shim: engine: %s is a part of %s, and runs its program", request.text, owner.text)
        return new

    def _exclude_dataset_variables(self, nodes: Any, taken: Any) -> None:
        """Leaves steps that write a dataset's variables to the session: datasets read them outside of any run."""
        read = [names for name, (names, _) in taken.items() if "Dataset" in nodes[name].op]
        self._read_elsewhere.update(*read)
        for known in self.known.values() if read else ():
            shared = [] if known.step is None else sorted(self._read_elsewhere.intersection(known.step.updated))
            if shared:
                known.refuse(DATASET % shared[0])
        if read:
            self._release()

    def _bodies(self, nodes: Any) -> Any:
        """The functions of the graph's library by name; empty if no node calls one."""
        called = any(attr.HasField("func") or attr.list.func for node in nodes.values() for attr in node.attr.values())
        graph = self._session.graph
        if not called and not any(node.op in getattr(graph, "_functions", ()) for node in nodes.values()):
            return {}
        return self.library()

    def library(self) -> Any:
        """The functions of the graph's library by name."""
        return {function.signature.name: function for function in self._source_now().graph_def.library.function}

    def _source_now(self) -> Source:
        """The session's current graph, serialized once for each version."""
        version = self._session.graph.version
        if self._source is None or self._source[0] != version:
            self._source = version, Source.of(self._session)
        return self._source[1]
