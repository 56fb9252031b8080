"""The vendor's fused optimizer steps, each by its formula.

The `..._assign` ops write their results into those inputs that are variables, and return them.
Sources: Ascend adapter of 2023-12 (r1.15), npu_ops and npu_vector_ops; CANN operator documentation (AdamApplyOneAssign,
LambApplyOptimizerAssign, LambApplyWeightAssign, LarsV2Update).
"""

from __future__ import annotations

from typing import Any, Sequence

import tensorflow.compat.v1 as tf


def LARS(
    inputs_w: Sequence[tf.Tensor],
    inputs_g: Sequence[tf.Tensor],
    weight_decay: Any,
    hyperpara: float = 0.001,
    epsilon: float = 0.00001,
    name: str | None = None,
) -> list[tf.Tensor]:
    """Returns the gradients scaled layer by layer, a list.

    For each weight w with gradient g: hyperpara |w| / (|g| + weight_decay |w| + epsilon) (g + weight_decay w).

    Args:
        inputs_w: list of float Tensors or variables.
        inputs_g: list of float Tensors of the same shapes.
        weight_decay: float or scalar Tensor.
        hyperpara: float.
        epsilon: float.
        name: str or None.
    """
    with tf.name_scope(name, "LARS"):
        return [_lars(w, g, weight_decay, hyperpara, epsilon) for w, g in zip(inputs_w, inputs_g)]


def LARSV2(
    input_weight: tf.Tensor,
    input_grad: tf.Tensor,
    weight_decay: Any,
    learning_rate: Any,
    hyperpara: float = 0.001,
    epsilon: float = 0.00001,
    use_clip: bool = False,
    name: str | None = None,
) -> tf.Tensor:
    """Returns one gradient scaled as by LARS; `use_clip` divides the factor by learning_rate and keeps it in [0, 1]."""
    with tf.name_scope(name, "LARSV2"):
        rate = learning_rate if use_clip else None
        return _lars(input_weight, input_grad, weight_decay, hyperpara, epsilon, rate)


def _lars(w, g, weight_decay, hyperpara, epsilon, rate=None):
    w, g = tf.convert_to_tensor(w), tf.convert_to_tensor(g)
    length = tf.norm(w)
    factor = hyperpara * length / (tf.norm(g) + weight_decay * length + epsilon)
    if rate is not None:
        factor = tf.clip_by_value(factor / rate, 0.0, 1.0)
    return factor * (g + weight_decay * w)


def adam_apply_one_assign(
    input0: Any,
    input1: Any,
    input2: Any,
    input3: Any,
    input4: Any,
    mul0_x: Any,
    mul1_x: Any,
    mul2_x: Any,
    mul3_x: Any,
    add2_y: Any,
    name: str | None = None,
) -> tuple[tf.Tensor, ...]:
    """Returns (v, m, w) after one step of Adam.

    v = input1 mul2_x + input0^2 mul3_x; m = input2 mul0_x + input0 mul1_x; w = input3 - input4 m / (sqrt(v) + add2_y)

    Args:
        input0: gradient.
        input1: second moment.
        input2: first moment.
        input3: weight.
        input4: learning rate.
        mul0_x: beta1.
        mul1_x: 1 - beta1.
        mul2_x: beta2.
        mul3_x: 1 - beta2.
        add2_y: epsilon.
        name: str or None.
    """
    with tf.name_scope(name, "adam_apply_one_assign"):
        m, v = _moments(input0, input2, input1, mul0_x, mul1_x, mul2_x, mul3_x)
        w = input3 - input4 * (m / (tf.sqrt(v) + add2_y))
        return _assigned((input1, v), (input2, m), (input3, w))


def adam_apply_one_with_decay_assign(
    input0: Any,
    input1: Any,
    input2: Any,
    input3: Any,
    input4: Any,
    mul0_x: Any,
    mul1_x: Any,
    mul2_x: Any,
    mul3_x: Any,
    mul4_x: Any,
    add2_y: Any,
    name: str | None = None,
) -> tuple[tf.Tensor, ...]:
    """Returns (v, m, w) after one step of Adam with decay.

    w = input3 - input4 (m / (sqrt(v) + add2_y) + mul4_x input3)

    Arguments are those of `adam_apply_one_assign`, and mul4_x, the weight decay.
    """
    with tf.name_scope(name, "adam_apply_one_with_decay_assign"):
        m, v = _moments(input0, input2, input1, mul0_x, mul1_x, mul2_x, mul3_x)
        w = input3 - input4 * (m / (tf.sqrt(v) + add2_y) + mul4_x * input3)
        return _assigned((input1, v), (input2, m), (input3, w))


def lamb_apply_optimizer_assign(
    input0: Any,
    input1: Any,
    input2: Any,
    input3: Any,
    mul0_x: Any,
    mul1_x: Any,
    mul2_x: Any,
    mul3_x: Any,
    add2_y: Any,
    steps: Any,
    do_use_weight: Any,
    weight_decay_rate: Any,
    name: str | None = None,
) -> tuple[tf.Tensor, ...]:
    """Returns (update, v, m): the first half of a step of LAMB.

    v = input1 mul2_x + input0^2 mul3_x; m = input2 mul0_x + input0 mul1_x;
    update = (m / (1 - mul0_x^steps)) / (sqrt(v / (1 - mul2_x^steps)) + add2_y)
             + input3 weight_decay_rate do_use_weight

    Args:
        input0: gradient.
        input1: second moment.
        input2: first moment.
        input3: weight.
        mul0_x: beta1.
        mul1_x: 1 - beta1.
        mul2_x: beta2.
        mul3_x: 1 - beta2.
        add2_y: epsilon.
        steps: number of this step, 1 for the first, a float.
        do_use_weight: 1.0 or 0.0, whether the weight decays.
        weight_decay_rate: float.
        name: str or None.
    """
    with tf.name_scope(name, "lamb_apply_optimizer_assign"):
        m, v = _moments(input0, input2, input1, mul0_x, mul1_x, mul2_x, mul3_x)
        beta1, beta2, steps = (_as(value, m.dtype) for value in (mul0_x, mul2_x, steps))
        unbiased_m, unbiased_v = m / (1.0 - tf.pow(beta1, steps)), v / (1.0 - tf.pow(beta2, steps))
        update = unbiased_m / (tf.sqrt(unbiased_v) + add2_y) + input3 * weight_decay_rate * do_use_weight
        v, m = _assigned((input1, v), (input2, m))
        return update, v, m


def lamb_apply_weight_assign(
    input0: Any, input1: Any, input2: Any, input3: Any, input4: Any, name: str | None = None
) -> tf.Tensor:
    """Returns the weight after the second half of a step of LAMB: input4 - input2 ratio input3.

    ratio is input0 / input1, or 1 where one of the two is not above 0.

    Args:
        input0: length of the weight.
        input1: length of the update.
        input2: learning rate.
        input3: update.
        input4: weight.
        name: str or None.
    """
    with tf.name_scope(name, "lamb_apply_weight_assign"):
        weight_length, length = tf.convert_to_tensor(input0), tf.convert_to_tensor(input1)
        both = tf.logical_and(weight_length > 0, length > 0)
        one = tf.ones_like(weight_length)
        ratio = tf.where(both, weight_length / tf.where(both, length, tf.ones_like(length)), one)
        return _assigned((input4, input4 - input2 * ratio * input3))[0]


def _moments(gradient, first, second, beta1, rest1, beta2, rest2):
    gradient = tf.convert_to_tensor(gradient)
    return first * beta1 + gradient * rest1, second * beta2 + tf.square(gradient) * rest2


def _as(value, dtype):
    # a Python float becomes float32 in tf.cast, before it is cast
    return tf.cast(value, dtype) if tf.is_tensor(value) else tf.convert_to_tensor(value, dtype)


def _assigned(*pairs):
    # what is no variable has no `assign`, and TensorFlow's variable classes have no base in common over its versions
    return tuple(tf.assign(old, new) if hasattr(old, "assign") else new for old, new in pairs)
