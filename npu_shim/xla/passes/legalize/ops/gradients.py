"""Gradients that TensorFlow's kernels cut off where nothing comes in, or at zero; XLA's kernels do not.

    tf.where(x > 0, tf.sqrt(x), 0)      at x = 0, the gradient of sqrt gets 0: TensorFlow gives 0, XLA 0 * 0.5 / 0 = NaN

So does tf.norm of a row of zeros whose norm is masked. Source: Eigen functors in TensorFlow 2.15.1,
core/kernels/cwise_ops_gradients.h and relu_op_functor.h.
"""

from __future__ import annotations

from typing import Any, Callable

import tensorflow.compat.v1 as tf

from npu_shim.xla.passes.legalize.site import Site

SCALE, SCALE_ALPHA = 1.0507009873554804934193349852946, 1.7580993408473768599402175208123  # of SELU


def nothing_from_nothing(name: str) -> Callable[[Site], Any]:
    """Makes the table row of op `name` (y, dy): its gradient where dy is not 0, else 0."""

    def lowered(site: Site) -> Any:
        y, dy = site.inputs
        return tf.where_v2(tf.equal(dy, tf.zeros_like(dy)), tf.zeros_like(dy), getattr(tf.raw_ops, name)(y=y, dy=dy))

    return lowered


def selu(site: Site) -> Any:
    """The gradient of SELU of (gradients, outputs); at 0 it is that of the positive side."""
    gradients, outputs = site.inputs
    scale, scale_alpha = (tf.constant(number, gradients.dtype) for number in (SCALE, SCALE_ALPHA))
    return gradients * tf.where_v2(outputs < 0, outputs + scale_alpha, tf.fill(tf.shape(outputs), scale))
