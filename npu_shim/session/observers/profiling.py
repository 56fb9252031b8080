"""Profiles a part of a program with TensorFlow's own profiler, under the vendor's name.

Source: Ascend adapter of 2026-07 (CANN 9.0), npu_bridge.profiler; tf.profiler.experimental of TensorFlow 2.2 and later.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading

import tensorflow.compat.v1 as tf

from npu_shim.options import watch_options
from npu_shim.options.reports import ledger
from npu_shim.session.interception import interceptors

LOG = logging.getLogger("npu_shim")
_lock = threading.Lock()
_running = []  # the Profilers between start and stop: a process has one TensorFlow profiler


class Profiler:
    """Profiles what runs inside `with Profiler(output_path=...)`; TensorBoard's profile page shows the result.

    Args:
        level: "L0", "L1", ...: the NPU's level of detail, accepted and ignored.
        aic_metrics: the NPU's counters, accepted and ignored.
        output_path: folder for the profile, created if necessary; empty for the working directory.
    """

    def __init__(self, level: str = "L0", aic_metrics: str = "PipeUtilization", output_path: str = "") -> None:
        self.level, self.aic_metrics, self.output_path = level, aic_metrics, output_path or "./"

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self.stop()

    def start(self) -> None:
        """Starts the profile; under a TensorFlow without this profiler (1.15) it only logs that."""
        profiler = _profiler()
        if profiler is None:
            LOG.warning("npu_shim: TensorFlow %s has no profiler to start, nothing is profiled", tf.__version__)
            return
        with _lock:
            if not _running:
                os.makedirs(self.output_path, exist_ok=True)
                profiler.start(self.output_path)
                ledger.note(ledger.PROFILED)
            elif os.path.abspath(_running[0].output_path) != os.path.abspath(self.output_path):
                text = "npu_shim: a profile is being written into %s: what is to go into %s goes there too"
                LOG.warning(text, _running[0].output_path, self.output_path)
            _running.append(self)

    def stop(self) -> None:
        """Ends the profile; it is written when the last overlapping one ends. Without `start` it does nothing."""
        with _lock:
            if self in _running:
                _running.remove(self)
                if not _running:
                    _profiler().stop()


def attach(session: tf.Session, options: str | None) -> None:
    """Profiles a session from now until it is closed, or the program ends.

    Args:
        session: tf.Session.
        options: the option profiling_options: JSON in which "output" names the folder; the rest is the NPU's.

    Raises:
        ConfigError: it is not a JSON object, or it names no folder.
    """
    profiler = Profiler(output_path=watch_options.profile_folder(options))
    profiler.start()
    atexit.register(profiler.stop)
    interceptors.at_close(session, profiler.stop)


def _profiler():
    profiler = getattr(getattr(tf.compat, "v2", None), "profiler", None)
    return getattr(profiler, "experimental", None)
