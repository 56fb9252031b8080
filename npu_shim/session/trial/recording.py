"""Records the losses of a trial's training steps, and ends the trial where it cannot go on."""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.rewriter.errors import ConfigError
from npu_shim.session.interception import interceptors, training
from npu_shim.session.observers import dump
from npu_shim.session.trial import protocol, replay
from npu_shim.session.trial.protocol import Asked

WRONG, ENDED = 2, 0  # exit statuses of a trial that ends itself
HOPELESS = 30  # steps without a finite loss


class Kind(NamedTuple):
    """What is known of all runs with the same fetches: their ops, updates, losses, and the loss scale or None."""

    operations: Any
    updates: frozenset[str]
    losses: list[Any]
    scale: Any


def begin() -> None:
    """Seeds what draws random numbers in a trial, where the script does not: so trials differ in their dtypes only."""
    asked = protocol.asked()
    if asked is None:
        return
    seed = asked.seed
    random.seed(seed)
    np.random.seed(seed)
    own = tf.Graph.seed  # of each graph; None, which Estimator sets as well, draws another one in each process
    tf.Graph.seed = property(lambda graph: seed if own.fget(graph) is None else own.fget(graph), own.fset)


def attach(session: tf.Session, options: Any) -> None:
    """Records the training steps of a session, where this process is a trial.

    Args:
        session: tf.Session.
        options: its `session_options.SessionOptions`.
    """
    asked = protocol.asked()
    if asked is None or replay.is_own(session):
        return
    interceptors.watch(session, _Recorder(asked, options).run)


class _Recorder:
    """Watches one session."""

    steps = 0  # training steps of the process

    def __init__(self, asked: Asked, options: Any):
        self._asked, self._options = asked, options
        self._started = os.path.getmtime(os.path.join(asked.folder, protocol.ASKED))
        self._kinds: dict[Any, Kind | None] = {}
        self._hopeless = 0  # steps in a row without a finite loss
        self._steps: list[Any] = []  # recorded ones
        self._counts: Counter[frozenset[str]] = Counter()  # of steps, by what they update: networks train in turns

    def run(self, session, once, fetches, feed_dict, options, run_metadata):
        kind = self._kind(session.graph, fetches, feed_dict or {})
        if kind is None:
            return once(fetches, feed_dict, options, run_metadata)
        _Recorder.steps += 1
        if _Recorder.steps == 1 and self._asked.disturb:
            self._disturb(session.graph, once)
        if self._asked.replay:
            self._record(session, once, kind, feed_dict, options)
        scales = [] if kind.scale is None else [kind.scale]
        result, values, scale = once([fetches, kind.losses, scales], feed_dict, options, run_metadata)
        names = [*(tensor.name for tensor in kind.losses), *(protocol.SCALE for _ in scales)]
        self._write(zip(names, [*values, *scale]))
        self._hopeless = 0 if np.isfinite(values).any() else self._hopeless + 1
        if self._asked.longest and (self._hopeless >= HOPELESS or _Recorder.steps >= self._asked.longest):
            _leave(ENDED)
        return result

    def _kind(self, graph, fetches, feeds):
        asked = training.run(graph, fetches, feeds)
        if asked.key not in self._kinds:
            operations = dump.upstream(graph, asked.fetched, feeds)
            self._refuse_restored(operations, feeds)
            self._kinds[asked.key] = self._training(graph, asked, operations)
        return self._kinds[asked.key]

    def _training(self, graph, asked, operations):
        updates = frozenset(op.name for op, _ in training.updates(operations))
        if not updates:
            return None
        try:
            losses = training.losses(graph, asked, operations, self._asked.loss)
        except ConfigError as error:
            if self._asked.loss is not None:
                self._end(*error.problems)
            protocol.write_unnamed(self._asked.folder, error.problems[0])  # other runs of the script may have one
            return None
        if not losses:
            return None
        protocol.write_settings(self._asked.folder, {"values": dict(self._options.values)})
        return Kind(operations, updates, losses, training.loss_scale(operations))

    def _refuse_restored(self, operations, feeds):
        """Ends a trial that goes on from what another one has saved."""
        fed = {getattr(key, "name", key): value for key, value in feeds.items()}
        for op in (op for op in operations if op.type == "RestoreV2"):
            prefix = fed.get(op.inputs[0].name)
            index = None if prefix is None else tf.compat.as_str_any(prefix) + ".index"
            if index and os.path.exists(index) and self._asked.began < os.path.getmtime(index) < self._started:
                self._end(
                    "the script continues from '%s', which an earlier trial wrote: give each trial a folder of its "
                    "own, by a path that is relative to the working directory, or with {trial} in it" % prefix
                )

    def _end(self, *problems):
        protocol.write_problem(self._asked.folder, "; ".join(problems))
        _leave(WRONG)

    def _write(self, named):
        path = os.path.join(self._asked.folder, "%d%s" % (os.getpid(), protocol.LOSSES))
        with open(path, "a", encoding="utf-8") as f:
            f.writelines("%s\t%r\n" % (name, float(value)) for name, value in named)

    def _disturb(self, graph, once):
        """Changes the weights as little as rounding does: what becomes of that is the noise of the training itself."""
        variables = [
            variable
            for variable in graph.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES)
            if variable.dtype.is_floating
        ]
        drawn = np.random.RandomState(self._asked.seed)
        changed = [
            (variable, (value * (1 + self._asked.disturb * drawn.uniform(-1, 1, value.shape))).astype(value.dtype))
            for variable, value in zip(variables, map(np.asarray, once(variables, None, None, None)))
        ]
        replay.load(lambda fetches, feeds: once(fetches, feeds, None, None), changed)

    def _record(self, session, once, kind, feed_dict, options):
        last = self._asked.replay[-1]
        self._counts[kind.updates] += 1
        if self._counts[kind.updates] > last and all(count >= last for count in self._counts.values()):
            self._rank(replay.ranking(session, self._options, self._steps, self._asked))
        if self._counts[kind.updates] in self._asked.replay:
            try:
                self._steps.append(replay.record(session, once, kind, feed_dict, options))
            except replay.PROBLEMS as error:
                self._rank(replay.unranked(error))

    def _rank(self, ranking):
        protocol.write_ranking(self._asked.folder, ranking)
        _leave(ENDED)


def _leave(status):
    """Ends the process at once: a script may catch whatever is raised."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
