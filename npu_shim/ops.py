"""The vendor's ops that have a formula, in TensorFlow's own ops, so that gradients come from TensorFlow.

Sources: Ascend adapter of 2023-12 (r1.15), npu_ops, npu_unary_ops, npu_aicore_ops; CANN operator documentation.
"""

import math
import numbers

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.errors import ConfigError


def dropout(x, keep_prob, noise_shape=None, seed=None, name=None):
    """Returns x with elements set to zero at random and the kept ones divided by `keep_prob`.

    Args:
        x: float Tensor.
        keep_prob: float or scalar Tensor, 0 < keep_prob <= 1: the share that is kept (not the rate that is dropped).
        noise_shape: shape of the decisions, broadcast to x; None decides for each element.
        seed: int or None.
        name: str or None.

    Raises:
        ConfigError: x is not float, or keep_prob is out of range.
    """
    x = tf.convert_to_tensor(x, name="x")
    if not x.dtype.is_floating:
        raise ConfigError("dropout: x has to be a float tensor, as it is scaled, got %s" % x.dtype.name)
    if isinstance(keep_prob, numbers.Real):
        if not 0 < keep_prob <= 1:
            raise ConfigError("dropout: keep_prob must be above 0 and at most 1, got %g" % keep_prob)
        if keep_prob == 1:
            return x
    return tf.nn.dropout(x, rate=1 - keep_prob, noise_shape=noise_shape, seed=seed, name=name)


def gelu(x, name=None):
    """Returns 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), elementwise for a float tensor."""
    with tf.name_scope(name, "gelu", [x]):
        x = tf.convert_to_tensor(x)
        return 0.5 * x * (1.0 + tf.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))
