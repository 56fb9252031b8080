"""Profiling a stretch of a program with TensorFlow's own profiler, under the vendor's name.

Source: Ascend adapter of 2026-07 (CANN 9.0), npu_bridge.profiler; tf.profiler.experimental of TensorFlow 2.2 and later.
"""

import atexit
import logging
import os
import threading

import tensorflow.compat.v1 as tf

from npu_shim.options import watch_options
from npu_shim.session import doors

LOG = logging.getLogger("npu_shim")
_lock = threading.Lock()
_running = []  # the Profilers between start and stop: TensorFlow has one profiler for all


class Profiler:
    """Profiles what runs inside `with Profiler(output_path=...)`; TensorBoard's profile page shows the result.

    Args:
        level: "L0", "L1", ...: how deep the NPU looks, taken and not used.
        aic_metrics: what the NPU counts, taken and not used.
        output_path: folder the profile is written into, made if need be; empty for the working directory.
    """

    def __init__(self, level="L0", aic_metrics="PipeUtilization", output_path=""):
        self.level, self.aic_metrics, self.output_path = level, aic_metrics, output_path or "./"

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self.stop()

    def start(self):
        """Begins; a TensorFlow without this profiler (1.15) logs that and goes on."""
        profiler = _profiler()
        if profiler is None:
            LOG.warning("npu_shim: TensorFlow %s has no profiler to start, nothing is profiled", tf.__version__)
            return
        with _lock:
            if not _running:
                os.makedirs(self.output_path, exist_ok=True)
                profiler.start(self.output_path)
            elif os.path.abspath(_running[0].output_path) != os.path.abspath(self.output_path):
                text = "npu_shim: a profile is being written into %s: what is to go into %s goes there too"
                LOG.warning(text, _running[0].output_path, self.output_path)
            _running.append(self)

    def stop(self):
        """Ends the profile, which is written when the last one that began meanwhile ends; without `start` nothing."""
        with _lock:
            if self in _running:
                _running.remove(self)
                if not _running:
                    _profiler().stop()


def attach(session, options):
    """Profiles a session from now until it is closed, or the program ends.

    Args:
        session: tf.Session.
        options: the option profiling_options: JSON in which "output" names the folder; the rest is the NPU's.

    Raises:
        ConfigError: no JSON object, or no folder in it.
    """
    profiler = Profiler(output_path=watch_options.profile_folder(options))
    profiler.start()
    atexit.register(profiler.stop)
    doors.at_close(session, profiler.stop)


def _profiler():
    profiler = getattr(getattr(tf.compat, "v2", None), "profiler", None)
    return getattr(profiler, "experimental", None)
