"""Colors of images: red, green and blue in the last dimension, and hue, saturation and value, each between 0 and 1."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from npu_shim.step.rules.table import Attrs, Rule
from npu_shim.step.values import traced

SIXTH = 1 / 6  # of the circle of hues: from red to yellow, from yellow to green, ...


def _number(value: float, like: Any) -> Any:
    return np.array(value, like.dtype)


def _hsv(image: Any) -> tuple[Any, Any, Any]:
    red, green, blue = (image[..., at] for at in range(3))
    value = jnp.maximum(jnp.maximum(red, green), blue)
    spread = value - jnp.minimum(jnp.minimum(red, green), blue)
    zero, one = _number(0, image), _number(1, image)
    saturation = jnp.where(value > zero, spread / jnp.where(value > zero, value, one), zero)
    unit = _number(SIXTH, image) / jnp.where(spread > zero, spread, one)
    hue = jnp.where(
        red == value, unit * (green - blue),
        jnp.where(green == value, unit * (blue - red) + _number(2 * SIXTH, image),
                  unit * (red - green) + _number(4 * SIXTH, image)),
    )  # fmt: skip
    hue = jnp.where(spread > zero, hue, zero)
    return jnp.where(hue < zero, hue + one, hue), saturation, value


def _rgb(hue: Any, saturation: Any, value: Any) -> Any:
    number = lambda x: _number(x, value)  # noqa: E731
    at = hue * number(6)
    parts = (
        jnp.abs(at - number(3)) - number(1),
        number(2) - jnp.abs(at - number(2)),
        number(2) - jnp.abs(at - number(4)),
    )
    shares = (jnp.clip(part, number(0), number(1)) for part in parts)
    return jnp.stack([((number(1) - saturation) + saturation * share) * value for share in shares], -1)


def to_hsv(attrs: Attrs, image: Any) -> Any:
    """RGBToHSV."""
    return jnp.stack(_hsv(traced(image)), -1)


def to_rgb(attrs: Attrs, image: Any) -> Any:
    """HSVToRGB."""
    image = traced(image)
    return _rgb(*(image[..., at] for at in range(3)))


def adjust_hue(attrs: Attrs, image: Any, delta: Any) -> Any:
    """AdjustHue: around the circle, inside in float32."""
    hue, saturation, value = _hsv(traced(image).astype(np.float32))
    return _rgb(jnp.mod(hue + delta, np.float32(1)), saturation, value).astype(image.dtype)


def adjust_saturation(attrs: Attrs, image: Any, scale: Any) -> Any:
    """AdjustSaturation, inside in float32."""
    hue, saturation, value = _hsv(traced(image).astype(np.float32))
    return _rgb(hue, jnp.clip(saturation * scale, np.float32(0), np.float32(1)), value).astype(image.dtype)


RULES = {
    "RGBToHSV": Rule(to_hsv),
    "HSVToRGB": Rule(to_rgb),
    "AdjustHue": Rule(adjust_hue),
    "AdjustSaturation": Rule(adjust_saturation),
}
