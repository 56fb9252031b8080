"""Dilation2D and its gradients: the largest sum of an image's element and a filter's in each window."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from npu_shim.step.rules.image import windows
from npu_shim.step.rules.indexing import lowest
from npu_shim.step.rules.table import Attrs, Rule
from npu_shim.step.values import traced


def _sums(attrs: Attrs, x: Any, kernel: Any) -> Any:
    """The sums of each window, as `image.windows` gives its elements; the lowest number beyond the edges."""
    height, width, channels = kernel.shape
    least = np.array(lowest(x.dtype), x.dtype)
    is_in = jnp.stack(windows(attrs, jnp.ones(x.shape, bool), height, width, False))
    parts = jnp.stack(windows(attrs, x, height, width, np.zeros((), x.dtype)))
    return jnp.where(is_in, parts + kernel.reshape((-1, 1, 1, 1, channels)), least)


def dilation(attrs: Attrs, x: Any, kernel: Any) -> Any:
    """Dilation2D."""
    return jnp.max(_sums(attrs, traced(x), traced(kernel)), 0)


def _pulled_back(attrs: Attrs, x: Any, kernel: Any, g: Any) -> tuple[Any, Any]:
    """The gradients of both: the first of the largest sums of a window has all of it."""
    x, kernel = traced(x), traced(kernel)
    sums = _sums(attrs, x, kernel)
    first = jnp.argmax(sums, 0)
    is_first = np.arange(sums.shape[0]).reshape((-1, 1, 1, 1, 1)) == first

    def chosen(x: Any, kernel: Any) -> Any:
        return jnp.sum(jnp.where(is_first, _sums(attrs, x, kernel), np.zeros((), x.dtype)), 0)

    _, back = jax.vjp(chosen, x, kernel)
    gradients: tuple[Any, Any] = back(traced(g))
    return gradients


RULES = {
    "Dilation2D": Rule(dilation),
    "Dilation2DBackpropInput": Rule(lambda attrs, x, kernel, g: _pulled_back(attrs, x, kernel, g)[0]),
    "Dilation2DBackpropFilter": Rule(lambda attrs, x, kernel, g: _pulled_back(attrs, x, kernel, g)[1]),
}
