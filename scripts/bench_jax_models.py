"""The benchmark's models written by hand in JAX, in mixed precision as a JAX user writes it.

Parameters are float32; weights and activations are cast to the compute dtype where products read them; normalization,
softmax and loss are computed in float32. With float16 the loss is scaled and a step that overflows is skipped. Same
sizes, optimizers and initial values as `bench_models`, by the same variable names.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def _conv(p, name, net, stride):
    kernel = p[name + "/kernel"].astype(net.dtype)
    return lax.conv_general_dilated(net, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _normed(p, name, net, moved):
    wide = net.astype(jnp.float32)
    mean, square = wide.mean((0, 1, 2)), (wide * wide).mean((0, 1, 2))
    variance = square - mean * mean
    for key, now in (("moving_mean", mean), ("moving_variance", variance)):
        moved[name + "/" + key] = p[name + "/" + key] * 0.9 + now * 0.1
    factor = p[name + "/gamma"] * lax.rsqrt(variance + 1e-5)
    return (wide * factor + (p[name + "/beta"] - mean * factor)).astype(net.dtype)


def _bottleneck(p, name, net, width, stride, moved):
    short = net
    if stride != 1 or net.shape[-1] != 4 * width:
        short = _normed(p, name + "/short", _conv(p, name + "/short", net, stride), moved)
    for layer, step in enumerate((1, stride, 1)):
        part = "%s/conv%d" % (name, layer)
        net = _normed(p, part, _conv(p, part, net, step), moved)
        net = jax.nn.relu(net if layer < 2 else net + short)
    return net


def resnet50(p, feeds, dtype, width=64, blocks=(3, 4, 6, 3), **_):
    """Returns (loss, new moving averages) of bench_models.resnet50."""
    moved = {}
    net = jax.nn.relu(_normed(p, "stem", _conv(p, "stem", feeds["images:0"].astype(dtype), 2), moved))
    low = np.array(-np.inf, dtype)  # concrete, or JAX does not see a maximum that it can differentiate
    net = lax.reduce_window(net, low, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    for stage, count in enumerate(blocks):
        for block in range(count):
            stride = 2 if stage and not block else 1
            net = _bottleneck(p, "stage%d/block%d" % (stage, block), net, width * 2**stage, stride, moved)
    logits = _dense(p, "logits", net.astype(jnp.float32).mean((1, 2)).astype(dtype))
    decay = sum((value**2).sum() / 2 for name, value in sorted(p.items()) if name.endswith("kernel"))
    return _cross_entropy(logits, feeds["labels:0"]) + 1e-4 * decay, moved


def _dense(p, name, net):
    return net @ p[name + "/kernel"].astype(net.dtype) + p[name + "/bias"].astype(net.dtype)


def _cross_entropy(logits, labels):
    logs = jax.nn.log_softmax(logits.astype(jnp.float32))
    return -jnp.take_along_axis(logs, labels[:, None], 1).mean()


def _layer_normed(p, name, net):
    wide = net.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True)
    variance = ((wide - mean) ** 2).mean(-1, keepdims=True)
    return ((wide - mean) * lax.rsqrt(variance + 1e-12) * p[name + "/gamma"] + p[name + "/beta"]).astype(net.dtype)


def _gelu(net):
    return jax.nn.gelu(net, approximate=True)


def bert(p, feeds, dtype, layers=24, heads=16, wide=False, fused=False, **_):
    """Returns (loss, {}) of bench_models.bert.

    `wide`: normalization and GELU give float32, as the plan has them: what is added to the residual stream, and the
    stream, are float32. GELU is then computed again in the backward pass. `fused`: attention is a kernel of cuDNN's.
    """
    ids, low = feeds["input_ids:0"], lambda tensor: tensor.astype(dtype)
    stream = jnp.float32 if wide else dtype
    (batch, sequence), hidden = ids.shape, p["embeddings/word"].shape[1]
    net = (p["embeddings/word"][ids] + p["embeddings/position"]).astype(stream)
    net = _layer_normed(p, "embeddings/norm", net).reshape(batch * sequence, hidden)
    gelu = jax.checkpoint(lambda tensor: low(_gelu(tensor.astype(jnp.float32)))) if wide else _gelu
    bias = (1.0 - feeds["input_mask:0"].reshape(batch, 1, 1, sequence).astype(jnp.float32)) * -10000.0
    for layer in range(layers):
        name = "layer%d/" % layer
        split = (_dense(p, name + part, low(net)) for part in ("query", "key", "value"))
        parts = [part.reshape(batch, sequence, heads, hidden // heads) for part in split]
        context = (_by_cudnn if fused else _attention)(*parts, bias).reshape(batch * sequence, hidden)
        net = _layer_normed(p, name + "norm1", net + _dense(p, name + "output", context))
        inner = gelu(_dense(p, name + "wide", low(net)))
        net = _layer_normed(p, name + "norm2", net + _dense(p, name + "narrow", inner))
    first = low(net).reshape(batch, sequence, hidden)[:, 0]
    return _cross_entropy(_dense(p, "classes", jnp.tanh(_dense(p, "pooler", first))), feeds["labels:0"]), {}


def _attention(query, key, value, bias):
    """Of [batch, sequence, heads, size] and a bias [batch, 1, 1, sequence]."""
    query, key, value = (part.transpose(0, 2, 1, 3) for part in (query, key, value))
    scores = (query @ key.transpose(0, 1, 3, 2)).astype(jnp.float32) * query.shape[-1] ** -0.5 + bias
    return (jax.nn.softmax(scores).astype(query.dtype) @ value).transpose(0, 2, 1, 3)


def _by_cudnn(query, key, value, bias):
    whole = jnp.broadcast_to(bias, (*bias.shape[:2], query.shape[1], key.shape[1])).astype(query.dtype)
    return jax.nn.dot_product_attention(query, key, value, whole, implementation="cudnn")


def lstm(p, feeds, dtype, layers=2, **_):
    """Returns (loss, {}) of bench_models.lstm."""
    net = p["embedding"][feeds["ids:0"]].astype(dtype).transpose(1, 0, 2)
    for layer in range(layers):
        kernel, bias = (p["lstm%d/%s" % (layer, part)].astype(dtype) for part in ("kernel", "bias"))
        zeros = jnp.zeros(net.shape[1:], dtype)

        def step(carry, x, kernel=kernel, bias=bias):
            cell, out = carry
            enter, new, forget, leave = jnp.split(jnp.concatenate([x, out], 1) @ kernel + bias, 4, 1)
            cell = cell * jax.nn.sigmoid(forget + 1) + jax.nn.sigmoid(enter) * jnp.tanh(new)
            out = jnp.tanh(cell) * jax.nn.sigmoid(leave)
            return (cell, out), out

        net = lax.scan(step, (zeros, zeros), net)[1]
    logits = _dense(p, "logits", net.reshape(-1, net.shape[-1]))
    return _cross_entropy(logits, feeds["targets:0"].T.reshape(-1)), {}


MODELS = {"resnet50": resnet50, "bert": bert, "lstm": lstm}


def _momentum(p, g, state):
    slots = {k: 0.9 * state[k] + g[k] for k in g}
    return {k: p[k] - 0.01 * slots[k] for k in g}, slots


def _adam(p, g, state, rate):
    count = state["count"] + 1
    corrected = rate * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
    m = {k: 0.9 * state["m"][k] + 0.1 * g[k] for k in g}
    v = {k: 0.999 * state["v"][k] + 0.001 * g[k] ** 2 for k in g}
    return {k: p[k] - corrected * m[k] / (jnp.sqrt(v[k]) + 1e-8) for k in g}, {"m": m, "v": v, "count": count}


# model -> (parameters, gradients, state) -> (new parameters, new state)
UPDATES = {
    "resnet50": _momentum,
    "bert": lambda p, g, state: _adam(p, g, state, 1e-4),
    "lstm": lambda p, g, state: _adam(p, g, state, 1e-3),
}


def initial(name, values, dtype):
    """Returns the training state: float32 parameters, optimizer state and loss scale, from the parameters' values."""
    fixed = {k: jnp.asarray(v) for k, v in values.items() if "/moving_" in k}
    p = {k: jnp.asarray(v) for k, v in values.items() if k not in fixed}
    zeros = {k: jnp.zeros_like(v) for k, v in p.items()}
    slots = zeros if name == "resnet50" else {"m": zeros, "v": {k: jnp.zeros_like(v) for k, v in p.items()},
                                              "count": jnp.float32(0)}  # fmt: skip
    scale = jnp.float32(2.0**15 if np.dtype(dtype) == np.float16 else 1.0)
    return {"p": p, "fixed": fixed, "slots": slots, "scale": scale, "good": jnp.int32(0)}


def step(name, sizes, dtype, **more):
    """Returns the training step: (state, feeds) -> (state, loss); `more` goes to the model."""
    model, update = MODELS[name], UPDATES[name]
    scaled = np.dtype(dtype) == np.float16

    def training_step(state, feeds):
        def scaled_loss(p):
            value, moved = model({**p, **state["fixed"]}, feeds, dtype, **sizes, **more)
            return value * state["scale"], (value, moved)

        g, (value, moved) = jax.grad(scaled_loss, has_aux=True)(state["p"])
        if not scaled:
            p, slots = update(state["p"], g, state["slots"])
            return dict(state, p=p, slots=slots, fixed=moved), value
        g = jax.tree.map(lambda grad: grad / state["scale"], g)
        finite = jnp.array([jnp.isfinite(grad).all() for grad in g.values()]).all()
        kept = (state["p"], state["slots"])
        p, slots = lax.cond(finite, lambda: update(state["p"], g, state["slots"]), lambda: kept)
        good = jnp.where(finite, state["good"] + 1, 0)
        grown = jnp.where(good >= 1000, state["scale"] * 2, state["scale"])
        scale = jnp.where(finite, grown, jnp.maximum(1.0, state["scale"] / 2))
        return {"p": p, "fixed": moved, "slots": slots, "scale": scale, "good": good % 1000}, value

    return training_step


def hand_forms(model):
    """Returns form -> (compute dtype, what `step` takes), of a model: the last ones with the plan's own dtypes."""
    forms = {"jax-float16": ("float16", {}), "jax-bfloat16": ("bfloat16", {})}
    if model == "bert":
        forms["jax-bfloat16-wide"] = "bfloat16", {"wide": True}
        forms["jax-bfloat16-cudnn"] = "bfloat16", {"wide": True, "fused": True}  # a custom call that CPUs do not have
    return forms
