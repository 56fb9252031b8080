"""The four names of tf.contrib.mixed_precision, with contrib's schedule bit by bit (TensorFlow 1.15.5)."""

from npu_shim.loss_scale.managers import managers
from npu_shim.loss_scale.managers.managers import FixedLossScaleManager, LossScaleManager
from npu_shim.loss_scale.optimizers.optimizer import LossScaleOptimizer

__all__ = ["ExponentialUpdateLossScaleManager", "FixedLossScaleManager", "LossScaleManager", "LossScaleOptimizer"]


class ExponentialUpdateLossScaleManager(managers.ExponentialUpdateLossScaleManager):
    """As npu_bridge's, but grows whenever the product is finite."""

    POLICY = "contrib"
