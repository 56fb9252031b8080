"""The runs of a session in which ranks meet, as steps of one program: what an Engine has besides its own runs.

`runtime.together` says what ranks tell each other before such a step. An error of one rank, and a rank that does not
come, end the run as they end one of TensorFlow's: `liveness.watch` is around it.
"""

import functools
from typing import Any, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from npu_shim.distributed.job import cluster
from npu_shim.distributed.liveness import watch
from npu_shim.engine.runtime import requests, together
from npu_shim.engine.runtime.runs import Run


class Done(NamedTuple):
    """What a run returns."""

    result: Any


class Together:
    """Meets other ranks for an Engine.

    Args:
        engine: the `sessions.Engine`.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._shared: dict[Any, together.Shared] = {}  # `requests.Request.key` -> its step

    def meeting_of(self, fetches: Any, feed_dict: Any) -> Optional[cluster.Meeting]:
        """The Meeting of a run in which ranks meet whose devices run programs together; None for another one."""
        if not self._engine.shares or self._engine.session._closed:
            return None
        try:
            meeting = cluster.meeting(self._engine.session, fetches, feed_dict)
        except (TypeError, ValueError, KeyError):  # the run ends with an error of TensorFlow's own
            return None
        if meeting is None or not self._engine.open_device_once():
            return None
        return None if self._engine.device.job is None else meeting

    def run(self, meeting: cluster.Meeting, once: Any, arguments: Any) -> Optional[Done]:
        """Runs a step as a program of all ranks that meet in it; returns a Done, None where nothing has run."""
        run, given, engine = self._taken(meeting, once, arguments), {}, self._engine
        if run is not None:
            feeding = functools.partial(engine.host_run, run, run.step.feed, {})
            given = {**run.request.feeds, **watch.run_ahead(engine.session, feeding)}
        seconds = engine.options.values.get("hccl_timeout")
        try:
            fetched = meeting.run(seconds, engine.session, functools.partial(self._met, meeting, run, given))
        finally:
            if watch.has_fault():
                engine.device.abandon()
        if run is None:
            return None
        if fetched is None:
            return Done(engine.last_in_session(run, given))
        return Done(engine.results(run, {**given, **fetched}))

    def _taken(self, meeting: cluster.Meeting, once: Any, arguments: Any) -> Optional[Run]:
        """The Run of a step that has a program of all ranks, None for another one."""
        fetches, feed_dict, options, metadata = arguments
        request = None if self._engine.off else requests.of(self._engine.session.graph, fetches, feed_dict)
        if request is None or requests.is_for_session(options):
            return None
        known = self._shared_step(request, meeting)
        return None if known.step is None else Run(known, known.step, request, once, options, metadata, [])

    def _shared_step(self, request: Any, meeting: cluster.Meeting) -> together.Shared:
        """The Known of a step as a program of the ranks that meet in it."""
        if request.key not in self._shared:
            self._shared[request.key] = self._engine.runs.shared(together.Shared(request.text), request, meeting)
        return self._shared[request.key]

    def _met(self, meeting: cluster.Meeting, run: Optional[Run], given: Any) -> Any:
        """Meets the other ranks, and runs a step with them; returns dict of fetch to value, None where they do not."""
        number = None if run is None else self._ready(run, given)
        exchanges = None if number is None else self._engine.programs.exchanges.get(number, ())
        rows = self._engine.guarded(self._engine.device.meet, meeting.ranks, together.brought(meeting, exchanges))
        why = together.apart(meeting, rows)
        if run is None or why:
            if run is not None:
                run.known.missed(why)
            return None
        run.known.misses = 0
        fetched = self._engine.run_group(run, [given], True)
        if fetched is None:
            raise tf.errors.AbortedError(None, None, "npu_shim: engine: another run took the variables of a step")
        self._engine.guarded(self._engine.device.settle)
        return fetched

    def _ready(self, run: Run, given: Any) -> Any:
        """Brings what a step needs to the device; returns the number of its program, None where it cannot run there."""
        number = self._engine.loaded(run, [given]) if run.step.asserts_hold(given) else None
        if number is None or not self._engine.residency.wait_for_session(run.step.handles, run.step.updated):
            return None
        with self._engine.residency.lock:
            try:
                return number if self._engine.bring(run, run.step.updated) else None
            except tf.errors.FailedPreconditionError:  # a variable has no value
                return None
