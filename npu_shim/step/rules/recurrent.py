"""Recurrent cells and whole recurrences that are single ops; gradients by what the forward pass gave."""

from __future__ import annotations

from typing import Any, Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from npu_shim.step.rules.products import product
from npu_shim.step.rules.table import Attrs, Rule
from npu_shim.step.values import traced

ORDERS = {1: (0, 1, 2, 3), 2: (0, 2, 1, 3)}  # version -> where input, cell, forget and output stand among the gates


def _clipped(x: Any, limit: float) -> Any:
    """Clips a state; none where the limit is not above zero."""
    return jnp.clip(x, np.array(-limit, x.dtype), np.array(limit, x.dtype)) if limit > 0 else x


def _lstm(attrs: Attrs, order: Any, x: Any, cs: Any, h: Any, weights: Any) -> tuple[Any, ...]:
    """One step of an LSTM: (i, cs, f, o, ci, co, h)."""
    w, wci, wcf, wco, b = weights
    gates = jnp.split(product(jnp.concatenate([x, h], 1), w, (1, 0)) + b, 4, 1)
    i, ci, f, o = (gates[at] for at in order)
    peeps = attrs.get("use_peephole", False)
    if peeps:
        i, f = i + cs * wci, f + cs * wcf
    i, ci = jax.nn.sigmoid(i), jnp.tanh(ci)
    f = jax.nn.sigmoid(f + np.array(attrs.get("forget_bias", 0), f.dtype))
    new = _clipped(ci * i + cs * f, attrs["cell_clip"])
    o = jax.nn.sigmoid(o + new * wco if peeps else o)
    co = jnp.tanh(new)
    return i, new, f, o, ci, co, co * o


def cell(attrs: Attrs, x: Any, cs: Any, h: Any, *weights: Any) -> Any:
    """LSTMBlockCell."""
    return _lstm(attrs, ORDERS[1], traced(x), cs, h, weights)


def _cell_back(attrs: Attrs, order: Any, cs_prev: Any, peeps: Any, gates: Any, cs_grad: Any, h_grad: Any) -> Any:
    """(Gradient of the cell before, of the gates before their activations, and of the three peepholes by row)."""
    wci, wcf, wco = peeps
    i, cs, f, o, ci, co = gates
    one = np.array(1, i.dtype)
    d_o = o * (one - o) * h_grad * co
    dcs = (one - co * co) * h_grad * o + cs_grad
    if attrs["use_peephole"]:
        dcs = dcs + d_o * wco
    dci, df, di = (one - ci * ci) * dcs * i, f * (one - f) * dcs * cs_prev, i * (one - i) * dcs * ci
    before = dcs * f
    if attrs["use_peephole"]:
        before = before + di * wci + df * wcf
    by_name = di, dci, df, d_o
    return before, jnp.concatenate([by_name[at] for at in order], 1), (di * cs_prev, df * cs_prev, d_o * cs)


def cell_grad(attrs: Attrs, *values: Any) -> Any:
    """LSTMBlockCellGrad: (cs, gates before their activations, wci, wcf, wco)."""
    _, cs_prev, _, _, wci, wcf, wco, _, *gates, cs_grad, h_grad = map(traced, values)
    before, d_gates, peeps = _cell_back(attrs, ORDERS[1], cs_prev, (wci, wcf, wco), gates, cs_grad, h_grad)
    return (before, d_gates, *_summed(attrs, peeps, (0,)))


def _summed(attrs: Attrs, peeps: Any, axes: tuple[int, ...]) -> list[Any]:
    """The gradients of the peepholes; zeros where there are none."""
    sums = [jnp.sum(part, axes) for part in peeps]
    return sums if attrs["use_peephole"] else list(map(jnp.zeros_like, sums))


def _block(version: int) -> Callable[..., Any]:
    def block(attrs: Attrs, most: Any, x: Any, cs: Any, h: Any, *weights: Any) -> Any:
        """BlockLSTM: every output [time, batch, size]; what stands behind `most` is zero."""
        x, weights = traced(x), tuple(map(traced, weights))

        def step(state: Any, given: Any) -> Any:
            outputs = _lstm(attrs, ORDERS[version], given, state[0], state[1], weights)
            return (outputs[1], outputs[6]), outputs

        _, outputs = lax.scan(step, (traced(cs), traced(h)), x)
        alive = (jnp.arange(x.shape[0], dtype=np.int64) < most.astype(np.int64))[:, None, None]
        return tuple(jnp.where(alive, part, np.zeros((), part.dtype)) for part in outputs)

    return block


def _block_grad(version: int) -> Callable[..., Any]:
    def gradient(attrs: Attrs, most: Any, *values: Any) -> Any:
        """BlockLSTMGrad: of x, cs, h, w, wci, wcf, wco and b; by what the forward pass gave, clipped or not."""
        x, cs_first, h_first, w, wci, wcf, wco, _, *gates, h, cs_grad, h_grad = map(traced, values)
        before = lambda first, later: jnp.concatenate([first[None], later[:-1]])  # noqa: E731
        cs_prev = before(cs_first, gates[1])
        alive = jnp.arange(x.shape[0], dtype=np.int64) < most.astype(np.int64)

        def step(state: Any, given: Any) -> Any:
            is_alive, cs_before, own, cs_back, h_back = given
            back = _cell_back(
                attrs, ORDERS[version], cs_before, (wci, wcf, wco), own, cs_back + state[0], h_back + state[1]
            )
            before, d_gates, peeps = jax.tree.map(lambda part: jnp.where(is_alive, part, jnp.zeros_like(part)), back)
            of_inputs = product(d_gates, w, (1, 1))
            return (before, of_inputs[:, x.shape[2] :]), (of_inputs[:, : x.shape[2]], d_gates, peeps)

        start = jnp.zeros_like(cs_first), jnp.zeros_like(h_first)
        given = alive, cs_prev, tuple(gates), cs_grad, h_grad
        (cs_back, h_back), (x_back, d_gates, peeps) = lax.scan(step, start, given, reverse=True)
        inputs = jnp.concatenate([x, before(h_first, h)], 2)
        rows, columns = (part.reshape((-1, part.shape[2])) for part in (inputs, d_gates))
        sums = *_summed(attrs, peeps, (0, 1)), jnp.sum(d_gates, (0, 1))
        return (x_back, cs_back, h_back, product(rows, columns, (0, 0)), *sums)

    return gradient


# -- GRU ---------------------------------------------------------------------------------------------------------------


def gru(attrs: Attrs, x: Any, h: Any, w_ru: Any, w_c: Any, b_ru: Any, b_c: Any) -> Any:
    """GRUBlockCell: (r, u, c, h)."""
    x, h = traced(x), traced(h)
    r, u = jnp.split(jax.nn.sigmoid(product(jnp.concatenate([x, h], 1), w_ru, (1, 0)) + b_ru), 2, 1)
    c = jnp.tanh(product(jnp.concatenate([x, r * h], 1), w_c, (1, 0)) + b_c)
    return r, u, c, u * h + (np.array(1, x.dtype) - u) * c


def gru_grad(attrs: Attrs, *values: Any) -> Any:
    """GRUBlockCellGrad: (x, h, c before its activation, r and u before theirs)."""
    x, h, w_ru, w_c, _, _, r, u, c, g = map(traced, values)
    one, size = np.array(1, x.dtype), x.shape[1]
    d_c = g * (one - u) * (one - c * c)
    d_u = g * (h - c) * u * (one - u)
    of_c = product(d_c, w_c, (1, 1))
    d_hr = of_c[:, size:]
    d_r = d_hr * h * r * (one - r)
    d_ru = jnp.concatenate([d_r, d_u], 1)
    of_ru = product(d_ru, w_ru, (1, 1))
    return of_c[:, :size] + of_ru[:, :size], of_ru[:, size:] + d_hr * r + g * u, d_c, d_ru


RULES = {
    "LSTMBlockCell": Rule(cell),
    "LSTMBlockCellGrad": Rule(cell_grad),
    "BlockLSTM": Rule(_block(1)),
    "BlockLSTMV2": Rule(_block(2)),
    "BlockLSTMGrad": Rule(_block_grad(1)),
    "BlockLSTMGradV2": Rule(_block_grad(2)),
    "GRUBlockCell": Rule(gru),
    "GRUBlockCellGrad": Rule(gru_grad),
}
