"""A session whose training steps run on PJRT: every run is intercepted, and is either a step or left to the session.

Runs are told apart by their fetches and feeds (requests.py). A step runs in three parts (step.py, device.py). Before
any other run, the session receives the newest values of the variables that it touches (truth.py).
"""

import logging
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Dict, FrozenSet, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.engine import cut, device, facts, requests, step
from npu_shim.engine.cut import Place
from npu_shim.engine.truth import Truth
from npu_shim.engine.values import SessionValues
from npu_shim.engine.worker import memory, remote, starting
from npu_shim.options import engine as options_of_engine
from npu_shim.rewriter.errors import ConfigError, PlanError
from npu_shim.session import doors, session_options
from npu_shim.xla.refusals import NotConstant
from npu_shim.xla.sources import Source

LOG = logging.getLogger("npu_shim")
MANY_SHAPES = 16  # programs of one step, one for each set of feed shapes; further ones run in the session
DATASET = "a dataset reads variable '%s'"  # why a step that writes it is not taken
ENGINE = "_npu_shim_engine"  # attribute of a session: its Engine


def attach(session):
    """Makes a session run its training steps on PJRT.

    Args:
        session: tf.Session; watchers attached earlier are closer to TensorFlow. A session with a target is left as it
            is, since other processes may write its variables.
    """
    if tf.compat.as_str_any(session.sess_str):
        LOG.info("npu_shim: engine: a session with a target runs all of its steps itself")
        return
    engine = Engine(session)
    setattr(session, ENGINE, engine)
    doors.watch(session, engine.run)
    doors.at_unwatched(session, engine.release)
    doors.at_close(session, engine.close)


@dataclass
class Known:
    """A run that was seen before: taken as a step, or left to the session.

    Attributes:
        step: step.Step, None where the session runs it.
        reason: why it is not taken, "" where it is.
        touched, written: names of the variables that the run reads or writes, and of those that it writes.
        programs: shapes of the program's feeds -> its number on the device, None where the session runs them.
    """

    step: Optional[Any]
    reason: str
    touched: FrozenSet[str]
    written: FrozenSet[str]
    programs: Dict[Any, Any] = field(default_factory=dict)


class Engine:
    """Watches one session. Its device is opened at the first training step.

    Attributes:
        known: the runs seen so far, by `requests.Request.key`.
        truth: where the variables' newest values are, None before the first step.
        device: the device that runs the programs, None before the first step.
    """

    def __init__(self, session):
        self.known = {}
        self.truth = None
        self._session, self._options = session, session_options.of_session(session)
        self.device = self._values = self._source = None
        self._read_elsewhere = set()  # names of the variables that datasets read, whenever they are asked for data
        self._off = ""  # why no more runs are taken
        self._building = threading.RLock()

    def run(self, session, once, fetches, feed_dict, options, run_metadata):
        """Watches a run, see `doors.watch`."""
        request = None if self._off or session._closed else requests.of(session.graph, fetches, feed_dict)
        if request is None:
            self.release()
            return once(fetches, feed_dict, options, run_metadata)
        known = self._known(request)
        if known.step is not None and not _traces(options):
            return self._run_step(known, request, once, (fetches, feed_dict, options, run_metadata))
        return self._in_session(known, once, fetches, feed_dict, options, run_metadata)

    def release(self):
        """Copies all values that are newer on the device to the session."""
        if self.truth is not None:
            self._guarded(self.truth.release)

    def close(self):
        """Closes the device when the session closes."""
        self._off = self._off or "the session is closed"
        if self.device is not None:
            self.device.close()
            self.truth = None

    def _in_session(self, known, once, *arguments):
        if self.truth is None:
            return once(*arguments)
        self._guarded(self.truth.before_session, known.touched, known.written)
        try:
            return once(*arguments)
        finally:
            self.truth.after_session(known.written)

    def _known(self, request):
        found = self.known.get(request.key)
        if found is None:
            with self._building:
                found = self.known.get(request.key) or self._inspect(request)
                self.known[request.key] = found
        return found

    def _inspect(self, request):
        """Decides about a run that is seen for the first time."""
        graph = self._session.graph
        nodes = facts.needed_by(lambda name: graph.get_operation_by_name(name).node_def, request.nodes, request.feeds)
        bodies = self._bodies(nodes)
        taken = facts.variables_touched(nodes, bodies)
        touched = frozenset().union(*(names for names, _ in taken.values()))
        written = frozenset().union(*(names for _, names in taken.values()))
        self._exclude_dataset_variables(nodes, taken)
        if not written:
            return Known(None, "it writes no variable", touched, written)
        described = facts.of(nodes, bodies, taken, request.feeds)
        reason = cut.why_no_step(described)
        made = None if reason else self._step(request, described, taken)
        if isinstance(made, str):
            LOG.info("npu_shim: engine: %s runs in the session: %s", _describe_run(request), made)
            made, reason = None, made
        return Known(made, reason or "", touched, written)

    def _step(self, request, nodes, taken):
        """The Step of a run, or why it is not taken (str)."""
        try:
            made = step.make(self._source_now(), request, nodes, taken, self._options)
            shared = sorted(self._read_elsewhere.intersection(made.updated))
            if shared:
                return DATASET % shared[0]
            if not self._open_device():
                return self._off
            self._values.know(made.handles)
            return made
        except (PlanError, ConfigError) as reason:
            return str(reason)

    def _exclude_dataset_variables(self, nodes, taken):
        """Leaves steps that write a dataset's variables to the session: datasets read them outside of any run."""
        found = [names for name, (names, _) in taken.items() if "Dataset" in nodes[name].op]
        self._read_elsewhere.update(*found)
        for known in self.known.values() if found else ():
            shared = [] if known.step is None else sorted(self._read_elsewhere.intersection(known.step.updated))
            if shared:
                known.step, known.reason = None, DATASET % shared[0]
        if found:
            self.release()

    def _bodies(self, nodes):
        """The functions of the graph's library by name; empty if no node calls one."""
        called = any(attr.HasField("func") or attr.list.func for node in nodes.values() for attr in node.attr.values())
        graph = self._session.graph
        if not called and not any(node.op in getattr(graph, "_functions", ()) for node in nodes.values()):
            return {}
        return {function.signature.name: function for function in self._source_now().graph_def.library.function}

    def _source_now(self):
        """The session's current graph, serialized once for each version."""
        version = self._session.graph.version
        if self._source is None or self._source[0] != version:
            self._source = version, Source.of(self._session)
        return self._source[1]

    def _open_device(self):
        """Opens the device, once; returns whether there is one.

        Raises:
            tf.errors.InvalidArgumentError: there is none, and the engine was asked for by name.
        """
        if self.device is not None:
            return True
        try:
            self.device = open_device()
        except (ImportError, ConfigError) as reason:
            if options_of_engine.asked(self._options.values) != "auto":
                text = "npu_shim: engine 'pjrt' cannot be had: %s" % reason
                raise tf.errors.InvalidArgumentError(None, None, text) from reason
            self._off = str(reason)
            return False
        self._values = SessionValues(self._session)
        self.truth = Truth(self._values, self.device)
        return True

    def _run_step(self, known, request, once, arguments):
        """Runs a step: its feeding part, the program, its reading part."""
        given = {**request.feeds, **self._host_run(known.step.feed, request.feeds)}
        arrays = {name: given[name] for name in known.step.feeds}
        made = known.step
        number = self._loaded(known, request, given, arrays)
        try:
            fetched = None if number is None else self._on_device(made, number, arrays)
        except memory.NoRoom as reason:
            self._record_refusal(known, request, reason)
            fetched = None
        if fetched is None:  # the feeding part is not run again
            return self._in_session(known, once, arguments[0], {**(arguments[1] or {}), **given}, *arguments[2:])
        values = {**given, **fetched}
        values.update(self._host_run(made.read, {**request.feeds, **_of(values, made.read.feeds)}))
        return request.handler.build_results(self._session, [values[name] for name in request.tensors])

    def _host_run(self, part, feeds):
        """Runs a part of a step in the session; returns dict of tensor name to value."""
        if part.is_empty:
            return {}
        self._guarded(self.truth.before_session, part.touched, part.written)
        try:
            fetches = [list(part.fetches), list(part.targets)]
            return dict(zip(part.fetches, doors.plain_run(self._session, fetches, feeds)[0]))
        finally:
            self.truth.after_session(part.written)

    def _loaded(self, known, request, given, arrays):
        """Returns the number of the program for these feeds; None if the session must run the step."""
        shapes = tuple(np.shape(array) for array in arrays.values())
        while known.step is not None:
            constants = self._constants(known.step, given)
            key = shapes, tuple((name, value.tobytes()) for name, value in constants.items())
            with self._building:
                if key in known.programs:
                    return known.programs[key]
                try:
                    known.programs[key] = self._load(known, request, shapes, constants)
                except starting.Gone as error:  # no step is lost
                    LOG.warning("%s", self._recover(error, "compiling a step").message)
                    return None
                except (PlanError, ConfigError, RuntimeError) as reason:
                    self._record_refusal(known, request, reason)
        return None

    def _constants(self, made, given):
        """Computes the tensors that XLA must know when it compiles; dict of name to value."""
        if not made.constants:
            return {}
        values = doors.plain_run(self._session, list(made.constants), given)
        return {name: np.asarray(value) for name, value in zip(made.constants, values)}

    def _record_refusal(self, known, request, reason):
        """Records that XLA does not compile a step, or needs one more constant for it."""
        more = known.step.knowing(reason) if isinstance(reason, NotConstant) else None
        known.step = more
        if more is None:
            known.reason = str(reason).splitlines()[0]
            LOG.info("npu_shim: engine: %s runs in the session: %s", _describe_run(request), known.reason)

    def _load(self, known, request, shapes, constants):
        if len(known.programs) == MANY_SHAPES:
            LOG.warning(
                "npu_shim: engine: %s was fed %d sets of shapes and sizes; what has others runs in the session: pad to "
                "fewer", _describe_run(request), MANY_SHAPES,
            )  # fmt: skip
        if len(known.programs) >= MANY_SHAPES:
            return None
        start = time.perf_counter()
        number = self.device.load(*known.step.program(shapes, constants, self.device.platform))
        seconds = time.perf_counter() - start
        LOG.info("npu_shim: engine: %s", _describe_step(known.step, request, self.device, seconds))
        return number

    def _on_device(self, made, number, arrays):
        """Runs the program; returns dict of fetch to value, None if a variable has no value yet."""
        with self.truth.lock:
            try:
                self.truth.to_device(made.handles)
                for name, value in made.own.items():
                    self.truth.own(name, value)
                self.truth.written_on_device(made.updated)
                return {n: device.as_result(v) for n, v in self.device.run(number, arrays).items()}
            except tf.errors.FailedPreconditionError:
                return None
            except memory.NoRoom:
                raise
            except Exception as error:
                raise self._recover(error, "a step") from error

    def _guarded(self, function, *arguments):
        """Calls a function that copies values from the device; a step that failed behind its run fails here."""
        try:
            return function(*arguments)
        except RuntimeError as error:
            raise self._recover(error, "a step") from error

    def _recover(self, error, what):
        """Gives the session the newest state that is left, and makes it run without the engine; returns an error."""
        self._off = "%s failed" % what
        with self.truth.lock:
            try:
                behind = self.device.recover()
                if behind:
                    self.truth.turn_back()
                self.truth.release()
                which = "%d steps before the last completed one" % behind if behind else "the last completed step"
                state = "the session has the state of %s and runs on without the engine" % which
            except Exception as lost:
                state = "the values on the device are lost (%s): restore a checkpoint" % lost
        text = "npu_shim: engine: %s failed on %s: %s; %s" % (what, self.device.where, error, state)
        return tf.errors.InternalError(None, None, text)


def open_device():
    """Returns the device that runs programs: JAX in this process, else in a worker.

    Raises:
        ImportError or ConfigError: why there is none.
    """
    if options_of_engine.has_jax():
        return device.InProcess()
    return remote.Worker(options_of_engine.interpreter())


def _of(values, names):
    return {name: values[name] for name in names}


def _traces(options):
    """Whether a run is asked what TensorFlow did; a MonitoredSession gives a RunMetadata to fill with every run."""
    return options is not None and (
        options.trace_level != tf.RunOptions.NO_TRACE
        or options.output_partition_graphs
        or bool(options.debug_options.debug_tensor_watch_opts)
    )


def _describe_run(request):
    """Describes a run in a few words."""
    names = ["'%s'" % name for name in (*request.targets, *request.tensors)]
    return "the run of %s%s" % (", ".join(names[:3]), ", ..." if len(names) > 3 else "")


def _describe_step(made, request, on, seconds):
    hosts = [sum(place is each for place in made.cut.places.values()) for each in (Place.FEED, Place.READ)]
    around = " (in the session: %d ops before it, %d after it)" % tuple(hosts) if any(hosts) else ""
    return "%s is one program on %s%s; compiled in %.1f s" % (_describe_run(request), on.where, around, seconds)
