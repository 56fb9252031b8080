"""npu_bridge's NPUOptimizer: distribution and loss scaling in one wrapper."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.loss_scale.optimizers.inner import SlotsOfInner
from npu_shim.loss_scale.optimizers.optimizer import NPULossScaleOptimizer
from npu_shim.rewriter.errors import ConfigError


class NPUOptimizer(SlotsOfInner, tf.train.Optimizer):
    """Averages gradients over the workers and scales the loss, each only when asked.

    Args:
        opt: optimizer.
        loss_scale_manager: LossScaleManager, needed when is_loss_scale is True.
        is_distributed: bool, average gradients over the hccl group.
        is_loss_scale: bool.
        is_tailing_optimization: bool; accepted, has no effect here (it reorders Ascend's last allreduce).
        name: str; None gives "NPUOptimizer" and the wrapped optimizer's type.

    Raises:
        ConfigError: is_loss_scale without a manager.
    """

    def __init__(
        self,
        opt: Any,
        loss_scale_manager: Any = None,
        is_distributed: bool = False,
        is_loss_scale: bool = False,
        is_tailing_optimization: bool = False,
        name: str | None = None,
    ) -> None:
        if is_loss_scale and loss_scale_manager is None:
            raise ConfigError("is_loss_scale=True needs a loss_scale_manager, got None")
        super().__init__(use_locking=False, name=name or "NPUOptimizer" + type(opt).__name__)
        self._is_tailing_optimization = is_tailing_optimization
        if is_distributed:
            from npu_shim.distributed.collectives.hccl import NPUDistributedOptimizer

            opt = NPUDistributedOptimizer(opt)
        self._opt = NPULossScaleOptimizer(opt, loss_scale_manager, is_distributed) if is_loss_scale else opt

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """Returns the op that applies them, see LossScaleOptimizer."""
        return self._opt.apply_gradients(grads_and_vars, global_step, name or self.get_name())
