"""tf.keras.mixed_precision.experimental.LossScaleOptimizer as in TensorFlow 1.15: (optimizer, loss scale).

    LossScaleOptimizer(optimizer, "dynamic"), (optimizer, 128.0), (optimizer, tf.train.experimental.DynamicLossScale())

Keras 2.15's class of that name keeps a scale of its own. This one asks the script's object, as the script may.
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.names import names
from npu_shim.rewriter.errors import ConfigError

_keras: Any = names.load("src.mixed_precision.loss_scale_optimizer")
_backend: Any = names.load("src.backend")
_BaseState: Any = _keras._DynamicLossScaleState
_BaseOptimizer: Any = _keras.LossScaleOptimizer
_scales = tf.mixed_precision.experimental if hasattr(tf.mixed_precision, "experimental") else tf.mixed_precision


class _Scale(_BaseState):  # type: ignore[misc]
    """A tf.train.experimental.LossScale where Keras looks for the scale of a step and what changes it."""

    def __init__(self, scale: Any) -> None:
        self.scale = scale

    @property
    def current_loss_scale(self) -> tf.Tensor:
        """The scale of this step, a float32 scalar."""
        return self.scale()

    def update(self, grads: Any) -> Any:
        """Returns (the op that changes the scale, whether the step is applied); as LossScale.update."""
        return self.scale.update(grads)


class LossScaleOptimizer(_BaseOptimizer):  # type: ignore[misc]
    """A Keras optimizer that scales the loss.

    Args:
        opt: Keras optimizer.
        loss_scale: "dynamic", a number, or a tf.train.experimental.LossScale.

    Raises:
        ConfigError: loss_scale is none of these.
    """

    def __init__(self, opt: Any, loss_scale: Any) -> None:
        super().__init__(opt, dynamic=False, initial_scale=1.0)
        scale = _scale_of(loss_scale)
        for weight in getattr(scale, "_weights", {}).values():
            _backend.track_variable(weight)
        self._loss_scale = _Scale(scale)
        self._track_trackable(scale, "loss_scale")

    @property
    def loss_scale(self) -> Any:
        """The LossScale; called, it gives the scale."""
        return self._loss_scale.scale

    def get_scaled_loss(self, loss: Any) -> Any:
        """Returns the loss (a tensor or a function) times the scale."""
        self._loss_has_been_scaled = True
        scaled = lambda value: value * tf.cast(self.loss_scale(), value.dtype)  # noqa: E731
        return (lambda: scaled(loss())) if callable(loss) else scaled(loss)

    def get_unscaled_gradients(self, grads: Any) -> list[Any]:
        """Returns gradients (a list of Tensor, IndexedSlices or None) divided by the scale."""
        self._gradients_have_been_unscaled = True
        factor = 1.0 / self.loss_scale()
        return [None if gradient is None else _keras._multiply_gradient(gradient, factor) for gradient in grads]

    def get_config(self) -> Any:
        """Is not there, as in 1.15."""
        raise NotImplementedError("get_config() is not yet implemented for LossScaleOptimizers")


def _scale_of(given: Any) -> Any:
    if given == "dynamic":
        return _scales.DynamicLossScale()
    if isinstance(given, (int, float)):
        return _scales.FixedLossScale(given)
    if not isinstance(given, _scales.LossScale):
        text = "LossScaleOptimizer: loss_scale is %r, expected 'dynamic', a number or a tf.train.experimental.LossScale"
        raise ConfigError(text % (given,))
    return given
