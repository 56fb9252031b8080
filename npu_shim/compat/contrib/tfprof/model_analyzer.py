"""tf.contrib.tfprof.model_analyzer: tf.profiler under its first name (as of TensorFlow 1.15.5)."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

_BUILDER = tf.profiler.ProfileOptionBuilder
TRAINABLE_VARS_PARAMS_STAT_OPTIONS = _BUILDER.trainable_variables_parameter()
FLOAT_OPS_OPTIONS = _BUILDER.float_operation()
PRINT_ALL_TIMING_MEMORY = _BUILDER.time_and_memory()


def print_model_analysis(
    graph: Any, run_meta: Any = None, op_log: Any = None, tfprof_cmd: str = "scope", tfprof_options: Any = None
) -> Any:
    """Prints what `tf.profiler.profile` finds of a graph, the parameters by default, and returns it.

    Args:
        graph: tf.Graph.
        run_meta: tf.RunMetadata of a step, or None.
        op_log: OpLogProto, or None.
        tfprof_cmd: "scope", "graph", "op" or "code".
        tfprof_options: dict, one of the constants of this module.
    """
    options = TRAINABLE_VARS_PARAMS_STAT_OPTIONS if tfprof_options is None else tfprof_options
    return tf.profiler.profile(graph, run_meta, op_log, tfprof_cmd, options)


def advise(graph: Any, run_meta: Any = None, tfprof_options: Any = None) -> Any:
    """What `tf.profiler.advise` says of a graph."""
    return tf.profiler.advise(graph, run_meta, **({} if tfprof_options is None else {"options": tfprof_options}))
