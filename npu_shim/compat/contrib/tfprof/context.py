"""tf.contrib.tfprof.ProfileContext, on the tf.profiler.Profiler that TensorFlow 2 still has."""

from __future__ import annotations

import os
from typing import Any, Iterable

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals

WARM_STEPS = 10
MOST_TRACED = 100
# command of add_auto_profiling -> method of the profiler
_COMMANDS = {
    "code": "profile_python",
    "graph": "profile_graph",
    "op": "profile_operations",
    "scope": "profile_name_scope",
}


class ProfileContext:
    """Traces runs of sessions within a `with` block, and profiles them; does nothing if it is not enabled.

    Args:
        profile_dir: folder for the files `profile_STEP`; it is made when the first is written.
        trace_steps: ints, the runs that are traced, counted from 0; None traces, from the 11th on, the first run of
            each set of fetches.
        dump_steps: ints, the runs after which a profile is written; None means the 100th.
        enabled: whether to do anything.
        debug: whether to write each traced run's RunMetadata to `run_meta_STEP` as well.

    Raises:
        ValueError: no folder, or more than 100 trace_steps.
    """

    def __init__(
        self,
        profile_dir: str,
        trace_steps: Iterable[int] | None = None,
        dump_steps: Iterable[int] | None = None,
        enabled: bool = True,
        debug: bool = False,
    ) -> None:
        self._enabled = enabled
        if not enabled:
            return
        if not profile_dir:
            raise ValueError("Must have a directory for profile.\n")
        self._folder = profile_dir
        self._debug = debug
        self._of_new_fetches = trace_steps is None
        self._trace_steps = set(trace_steps or ())
        if len(self._trace_steps) > MOST_TRACED:
            raise ValueError("Only support tracing up to 100 steps.\n")
        self._dump_steps = {MOST_TRACED} if dump_steps is None else set(dump_steps)
        self._step = self._traced = 0
        self._trace_next = self._dump_next = self._running = False
        self._seen: set[str] = set()
        self._auto: list[tuple[str, Any, set[int]]] = []
        self._profiles: dict[str, dict[int, Any]] = {}
        self._profiler: Any = None

    @property
    def profiler(self) -> Any:
        """The tf.profiler.Profiler that has the traces so far; None if this context is not enabled."""
        if self._enabled and self._profiler is None:
            self._profiler = tf.profiler.Profiler(tf.get_default_graph())
        return self._profiler if self._enabled else None

    def add_auto_profiling(self, cmd: str, options: Any, profile_steps: Iterable[int]) -> None:
        """Traces and profiles some runs: `cmd` is "code", "graph", "op" or "scope", `options` are tf.profiler's.

        Raises:
            ValueError: there is no such command.
        """
        if cmd not in _COMMANDS:
            raise ValueError("Unknown cmd: %s, expected one of %s\n" % (cmd, ", ".join(_COMMANDS)))
        if self._enabled:
            self._auto.append((cmd, options, set(profile_steps)))
            self._trace_steps |= set(profile_steps)

    def get_profiles(self, cmd: str) -> dict[int, Any]:
        """{run: profile} of an automatic profiling; ValueError if it has not run."""
        if not self._enabled or cmd not in self._profiles:
            raise ValueError("No autoprofiler for command: %s, was run" % cmd)
        return self._profiles[cmd]

    def trace_next_step(self) -> None:
        """Traces the next run."""
        self._trace_next = True

    def dump_next_step(self) -> None:
        """Writes a profile after the next run."""
        self._dump_next = True

    def __enter__(self) -> ProfileContext:
        if self._enabled:
            owner = tf_internals.client_session().BaseSession
            self._original = owner.run
            context = self

            def run(
                self: Any, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
            ) -> Any:
                return context._run(self, fetches, feed_dict, options, run_metadata)

            owner.run = run
        return self

    def __exit__(self, *error: Any) -> None:
        if self._enabled:
            tf_internals.client_session().BaseSession.run = self._original

    def _run(self, session: Any, fetches: Any, feed_dict: Any, options: Any, run_metadata: Any) -> Any:
        if self._running:  # a hook's own run within a run
            return self._original(session, fetches, feed_dict, options, run_metadata)
        self._running = True
        try:
            if not self._traces(session, fetches):
                result = self._original(session, fetches, feed_dict, options, run_metadata)
            else:
                result = self._traced_run(session, fetches, feed_dict, options, run_metadata)
            self._after_run()
            return result
        finally:
            self._running = self._trace_next = self._dump_next = False
            self._step += 1

    def _traces(self, session: Any, fetches: Any) -> bool:
        if self._traced > MOST_TRACED:
            return False
        if self._trace_next or self._step in self._trace_steps:
            return True
        if not self._of_new_fetches or self._step <= WARM_STEPS:
            return False
        names = " ".join(sorted(str(getattr(fetch, "name", fetch)) for fetch in tf.nest.flatten(fetches)))
        new = names not in self._seen
        self._seen.add(names)
        return new

    def _traced_run(self, session: Any, fetches: Any, feed_dict: Any, options: Any, run_metadata: Any) -> Any:
        traced = tf.RunOptions()
        traced.CopyFrom(options or tf.RunOptions())
        traced.trace_level = tf.RunOptions.FULL_TRACE
        metadata = run_metadata or tf.RunMetadata()
        result = self._original(session, fetches, feed_dict, traced, metadata)
        self._traced += 1
        if self._debug:
            self._write("run_meta_%d" % self._step, str(metadata).encode())
        if self._profiler is None:
            self._profiler = tf.profiler.Profiler(session.graph)
        self._profiler.add_step(self._step, metadata)
        return result

    def _after_run(self) -> None:
        if self._dump_next or self._step in self._dump_steps:
            self._write("profile_%d" % self._step, self.profiler.serialize_to_string())
        for cmd, options, steps in self._auto:
            if self._step in steps:
                profile = getattr(self.profiler, _COMMANDS[cmd])(options)
                self._profiles.setdefault(cmd, {})[self._step] = profile

    def _write(self, name: str, content: bytes) -> None:
        tf.gfile.MakeDirs(self._folder)
        with tf.gfile.GFile(os.path.join(self._folder, name), "wb") as f:
            f.write(content)
