"""A session whose training steps run on PJRT: every run is intercepted, and is either a step or left to the session.

Runs are told apart by their fetches and feeds (requests.py, runs.py). A step runs in three parts (step.py, device.py);
several may be a loop on the device (loops.py). Before any other run, the session receives the newest values of the
variables that it touches (truth.py).
"""

import logging
import threading
import time
from collections import Counter
from dataclasses import replace
from typing import NamedTuple, Tuple

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.distributed import cluster
from npu_shim.engine import device, loops, requests
from npu_shim.engine.cut import Place
from npu_shim.engine.runs import Runs
from npu_shim.engine.step import PASSED
from npu_shim.engine.truth import Truth
from npu_shim.engine.values import SessionValues
from npu_shim.engine.worker import memory, remote, starting
from npu_shim.options import engine as options_of_engine
from npu_shim.pjrt import stored
from npu_shim.rewriter.errors import ConfigError, PlanError
from npu_shim.session import doors, lines, session_options
from npu_shim.xla.refusals import NotConstant

LOG = logging.getLogger("npu_shim")
MANY_NODES = 10000  # of a program that takes XLA minutes
MANY_SHAPES = 16  # programs of one step, one for each set of feed shapes; further ones run in the session
ENGINE = "_npu_shim_engine"  # attribute of a session: its Engine


def attach(session):
    """Makes a session run its training steps on PJRT.

    Args:
        session: tf.Session; watchers attached earlier are closer to TensorFlow. A session with a target is left as it
            is, since other processes may write its variables; unless it is this process's own among several workers.
    """
    if tf.compat.as_str_any(session.sess_str) and not cluster.is_own(session):
        LOG.info("npu_shim: engine: a session with a target runs all of its steps itself")
        return
    engine = Engine(session)
    setattr(session, ENGINE, engine)
    doors.watch(session, engine)
    doors.at_unwatched(session, engine.release)
    doors.at_close(session, engine.close)


class OnDevice(NamedTuple):
    """Stands for the value of a tensor that a program has left on the device for a later one."""

    shape: Tuple[int, ...]


class Engine:
    """Watches one session. Its device is opened at the first training step.

    Attributes:
        runs: the `runs.Runs` that it has seen.
        truth: where the variables' newest values are, None before the first step.
        device: the device that runs the programs, None before the first step.
    """

    def __init__(self, session):
        self.truth = None
        self._session, self._options = session, session_options.of_session(session)
        self._cache = stored.folder(self._options.values.get(stored.KEY))
        self.device = self._values = None
        self._off = ""  # why no more runs are taken
        self._building = threading.RLock()
        self._in_parts = threading.RLock()  # held for a step of several programs, which leave tensors on the device
        self._most = {}  # number of a program -> steps of a run of it
        self._left = {}  # number of a program -> {name of a tensor that it leaves on the device: OnDevice}
        self.runs = Runs(session, self._options, self._admit, self.release)

    def __call__(self, session, once, fetches, feed_dict, options, run_metadata):
        """Watches a run, see `doors.watch`."""
        return self._run(once, (fetches, feed_dict, options, run_metadata))

    def several(self, session, once, count, operations, *arguments):
        """Watches a run of several steps, see `doors.several`."""
        return self._run(once, arguments, operations, count)

    @property
    def known(self):
        """`requests.Request.key` -> `runs.Known`."""
        return self.runs.known

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

    def _run(self, once, arguments, operations=(), count=1):
        fetches, feed_dict, options, _ = arguments
        request = None if self._off or self._session._closed else requests.of(self._session.graph, fetches, feed_dict)
        known = None if request is None else self.runs.of(request)
        repeated = frozenset(operation.name for operation in operations)
        made = None if known is None or _traces(options) else known.step  # another thread may refuse it meanwhile
        if count > 1 and not (made is not None and self.runs.are_a_loop(known, made, request, repeated)):
            for _ in range(count - 1):
                self._run(once, (operations, feed_dict, None, None))
            return self._run(once, arguments)
        if made is not None:
            if len(made.parts) > 1:
                return self._run_parts(known, made, request, once, arguments)
            return self._run_steps(known, made, request, once, arguments, operations, count)
        if known is not None:
            return self._in_session(known, once, *arguments)
        self.release()
        return once(*arguments)

    def _in_session(self, known, once, *arguments):
        if self.truth is None:
            return once(*arguments)
        self._guarded(self.truth.before_session, known.touched, known.written)
        try:
            return once(*arguments)
        finally:
            self.truth.after_session(known.written)

    def _last_in_session(self, known, made, request, once, given, arguments, number=0):
        """Runs the rest of a step in the session, and returns what the run returns."""
        tensors, targets = request.tensors, request.targets
        found = {**given, **self._rest_in_session(known, made, once, given, tensors, targets, arguments[2:], number)}
        return request.handler.build_results(self._session, [found[name] for name in tensors])

    def _rest_in_session(self, known, made, once, given, tensors, targets, options, number=0):
        """Runs what is left of a step from program `number` on in the session; returns dict of tensor to value."""
        (asked, left), feeds = made.rest(number, given, tensors, targets)
        return dict(zip(asked, self._in_session(known, once, [asked, left], feeds, *options)[0]))

    def _admit(self, made):
        """Opens the device for a Step and finds its variables; see `Runs`."""
        if not self._open_device():
            return self._off
        self._values.know(made.handles)
        return ""

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

    def _run_steps(self, known, made, request, once, arguments, operations, count):
        """Runs steps, all but the last of `operations` only: feeding parts, the program, and the last reading part."""
        done = 0
        for group in self._groups(known, made, request, count):
            done += len(group)
            fetched = self._run_group(known, made, request, group, done == count)
            if fetched is None:  # the feeding parts are not run again
                *first, last = group
                for given in first if done == count else group:
                    names = [operation.name for operation in operations]
                    self._rest_in_session(known, made, once, given, (), names, (None, None))
                if done == count:
                    return self._last_in_session(known, made, request, once, last, arguments)
        return self._results(request, {**group[-1], **fetched}, made.parts[-1].then)

    def _run_parts(self, known, made, request, once, arguments):
        """Runs a step of several programs, each with the session's part behind it."""
        with self._in_parts:
            given = {**request.feeds, **self._host_run(made.feed, request.feeds)}
            values = dict(given)
            for number, part in enumerate(made.parts):
                fetched = self._run_group(known, made, request, [values], True, number)
                if fetched is None:  # what ran in the session is not run again
                    return self._last_in_session(known, made, request, once, given, arguments, number)
                values.update(fetched)
                if part is not made.parts[-1]:
                    hosts = self._host_run(part.then, {**request.feeds, **_of(values, part.then.feeds)})
                    values.update(hosts)
                    given.update(hosts)
        return self._results(request, values, made.parts[-1].then)

    def _results(self, request, values, reading):
        """What a run returns, given the values so far and the reading part."""
        values = {**values, **self._host_run(reading, {**request.feeds, **_of(values, reading.feeds)})}
        return request.handler.build_results(self._session, [values[name] for name in request.tensors])

    def _groups(self, known, made, request, count):
        """Runs the feeding parts of `count` steps; yields lists of what they give to steps that one program runs.

        The end of the input, and any other error, is raised when the steps before it are done.
        """
        group, key, ended = [], None, None
        for _ in range(count):
            try:
                given = {**request.feeds, **self._host_run(made.feed, request.feeds)}
            except BaseException as error:
                ended = error
                break
            arrays = _of(given, made.parts[0].feeds)
            before, key = key, self._constants_and_key(known.step or made, given)[1] if count > 1 else None
            if group and (before != key or len(group) == loops.most_steps(count, arrays)):
                yield from self._parts(known, request, group)
                group = []
            group.append(given)
        if group:
            yield from self._parts(known, request, group)
        if ended is not None:
            raise ended

    def _parts(self, known, request, group):
        """A group, or its steps one by one where its program turns out to need more constants."""
        before = known.step
        if len(group) > 1:
            self._loaded(known, request, group)
        return [group] if known.step is before else [[given] for given in group]

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

    def _run_group(self, known, made, request, group, is_last, part=0):
        """Runs a program of steps; returns dict of fetch to value, None if the session must run them."""
        number = self._loaded(known, request, group, part)
        try:
            return None if number is None else self._on_device(made, number, group, is_last, part)
        except memory.NoRoom as reason:
            self._record_refusal(known, made, request, reason, part)
            return None

    def _loaded(self, known, request, group, part=0):
        """Returns the number of the program for these steps; None if the session must run them."""
        while known.step is not None and not self._off:
            made = known.step
            constants, key = self._constants_and_key(made, group[0], part)
            with self._building:
                number = known.programs.get(key)
                if key in known.programs and (number is None or len(group) == 1 or self._most[number] > 1):
                    return number
                try:
                    known.programs[key] = self._load(known, made, request, key, constants, len(group))
                except starting.Gone as error:  # no step is lost
                    LOG.warning("%s", self._recover(error, "compiling a step").message)
                    return None
                except (PlanError, ConfigError, RuntimeError) as reason:
                    self._record_refusal(known, made, request, reason, part)
        return None

    def _constants_and_key(self, made, given, part=0):
        """(dict of the tensors that XLA must know when it compiles, key of the program for these feeds)."""
        constants, asked = {}, made.parts[part].constants
        if asked:
            fed = {name: value for name, value in given.items() if not isinstance(value, OnDevice)}
            values = doors.plain_run(self._session, [each.tensor for each in asked], fed)
            constants = {each: each.of(value) for each, value in zip(asked, values)}
        shapes = tuple(np.shape(given[name]) for name in made.parts[part].feeds)
        return constants, (part, shapes, tuple((each, value.tobytes()) for each, value in constants.items()))

    def _record_refusal(self, known, made, request, reason, part):
        """Records that XLA does not compile a step, or needs one more constant for it."""
        more = made.knowing(reason, part) if isinstance(reason, NotConstant) else None
        if more is not None:
            known.step = more
            return
        known.refuse(reason)
        LOG.info("npu_shim: engine: %s runs in the session: %s", request.text, known.reason)

    def _load(self, known, made, request, key, constants, steps):
        """Compiles a program for so many steps at a time; None if there are too many."""
        more, part, shapes = key not in known.programs, *key[:2]
        others = sum(each[0] == part for each in known.programs)
        if more and others == MANY_SHAPES:
            LOG.warning(
                "npu_shim: engine: %s was fed %d sets of shapes and sizes; what has others runs in the session: pad to "
                "fewer", request.text, MANY_SHAPES,
            )  # fmt: skip
        if more and others >= MANY_SHAPES:
            return None
        nodes = len(made.parts[part].prepared.graph_def.node)
        if nodes > MANY_NODES:
            unless = " unless it is in the cache" if self._cache else ""
            LOG.info("npu_shim: engine: compiling %s, %d ops; this may take minutes%s", request.text, nodes, unless)
        start = time.perf_counter()
        described, hlo = made.parts[part].compiled(shapes, constants, self.device.platform, self._cache)
        number, is_old, trouble = self.device.load(replace(described, iterations=steps), hlo, self._cache)
        self._most[number] = steps
        self._left[number] = {t.name: OnDevice(t.shape) for t in described.results if t.kind == PASSED}
        took = ("from the cache in %.1f s" if is_old else "compiled in %.1f s") % (time.perf_counter() - start)
        LOG.info("npu_shim: engine: %s; %s", _describe_step(made, request, self.device, part, steps), took)
        if trouble:
            lines.once(trouble)
        return number

    def _on_device(self, made, number, group, is_last, part):
        """Runs steps; returns dict of fetch to value (empty but for the last), None if a variable has no value yet."""
        steps, most = [_of(given, made.parts[part].feeds) for given in group], self._most[number]
        with self.truth.lock:
            try:
                self.truth.to_device(made.handles)
                for name, value in made.own.items():
                    self.truth.own(name, value)
                if part == len(made.parts) - 1:
                    self.truth.written_on_device(made.updated)
                for first in range(0, len(steps), most):
                    fetched = self.device.run(number, *steps[first : first + most])
                found = {name: device.as_result(value) for name, value in fetched.items()} if is_last else {}
                return {**self._left[number], **found}
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


def _describe_step(made, request, on, part, steps):
    counts = Counter(made.cut.places.values())
    places = [(Place.FEED, "before it"), (Place.MIDDLE, "in its middle"), (Place.READ, "after it")]
    hosts = ["%d ops %s" % (counts[place], where) for place, where in places if counts[place]]
    around = " (in the session: %s)" % ", ".join(hosts) if hosts else ""
    loop = ", a loop of up to %d steps" % steps if steps > 1 else ""
    count = len(made.parts)
    which = "one program" if count == 1 else "%d programs, and this is number %d," % (count, part + 1)
    return "%s is %s on %s%s%s" % (request.text, which, on.where, loop, around)
