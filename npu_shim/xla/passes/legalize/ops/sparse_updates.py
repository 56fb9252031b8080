"""Sparse updates of TensorFlow 1's optimizers: rows are read, computed and written back.

TensorFlow's kernels go through the gradient's rows one after another, so a repeated index is updated repeatedly.
Optimizers sum the rows of equal indices first, by a Unique; then the indices are distinct and one pass suffices. If
they may repeat, a loop updates by the first row of every index, then by the second, ...: each index sees
its rows in the kernel's order.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.xla.passes.legalize import duplicates
from npu_shim.xla.passes.legalize.site import Site


def update(count: int, names: Sequence[str], formula: Callable[..., list[Any]]) -> Callable[[Site], Any]:
    """Makes the table row of an op on variables, then scalars, a gradient [n, ...] and indices [n].

    Args:
        count: number of variables, the op's first inputs.
        names: names of the inputs after them; "grad" and "indices" among them.
        formula: function of (site, list of rows [n, ...], gradient, dict of the scalars) to the list of new rows.
    """

    def lowered(site):
        variables, others = site.inputs[:count], dict(zip(names, site.inputs[count:]))
        gradient, indices = others.pop("grad"), others.pop("indices")
        if count + names.index("indices") in site.distinct:
            rows = formula(site, [variable.rows(indices) for variable in variables], gradient, others)
            return [variable.write_rows(indices, new) for variable, new in zip(variables, rows) if new is not None]
        return _in_turns(site, variables, indices, lambda rows: formula(site, rows, gradient, others))

    return lowered


def _in_turns(site, variables, indices, formula):
    """Updates rows whose indices may repeat: each turn takes every index once, until none is left."""
    if indices.shape.num_elements() is None:
        raise site.refused("it updates rows that may be the same, and their number is not known when XLA compiles")
    turns = duplicates.occurrence(indices)
    last = tf.reduce_max(turns)

    def turn(number, *tables):
        rows = formula([tf.gather(table, indices) for table in tables])
        places = tf.where_v2(tf.equal(turns, number), indices, indices.dtype.max)[:, tf.newaxis]
        written = [t if new is None else tf.tensor_scatter_nd_update(t, places, new) for t, new in zip(tables, rows)]
        return [number + 1, *written]

    start = [tf.constant(0), *(variable.read() for variable in variables)]
    _, *tables = tf_internals.functional_loop(lambda number, *_: number <= last, turn, start)
    return [variable.write(table) for variable, table in zip(variables, tables)]


def adagrad(site: Site, rows: Sequence[Any], g: Any, s: Mapping[str, Any]) -> list[Any]:
    """Adagrad: a += g^2, v -= lr g / sqrt(a); in AdagradV2 lr g / (sqrt(a) + epsilon)."""
    v, a = rows
    changed = a + g * g if site.attr("update_slots") else a
    if "epsilon" in s:
        return [v - s["lr"] * g / (tf.sqrt(changed) + s["epsilon"]), changed]
    return [v - s["lr"] * g * tf.rsqrt(changed), changed]


def momentum(site: Site, rows: Sequence[Any], g: Any, s: Mapping[str, Any]) -> list[Any]:
    """Momentum: a = m a + g, v -= lr a; with Nesterov lr (g + m a)."""
    v, a = rows
    a = a * s["momentum"] + g
    return [v - (g * s["lr"] + a * s["momentum"] * s["lr"] if site.attr("use_nesterov") else a * s["lr"]), a]


def keras_momentum(site: Site, rows: Sequence[Any], g: Any, s: Mapping[str, Any]) -> list[Any]:
    """Keras' momentum: a = m a - lr g, v += a; with Nesterov m a - lr g."""
    v, a = rows
    a = a * s["momentum"] - g * s["lr"]
    return [v + (a * s["momentum"] - g * s["lr"] if site.attr("use_nesterov") else a), a]


def adadelta(site: Site, rows: Sequence[Any], g: Any, s: Mapping[str, Any]) -> list[Any]:
    """Adadelta: a = rho a + (1 - rho) g^2, d = g sqrt((u + e) / (a + e)), u = rho u + (1 - rho) d^2, v -= lr d."""
    v, a, u = rows
    a = a * s["rho"] + g * g * (1 - s["rho"])
    d = tf.sqrt(u + s["epsilon"]) * tf.rsqrt(a + s["epsilon"]) * g
    return [v - d * s["lr"], a, u * s["rho"] + d * d * (1 - s["rho"])]


def rms_prop(site: Site, rows: Sequence[Any], g: Any, s: Mapping[str, Any]) -> list[Any]:
    """RMSProp: ms = rho ms + (1 - rho) g^2, mom = m mom + lr g / sqrt(ms + epsilon), v -= mom."""
    v, ms, mom = rows
    ms = ms * s["rho"] + g * g * (1 - s["rho"])
    mom = mom * s["momentum"] + tf.rsqrt(ms + s["epsilon"]) * s["lr"] * g
    return [v - mom, ms, mom]


def centered_rms_prop(site: Site, rows: Sequence[Any], g: Any, s: Mapping[str, Any]) -> list[Any]:
    """RMSProp of ms - mg^2, where mg = rho mg + (1 - rho) g."""
    v, mg, ms, mom = rows
    ms = ms * s["rho"] + g * g * (1 - s["rho"])
    mg = mg * s["rho"] + g * (1 - s["rho"])
    mom = mom * s["momentum"] + tf.rsqrt(ms + s["epsilon"] - mg * mg) * s["lr"] * g
    return [v - mom, mg, ms, mom]


def ftrl(site: Site, rows: Sequence[Any], g: Any, s: Mapping[str, Any]) -> list[Any]:
    """FTRL: n = a + g^2, l += g' - (n^-p - a^-p) / lr v, v = (l1 sign(l) - l) / (n^-p / lr + 2 l2) or 0 for |l| <= l1.

    g' = g + 2 l2_shrinkage v; if the op multiplies l by lr, it does so with l1 and l2 too.
    """
    v, a, l = rows  # noqa: E741
    shrunk = g + 2 * s["l2_shrinkage"] * v if "l2_shrinkage" in s else g
    n, lr = a + g * g, s["lr"]
    power = lambda x: _power(x, s["lr_power"])  # noqa: E731
    if site.attr("multiply_linear_by_lr"):
        l = l + shrunk * lr - (power(n) - power(a)) * v  # noqa: E741
        l1, divisor = s["l1"] * lr, power(n) + 2 * s["l2"] * lr
    else:
        l = l + shrunk - (power(n) - power(a)) / lr * v  # noqa: E741
        l1, divisor = s["l1"], power(n) / lr + 2 * s["l2"]
    return [tf.where_v2(tf.abs(l) > l1, (l1 * tf.sign(l) - l) / divisor, tf.zeros_like(v)), n, l]


def _power(x, lr_power):
    """x^-lr_power; for the usual -0.5, TensorFlow's kernel takes the square root."""
    half = tf.cast(-0.5, lr_power.dtype)
    return tf.where_v2(tf.equal(lr_power, half), tf.sqrt(x), tf.pow(x, -lr_power))


def proximal_gradient_descent(site: Site, rows: Sequence[Any], g: Any, s: Mapping[str, Any]) -> list[Any]:
    """Gradient descent, shrunk: v = shrink(v - lr g)."""
    return [_shrink(rows[0] - g * s["lr"], s["lr"], s)]


def proximal_adagrad(site: Site, rows: Sequence[Any], g: Any, s: Mapping[str, Any]) -> list[Any]:
    """Adagrad, shrunk: a += g^2, v = shrink(v - lr g / sqrt(a)) with lr / sqrt(a) as its rate."""
    v, a = rows
    a = a + g * g
    rate = s["lr"] * tf.rsqrt(a)
    return [_shrink(v - g * rate, rate, s), a]


def _shrink(v, rate, s):
    """Returns sign(v) max(|v| - rate l1, 0) / (1 + rate l2)."""
    small = tf.sign(v) * tf.maximum(tf.abs(v) - rate * s["l1"], 0)
    return tf.where_v2(s["l1"] > 0, small, v) / (1 + rate * s["l2"])


def adagrad_da(site: Site, rows: Sequence[Any], g: Any, s: Mapping[str, Any]) -> list[Any]:
    """Dual averaging: a += g, q += g^2, v = -shrunk(a / t) / (l2 + sqrt(q) / (lr t)), at step t, shrunk by l1."""
    _, a, q = rows
    steps = tf.cast(s["global_step"], g.dtype)
    a, q = a + g, q + g * g
    mean = a / steps
    small = tf.sign(a) * tf.maximum(tf.abs(mean) - s["l1"], 0)
    return [-tf.where_v2(s["l1"] > 0, small, mean) / (s["l2"] + tf.sqrt(q) / (steps * s["lr"])), a, q]
