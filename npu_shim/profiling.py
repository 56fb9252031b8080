"""Profiling a stretch of a program with TensorFlow's own profiler, under the vendor's name.

Source: Ascend adapter of 2026-07 (CANN 9.0), npu_bridge.profiler; tf.profiler.experimental of TensorFlow 2.2 and later.
"""

import atexit
import json
import logging
import os
import weakref

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.errors import ConfigError

LOG = logging.getLogger("npu_shim")


class Profiler:
    """Profiles what runs inside `with Profiler(output_path=...)`; TensorBoard's profile page shows the result.

    Args:
        level: "L0", "L1", ...: how deep the NPU looks, taken and not used.
        aic_metrics: what the NPU counts, taken and not used.
        output_path: folder the profile is written into, made if need be; empty for the working directory.
    """

    def __init__(self, level="L0", aic_metrics="PipeUtilization", output_path=""):
        self.level, self.aic_metrics, self.output_path = level, aic_metrics, output_path or "./"
        self._running = False

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
        os.makedirs(self.output_path, exist_ok=True)
        profiler.start(self.output_path)
        self._running = True

    def stop(self):
        """Ends and writes the profile; without `start` it does nothing."""
        if self._running:
            self._running = False
            _profiler().stop()


def attach(session, options):
    """Profiles a session from now until it is closed, or the program ends.

    Args:
        session: tf.Session; its `close` is replaced on this instance.
        options: the option profiling_options: JSON in which "output" names the folder; the rest is the NPU's.

    Raises:
        ConfigError: no JSON object, or no folder in it.
    """
    try:
        folder = json.loads(options or "{}")["output"]
    except (ValueError, KeyError, TypeError):
        raise ConfigError('profiling_options=%r must be JSON with "output"' % (options,), code="INTERNAL") from None
    profiler, owner = Profiler(output_path=folder), weakref.ref(session)
    profiler.start()
    atexit.register(profiler.stop)

    def close():
        profiler.stop()
        type(owner()).close(owner())

    session.close = close


def _profiler():
    profiler = getattr(getattr(tf.compat, "v2", None), "profiler", None)
    return getattr(profiler, "experimental", None)
