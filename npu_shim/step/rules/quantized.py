"""Numbers rounded as a quantized network would: FakeQuant and its gradients."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from npu_shim.step.rules.table import Attrs, Rule
from npu_shim.step.values import traced


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


RULES = {
    "FakeQuantWithMinMaxArgs": Rule(of_attributes),
    "FakeQuantWithMinMaxArgsGradient": Rule(of_attributes_gradient),
    "FakeQuantWithMinMaxVars": Rule(of_variables),
    "FakeQuantWithMinMaxVarsGradient": Rule(of_variables_gradient),
    "FakeQuantWithMinMaxVarsPerChannel": Rule(of_variables),
    "FakeQuantWithMinMaxVarsPerChannelGradient": Rule(of_variables_gradient),
}
