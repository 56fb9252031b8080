"""Reads, before a session is closed or the process ends, how many steps its loss scales have skipped."""

from __future__ import annotations

import itertools
import json
import os
import weakref
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.options.collected import LOSS_SCALE, STEP_COUNTS
from npu_shim.options.reports import ledger
from npu_shim.session.interception import interceptors

SECONDS = 5.0  # for the read: ranks of a job that fails may be gone
_numbers = itertools.count()
_open: weakref.WeakSet[Any] = weakref.WeakSet()  # sessions that have not been read


def attach(session: tf.Session) -> None:
    """Has the counts of a session's loss scales read when it is closed, or at the end where nobody closes it."""
    _open.add(session)
    ledger.before_the_end(_read_all)
    reference = weakref.ref(session)
    interceptors.at_close(session, lambda: _read(reference()))


def _read_all() -> None:
    for session in list(_open):
        _read(session)


def _read(session: Any) -> None:
    """Notes what the loss scales of a session have counted, once; nothing where it cannot be read any more."""
    if session is None or session not in _open:
        return
    _open.discard(session)
    counts = session.graph.get_collection(STEP_COUNTS)
    if not counts or session._closed:
        return
    scales = session.graph.get_collection(LOSS_SCALE)
    scales = scales if len(scales) == len(counts) else []
    options = tf.RunOptions(timeout_in_ms=int(1000 * SECONDS))
    try:
        counted, now = session.run([counts, scales], options=options)
    except Exception:  # the session has failed, and its script knows of that
        return
    for number, steps in enumerate(counted):
        scale = float(now[number]) if scales else None
        whose = "%d:%d" % (os.getpid(), next(_numbers))  # equal counts of two sessions are two facts
        ledger.note(ledger.STEPS, json.dumps([[*(int(count) for count in steps), scale], whose]))
