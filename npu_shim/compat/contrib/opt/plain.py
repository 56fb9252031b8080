"""Optimizers of tf.contrib.opt; an update is written once for all kinds of variables (equations of 1.15.5)."""

from __future__ import annotations

import math
from typing import Any

import tensorflow.compat.v1 as tf


class PlainOptimizer:
    """Mix-in: `_dense(grad, var)` and `_sparse(values, var, indices)` are all that an optimizer must define.

    Indices are unique; variables may be reference or resource variables.
    """

    def _apply_dense(self, grad, var):
        return self._dense(grad, var)

    def _resource_apply_dense(self, grad, var):
        return self._dense(grad, var)

    def _apply_sparse(self, grad, var):
        return self._sparse(grad.values, var, grad.indices)

    def _resource_apply_sparse(self, grad, var, indices):
        return self._sparse(grad, var, indices)

    def _as(self, var, *values):
        return [tf.cast(value, var.dtype.base_dtype) for value in values]


class AdaMaxOptimizer(PlainOptimizer, tf.train.AdamOptimizer):
    """AdaMax (Kingma and Ba 2015): v = max(beta2 v, |g|), var -= lr / (1 - beta1^t) m / (v + epsilon)."""

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "AdaMax",
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, use_locking, name)

    def _get_beta_accumulators(self):
        graph = None if tf.executing_eagerly() else tf.get_default_graph()
        return self._get_non_slot_variable("beta1_power", graph=graph)

    def _create_slots(self, var_list):
        first = min(var_list, key=lambda v: v.name)
        self._create_non_slot_variable(initial_value=self._beta1, name="beta1_power", colocate_with=first)
        for var in var_list:
            self._zeros_slot(var, "m", self._name)
            self._zeros_slot(var, "v", self._name)

    def _step(self, var, m, v):
        power, lr, epsilon = self._as(var, self._get_beta_accumulators(), self._lr_t, self._epsilon_t)
        return lr / (1 - power) * m / (v + epsilon)

    def _dense(self, grad, var):
        beta1, beta2 = self._as(var, self._beta1_t, self._beta2_t)
        m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
        m = tf.assign(m, beta1 * m + (1 - beta1) * grad)
        v = tf.assign(v, tf.maximum(beta2 * v, tf.abs(grad)))
        return tf.assign_sub(var, self._step(var, m, v)).op

    def _sparse(self, grad, var, indices):
        beta1, beta2 = self._as(var, self._beta1_t, self._beta2_t)
        slots = self.get_slot(var, "m"), self.get_slot(var, "v")
        m, v = (tf.gather(slot, indices) for slot in slots)
        m, v = beta1 * m + (1 - beta1) * grad, tf.maximum(beta2 * v, tf.abs(grad))
        with tf.control_dependencies([m, v]):
            updates = [tf.scatter_update(slot, indices, rows) for slot, rows in zip(slots, (m, v))]
        return tf.group(tf.scatter_sub(var, indices, self._step(var, m, v)), *updates)

    def _finish(self, update_ops, name_scope):
        with tf.control_dependencies(update_ops):
            power = self._get_beta_accumulators()
            return tf.group(*update_ops, tf.assign(power, power * self._beta1_t), name=name_scope)


class NadamOptimizer(PlainOptimizer, tf.train.AdamOptimizer):
    """Adam with Nesterov momentum (Dozat 2016)."""

    def _rate(self, var):
        powers = self._as(var, *self._get_beta_accumulators())
        return self._as(var, self._lr_t)[0] * tf.sqrt(1 - powers[1]) / (1 - powers[0])

    def _dense(self, grad, var):
        beta1, beta2, epsilon = self._as(var, self._beta1_t, self._beta2_t, self._epsilon_t)
        m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
        m = tf.assign(m, beta1 * m + (1 - beta1) * grad)
        v = tf.assign(v, beta2 * v + (1 - beta2) * tf.square(grad))
        ahead = beta1 * m + (1 - beta1) * grad
        return tf.assign_sub(var, self._rate(var) * ahead / (tf.sqrt(v) + epsilon)).op

    def _sparse(self, grad, var, indices):
        beta1, beta2, epsilon = self._as(var, self._beta1_t, self._beta2_t, self._epsilon_t)
        m = self._decayed(self.get_slot(var, "m"), beta1, indices, (1 - beta1) * grad)
        v = self._decayed(self.get_slot(var, "v"), beta2, indices, (1 - beta2) * tf.square(grad))
        ahead = beta1 * tf.gather(m, indices) + (1 - beta1) * grad
        step = self._rate(var) * ahead / (tf.sqrt(tf.gather(v, indices)) + epsilon)
        return tf.group(tf.scatter_sub(var, indices, step), m, v)

    def _decayed(self, slot, beta, indices, rows):
        """Decays all rows of a slot and adds to some; returns the new value."""
        with tf.control_dependencies([tf.assign(slot, slot * beta).op]):
            added = tf.scatter_add(slot, indices, rows)
        with tf.control_dependencies([added]):
            return slot.read_value()


class LazyAdamOptimizer(PlainOptimizer, tf.train.AdamOptimizer):
    """Adam that updates only the moments of rows that have gradients."""

    def _apply_dense(self, grad, var):
        return tf.train.AdamOptimizer._apply_dense(self, grad, var)

    def _resource_apply_dense(self, grad, var):
        return tf.train.AdamOptimizer._resource_apply_dense(self, grad, var)

    def _sparse(self, grad, var, indices):
        powers = self._as(var, *self._get_beta_accumulators())
        lr, beta1, beta2, epsilon = self._as(var, self._lr_t, self._beta1_t, self._beta2_t, self._epsilon_t)
        slots = self.get_slot(var, "m"), self.get_slot(var, "v")
        m, v = (tf.gather(slot, indices) for slot in slots)
        m, v = beta1 * m + (1 - beta1) * grad, beta2 * v + (1 - beta2) * tf.square(grad)
        with tf.control_dependencies([m, v]):
            updates = [tf.scatter_update(slot, indices, rows) for slot, rows in zip(slots, (m, v))]
        step = lr * tf.sqrt(1 - powers[1]) / (1 - powers[0]) * m / (tf.sqrt(v) + epsilon)
        return tf.group(tf.scatter_sub(var, indices, step), *updates)


class LARSOptimizer(PlainOptimizer, tf.train.Optimizer):
    """Layer-wise adaptive rates (You et al. 2017): momentum with lr * eeta |w| / (|g| + weight_decay |w| + epsilon).

    Args:
        learning_rate: float or tensor.
        momentum: float, 0 or more.
        weight_decay: float, 0 or more.
        eeta: float, the trust coefficient.
        epsilon: float.
        name: of the optimizer.
        skip_list: optional list of str; variables whose name contains one of them get neither decay nor their own rate.
        use_nesterov: bool.

    Raises:
        ValueError: momentum or decay is negative.
    """

    def __init__(
        self,
        learning_rate: Any,
        momentum: Any = 0.9,
        weight_decay: Any = 0.0001,
        eeta: Any = 0.001,
        epsilon: Any = 0.0,
        name: str = "LARSOptimizer",
        skip_list: Any = None,
        use_nesterov: bool = False,
    ) -> None:  # fmt: skip
        for what, value in (("momentum", momentum), ("weight_decay", weight_decay)):
            if value < 0.0:
                raise ValueError("%s should be positive: %s" % (what, value))
        super().__init__(use_locking=False, name=name)
        self._learning_rate = learning_rate
        self._momentum = momentum
        self._weight_decay = weight_decay
        self._eeta = eeta
        self._epsilon = epsilon
        self._skip_list = skip_list
        self._use_nesterov = use_nesterov

    def _create_slots(self, var_list):
        for var in var_list:
            self._zeros_slot(var, "momentum", self._name)

    def _prepare(self):
        rate = self._learning_rate() if callable(self._learning_rate) else self._learning_rate
        momentum = self._momentum() if callable(self._momentum) else self._momentum
        self._learning_rate_tensor = tf.convert_to_tensor(rate, name="learning_rate")
        self._momentum_tensor = tf.convert_to_tensor(momentum, name="momentum")

    def compute_lr(self, grad: Any, var: Any) -> tuple[Any, Any]:
        """Returns (the variable's own rate, its gradient with weight decay)."""
        if self._skip_list is not None and any(word in var.name for word in self._skip_list):
            return self._learning_rate, grad
        w, g = tf.norm(var, ord=2), tf.norm(grad, ord=2)
        trust = self._eeta * w / (g + self._weight_decay * w + self._epsilon)
        trust = tf.where(tf.logical_and(w > 0, g > 0), trust, tf.ones_like(trust))
        return self._learning_rate * trust, grad + self._weight_decay * var

    def _dense(self, grad, var):
        rate, grad = self.compute_lr(grad, var)
        slot = self.get_slot(var, "momentum")
        momentum = tf.cast(self._momentum_tensor, var.dtype.base_dtype)
        step = grad * rate
        moved = tf.assign(slot, momentum * slot + step)
        return tf.assign_sub(var, step + momentum * moved if self._use_nesterov else moved).op

    def _sparse(self, grad, var, indices):
        # plain momentum, as in 1.15.5: rows have no norm of their own
        rate, momentum = self._as(var, self._learning_rate_tensor, self._momentum_tensor)
        slot = self.get_slot(var, "momentum")
        rows = momentum * tf.gather(slot, indices) + grad
        with tf.control_dependencies([rows]):
            moved = tf.scatter_update(slot, indices, rows)
        step = grad + momentum * rows if self._use_nesterov else rows
        return tf.group(tf.scatter_sub(var, indices, rate * step), moved)


class _SignOptimizer(PlainOptimizer, tf.train.Optimizer):
    """var -= lr * factor(sign(g) sign(m)) * g, with m the moving average of g (Bello et al. 2017).

    Args:
        learning_rate: float or tensor.
        beta: float, the decay of the average.
        sign_decay_fn: optional, global step -> float tensor that multiplies the signs' product.
        use_locking: bool.
        name: of the optimizer.
    """

    def __init__(self, learning_rate, beta, sign_decay_fn, use_locking, name):
        super().__init__(use_locking, name)
        self._lr = learning_rate
        self._beta = beta
        self._sign_decay_fn = sign_decay_fn

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        """Returns the op that applies gradients; `global_step` is what the decay sees."""
        if self._sign_decay_fn is not None:
            self._sign_decay_t = tf.convert_to_tensor(self._sign_decay_fn(global_step), name="sign_decay")
        return super().apply_gradients(grads_and_vars, global_step=global_step, name=name)

    def _create_slots(self, var_list):
        for var in var_list:
            self._zeros_slot(var, "m", self._name)

    def _prepare(self):
        self._lr_t = tf.convert_to_tensor(self._lr, name="learning_rate")
        self._beta_t = tf.convert_to_tensor(self._beta, name="beta")
        if self._sign_decay_fn is None:
            self._sign_decay_t = tf.convert_to_tensor(1.0, name="sign_decay")

    def _factor(self, agreement):
        raise NotImplementedError

    def _dense(self, grad, var):
        lr, beta, decay = self._as(var, self._lr_t, self._beta_t, self._sign_decay_t)
        m = self.get_slot(var, "m")
        m = tf.assign(m, beta * m + (1 - beta) * grad)
        return tf.assign_sub(var, lr * self._factor(decay * tf.sign(grad) * tf.sign(m)) * grad).op

    def _sparse(self, grad, var, indices):
        lr, beta, decay = self._as(var, self._lr_t, self._beta_t, self._sign_decay_t)
        slot = self.get_slot(var, "m")
        with tf.control_dependencies([tf.assign(slot, slot * beta).op]):
            added = tf.scatter_add(slot, indices, (1 - beta) * grad)
        with tf.control_dependencies([added]):
            m = tf.gather(slot.read_value(), indices)
        step = lr * self._factor(decay * tf.sign(grad) * tf.sign(m)) * grad
        return tf.group(tf.scatter_sub(var, indices, step), added)


class AddSignOptimizer(_SignOptimizer):
    """The factor is alpha + sign(g) sign(m)."""

    def __init__(
        self,
        learning_rate: Any = 0.1,
        alpha: Any = 1.0,
        beta: Any = 0.9,
        sign_decay_fn: Any = None,
        use_locking: bool = False,
        name: str = "AddSignOptimizer",
    ) -> None:
        super().__init__(learning_rate, beta, sign_decay_fn, use_locking, name)
        self._alpha = alpha

    def _factor(self, agreement):
        return self._alpha + agreement


class PowerSignOptimizer(_SignOptimizer):
    """The factor is base ** (sign(g) sign(m))."""

    def __init__(
        self,
        learning_rate: Any = 0.1,
        base: Any = math.e,
        beta: Any = 0.9,
        sign_decay_fn: Any = None,
        use_locking: bool = False,
        name: str = "PowerSignOptimizer",
    ) -> None:  # fmt: skip
        super().__init__(learning_rate, beta, sign_decay_fn, use_locking, name)
        self._logbase = math.log(base)

    def _factor(self, agreement):
        return tf.exp(self._logbase * agreement)
