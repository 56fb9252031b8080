"""Activations, biases and losses, and their gradients."""

from __future__ import annotations

from typing import Any, Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from npu_shim.step.masks import masked
from npu_shim.step.platforms import summed_in, summed_widely
from npu_shim.step.refusals import Unsupported
from npu_shim.step.rules.table import Attrs, Rule
from npu_shim.step.values import Rows, guarded, traced

SELU_SCALE, SELU_ALPHA = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717


def _number(value: float, like: Any) -> Any:
    return np.array(value, like.dtype)


# -- activations -------------------------------------------------------------------------------------------------------


def relu(attrs: Attrs, x: Any) -> Any:
    """Relu: NaN stays."""
    return jnp.maximum(x, _number(0, x))


def relu_grad(attrs: Attrs, g: Any, x: Any) -> Any:
    """ReluGrad."""
    return jnp.where(x > _number(0, x), g, _number(0, g))


def relu6(attrs: Attrs, x: Any) -> Any:
    """Relu6."""
    return jnp.minimum(jnp.maximum(x, _number(0, x)), _number(6, x))


def relu6_grad(attrs: Attrs, g: Any, x: Any) -> Any:
    """Relu6Grad."""
    return jnp.where((x > _number(0, x)) & (x < _number(6, x)), g, _number(0, g))


def leaky_relu(attrs: Attrs, x: Any) -> Any:
    """LeakyRelu."""
    return jnp.where(x > _number(0, x), x, x * _number(attrs["alpha"], x))


def leaky_relu_grad(attrs: Attrs, g: Any, x: Any) -> Any:
    """LeakyReluGrad."""
    return jnp.where(x > _number(0, x), g, g * _number(attrs["alpha"], g))


def elu(attrs: Attrs, x: Any) -> Any:
    """Elu."""
    return jnp.where(x < _number(0, x), jnp.expm1(x), x)


def elu_grad(attrs: Attrs, g: Any, y: Any) -> Any:
    """EluGrad, of the outputs."""
    return jnp.where(y < _number(0, y), (y + _number(1, y)) * g, g)


def selu(attrs: Attrs, x: Any) -> Any:
    """Selu."""
    scale, both = _number(SELU_SCALE, x), _number(SELU_SCALE * SELU_ALPHA, x)
    return jnp.where(x < _number(0, x), both * jnp.expm1(x), scale * x)


def selu_grad(attrs: Attrs, g: Any, y: Any) -> Any:
    """SeluGrad, of the outputs."""
    both = _number(SELU_SCALE * SELU_ALPHA, y)
    return jnp.where(y < _number(0, y), g * (y + both), g * _number(SELU_SCALE, y))


def softplus(attrs: Attrs, x: Any) -> Any:
    """Softplus, exact where exp(x) would overflow or vanish."""
    return jnp.logaddexp(x, _number(0, x))


def softplus_grad(attrs: Attrs, g: Any, x: Any) -> Any:
    """SoftplusGrad."""
    return g / (jnp.exp(-x) + _number(1, x))


def softsign(attrs: Attrs, x: Any) -> Any:
    """Softsign."""
    return x / (jnp.abs(x) + _number(1, x))


def softsign_grad(attrs: Attrs, g: Any, x: Any) -> Any:
    """SoftsignGrad."""
    size = jnp.abs(x) + _number(1, x)
    return g / (size * size)


# -- softmax and losses ------------------------------------------------------------------------------------------------


def _wide(x: Any) -> Any:
    return x.astype(summed_in(x.dtype))


def softmax(attrs: Attrs, x: Any) -> Any:
    """Softmax, inside in float32 at least."""
    return jax.nn.softmax(_wide(traced(x)), -1).astype(x.dtype)


def log_softmax(attrs: Attrs, x: Any) -> Any:
    """LogSoftmax, inside in float32 at least."""
    return jax.nn.log_softmax(_wide(traced(x)), -1).astype(x.dtype)


def of_the_first(rule: Callable[..., Any], array: Any, count: Any) -> Any:
    """A softmax of the first `count` elements of the last dimension; 0 behind them."""
    lowest = masked(array, count, -np.inf, array.ndim - 1)
    return masked(rule({}, lowest), count, 0, array.ndim - 1)


def _cross_entropy(logits: Any, labels: Any) -> tuple[Any, Any]:
    log = jax.nn.log_softmax(logits, -1)
    loss = -jnp.sum(jnp.where(labels == 0, _number(0, log), labels * log), -1)
    return loss, jnp.exp(log) - labels


def cross_entropy(attrs: Attrs, logits: Any, labels: Any) -> Any:
    """SoftmaxCrossEntropyWithLogits: the loss of each row, and its gradient."""
    dtype = logits.dtype
    logits, labels = jnp.broadcast_arrays(_wide(traced(logits)), _wide(traced(labels)))
    return tuple(part.astype(dtype) for part in _cross_entropy(logits, labels))


def sparse_cross_entropy(attrs: Attrs, logits: Any, labels: Any) -> Any:
    """SparseSoftmaxCrossEntropyWithLogits: NaN for a label that is no class."""
    dtype, classes = logits.dtype, logits.shape[-1]
    wide = _wide(traced(logits))
    is_class = (labels >= 0) & (labels < classes)
    hot = (labels[:, None] == np.arange(classes).astype(labels.dtype)).astype(wide.dtype)
    loss, gradient = _cross_entropy(wide, hot)
    loss = jnp.where(is_class, loss, _number(np.nan, wide))
    gradient = jnp.where(is_class[:, None], gradient, _number(np.nan, wide))
    return loss.astype(dtype), gradient.astype(dtype)


def sparse_cross_entropy_of_rows(attrs: Attrs, logits: Any, labels: Any) -> Any:
    """The same of as many rows as data says; 0 behind them, where labels may be no classes."""
    if not isinstance(logits, Rows) or not isinstance(labels, Rows):
        raise Unsupported("it joins rows whose number depends on data with others")
    parts = sparse_cross_entropy(attrs, logits.array, labels.array)
    return tuple(Rows(masked(part, logits.count, 0), logits.count) for part in parts)


# -- biases ------------------------------------------------------------------------------------------------------------


def channel(attrs: Attrs, rank: int) -> int:
    """The number of the dimension of channels."""
    return 1 if attrs.get("data_format", "NHWC").startswith("NC") else rank - 1


def bias_add(attrs: Attrs, x: Any, bias: Any) -> Any:
    """BiasAdd."""
    shape = [1] * x.ndim
    shape[channel(attrs, x.ndim)] = -1
    return x + bias.reshape(shape)


@summed_widely
def bias_add_grad(attrs: Attrs, g: Any) -> Any:
    """BiasAddGrad, summed in float32 at least."""
    axis = channel(attrs, g.ndim)
    return jnp.sum(traced(g), tuple(at for at in range(g.ndim) if at != axis), dtype=g.dtype)


def lrn(attrs: Attrs, x: Any) -> Any:
    """LRN: across channels, the last dimension."""
    radius = attrs["depth_radius"]
    square = _wide(traced(x)) ** 2
    window = (1,) * (x.ndim - 1) + (2 * radius + 1,)
    padding = [(0, 0)] * (x.ndim - 1) + [(radius, radius)]
    total = lax.reduce_window(guarded(square), np.array(0, square.dtype), lax.add, window, (1,) * x.ndim, padding)
    scale = _number(attrs["bias"], total) + _number(attrs["alpha"], total) * total
    return (_wide(traced(x)) * scale ** _number(-attrs["beta"], total)).astype(x.dtype)


def lrn_grad(attrs: Attrs, g: Any, x: Any, y: Any) -> Any:
    """LRNGrad."""
    return pulled_back(lambda value: lrn(attrs, value), x, g)


def pulled_back(function: Callable[[Any], Any], x: Any, g: Any) -> Any:
    """The gradient of a function at x, for a gradient g of what it gives."""
    return jax.vjp(function, traced(x))[1](traced(g))[0]


RULES = {
    "Relu": Rule(relu, rows="each"),
    "ReluGrad": Rule(relu_grad, rows="each"),
    "Relu6": Rule(relu6, rows="each"),
    "Relu6Grad": Rule(relu6_grad, rows="each"),
    "LeakyRelu": Rule(leaky_relu, rows="each"),
    "LeakyReluGrad": Rule(leaky_relu_grad, rows="each"),
    "Elu": Rule(elu, rows="each"),
    "EluGrad": Rule(elu_grad, rows="each"),
    "Selu": Rule(selu, rows="each"),
    "SeluGrad": Rule(selu_grad, rows="each"),
    "Softplus": Rule(softplus, rows="each"),
    "SoftplusGrad": Rule(softplus_grad, rows="each"),
    "Softsign": Rule(softsign, rows="each"),
    "SoftsignGrad": Rule(softsign_grad, rows="each"),
    "Softmax": Rule(softmax),
    "LogSoftmax": Rule(log_softmax),
    "SoftmaxCrossEntropyWithLogits": Rule(cross_entropy, rows="each"),
    "SparseSoftmaxCrossEntropyWithLogits": Rule(sparse_cross_entropy, rows=sparse_cross_entropy_of_rows),
    "BiasAdd": Rule(bias_add, rows="each"),
    "BiasAddV1": Rule(bias_add, rows="each"),
    "BiasAddGrad": Rule(bias_add_grad),
    "LRN": Rule(lrn),
    "LRNGrad": Rule(lrn_grad),
}
