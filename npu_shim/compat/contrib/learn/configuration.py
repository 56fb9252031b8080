"""The part of tf.contrib.learn that works: its configuration; its estimators are tf.estimator's."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


class ModeKeys(tf.estimator.ModeKeys):
    """The modes of a model function; prediction has two names."""

    INFER = tf.estimator.ModeKeys.PREDICT


def replace_monitors_with_hooks(monitors_or_hooks: Any, estimator: Any) -> list[Any]:
    """Returns the list of hooks unchanged: the monitors that it could contain are gone.

    Raises:
        TypeError: an item is not a tf.train.SessionRunHook.
    """
    for hook in monitors_or_hooks or ():
        if not isinstance(hook, tf.train.SessionRunHook):
            raise TypeError("npu_shim: replace_monitors_with_hooks: %r is not a tf.train.SessionRunHook" % (hook,))
    return list(monitors_or_hooks or ())


class TaskType:
    """Names of a cluster's jobs."""

    MASTER = "master"
    PS = "ps"
    WORKER = "worker"


def RunConfig(
    master: Any = None,
    num_cores: int = 0,
    log_device_placement: bool = False,
    gpu_memory_fraction: int = 1,
    evaluation_master: str = "",
    **kwargs: Any,
) -> Any:
    """A tf.estimator.RunConfig that takes contrib's arguments.

    Args:
        master: unused; TF_CONFIG has it.
        num_cores: int, threads within and between ops; 0 for all.
        log_device_placement: bool.
        gpu_memory_fraction: float.
        evaluation_master: unused.
        **kwargs: of tf.estimator.RunConfig.
    """
    if "session_config" not in kwargs or kwargs["session_config"] is None:
        kwargs["session_config"] = tf.ConfigProto(
            log_device_placement=log_device_placement,
            inter_op_parallelism_threads=num_cores,
            intra_op_parallelism_threads=num_cores,
            gpu_options=tf.GPUOptions(per_process_gpu_memory_fraction=gpu_memory_fraction),
        )
    return tf.estimator.RunConfig(**kwargs)
