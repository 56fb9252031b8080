"""Shampoo (Gupta, Koren and Singer 2018): one preconditioner for each dimension (behaviour of TensorFlow 1.15.5)."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.opt.matrix_functions import matrix_inverse_pth_root
from npu_shim.compat.contrib.opt.plain import PlainOptimizer


class ShampooOptimizer(PlainOptimizer, tf.train.Optimizer):
    """var -= learning_rate * gbar contracted, in each dimension j, with mat_gbar_j ** (-alpha / rank).

    gbar = gbar_decay gbar + gbar_weight g, and mat_gbar_j = mat_gbar_decay mat_gbar_j + mat_gbar_weight gg_j, where
    gg_j contracts g with itself in all dimensions but j. Its power is that of mat_gbar_j / size of j. A dimension
    larger than `max_matrix_size` has the diagonal of its matrix only.

    Args:
        global_step: variable, or int.
        max_matrix_size: int.
        gbar_decay: float; this and the next four may be functions of the global step.
        gbar_weight: float.
        mat_gbar_decay: float.
        mat_gbar_weight: float.
        learning_rate: float.
        svd_interval: the number of steps, or a function of the step for it, after which roots are computed again.
        precond_update_interval: likewise, after which the matrices are updated; such an update counts as many times.
        epsilon: float, added to the diagonal of a matrix before its root is computed.
        alpha: float, the total power.
        use_iterative_root: whether roots are computed by iteration, not by a singular value decomposition.
        use_locking: bool.
        name: of the optimizer.
    """

    def __init__(
        self,
        global_step: Any = 0,
        max_matrix_size: int = 768,
        gbar_decay: Any = 0.0,
        gbar_weight: Any = 1.0,
        mat_gbar_decay: Any = 1.0,
        mat_gbar_weight: Any = 1.0,
        learning_rate: Any = 1.0,
        svd_interval: Any = 1,
        precond_update_interval: Any = 1,
        epsilon: float = 1e-4,
        alpha: float = 0.5,
        use_iterative_root: bool = False,
        use_locking: bool = False,
        name: str = "Shampoo",
    ) -> None:
        super().__init__(use_locking, name)
        self._global_step = global_step
        self._max_matrix_size = max_matrix_size
        self._gbar_decay = gbar_decay
        self._gbar_weight = gbar_weight
        self._mat_gbar_decay = mat_gbar_decay
        self._mat_gbar_weight = mat_gbar_weight
        self._learning_rate = learning_rate
        self._svd_interval = svd_interval
        self._precond_update_interval = precond_update_interval
        self._epsilon = epsilon
        self._alpha = alpha
        self._use_iterative_root = use_iterative_root

    def _create_slots(self, var_list):
        for var in var_list:
            self._zeros_slot(var, "gbar", self._name)
            for axis, size in enumerate(var.shape.as_list()):
                matrix = size <= self._max_matrix_size
                if matrix and self._keeps_roots():
                    self._get_or_make_slot(var, tf.eye(size, dtype=var.dtype.base_dtype), "H_%d" % axis, self._name)
                start = tf.zeros([size, size] if matrix else [size], var.dtype.base_dtype)
                self._get_or_make_slot(var, start, "Gbar_%d" % axis, self._name)

    def _keeps_roots(self):
        return callable(self._svd_interval) or self._svd_interval > 1

    def _now(self, value):
        return value(self._global_step) if callable(value) else value

    def _due(self, interval):
        """Whether the step that is being taken is one of every `interval`: True, or a tensor."""
        if not callable(interval) and interval <= 1:
            return True
        step = tf.cast(self._global_step, tf.int64)
        return tf.equal(tf.floormod(step + 1, tf.cast(self._now(interval), tf.int64)), 0)

    def _dense(self, grad, var):
        return self._step(grad, var, None)

    def _sparse(self, grad, var, indices):
        small = var.shape.as_list()[0] <= self._max_matrix_size
        if small or callable(self._gbar_decay) or self._gbar_decay != 0:
            shape = tf.constant(var.shape.as_list(), indices.dtype)
            return self._step(tf.scatter_nd(tf.expand_dims(indices, 1), grad, shape), var, None)
        return self._step(grad, var, indices)

    def _step(self, grad, var, indices):
        """The op that takes a step; with `indices` in these rows only."""
        rank, updates = var.shape.ndims, []
        direction = grad
        if indices is None:
            slot = self.get_slot(var, "gbar")
            decay, weight = self._as(var, self._now(self._gbar_decay), self._now(self._gbar_weight))
            decayed = callable(self._gbar_decay) or self._gbar_decay != 0
            direction = tf.assign(slot, slot * decay + weight * grad) if decayed else weight * grad
        for axis in range(rank):
            matrix = var.shape.as_list()[axis] <= self._max_matrix_size
            precondition = self._matrix if matrix else self._diagonal
            direction, own_updates = precondition(direction, grad, var, axis, indices)
            updates += own_updates
        (rate,) = self._as(var, self._now(self._learning_rate))
        if indices is None:
            moved = tf.assign_sub(var, rate * direction).op
        else:
            moved = tf.scatter_sub(var, indices, rate * direction)
        return tf.group(moved, *updates)

    def _accumulated(self, slot, due, added):
        """The slot with `added()` where that is due."""
        decay, weight = (tf.cast(self._now(v), slot.dtype) for v in (self._mat_gbar_decay, self._mat_gbar_weight))

        def update():
            return tf.identity(tf.assign(slot, slot * decay + weight * added()))

        return update() if due is True else tf.cond(due, update, lambda: tf.identity(slot))

    def _matrix(self, direction, grad, var, axis, _):
        """(The direction contracted with the power of a dimension's matrix, what else is to run)."""
        rank, size = var.shape.ndims, var.shape.as_list()[axis]
        others = [other for other in range(rank) if other != axis]
        slot = self.get_slot(var, "Gbar_%d" % axis)
        times = tf.cast(self._now(self._precond_update_interval), grad.dtype)
        total = self._accumulated(
            slot, self._due(self._precond_update_interval),
            lambda: tf.tensordot(grad, grad, [others, others]) * times,
        )  # fmt: skip
        power = self._power(var, axis, total / size, -self._alpha / rank)
        # the contracted dimension becomes the last one: after all of them, their order is the first again
        return tf.tensordot(direction, power, [[0], [0]]), [total.op, power.op]

    def _power(self, var, axis, total, exponent):
        def compute():
            if not self._use_iterative_root:
                return _power_by_svd(total, exponent, self._epsilon)
            return matrix_inverse_pth_root(total, var.shape.as_list()[axis], exponent, ridge_epsilon=self._epsilon)

        if not self._keeps_roots():
            return compute()
        slot = self.get_slot(var, "H_%d" % axis)
        with tf.control_dependencies([total]):
            return tf.cond(
                self._due(self._svd_interval), lambda: tf.identity(tf.assign(slot, compute())),
                lambda: tf.identity(slot),
            )  # fmt: skip

    def _diagonal(self, direction, grad, var, axis, indices):
        rank = var.shape.ndims
        slot = self.get_slot(var, "Gbar_%d" % axis)
        squares = tf.reduce_sum(tf.square(grad), [other for other in range(rank) if other != axis])
        if indices is not None and axis == 0:
            decay, weight = self._as(var, self._now(self._mat_gbar_decay), self._now(self._mat_gbar_weight))
            with tf.control_dependencies([tf.assign(slot, slot * decay).op]):
                added = tf.scatter_add(slot, indices, weight * squares)
            with tf.control_dependencies([added]):
                total = tf.gather(slot, indices)
        else:
            size = var.shape.as_list()[axis] if rank > 1 and indices is None else 1  # rows are summed as they are
            total = self._accumulated(slot, True, lambda: squares / size)
        power = tf.where(total > 0, tf.pow(total, -self._alpha / rank), tf.zeros_like(total))
        scaled = direction * tf.reshape(power, [-1] + [1] * (rank - 1))
        return tf.transpose(scaled, [*range(1, rank), 0]), [total.op]


def _power_by_svd(matrix, exponent, epsilon):
    """(matrix + epsilon I) ** exponent of a symmetric matrix without negative eigenvalues."""
    size = matrix.shape.as_list()[0]
    s, u, v = tf.linalg.svd(matrix + epsilon * tf.eye(size, dtype=matrix.dtype), full_matrices=True)
    return tf.matmul(u * tf.pow(s, exponent), v, transpose_b=True)
