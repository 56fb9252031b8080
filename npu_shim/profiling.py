"""Profiling a stretch of a program with TensorFlow's own profiler, under the vendor's name.

Source: Ascend adapter of 2026-07 (CANN 9.0), npu_bridge.profiler; tf.profiler.experimental of TensorFlow 2.2 and later.
"""

import logging
import os

import tensorflow.compat.v1 as tf

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


def _profiler():
    profiler = getattr(getattr(tf.compat, "v2", None), "profiler", None)
    return getattr(profiler, "experimental", None)
