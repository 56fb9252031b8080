"""in_top_k as TensorFlow counts: XLA's kernel takes 0 for the prediction of what is no class, and compares NaN."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from npu_shim.xla.passes.legalize.site import Site


def in_top_k(site: Site) -> tf.Tensor:
    """Whether fewer than k classes are more probable than the target.

    False where the target is no class, or a prediction is not finite.

    Args:
        site: of an InTopK (predictions [n, classes], targets [n], attribute k) or InTopKV2 (k is the third input).

    Returns:
        bool tensor [n].
    """
    predictions, targets = site.inputs[:2]
    k = site.inputs[2] if len(site.inputs) > 2 else site.attr("k")
    classes = tf.shape(predictions, out_type=targets.dtype)[1]
    own = tf.gather(predictions, tf.clip_by_value(targets, 0, classes - 1), axis=1, batch_dims=1)
    more_probable = tf.reduce_sum(tf.cast(predictions > own[:, None], targets.dtype), 1)
    known = (targets >= 0) & (targets < classes) & tf.reduce_all(tf.is_finite(predictions), 1)
    return known & (more_probable < k)
