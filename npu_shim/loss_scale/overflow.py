"""Whether all gradients of a step are finite, and whether all workers say so."""

import tensorflow.compat.v1 as tf

from npu_shim.loss_scale.graph_ops import keep_dtype


def all_finite(gradients):
    """Returns a bool scalar tensor: every value of every gradient is finite.

    Args:
        gradients: list of float Tensor or IndexedSlices; of the latter the values are looked at.
    """
    with keep_dtype(), tf.name_scope("all_finite"):
        values = [g.values if isinstance(g, tf.IndexedSlices) else g for g in gradients]
        flags = [tf.reduce_all(tf.is_finite(v)) for v in values]
        return flags[0] if len(flags) == 1 else tf.reduce_all(tf.stack(flags))


def agreed(finite):
    """Returns whether the step is finite on every worker of the hccl group."""
    from npu_shim.distributed import allreduce

    return tf.equal(allreduce(tf.cast(tf.logical_not(finite), tf.float32), "sum"), 0.0)
