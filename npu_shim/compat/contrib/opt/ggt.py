"""tf.contrib.opt.GGTOptimizer: full-matrix preconditioning by a window of moments (Agarwal et al. 2018)."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.opt.external import flat

STATE = ("global_step", "flat_grad", "moment1", "grad_buffer")


class GGTOptimizer(tf.train.Optimizer):
    """Takes all variables as one vector, and steps by (M M^T)^(-1/2) m for the last `window` moments M.

    Args:
        learning_rate: float, tensor, or a function that returns one, like the others.
        beta1: float, decay of the moment m.
        use_locking: whether updates of variables lock them.
        name: of the optimizer.
        window: int, moments that are kept.
        eps: float; below it, what is orthogonal to the window is left out.
        svd_eps: float, added to the diagonal of M^T M.
        sigma_eps: float, added to the singular values before they are inverted.
    """

    def __init__(
        self, learning_rate: Any = 0.001, beta1: Any = 0.9, use_locking: bool = False, name: str = "GGT",
        window: int = 10, eps: Any = 1e-4, svd_eps: Any = 1e-6, sigma_eps: Any = 1e-2,
    ) -> None:  # fmt: skip
        super().__init__(use_locking, name)
        self._window = window() if callable(window) else window
        self._hyper = {"rate": learning_rate, "beta1": beta1, "eps": eps, "svd_eps": svd_eps, "sigma_eps": sigma_eps}
        self._rows: list[tuple[Any, Any]] = []

    def _create_slots(self, var_list):
        first = min(var_list, key=lambda v: v.name)
        dtype, size = first.dtype.base_dtype, sum(v.shape.num_elements() for v in var_list)
        for name, shape in zip(STATE, ([], [size], [size], [self._window, size])):
            self._create_non_slot_variable(tf.zeros(shape, dtype), name, first)

    def _prepare(self):
        self._rows = []

    def _apply_dense(self, grad, var):
        self._rows.append((grad, var))
        return grad.op

    _resource_apply_dense = _apply_dense

    def _apply_sparse(self, grad, var):
        raise NotImplementedError("Sparse gradient updates are not supported.")

    _resource_apply_sparse = _apply_sparse

    def _finish(self, update_ops, name_scope):
        rows = sorted(self._rows, key=lambda row: row[1].name)
        grads, variables = zip(*rows)
        dtype = variables[0].dtype.base_dtype
        hyper = {key: tf.cast(value() if callable(value) else value, dtype) for key, value in self._hyper.items()}
        state = [self._get_non_slot_variable(name, tf.get_default_graph()) for name in STATE]
        step, _, moment, window = state
        gradient = flat(grads)
        # the variables before this step's writes are what is read here
        number, beta1 = tf.convert_to_tensor(step) + 1, hyper["beta1"]
        m = beta1 * tf.convert_to_tensor(moment) + (1 - beta1) * gradient
        place = tf.equal(tf.range(self._window), tf.cast(number - 1, tf.int32) % self._window)
        kept = tf.where(place, tf.tile(m[None], [self._window, 1]), tf.convert_to_tensor(window))
        change = hyper["rate"] * preconditioned(m, kept / tf.sqrt(tf.minimum(number, self._window)), hyper)
        parts = tf.split(change, [v.shape.num_elements() for v in variables])
        with tf.control_dependencies([*update_ops, change]):
            pairs = zip(state, (number, gradient, m, kept))
            writes = [tf.assign(*pair, use_locking=self._use_locking).op for pair in pairs]
            for part, var in zip(parts, variables):
                writes.append(tf.assign_sub(var, tf.reshape(part, var.shape), use_locking=self._use_locking).op)
        return tf.group(*writes, name=name_scope)


def preconditioned(m: tf.Tensor, rows: tf.Tensor, hyper: dict[str, Any]) -> tf.Tensor:
    """The step for a moment m [n], by the singular values of the window [w, n] (section 2 of the paper)."""
    likeness = tf.matmul(rows, rows, transpose_b=True)
    squares, u, _ = tf.linalg.svd(likeness + hyper["svd_eps"] * tf.eye(rows.shape.as_list()[0], dtype=m.dtype))
    sigma = tf.sqrt(squares)
    inside = tf.matmul(u, tf.linalg.matvec(rows, m)[:, None], transpose_a=True)[:, 0]

    def back(values: tf.Tensor) -> tf.Tensor:
        return tf.linalg.matvec(rows, tf.linalg.matvec(u, values), transpose_a=True)

    step, smallest = back(inside / tf.pow(sigma + hyper["sigma_eps"], 3)), tf.reduce_min(sigma)
    outside = (m - back(inside / squares)) / smallest
    return tf.where(smallest > hyper["eps"], step + outside, step)
