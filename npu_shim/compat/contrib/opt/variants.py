"""Variants of Adam and Adagrad of tf.contrib.opt (behaviour of TensorFlow 1.15.5)."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.opt.plain import LazyAdamOptimizer, PlainOptimizer


class _OfGlobalStep:
    """Mix-in of Adams whose powers of the betas are those of the global step: no variables of their own.

    Args:
        global_step: variable, or int; the number of steps that were taken.
        learning_rate: float or tensor.
        beta1: float, decay of the first moment.
        beta2: float, decay of the second moment.
        epsilon: float.
        use_locking: bool.
        name: of the optimizer.
    """

    def __init__(
        self,
        global_step: Any = 0,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
    ) -> None:  # fmt: skip
        super().__init__(learning_rate, beta1, beta2, epsilon, use_locking, name)
        self._global_step = global_step
        self._powers = None

    def _get_beta_accumulators(self):
        return self._of_step() if self._powers is None else self._powers

    def _of_step(self):
        """The powers for the step that follows the global step."""
        done = tf.cast(self._global_step, tf.float32)
        betas = (beta() if callable(beta) else beta for beta in (self._beta1, self._beta2))
        return tuple(tf.pow(tf.cast(beta, tf.float32), done + 1) for beta in betas)

    def _create_slots(self, var_list):
        for var in var_list:
            self._zeros_slot(var, "m", self._name)
            self._zeros_slot(var, "v", self._name)

    def _prepare(self):
        super()._prepare()
        self._powers = self._of_step()

    def _finish(self, update_ops, name_scope):
        return tf.group(*update_ops, name=name_scope)


class AdamGSOptimizer(_OfGlobalStep, tf.train.AdamOptimizer):
    """Adam whose powers of the betas are those of the global step."""


class LazyAdamGSOptimizer(_OfGlobalStep, LazyAdamOptimizer):
    """LazyAdam whose powers of the betas are those of the global step."""


class RegAdagradOptimizer(PlainOptimizer, tf.train.AdagradOptimizer):
    """Adagrad that may leave its accumulators as they are: var -= lr g / sqrt(accumulator).

    Args:
        learning_rate: float or tensor.
        initial_accumulator_value: float, above 0.
        use_locking: bool.
        name: of the optimizer.

    Raises:
        ValueError: the accumulators would not start above 0.
    """

    def __init__(
        self,
        learning_rate: Any,
        initial_accumulator_value: float = 0.1,
        use_locking: bool = False,
        name: str = "RegAdagrad",
    ) -> None:
        super().__init__(learning_rate, initial_accumulator_value, use_locking, name)
        self._should_update_slots = True

    @contextlib.contextmanager
    def avoid_updating_slots(self) -> Iterator[None]:
        """Scope of updates that leave the accumulators, for the gradients of regularizers."""
        before, self._should_update_slots = self._should_update_slots, False
        try:
            yield
        finally:
            self._should_update_slots = before

    def _rate(self, var):
        rate = self._learning_rate() if callable(self._learning_rate) else self._learning_rate
        return tf.cast(rate, var.dtype.base_dtype)

    def _dense(self, grad, var):
        total = self.get_slot(var, "accumulator")
        total = tf.assign_add(total, tf.square(grad)) if self._should_update_slots else total
        return tf.assign_sub(var, self._rate(var) * grad * tf.rsqrt(total)).op

    def _sparse(self, grad, var, indices):
        slot, updates = self.get_slot(var, "accumulator"), []
        total = tf.gather(slot, indices)
        if self._should_update_slots:
            total = total + tf.square(grad)
            with tf.control_dependencies([total]):
                updates = [tf.scatter_update(slot, indices, total)]
        return tf.group(tf.scatter_sub(var, indices, self._rate(var) * grad * tf.rsqrt(total)), *updates)
