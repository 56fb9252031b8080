"""tf.contrib.opt.python.training.matrix_functions: roots of positive semidefinite matrices, by iteration."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


def matrix_square_root(mat_a: Any, mat_a_size: int, iter_count: int = 100, ridge_epsilon: float = 1e-4) -> tf.Tensor:
    """The square root of a matrix, by the coupled iteration of Higham (1997), equation 2.6.

    Y becomes the root and Z its inverse: T = (3 I - Z Y) / 2, Y <- Y T, Z <- T Z.

    Args:
        mat_a: [size, size].
        mat_a_size: int.
        iter_count: int, the most iterations.
        ridge_epsilon: float, added to the diagonal.

    Returns:
        [size, size].
    """
    identity = tf.eye(mat_a_size, dtype=tf.convert_to_tensor(mat_a).dtype)
    mat_a = mat_a + ridge_epsilon * identity
    norm = tf.norm(mat_a)

    def proceed(step, _, __, change):
        return tf.logical_and(step < iter_count, change > ridge_epsilon)

    def improve(step, y, z, _):
        t = 0.5 * (3 * identity - tf.matmul(z, y))
        better = tf.matmul(y, t)
        return step + 1, better, tf.matmul(t, z), tf.norm(better - y)

    start = (tf.constant(0), mat_a / norm, identity, tf.norm(mat_a) * 0 + 1)
    return tf.while_loop(proceed, improve, start)[1] * tf.sqrt(norm)


def matrix_inverse_pth_root(
    mat_g: Any,
    mat_g_size: int,
    alpha: float,
    iter_count: int = 100,
    epsilon: float = 1e-6,
    ridge_epsilon: float = 1e-6,
) -> tf.Tensor:
    """A matrix to the power alpha = -1 / p, by the coupled Newton iteration of Guo and Higham (2006), equation 3.2.

    M becomes the identity and H the root: T = (1 + 1 / p) I - M / p, M <- T**p M, H <- H T.

    Args:
        mat_g: [size, size].
        mat_g_size: int.
        alpha: float, -1 divided by a positive integer.
        iter_count: int, the most iterations.
        epsilon: float, how near to the identity M must come.
        ridge_epsilon: float, added to the diagonal.

    Returns:
        [size, size].
    """
    identity = tf.eye(mat_g_size, dtype=tf.convert_to_tensor(mat_g).dtype)
    mat_g = mat_g + ridge_epsilon * identity
    p = round(-1.0 / alpha)
    scale = (1 + p) / (2 * tf.norm(mat_g))

    def proceed(step, m, _):
        return tf.logical_and(step < iter_count, tf.reduce_max(tf.abs(m - identity)) > epsilon)

    def improve(step, m, h):
        t = (1 + 1.0 / p) * identity - m / p
        power = t
        for _ in range(p - 1):
            power = tf.matmul(power, t)
        return step + 1, tf.matmul(power, m), tf.matmul(h, t)

    start = (tf.constant(0), mat_g * scale, identity * tf.pow(scale, 1.0 / p))
    return tf.while_loop(proceed, improve, start)[2]
