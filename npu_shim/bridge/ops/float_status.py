"""The vendor's overflow flag, for scripts that scale their loss by hand.

The NPU has a flag that an overflow sets. Here the flag is what the gradients say: `npu_get_float_status` is called
under tf.control_dependencies(gradients), as the vendor's manual has it, and is set if a float tensor that it waits for
has INF or NAN. The manual's comparison of the allocated status with the cleared one, and `status == 0` of the second
generation, both tell whether the step is finite. Source: Ascend adapter of 2021 to 2023-12 (r1.15), NPUOptimizer and
NPULossScaleOptimizer; CANN's manual on several optimizers in one session.run.
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.loss_scale.steps.overflow import all_finite
from npu_shim.rewriter.errors import ConfigError


def npu_alloc_float_status(name: str | None = None) -> tf.Tensor:
    """Returns a status that is not set: float32 [1], zero."""
    return tf.zeros([1], name=name or "npu_alloc_float_status")


def npu_get_float_status(input: Any, name: str | None = None) -> tf.Tensor:
    """Returns the status of what it waits for: float32 [1], 0 if all is finite, else 1.

    Args:
        input: the allocated status; on the NPU it is written to.
        name: str or None.

    Raises:
        ConfigError: there are no control dependencies with a float tensor.
    """
    return tf.reshape(tf.cast(_overflow("npu_get_float_status"), tf.float32), [1], name=name)


def npu_clear_float_status(input: Any, name: str | None = None) -> tf.Tensor:
    """Returns the status it is given: equal to the allocated one, as on the NPU, unless there was an overflow."""
    return tf.identity(input, name=name or "npu_clear_float_status")


def npu_get_float_status_v2(name: str | None = None) -> tf.Tensor:
    """Returns the status of what it waits for: int32 [8], zeros if all is finite, else ones.

    Raises:
        ConfigError: there are no control dependencies with a float tensor.
    """
    return tf.fill([8], tf.cast(_overflow("npu_get_float_status_v2"), tf.int32), name=name)


def npu_clear_float_status_v2(name: str | None = None) -> tf.Tensor:
    """Returns a status that is not set: int32 [8], zeros."""
    return tf.zeros([8], tf.int32, name=name or "npu_clear_float_status_v2")


def _overflow(name: Any) -> Any:
    waits_for = tf.get_default_graph()._current_control_dependencies()
    operations = sorted({getattr(tensor, "op", tensor) for tensor in waits_for}, key=lambda operation: operation.name)
    tensors = [tensor for operation in operations for tensor in operation.outputs if tensor.dtype.is_floating]
    if not tensors:
        raise ConfigError("%s: expected to be called under tf.control_dependencies(gradients)" % name)
    return tf.logical_not(all_finite(tensors))
