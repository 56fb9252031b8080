"""BlockLSTM, an LSTM over time as one op; the products of the inputs are computed for all steps at once.

    gates[t] = x[t] w_x + b + h[t-1] w_h, where  i, f, o = sigmoid, ci = tanh
    cs[t] = ci i + cs[t-1] f, clipped     co = tanh(cs)     h[t] = co o

With peepholes i and f see cs[t-1], o sees cs[t]. Source: TensorFlow 2.15.1, core/kernels/rnn/lstm_ops.h, whose gradient
ignores the clipping too. Steps from seq_len_max on are zeros.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.xla.passes.legalize.ops import lists
from npu_shim.xla.passes.legalize.site import Site

FIRST, SECOND = (0, 1, 2, 3), (0, 2, 1, 3)  # places of i, ci, f and o among the gates, of BlockLSTM and BlockLSTMV2


def forward(places: Sequence[int]) -> Callable[[Site], Any]:
    """Makes the row of BlockLSTM; `places` as FIRST."""

    def lowered(site):
        steps, x, cs, h, w, *peepholes, b = site.inputs
        times, batch, inputs, cells = _sizes(site, x, cs)
        peepholes = peepholes if site.attr("use_peephole") else None
        given = tf.reshape(tf.matmul(tf.reshape(x, [-1, inputs]), w[:inputs]) + b, [times, batch, 4 * cells])
        gates, like = lists.of(given), tf.zeros([times, batch, cells], x.dtype)

        def step(time, cs, h, *tables):
            now = lists.get(gates, time, given[0]) + tf.matmul(h, w[inputs:])
            values = _cell(site, _split(now, places), cs, peepholes)
            values = [tf.where_v2(time < tf.cast(steps, tf.int32), value, 0) for value in values]
            return [time + 1, values[1], values[6], *(lists.put(*placed) for placed in zip(tables, [time] * 7, values))]

        start = [tf.constant(0), cs, h, *(lists.empty(like) for _ in range(7))]
        _, _, _, *tables = tf_internals.functional_loop(lambda time, *_: time < times, step, start)
        return [lists.stacked(table, like) for table in tables]

    return lowered


def _cell(site, gates, before, peepholes):
    """One step: (i, cs, f, o, ci, co, h)."""
    i, ci, f, o = gates
    f = f + tf.cast(0 if "V2" in site.node.op else site.attr("forget_bias"), f.dtype)
    if peepholes:
        i, f = i + before * peepholes[0], f + before * peepholes[1]
    i, f, ci = tf.sigmoid(i), tf.sigmoid(f), tf.tanh(ci)
    cs, clip = ci * i + before * f, site.attr("cell_clip")
    if clip > 0:
        cs = tf.clip_by_value(cs, -clip, clip)
    o = tf.sigmoid(o + cs * peepholes[2] if peepholes else o)
    co = tf.tanh(cs)
    return [i, cs, f, o, ci, co, co * o]


def gradient(places: Sequence[int]) -> Callable[[Site], Any]:
    """Makes the row of BlockLSTMGrad; `places` as FIRST."""

    def lowered(site):
        steps, x, cs_first, h_first, w, *rest = site.inputs
        peepholes, values, given = rest[:3], rest[4:11], rest[11:]
        times, batch, inputs, cells = _sizes(site, x, cs_first)
        cs_before = tf.concat([cs_first[tf.newaxis], values[1][:-1]], 0)
        known = [lists.of(value) for value in (*values, *given, cs_before)]
        weights = peepholes if site.attr("use_peephole") else None

        def step(time, cs_grad, h_grad, gate_grads):
            at = [lists.get(table, time, cs_first) for table in known]
            gates, cs_grad = _cell_gradient(at, cs_grad, h_grad, weights)
            running = time < tf.cast(steps, tf.int32)
            gates = tf.where_v2(running, tf.concat([gates[place] for place in places], 1), 0)
            h_grad = tf.matmul(gates, w[inputs:], transpose_b=True)
            return [time - 1, tf.where_v2(running, cs_grad, 0), h_grad, lists.put(gate_grads, time, gates)]

        like = tf.zeros([times, batch, 4 * cells], x.dtype)
        start = [tf.constant(times - 1), tf.zeros_like(cs_first), tf.zeros_like(h_first), lists.empty(like)]
        _, cs_grad, h_grad, table = tf_internals.functional_loop(lambda time, *_: time >= 0, step, start)
        gates = tf.reshape(lists.stacked(table, like), [times * batch, 4 * cells])
        seen = tf.concat([x, tf.concat([h_first[tf.newaxis], values[6][:-1]], 0)], 2)
        x_grad = tf.reshape(tf.matmul(gates, w[:inputs], transpose_b=True), [times, batch, inputs])
        w_grad = tf.matmul(tf.reshape(seen, [times * batch, -1]), gates, transpose_a=True)
        peepholes = _peephole_gradients(_split(gates, places), cs_before, values[1], peepholes, weights is not None)
        return [x_grad, cs_grad, h_grad, w_grad, *peepholes, tf.reduce_sum(gates, 0)]

    return lowered


def _cell_gradient(at, cs_grad, h_grad, peepholes):
    """((i, ci, f, o) before activation, cs of the step before): gradients of one step."""
    i, _, f, o, ci, co, _, cs_given, h_given, before = at
    h_grad = h_grad + h_given
    o_grad = o * (1 - o) * h_grad * co
    cs_grad = (1 - co * co) * h_grad * o + cs_grad + cs_given
    if peepholes:
        cs_grad = cs_grad + o_grad * peepholes[2]
    ci_grad = (1 - ci * ci) * cs_grad * i
    f_grad = f * (1 - f) * cs_grad * before
    i_grad = i * (1 - i) * cs_grad * ci
    cs_grad = cs_grad * f
    if peepholes:
        cs_grad = cs_grad + i_grad * peepholes[0] + f_grad * peepholes[1]
    return [i_grad, ci_grad, f_grad, o_grad], cs_grad


def _peephole_gradients(gates, before, cs, peepholes, used):
    if not used:
        return [tf.zeros_like(peephole) for peephole in peepholes]
    i, _, f, o = gates
    pairs = (i, before), (f, before), (o, cs)
    return [tf.reduce_sum(gate * tf.reshape(state, tf.shape(gate)), 0) for gate, state in pairs]


def _split(gates, places):
    """(i, ci, f, o) of gates [batch, 4 cells]."""
    parts = tf.split(gates, 4, axis=1)
    return [parts[place] for place in places]


def _sizes(site, x, cs):
    times, batch, inputs = x.shape.as_list() if x.shape.rank else (None,) * 3
    cells = cs.shape[-1] if cs.shape.rank else None
    if None in (times, batch, inputs, cells):
        shapes = "x %s and cs_prev %s" % (x.shape, cs.shape)
        raise site.refused("its shapes must be known when XLA compiles, they are " + shapes)
    return times, batch, inputs, cells
