"""Numbers rounded as a quantized network would: FakeQuant, QuantizeAndDequantize, and their gradients."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from npu_shim.step.rules.table import Attrs, Rule
from npu_shim.step.values import traced, whole


def _nudged(attrs: Attrs, least: Any, most: Any) -> tuple[Any, Any, Any]:
    """(Least, most, size of a step): moved so that zero is one of the numbers that there are."""
    low, high = np.float32(int(attrs["narrow_range"])), np.float32(2 ** attrs["num_bits"] - 1)
    step = (most - least) / (high - low)
    exact = low - least / step
    zero = jnp.where(exact < low, low, jnp.where(exact > high, high, jnp.floor(exact + np.float32(0.5))))
    return (low - zero) * step, (high - zero) * step, step


def _quantized(attrs: Attrs, x: Any, least: Any, most: Any) -> Any:
    least, most = (jnp.asarray(part, jnp.float32) for part in (least, most))
    low, high, step = _nudged(attrs, least, most)
    clipped = jnp.clip(traced(x), low, high)
    rounded = jnp.floor((clipped - low) / step + np.float32(0.5)) * step + low
    return jnp.where((least == 0) & (most == 0), np.float32(0), rounded)


def _gradients(attrs: Attrs, g: Any, x: Any, least: Any, most: Any) -> tuple[Any, Any, Any]:
    least, most = (jnp.asarray(part, jnp.float32) for part in (least, most))
    low, high, _ = _nudged(attrs, least, most)
    is_nothing = (least == 0) & (most == 0)
    inside = ((x >= low) & (x <= high)) | is_nothing
    below, above = (x < low) & ~is_nothing, (x > high) & ~is_nothing
    return tuple(jnp.where(where, g, np.float32(0)) for where in (inside, below, above))


def of_attributes(attrs: Attrs, x: Any) -> Any:
    """FakeQuantWithMinMaxArgs."""
    return _quantized(attrs, x, np.float32(attrs["min"]), np.float32(attrs["max"]))


def of_attributes_gradient(attrs: Attrs, g: Any, x: Any) -> Any:
    """FakeQuantWithMinMaxArgsGradient."""
    return _gradients(attrs, g, x, np.float32(attrs["min"]), np.float32(attrs["max"]))[0]


def of_variables(attrs: Attrs, x: Any, least: Any, most: Any) -> Any:
    """FakeQuantWithMinMaxVars, and PerChannel: of the last dimension."""
    return _quantized(attrs, x, least, most)


def of_variables_gradient(attrs: Attrs, g: Any, x: Any, least: Any, most: Any) -> Any:
    """FakeQuantWithMinMaxVarsGradient, and PerChannel: of the numbers, the least and the most."""
    inside, below, above = _gradients(attrs, g, x, least, most)
    axes = tuple(range(x.ndim - np.ndim(least)))
    return inside, jnp.sum(below, axes), jnp.sum(above, axes)


# -- symmetric ---------------------------------------------------------------------------------------------------------


def _along(values: Any, like: Any, axis: int) -> Any:
    """Numbers of each part along an axis, as they broadcast to a tensor."""
    shape = [1] * like.ndim
    shape[axis] = -1
    return jnp.reshape(values, shape)


def _limits(attrs: Attrs, x: Any, least: Any, most: Any) -> tuple[Any, Any]:
    axis = attrs.get("axis", -1)  # 1.15 has none
    if not attrs["range_given"]:
        others = tuple(at for at in range(x.ndim) if axis < 0 or at != axis)
        least, most = jnp.min(x, others), jnp.max(x, others)
    if axis < 0:
        return jnp.asarray(least, x.dtype).reshape(()), jnp.asarray(most, x.dtype).reshape(())
    return _along(least, x, axis), _along(most, x, axis)


def symmetric(attrs: Attrs, x: Any, least: Any, most: Any, bits: Any = None) -> Any:
    """QuantizeAndDequantizeV2, V3 and V4: zero stays zero, and the steps are those that the farther limit asks for."""
    x, width = traced(x), attrs["num_bits"] if bits is None else whole(bits)
    least, most = _limits(attrs, x, least, most)
    number = lambda value: np.array(value, x.dtype)  # noqa: E731
    high = 2 ** (width - 1) - 1 if attrs["signed_input"] else 2**width - 1
    low = -high - (0 if attrs["narrow_range"] else 1) if attrs["signed_input"] else 0
    none = jnp.finfo(x.dtype).max
    by_low = jnp.where(number(low) * least > 0, number(low) / least, number(none))
    by_high = jnp.where(number(high) * most > 0, number(high) / most, number(none))
    is_low = by_low < by_high
    scale = jnp.where(is_low, by_low, by_high)
    step = jnp.where(is_low, least / number(low if low else 1), most / number(high))
    if attrs["range_given"]:
        x = jnp.clip(x, jnp.where(is_low, least, number(low) * step), jnp.where(is_low, number(high) * step, most))
    half_up = attrs.get("round_mode") == "HALF_UP"
    return (jnp.floor(x * scale + number(0.5)) if half_up else jnp.round(x * scale)) * step


def symmetric_gradient(attrs: Attrs, g: Any, x: Any, least: Any, most: Any) -> tuple[Any, Any, Any]:
    """QuantizeAndDequantizeV4Grad: what lies between the limits has the gradient, the limits have none."""
    low, high = (_along(part, x, attrs["axis"]) if attrs["axis"] >= 0 else part for part in (least, most))
    inside = jnp.where((x >= low) & (x <= high), g, np.zeros((), g.dtype))
    return inside, jnp.zeros_like(least), jnp.zeros_like(most)


RULES = {
    "QuantizeAndDequantizeV2": Rule(symmetric),
    "QuantizeAndDequantizeV3": Rule(symmetric, known=(3,)),
    "QuantizeAndDequantizeV4": Rule(symmetric),
    "QuantizeAndDequantizeV4Grad": Rule(symmetric_gradient),
    "FakeQuantWithMinMaxArgs": Rule(of_attributes),
    "FakeQuantWithMinMaxArgsGradient": Rule(of_attributes_gradient),
    "FakeQuantWithMinMaxVars": Rule(of_variables),
    "FakeQuantWithMinMaxVarsGradient": Rule(of_variables_gradient),
    "FakeQuantWithMinMaxVarsPerChannel": Rule(of_variables),
    "FakeQuantWithMinMaxVarsPerChannelGradient": Rule(of_variables_gradient),
}
