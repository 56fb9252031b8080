"""tf.contrib.opt.python.training.sign_decay: what AddSign and PowerSign take as `sign_decay_fn` (TensorFlow 1.15.5).

Each function returns a function of the global step, which gives a float32 scalar.
"""

from __future__ import annotations

import math
from typing import Any, Callable

import tensorflow.compat.v1 as tf


def get_linear_decay_fn(decay_steps: Any) -> Callable[[Any], tf.Tensor]:
    """max(0, 1 - step / decay_steps).

    Raises:
        ValueError: the function is called without a global step.
    """

    def linear_decay(global_step: Any) -> tf.Tensor:
        done, steps = _within(global_step, decay_steps, "linear_decay")
        return (steps - done) / steps

    return linear_decay


def get_cosine_decay_fn(decay_steps: Any, num_periods: Any = 0.5, zero_after: Any = None) -> Callable[[Any], tf.Tensor]:
    """(1 + cos(2 pi num_periods step / decay_steps)) / 2; 0 from `zero_after` periods on.

    Raises:
        ValueError: the function is called without a global step.
    """

    def cosine_decay(global_step: Any) -> tf.Tensor:
        done, steps = _within(global_step, decay_steps, "cosine_decay")
        half_periods = 2.0 * num_periods * done / steps
        return _cosine(half_periods, None if zero_after is None else half_periods >= 2 * zero_after)

    return cosine_decay


def get_restart_decay_fn(decay_steps: Any, num_periods: Any = 1, zero_after: Any = None) -> Callable[[Any], tf.Tensor]:
    """(1 + cos(pi x)) / 2 where x runs from 0 to 1 in each of `num_periods`; 0 from `zero_after` periods on.

    Raises:
        ValueError: the function is called without a global step.
    """

    def restart_decay(global_step: Any) -> tf.Tensor:
        done, steps = _within(global_step, decay_steps, "restart_decay")
        moved = num_periods * done
        return _cosine(tf.floormod(moved, steps) / steps, None if zero_after is None else moved / steps >= zero_after)

    return restart_decay


def _within(global_step, decay_steps, name):
    """(The steps done, at most `decay_steps`, `decay_steps`) as float32."""
    if global_step is None:
        raise ValueError("global_step is required for %s." % name)
    steps = tf.cast(decay_steps, tf.float32)
    return tf.minimum(tf.cast(tf.convert_to_tensor(global_step), tf.float32), steps), steps


def _cosine(fraction, over):
    decayed = 0.5 * (1.0 + tf.cos(math.pi * fraction))
    return decayed if over is None else tf.where(over, tf.zeros_like(decayed), decayed)
