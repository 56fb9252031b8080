"""Optimizers' updates: new values of a variable and its slots, in the order of arithmetic of TensorFlow's kernels.

A sparse update is the dense one of the rows that its indices name.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jax import lax

from npu_shim.step.lookups import DIFFERENT
from npu_shim.step.masks import array_of, live
from npu_shim.step.rules.indexing import scattered, scattered_at
from npu_shim.step.rules.table import Attrs, Update
from npu_shim.step.values import Rows, is_known, traced

Dense = Callable[..., Any]


def _one(x: Any) -> Any:
    return np.ones((), x.dtype)


def _larger(x: Any, y: Any) -> Any:
    """The larger of two; x where y is NaN, as std::max in TensorFlow's kernels has it."""
    return jnp.where(y > x, y, x)


def gradient_descent(attrs: Attrs, var: Any, rate: Any, grad: Any) -> Any:
    """ApplyGradientDescent."""
    return var - rate * grad


def momentum(attrs: Attrs, var: Any, accum: Any, rate: Any, grad: Any, factor: Any) -> Any:
    """ApplyMomentum."""
    accum = accum * factor + grad
    step = grad * rate + accum * factor * rate if attrs["use_nesterov"] else accum * rate
    return var - step, accum


def keras_momentum(attrs: Attrs, var: Any, accum: Any, rate: Any, grad: Any, factor: Any) -> Any:
    """ApplyKerasMomentum."""
    accum = accum * factor - grad * rate
    return var + (accum * factor - grad * rate if attrs["use_nesterov"] else accum), accum


def adam(
    attrs: Attrs, var: Any, m: Any, v: Any, beta1_power: Any, beta2_power: Any, rate: Any, beta1: Any, beta2: Any,
    epsilon: Any, grad: Any,
) -> Any:  # fmt: skip
    """ApplyAdam."""
    one = _one(var)
    alpha = rate * jnp.sqrt(one - beta2_power) / (one - beta1_power)
    m = m + (grad - m) * (one - beta1)
    v = v + (grad * grad - v) * (one - beta2)
    direction = grad * (one - beta1) + beta1 * m if attrs["use_nesterov"] else m
    return var - direction * alpha / (jnp.sqrt(v) + epsilon), m, v


def adam_with_amsgrad(
    attrs: Attrs, var: Any, m: Any, v: Any, most: Any, beta1_power: Any, beta2_power: Any, rate: Any, beta1: Any,
    beta2: Any, epsilon: Any, grad: Any,
) -> Any:  # fmt: skip
    """ApplyAdamWithAmsgrad."""
    one = _one(var)
    alpha = rate * jnp.sqrt(one - beta2_power) / (one - beta1_power)
    m = m + (grad - m) * (one - beta1)
    v = v + (grad * grad - v) * (one - beta2)
    most = _larger(most, v)
    return var - m * alpha / (jnp.sqrt(most) + epsilon), m, v, most


def ada_max(
    attrs: Attrs, var: Any, m: Any, v: Any, beta1_power: Any, rate: Any, beta1: Any, beta2: Any, epsilon: Any, grad: Any
) -> Any:
    """ApplyAdaMax."""
    one = _one(var)
    m = m + (grad - m) * (one - beta1)
    v = _larger(beta2 * v, jnp.abs(grad))
    return var - rate / (one - beta1_power) * (m / (v + epsilon)), m, v


def adagrad(attrs: Attrs, var: Any, accum: Any, rate: Any, grad: Any) -> Any:
    """ApplyAdagrad."""
    accum = accum + grad * grad if attrs.get("update_slots", True) else accum
    return var - rate * grad * lax.rsqrt(accum), accum


def adagrad_v2(attrs: Attrs, var: Any, accum: Any, rate: Any, epsilon: Any, grad: Any) -> Any:
    """ApplyAdagradV2."""
    accum = accum + grad * grad if attrs.get("update_slots", True) else accum
    return var - rate * grad / (jnp.sqrt(accum) + epsilon), accum


def adagrad_da(
    attrs: Attrs, var: Any, sums: Any, squares: Any, grad: Any, rate: Any, l1: Any, l2: Any, step: Any
) -> Any:  # fmt: skip
    """ApplyAdagradDA."""
    sums, squares = sums + grad, squares + grad * grad
    step = step.astype(var.dtype)
    scaled = l2 * step * rate + jnp.sqrt(squares)
    shrunk = jnp.sign(sums) * jnp.maximum(jnp.abs(sums) - l1 * step, np.zeros((), var.dtype))
    return -rate * jnp.where(l1 > 0, shrunk, sums) / scaled, sums, squares


def rms_prop(
    attrs: Attrs, var: Any, ms: Any, mom: Any, rate: Any, rho: Any, factor: Any, epsilon: Any, grad: Any
) -> Any:  # fmt: skip
    """ApplyRMSProp."""
    ms = ms + (grad * grad - ms) * (_one(var) - rho)
    mom = mom * factor + grad * rate * lax.rsqrt(ms + epsilon)
    return var - mom, ms, mom


def centered_rms_prop(
    attrs: Attrs, var: Any, mg: Any, ms: Any, mom: Any, rate: Any, rho: Any, factor: Any, epsilon: Any, grad: Any
) -> Any:
    """ApplyCenteredRMSProp."""
    one = _one(var)
    ms = ms + (grad * grad - ms) * (one - rho)
    mg = mg + (grad - mg) * (one - rho)
    mom = mom * factor + grad * rate * lax.rsqrt(ms - mg * mg + epsilon)
    return var - mom, mg, ms, mom


def adadelta(attrs: Attrs, var: Any, accum: Any, updates: Any, rate: Any, rho: Any, epsilon: Any, grad: Any) -> Any:
    """ApplyAdadelta."""
    one = _one(var)
    accum = accum * rho + grad * grad * (one - rho)
    step = jnp.sqrt(updates + epsilon) * lax.rsqrt(accum + epsilon) * grad
    return var - step * rate, accum, updates * rho + step * step * (one - rho)


def _ftrl(
    attrs: Attrs, var: Any, accum: Any, linear: Any, grad: Any, shrunk: Any, rate: Any, l1: Any, l2: Any, power: Any
) -> Any:
    new = accum + grad * grad
    is_root = is_known(power) and power == np.array(-0.5, power.dtype)  # by default; a power is less exact
    root = jnp.sqrt if is_root else lambda x: x ** (-traced(power))
    two = np.array(2, var.dtype)
    if attrs.get("multiply_linear_by_lr"):
        linear = linear + (shrunk * rate - (root(new) - root(accum)) * var)
        l1, quadratic = l1 * rate, root(new) + two * l2 * rate
    else:
        linear = linear + (shrunk - (root(new) - root(accum)) / rate * var)
        quadratic = root(new) / rate + two * l2
    small = jnp.abs(linear) <= l1
    return jnp.where(small, np.zeros((), var.dtype), (jnp.sign(linear) * l1 - linear) / quadratic), new, linear


def ftrl(
    attrs: Attrs, var: Any, accum: Any, linear: Any, grad: Any, rate: Any, l1: Any, l2: Any, power: Any
) -> Any:  # fmt: skip
    """ApplyFtrl."""
    return _ftrl(attrs, var, accum, linear, grad, grad, rate, l1, l2, power)


def ftrl_v2(
    attrs: Attrs, var: Any, accum: Any, linear: Any, grad: Any, rate: Any, l1: Any, l2: Any, shrinkage: Any, power: Any
) -> Any:
    """ApplyFtrlV2."""
    shrunk = grad + np.array(2, var.dtype) * shrinkage * var
    return _ftrl(attrs, var, accum, linear, grad, shrunk, rate, l1, l2, power)


def proximal_gradient_descent(attrs: Attrs, var: Any, rate: Any, l1: Any, l2: Any, grad: Any) -> Any:
    """ApplyProximalGradientDescent."""
    return _proximal(var - rate * grad, rate, l1, l2)


def _proximal(moved: Any, rate: Any, l1: Any, l2: Any) -> Any:
    zero, one = np.zeros((), moved.dtype), _one(moved)
    shrunk = jnp.sign(moved) * jnp.maximum(jnp.abs(moved) - rate * l1, zero)
    return jnp.where(l1 > zero, shrunk, moved) / (one + l2 * rate)


def proximal_adagrad(attrs: Attrs, var: Any, accum: Any, rate: Any, l1: Any, l2: Any, grad: Any) -> Any:
    """ApplyProximalAdagrad."""
    accum = accum + grad * grad
    own = rate * lax.rsqrt(accum)
    return _proximal(var - own * grad, own, l1, l2), accum


def add_sign(
    attrs: Attrs, var: Any, m: Any, rate: Any, alpha: Any, decay: Any, beta: Any, grad: Any
) -> Any:  # fmt: skip
    """ApplyAddSign."""
    m = m * beta + grad * (_one(var) - beta)
    return var - rate * (alpha + decay * jnp.sign(grad) * jnp.sign(m)) * grad, m


def power_sign(
    attrs: Attrs, var: Any, m: Any, rate: Any, logbase: Any, decay: Any, beta: Any, grad: Any
) -> Any:  # fmt: skip
    """ApplyPowerSign."""
    m = m * beta + grad * (_one(var) - beta)
    return var - rate * jnp.exp(logbase * decay * jnp.sign(grad) * jnp.sign(m)) * grad, m


# -- rows --------------------------------------------------------------------------------------------------------------


def places(indices: Any, size: int) -> tuple[Any, Any]:
    """(Indices to read rows at, indices to write them to); what lies behind the last of Rows is not written."""
    return array_of(indices), live(indices, size)


def _sparse(dense: Dense, handles: int, at: int) -> Update:
    """The update of the rows that input `at` names: of all at once, unless a row comes twice."""

    def updated(attrs: Attrs, *values: Any) -> Any:
        old, others = tuple(map(jnp.asarray, values[:handles])), list(values[handles:])
        indices = others.pop(at - handles)
        others = list(map(array_of, others))
        ids, count = indices if isinstance(indices, Rows) else (jnp.asarray(indices), indices.shape[0])
        if not ids.shape[0]:
            return old

        def together(state: Any) -> Any:
            read, written = places(indices, state[0].shape[0])
            new = _several(dense(attrs, *[jnp.take(value, read, 0, mode="clip") for value in state], *others))
            return tuple(scattered("set", value, written, rows) for value, rows in zip(state, new))

        def one_by_one(state: Any) -> Any:
            return lax.fori_loop(0, count, lambda row, state: _of_row(dense, attrs, state, others, ids, row), state)

        if attrs.get(DIFFERENT):
            return together(old)
        return lax.cond(_come_twice(ids, count), one_by_one, together, old)

    return Update(updated, handles, rows=True, places=at - handles)


def _come_twice(ids: Any, count: Any) -> Any:
    """Whether one of the first `count` of the ids [n] is there twice, bool []."""
    numbers = jnp.arange(ids.shape[0], dtype=ids.dtype)
    live = numbers < jnp.asarray(count).astype(ids.dtype)
    ordered = jnp.sort(jnp.where(live, ids, -1 - numbers))  # those behind them are all different
    return jnp.any(ordered[1:] == ordered[:-1])


def _of_row(dense: Dense, attrs: Attrs, state: Any, others: Sequence[Any], ids: Any, number: Any) -> Any:
    """Updates one row of the gradient: one that comes twice is updated twice, in the gradient's order."""
    at = ids[number]
    given = [jnp.asarray(value)[number] if np.ndim(value) else value for value in others]  # all but it are scalars
    new = _several(dense(attrs, *[jnp.take(value, at, 0, mode="clip") for value in state], *given))
    return tuple(scattered("set", value, at, row) for value, row in zip(state, new))


def _several(new: Any) -> tuple[Any, ...]:
    return new if type(new) is tuple else (new,)


def _scatter(method: str) -> Update:
    def updated(attrs: Attrs, old: Any, indices: Any, updates: Any) -> Any:
        _, written = places(indices, old.shape[0])
        return scattered(method, old, written, array_of(updates))

    return Update(updated, rows=True, places=0)


def _scatter_nd(method: str) -> Update:
    def updated(attrs: Attrs, old: Any, indices: Any, updates: Any) -> Any:
        written = live(indices, old.shape[: array_of(indices).shape[-1]])
        return scattered_at(method, old, written, array_of(updates))

    return Update(updated, rows=True, places=0)


DENSE: dict[str, tuple[Dense, int]] = {  # what follows Apply or ResourceApply -> (rule, variables)
    "GradientDescent": (gradient_descent, 1), "Momentum": (momentum, 2), "KerasMomentum": (keras_momentum, 2),
    "Adam": (adam, 3), "AdamWithAmsgrad": (adam_with_amsgrad, 4), "AdaMax": (ada_max, 3), "Adagrad": (adagrad, 2),
    "AdagradV2": (adagrad_v2, 2), "AdagradDA": (adagrad_da, 3), "RMSProp": (rms_prop, 3),
    "CenteredRMSProp": (centered_rms_prop, 4), "Adadelta": (adadelta, 3), "Ftrl": (ftrl, 3), "FtrlV2": (ftrl_v2, 3),
    "ProximalGradientDescent": (proximal_gradient_descent, 1), "ProximalAdagrad": (proximal_adagrad, 2),
    "AddSign": (add_sign, 2), "PowerSign": (power_sign, 2),
}  # fmt: skip
SPARSE: dict[str, int] = {  # likewise -> the number of the input that names rows
    "Momentum": 4, "KerasMomentum": 4, "Adagrad": 4, "AdagradV2": 5, "RMSProp": 8, "CenteredRMSProp": 9,
    "Adadelta": 7, "Ftrl": 4, "FtrlV2": 4, "ProximalGradientDescent": 5, "ProximalAdagrad": 6, "AdagradDA": 4,
}  # fmt: skip
SCATTERS = {
    "Add": "add", "Sub": "subtract", "Mul": "multiply", "Div": "divide", "Min": "min", "Max": "max", "Update": "set",
}  # fmt: skip

RULES = {
    **{prefix + name: Update(rule, count) for prefix in ("Apply", "ResourceApply")
       for name, (rule, count) in DENSE.items()},
    **{prefix + name: _sparse(*DENSE[name], at) for prefix in ("SparseApply", "ResourceSparseApply")
       for name, at in SPARSE.items()},
    **{prefix + name: _scatter(method) for prefix in ("Scatter", "ResourceScatter")
       for name, method in SCATTERS.items()},
    **{prefix + name: _scatter_nd(SCATTERS[name]) for prefix in ("ScatterNd", "ResourceScatterNd")
       for name in ("Add", "Sub", "Min", "Max", "Update")},
}  # fmt: skip
