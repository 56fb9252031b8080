"""What runs of tf.contrib.learn: its configuration; its estimators are those of tf.estimator."""

import tensorflow.compat.v1 as tf

ModeKeys = tf.estimator.ModeKeys


class TaskType:
    """Names of a cluster's jobs."""

    MASTER = "master"
    PS = "ps"
    WORKER = "worker"


def RunConfig(
    master=None, num_cores=0, log_device_placement=False, gpu_memory_fraction=1, evaluation_master="", **kwargs
):
    """A tf.estimator.RunConfig made of contrib's arguments.

    Args:
        master: unused, TF_CONFIG says it.
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
