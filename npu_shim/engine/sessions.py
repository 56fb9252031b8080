"""A session whose training steps run on PJRT: every run is intercepted, and is either a step or left to the session.

Runs are told apart by their fetches and feeds (requests.py, runs.py). A step runs in three parts (step.py, device.py);
several may be a loop on the device (loops.py). Before any other run, the session receives the newest values of the
variables that it touches (residency.py).
"""

import contextlib
import functools
import logging
import os
import threading
from dataclasses import replace
from types import MappingProxyType

import tensorflow.compat.v1 as tf

from npu_shim.distributed.hosts import job as job_of_hosts
from npu_shim.distributed.job import cluster
from npu_shim.distributed.sharding import updates
from npu_shim.engine.device import feeding, programs
from npu_shim.engine.device.worker import memory, remote, starting
from npu_shim.engine.meetings import Together
from npu_shim.engine.runtime import hosts, loops, own_input, requests, together
from npu_shim.engine.runtime.access import UNKNOWN
from npu_shim.engine.runtime.draws import Draws
from npu_shim.engine.runtime.loading import Programs
from npu_shim.engine.runtime.prefetching import Prefetching
from npu_shim.engine.runtime.residency import Residency
from npu_shim.engine.runtime.runs import Run, Runs
from npu_shim.engine.runtime.values import SessionValues
from npu_shim.options import devices, prefetch, words
from npu_shim.options import engine as options_of_engine
from npu_shim.options.reports import ledger
from npu_shim.pjrt import driver, program_cache
from npu_shim.rewriter.errors import ConfigError, unnamed
from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.session import cards, lines
from npu_shim.session.interception import interceptors, session_options
from npu_shim.step import switch
from npu_shim.xla import recent

LOG = logging.getLogger("npu_shim")
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
    interceptors.watch(session, engine)
    interceptors.at_unwatched(session, engine.leave_to_session)
    interceptors.at_close(session, engine.close)


class Engine:
    """Watches one session. Its device is opened at the first training step.

    Attributes:
        runs: the `runs.Runs` that it has seen.
        residency: where the variables' newest values are.
        device: the device that runs the programs, None before the first step.
        shares: whether that shall run programs together with those of other ranks.
        hosts: the `hosts.job.Hosts` that run its steps together, None for this machine alone.
        off: why no more runs are taken, "" while they are.
    """

    def __init__(self, session):
        self.session, self.options = session, session_options.of_session(session)
        self.device = None
        self.off = ""  # why no more runs are taken
        self.shares = together.is_wanted(session)
        self.hosts = job_of_hosts.of(os.environ)
        self._together = Together(self)
        self._in_parts = threading.Lock()  # held for a step of several programs, which leave tensors on the device
        self._values = SessionValues(session)
        self.residency = Residency(self._values)
        self.residency.adopts = self.hosts is not None and self.hosts.index > 0
        self._draws = Draws(session, self.residency.lock)
        values = self.options.values
        self.programs = Programs(session, program_cache.folder(values.get(program_cache.KEY)), recent.bound_of(values))
        self.runs = Runs(session, self.options, self._admit, self.release)
        if self.hosts is not None and self.hosts.own_input:
            self.runs.own_input = True
            self.programs.own = own_input.OwnInput(session.graph, len(self.hosts.names), self.hosts.index)
        self._ahead = Prefetching(session, prefetch.of(values), self.runs.library)

    def __call__(self, session, once, fetches, feed_dict, options, run_metadata):
        """Watches a run, see `interceptors.watch`."""
        return self._run(once, (fetches, feed_dict, options, run_metadata))

    def multi_step(self, session, once, count, operations, *arguments):
        """Watches a run of several steps, see `interceptors.multi_step`."""
        return self._run(once, arguments, operations, count)

    @property
    def known(self):
        """`requests.Request.key` -> `runs.Known`."""
        return self.runs.known

    def release(self):
        """Copies all values that are newer on the device to the session."""
        self.guarded(self.residency.release)

    def leave_to_session(self, what, fetches):
        """Leaves all to the session from now on, since nothing watches `what`: when does it end?

        Args:
            what: in words.
            fetches: of it, None where no run is watched from now on.
        """
        if not self.off:
            self.off = "a run is not watched"
            LOG.info("npu_shim: engine: after %s, the session runs everything", what)
        self.release()
        self.guarded(self._draws.release)
        self._ahead.leave(what, None if fetches is None else requests.asked(self.session.graph, fetches)[0])

    def close(self):
        """Closes the device when the session closes."""
        self.off = self.off or "the session is closed"
        self._ahead.close()
        if self.device is not None:
            self.residency.drop()
            self._draws.drop()
            self.device.close()

    def _run(self, once, arguments, operations=(), count=1):
        fetches, feed_dict, options, _ = arguments
        meeting = self._together.meeting_of(fetches, feed_dict)
        if meeting is not None and count > 1:  # ranks meet in each step
            for _ in range(count - 1):
                self._run(once, (operations, feed_dict, requests.for_parts(options), None))
            return self._run(once, arguments)
        done = None if meeting is None else self._together.run(meeting, once, arguments)
        return self._run_apart(once, arguments, operations, count) if done is None else done.result

    def _run_apart(self, once, arguments, operations=(), count=1):
        fetches, feed_dict, options, metadata = arguments
        request = None if self.off or self.session._closed else requests.of(self.session.graph, fetches, feed_dict)
        nodes, targets = requests.asked(self.session.graph, fetches, request)
        self._ahead.require_elements(targets)
        known = None if request is None else self.runs.of(request)
        repeated = frozenset(operation.name for operation in operations)
        step = None if known is None or requests.is_for_session(options) else known.step
        if count > 1 and not (step is not None and self.runs.are_a_loop(known, step, request, repeated)):
            for _ in range(count - 1):
                self._run(once, (operations, feed_dict, requests.for_parts(options), None))
            return self._run(once, arguments)
        if step is None:
            if known is not None and known.learns:
                raise own_input.left(known.text, known.reason)
            return self._in_session(UNKNOWN if known is None else known.access, once, nodes, *arguments)
        run = Run(known, step, request, once, options, metadata, [])
        return self._run_parts(run, arguments) if len(step.parts) > 1 else self._run_steps(run, operations, count)

    def _in_session(self, access, once, nodes, *arguments):
        """Runs the session for what fetches or runs these nodes, by name; `arguments` are those of `once`."""
        with self._session_run(access):
            return self._counted(once, nodes, *arguments)

    def _counted(self, once, nodes, fetches, feed_dict, *others):
        """Runs the session, whose random ops and iterators go on behind the steps on the device."""
        with self._ahead.fed(nodes, feed_dict) as ahead:
            if not ahead:
                return self._drawn(once, nodes, fetches, feed_dict, *others)
            run = functools.partial(self._drawn, once, nodes)
            return requests.given(self.session, run, fetches, ahead, {**(feed_dict or {}), **ahead}, *others)

    def _drawn(self, once, nodes, fetches, feed_dict, *others):
        """Runs the session, whose random ops go on behind the steps on the device."""
        drawn = self._draws.of_run(nodes, feed_dict)
        self.guarded(self._draws.catch_up, drawn)
        return self._draws.counted(drawn, once, fetches, feed_dict, *others)

    @contextlib.contextmanager
    def _session_run(self, access):
        """Scope of a run of the session, which has the newest values of what it touches."""
        with contextlib.ExitStack() as scope:
            self.guarded(scope.enter_context, self.residency.session_run(access))
            yield

    def last_in_session(self, run, given, number=0):
        """Runs the rest of a step in the session, and returns what the run returns."""
        tensors, targets = run.request.tensors, run.request.targets
        values = {**given, **self._rest_in_session(run, given, tensors, targets, run.metadata, number)}
        return run.request.handler.build_results(self.session, [values[name] for name in tensors])

    def _rest_in_session(self, run, given, tensors, targets, metadata=None, number=0):
        """Runs what is left of a step from program `number` on in the session; returns dict of tensor to value."""
        (asked, left), feeds = run.step.fallback(number, given, tensors, targets)
        access = replace(run.known.access, blocks=run.step.fallback_blocks(number))
        nodes, fetches = [*map(source_of, asked), *left], [asked, left]
        return dict(zip(asked, self._in_session(access, run.once, nodes, fetches, feeds, run.options, metadata)[0]))

    def _admit(self, step):
        """Opens the device for a Step and finds its variables; see `Runs`."""
        if not self.open_device_once():
            return self.off
        self._values.know(step.handles, step.shapes)
        return ""

    def open_device_once(self):
        """Opens the device, once; returns whether there is one.

        Raises:
            tf.errors.InvalidArgumentError: there is none, and the engine was asked for by name.
        """
        if self.device is not None:
            return True
        try:
            values = self._values_of_device()
            shared = together.worker(values) if self.shares else None
            several = None if self.hosts is None else hosts.worker(values, self.hosts)
            self.device = shared or several or open_device(values)
            self.residency.device = self.programs.device = self._draws.device = self.device
        except (ImportError, ConfigError, starting.Gone) as reason:
            if options_of_engine.is_demanded(self.options.values):
                text = "npu_shim: engine 'pjrt' is not available: %s" % unnamed(str(reason))
                ledger.note(ledger.LEFT, "the engine is not available: %s" % unnamed(str(reason).partition("\n")[0]))
                raise tf.errors.InvalidArgumentError(None, None, text) from reason
            self.off = str(reason)
            return False
        return True

    def _values_of_device(self):
        """The session's option values, with what `is_weight_update_sharding` of its graph's optimizer asks for."""
        values = self.options.values
        asked = values.get(words.SHARD_STATE.key) or os.environ.get(words.SHARD_STATE.variable)
        if asked or not getattr(self.session.graph, updates.ON_DEVICES, False):
            return values
        return {**values, words.SHARD_STATE.key: "optimizer"}

    def _run_steps(self, run, operations, count):
        """Runs steps, all but the last of `operations` only: feeding parts, the program, and the last reading part."""
        done = 0
        for group in self._groups(run, count):
            done += len(group)
            fetched = self.run_group(run, group, done == count)
            if fetched is None:  # the feeding parts are not run again
                *first, last = group
                for given in first if done == count else group:
                    self._rest_in_session(run, given, (), [operation.name for operation in operations])
                if done == count:
                    return self.last_in_session(run, last)
        return self.results(run, {**group[-1], **fetched})

    def _run_parts(self, run, arguments):
        """Runs a step of several programs, each with the session's part behind it.

        The session runs what comes while another such step is between its programs: it may be a function of the script
        in that step's middle that asks for it, and must not wait for its end.
        """
        if not self._in_parts.acquire(blocking=False):
            return self._in_session(run.known.access, run.once, run.request.nodes, *arguments)
        try:
            given = {**run.request.feeds, **self.host_run(run, run.step.feed, {})}
            values = dict(given)
            for number, part in enumerate(run.step.parts):
                fetched = self.run_group(run, [values], True, number)
                if fetched is None:  # what ran in the session is not run again
                    return self.last_in_session(run, given, number)
                values.update(fetched)
                if part is not run.step.parts[-1]:
                    hosts = self.host_run(run, part.then, values)
                    values.update(hosts)
                    given.update(hosts)
        finally:
            self._in_parts.release()
        return self.results(run, values)

    def results(self, run, values):
        """What a run returns, given the values so far."""
        values = {**values, **self.host_run(run, run.step.parts[-1].then, values)}
        return run.request.handler.build_results(self.session, [values[name] for name in run.request.tensors])

    def _groups(self, run, count):
        """Runs the feeding parts of `count` steps; yields lists of what they give to steps that one program runs.

        The end of the input, and any other error, is raised when the steps before it are done.
        """
        group, key, ended = [], None, None
        for _ in range(count):
            before = key
            try:
                given = {**run.request.feeds, **self.host_run(run, run.step.feed, {})}
                if count > 1:
                    key = self.programs.constants_and_key(run.known.step or run.step, given)[1]
            except BaseException as error:
                ended = error
                break
            most = loops.most_steps(count, _of(given, run.step.parts[0].feeds))
            if group and (before != key or len(group) == most):
                yield from self._parts(run, group)
                group = []
            group.append(given)
        if group:
            yield from self._parts(run, group)
        if ended is not None:
            raise ended

    def _parts(self, run, group):
        """A group, or its steps one by one: its program turns out to need more constants, or runs them so."""
        before = run.known.step
        number = self.loaded(run, group) if len(group) > 1 else None
        is_whole = run.known.step is before and number not in self.programs.alone
        return [group] if is_whole else [[given] for given in group]

    def host_run(self, run, part, values):
        """Runs a part of a step in the session, given the values so far; returns dict of tensor name to value."""
        if part.is_empty:
            return {}
        again = {name: values[same] for name, same in part.again.items()}
        nodes, feeds = _nodes(part), {**run.request.feeds, **_of(values, part.feeds), **again}
        with self._ahead.fed(nodes, feeds, run.staged) as ahead:
            have_run = set(map(source_of, ahead))
            targets = [name for name in part.targets if name not in have_run]
            asked = [name for name in part.fetches if name not in ahead]
            if not targets and not asked:
                return ahead
            with self._session_run(part.access):
                once = functools.partial(interceptors.plain_run, self.session)
                got = self._drawn(once, nodes, [asked, targets], {**feeds, **ahead}, run.options)[0]
            return {**ahead, **dict(zip(asked, got))}

    def run_group(self, run, group, is_last, part=0):
        """Runs a program of steps; returns dict of fetch to value, None if the session must run them."""
        if part == 0:
            self._ahead.ask(_nodes(run.step.feed), run.request.feeds)
        number, written = self._ready(run, group, part)
        if self.hosts is not None and not self._agreed(run, group, part, number):
            return None
        if number is None:
            return None
        with self.residency.lock:
            if self.off or run.known.step is None:  # meanwhile
                return None
            return self._on_device(run, number, group, is_last, part, written)

    def _ready(self, run, group, part):
        """(number of the program of these steps, None if the session must run them; the variables that it writes)."""
        if part == 0 and not all(map(run.step.asserts_hold, group)):
            return None, ()  # the session stops with the assertion's error, behind what does not wait for it
        number = self.loaded(run, group, part)
        written = run.step.updated if part == len(run.step.parts) - 1 else ()
        if number is None or not self.residency.wait_for_session(run.step.handles, written):
            return None, written
        return number, written

    def _agreed(self, run, group, part, number):
        """Whether the other hosts have a program for these steps too."""
        if self.off:
            return False
        step = run.known.step or run.step
        exchanges = None if number is None else self.programs.exchanges.get(number, ())
        feeds = [_of(given, step.parts[part].feeds) for given in group]
        own = self.programs.own_rows(step, run.request, group[0], part)
        return hosts.agree(run.known.text, exchanges, feeds, self.residency.missing(step.handles), own)

    def loaded(self, run, group, part=0):
        """Returns the number of the program for these steps; None if the session must run them."""
        if self.off:
            return None
        try:
            return self.programs.loaded(run.known, run.request, group, part)
        except starting.Gone as error:  # no step is lost
            LOG.warning("%s", self._recover(error, "compiling a step").message)
            return None

    def _on_device(self, run, number, group, is_last, part, written):
        """Runs steps; returns dict of fetch to value (empty but for the last), None if the session must run them."""
        ran = False
        try:
            number = self.programs.current(number)
            steps = [self.programs.fitted(number, _of(given, run.step.parts[part].feeds)) for given in group]
            most = self.programs.most[number]
            if not self.bring(run, written):
                return None
            staging = self._staging(run, number, steps[0]) if part == 0 and self.programs.stages(number, steps) else {}
            for first in range(0, len(steps), most):
                fetched = self.device.run(number, *steps[first : first + most], **staging)
                ran = True
                if programs.stopped(fetched, self.programs.own is not None):
                    run.known.stopped()
                    return None
                programs.require_bounds(fetched)
            run.known.stops = 0
            ledger.note(ledger.TAKEN)
            results = programs.results_of(fetched) if is_last else {}
            if self.programs.own is not None:
                results = self.programs.own.fetched(results, self.programs.rows[number])
            return {**self.programs.left[number], **results}
        except tf.errors.FailedPreconditionError:  # a variable has no value: the session says so
            return None
        except programs.PassedBound as error:
            raise tf.errors.InternalError(None, None, str(error)) from error
        except Exception as error:
            if ran or (isinstance(error, RuntimeError) and not isinstance(error, memory.NoRoom)):
                raise self._recover(error, "a step") from error
            run.known.refuse(error, isinstance(error, memory.NoRoom))
            return None

    def _staging(self, run, number, feeds):
        """What a device's `run` of a step is given for feeds that are there, and to bring there the next step's."""
        staged = run.staged[-1] if run.staged else None
        if staged is None and feeding.is_large(feeds) and self.device.is_busy:
            staged = self.device.stage(number, feeds)
        if not self._ahead.reads_any:
            return {"staged": staged}

        def begin():
            self._ahead.stage(_nodes(run.step.feed), run.request.feeds, functools.partial(self.device.stage, number))

        return {"staged": staged, "meanwhile": begin}

    def bring(self, run, written):
        """Brings a step's variables to the device; returns whether they are there."""
        self._draws.to_device(run.step.draws)
        return self.residency.to_device(run.step.handles, written)

    def guarded(self, function, *arguments):
        """Calls a function that copies values from the device; a step that failed behind its run fails here."""
        try:
            return function(*arguments)
        except RuntimeError as error:
            raise self._recover(error, "a step") from error

    def _recover(self, error, what):
        """Gives the session the newest state that is left, and makes it run without the engine; returns an error."""
        self.off = "%s failed" % what
        error = hosts.fault() or error
        hosts.fail(str(error))
        with self.residency.lock:
            try:
                behind = self.device.recover()
                if behind:
                    self.residency.roll_back()
                self.residency.release()
                self._draws.release()
                which = "%d steps before the last completed one" % behind if behind else "the last completed step"
                state = "the session has the state of %s and runs on without the engine" % which
            except Exception as lost:
                self._draws.drop()
                self.residency.drop()  # so that the session can restore a checkpoint
                state = "the values on the device are lost (%s): restore a checkpoint" % lost
        fits = how_it_fits(str(error), self._values_of_device())
        text = "npu_shim: engine: %s failed on %s: %s; %s%s" % (what, self.device.where, error, state, fits)
        return tf.errors.InternalError(None, None, text)


def open_device(values=MappingProxyType({})):
    """Returns the device that runs programs, or the devices: JAX in this process, else in a worker.

    Args:
        values: option values.

    Raises:
        ImportError or ConfigError: why there is none.
    """
    obsolete = switch.without_effect()
    if obsolete:
        lines.once("engine: " + obsolete)
    asked = {"devices": devices.of(values), "shard_state": words.SHARD_STATE.of(values)}
    if options_of_engine.has_jax():
        device = programs.InProcess(**asked)
        jax = driver.Jax(driver.kind_of_jax(), device.platform)
    else:
        device = remote.Worker(options_of_engine.interpreter(), **asked)
        jax = driver.Jax(device.started.about["cuda"], device.platform, options_of_engine.interpreter())
    cards.tell_of_engine(jax)
    return device


def _nodes(part):
    """Names of the nodes that a `step.HostRun` fetches or runs."""
    return [*map(source_of, part.fetches), *part.targets]


def how_it_fits(error, values):
    """What to do about an error of a device that has no more memory, "" for another one; `values` are option values."""
    if "RESOURCE_EXHAUSTED" not in error and "out of memory" not in error.lower():
        return ""
    share = {"off": "optimizer, or all", "optimizer": "all"}.get(words.SHARD_STATE.of(values), "")
    more = "" if devices.of(values) != 1 else "several devices (--devices N); "
    divided = "a part of the variables on each (%s=%s); " % (words.SHARD_STATE.key, share) if share else ""
    again = "" if words.RECOMPUTE.of(values) == "memory" else "%s=memory; " % words.RECOMPUTE.key
    others = "; nvidia-smi lists other programs that hold the card's memory" if driver.is_here() else ""
    return "; what takes less memory: %s%s%sa smaller batch%s" % (more, divided, again, others)


def _of(values, names):
    return {name: values[name] for name in names}
