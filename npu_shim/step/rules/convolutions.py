"""Convolutions and pools of one to three dimensions, and their gradients."""

from __future__ import annotations

import functools
import operator
from typing import Any, Callable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from npu_shim.step.platforms import is_cpu, product_of, summed_in
from npu_shim.step.refusals import Unsupported
from npu_shim.step.rules.nn import pulled_back
from npu_shim.step.rules.table import Attrs, Rule
from npu_shim.step.values import guarded, ints, traced

SPATIAL = "DHW"


def _format(attrs: Attrs, rank: int) -> str:
    return str(attrs.get("data_format") or {4: "NHWC", 5: "NDHWC"}[rank])


def _places(layout: str) -> list[int]:
    return [layout.index(axis) for axis in SPATIAL if axis in layout]


def _dilations(attrs: Attrs, rank: int) -> Sequence[int]:
    return attrs.get("dilations") or (1,) * rank


def _padding(attrs: Attrs, places: Sequence[int]) -> Any:
    if attrs["padding"] != "EXPLICIT":
        return attrs["padding"]
    amounts = attrs["explicit_paddings"]
    return [(amounts[2 * at], amounts[2 * at + 1]) for at in places]


def _convolved(attrs: Attrs, x: Any, w: Any, groups: int) -> Any:
    """X [batch, size..., channels], in the layout of the attributes, and w [size..., channels / groups, outputs]."""
    layout = _format(attrs, x.ndim)
    places = _places(layout)
    dilations = _dilations(attrs, x.ndim)
    kernel = "".join(axis for axis in SPATIAL if axis in layout) + "IO"
    return lax.conv_general_dilated(
        x, w, [attrs["strides"][at] for at in places], _padding(attrs, places),
        rhs_dilation=[dilations[at] for at in places], dimension_numbers=(layout, kernel, layout),
        feature_group_count=groups,
    )  # fmt: skip


def _in_float32(function: Callable[..., Any], *values: Any) -> Any:
    """A convolution of low precision with sums in float32: its gradients too are of one dtype inside."""
    dtype = values[0].dtype
    wide = product_of(dtype)
    return function(*(traced(value).astype(wide) for value in values)).astype(dtype)


def plain(attrs: Attrs, x: Any, w: Any) -> Any:
    """Conv2D and Conv3D; several groups where the kernel takes fewer channels."""
    layout = _format(attrs, x.ndim)
    convolved = _by_planes if layout == "NDHWC" and is_cpu() else _convolved
    return convolved(attrs, x, w, x.shape[layout.index("C")] // w.shape[-2])


def depthwise(attrs: Attrs, x: Any, w: Any) -> Any:
    """DepthwiseConv2dNative: a kernel [h, w, channels, multiplier] is one of `channels` groups."""
    if is_cpu() and _format(attrs, x.ndim) == "NHWC" and w.shape[0] * w.shape[1] <= TAPS:
        return _by_taps(attrs, x, w)
    return _convolved(attrs, x, w.reshape((*w.shape[:-2], 1, w.shape[-2] * w.shape[-1])), w.shape[2])


# -- on CPUs, where XLA has a fast way for plain convolutions of two dimensions only -----------------------------------

TAPS = 64  # elements of a kernel [h, w]; each of them is an operation of its own


def _by_taps(attrs: Attrs, x: Any, w: Any) -> Any:
    """A depthwise convolution as a sum of shifted images, each times an element of the kernel."""
    channels, parts = w.shape[2] * w.shape[3], _shifted(attrs, x, w, (1, 2))
    products = ((part[..., None] * w[tap]).reshape(*part.shape[:-1], channels) for tap, part in parts)
    return functools.reduce(operator.add, products)


def _by_planes(attrs: Attrs, x: Any, w: Any, groups: int) -> Any:
    """A convolution of volumes as a sum of convolutions of planes, one for each plane of the kernel."""
    of_planes = {
        "strides": _without_depth(attrs["strides"]), "dilations": _without_depth(_dilations(attrs, x.ndim)),
        "padding": "EXPLICIT", "explicit_paddings": sum(_without_depth(_pads(attrs, x.shape, w)), ()),
    }  # fmt: skip
    results = (
        (part, _convolved(of_planes, lax.collapse(part, 0, 2), w[tap], groups))
        for tap, part in _shifted(attrs, x, w, (1,))
    )
    return functools.reduce(operator.add, (y.reshape(*part.shape[:2], *y.shape[1:]) for part, y in results))


def _without_depth(values: Sequence[Any]) -> list[Any]:
    return [values[0], *values[2:]]


def _shifted(attrs: Attrs, x: Any, w: Any, axes: Sequence[int]) -> Iterator[tuple[tuple[int, ...], Any]]:
    """(Place in the kernel along some axes of the image, what it goes over there), for each place."""
    pads, dilations = _pads(attrs, x.shape, w), _dilations(attrs, x.ndim)
    padded = jnp.pad(x, [pair if at in axes else (0, 0) for at, pair in enumerate(pads)])
    strides = [attrs["strides"][at] if at in axes else 1 for at in range(x.ndim)]
    for tap in np.ndindex(*w.shape[: len(axes)]):
        first, behind = [0] * x.ndim, list(padded.shape)
        for number, at in enumerate(axes):
            first[at] = tap[number] * dilations[at]
            last = (w.shape[number] - 1 - tap[number]) * dilations[at]
            behind[at] = padded.shape[at] - last
        yield tap, lax.slice(padded, first, behind, strides)


# -- kernels larger than the image: XLA's fast convolutions on CPUs take none, the others took 45 times as long --------


def _lacks(attrs: Attrs, image: Any, w: Any) -> list[int]:
    """How much smaller than the kernel each dimension of an image is, on CPUs."""
    layout = _format(attrs, len(image))
    lacks = [0] * len(image)
    for number, at in enumerate(_places(layout) if is_cpu() else ()):
        lacks[at] = max(0, w.shape[number] - image[at])
    return lacks


def _pads(attrs: Attrs, dims: Sequence[int], w: Any) -> list[tuple[int, int]]:
    """(Before, behind) of each dimension of an image."""
    places = _places(_format(attrs, len(dims)))
    padding, dilations = _padding(attrs, places), _dilations(attrs, len(dims))
    if isinstance(padding, str):
        windows = [(w.shape[number] - 1) * dilations[at] + 1 for number, at in enumerate(places)]
        strides = [attrs["strides"][at] for at in places]
        padding = lax.padtype_to_pads([dims[at] for at in places], windows, strides, padding)
    return [padding[places.index(at)] if at in places else (0, 0) for at in range(len(dims))]


def _written_out(x: Any, pads: Sequence[tuple[int, int]]) -> Any:
    """A padded array, which XLA must not make an argument of the convolution again."""
    return lax.optimization_barrier(jnp.pad(x, pads))


def _of_small_image(function: Callable[..., Any], attrs: Attrs, x: Any, w: Any) -> Any:
    if not any(_lacks(attrs, x.shape, w)):
        return function(attrs, x, w)
    return function({**attrs, "padding": "VALID"}, _written_out(x, _pads(attrs, x.shape, w)), w)


def _by_image(function: Callable[..., Any], attrs: Attrs, dims: tuple[int, ...], w: Any, g: Any) -> Any:
    """A gradient by the image: of a small one it is a part of that by a larger one, behind which there are zeros."""
    lacks = _lacks(attrs, g.shape, w)
    if not any(lacks):
        return _transposed(lambda x: function(attrs, x, w), dims, g)
    pads = [amount for pair in _pads(attrs, dims, w) for amount in pair]
    attrs = {**attrs, "padding": "EXPLICIT", "explicit_paddings": pads}
    larger = tuple(size + more * stride for size, more, stride in zip(dims, lacks, attrs["strides"]))
    g = _written_out(g, [(0, more) for more in lacks])
    return _transposed(lambda x: function(attrs, x, w), larger, g)[tuple(map(slice, dims))]


# -- convolutions ------------------------------------------------------------------------------------------------------


def _forward(function: Callable[..., Any]) -> Rule:
    return Rule(lambda attrs, x, w: _in_float32(functools.partial(_of_small_image, function, attrs), x, w))


def _of_input(function: Callable[..., Any]) -> Rule:
    """Its gradient by the input, whose shape comes first."""

    def gradient(attrs: Attrs, shape: Any, w: Any, g: Any) -> Any:
        dims = ints(shape)
        if len(dims) < np.ndim(g):  # only sizes, not batch and channels
            raise Unsupported("its sizes lack the batch or the channels")
        return _in_float32(lambda b, c: _by_image(function, attrs, dims, b, c), w, g)

    return Rule(gradient, known=(0,))


def _of_filter(function: Callable[..., Any]) -> Rule:
    """Its gradient by the kernel, whose shape comes second."""

    def gradient(attrs: Attrs, x: Any, shape: Any, g: Any) -> Any:
        return _in_float32(lambda a, c: _transposed(lambda b: function(attrs, a, b), ints(shape), c), x, g)

    return Rule(gradient, known=(1,))


def _transposed(function: Callable[[Any], Any], dims: tuple[int, ...], g: Any) -> Any:
    return jax.linear_transpose(function, jax.ShapeDtypeStruct(dims, g.dtype))(g)[0]


# -- pools -------------------------------------------------------------------------------------------------------------


def _window(attrs: Attrs, rank: int) -> tuple[Any, Any, Any]:
    padding = attrs["padding"]
    if padding == "EXPLICIT":
        amounts = attrs["explicit_paddings"]
        padding = [(amounts[2 * at], amounts[2 * at + 1]) for at in range(rank)]
    return tuple(attrs["ksize"]), tuple(attrs["strides"]), padding


def max_pool(attrs: Attrs, x: Any, *sizes: Any) -> Any:
    """MaxPool and MaxPool3D, and MaxPoolV2, whose window comes as inputs."""
    if sizes:
        attrs = {**attrs, "ksize": ints(sizes[0]), "strides": ints(sizes[1])}
    least = np.array(-np.inf if jnp.issubdtype(x.dtype, np.floating) else jnp.iinfo(x.dtype).min, x.dtype)
    return lax.reduce_window(jnp.asarray(x), least, lax.max, *_window(attrs, x.ndim))


def max_pool_grad(attrs: Attrs, x: Any, y: Any, g: Any, *sizes: Any) -> Any:
    """MaxPoolGrad, V2 and MaxPool3DGrad: the first largest element of a window has its gradient."""
    return pulled_back(lambda value: max_pool(attrs, value, *sizes), x, g)


def max_pool_grad_grad(attrs: Attrs, x: Any, y: Any, g: Any, *sizes: Any) -> Any:
    """MaxPoolGradGrad, V2 and MaxPool3DGradGrad."""
    return jax.jvp(lambda value: max_pool(attrs, value, *sizes), (traced(x),), (traced(g),))[1]


def max_pool_with_places(attrs: Attrs, x: Any) -> Any:
    """MaxPoolWithArgmax: (the largest elements, where the first of them stands in its flattened image or batch)."""
    x, dtype = traced(x), attrs["Targmax"]
    numbers = np.arange(x.size).reshape(x.shape)
    places = jnp.asarray(numbers if attrs["include_batch_in_index"] else numbers % int(np.prod(x.shape[1:])), dtype)

    def larger(one: Any, other: Any) -> Any:
        is_first = (one[0] > other[0]) | ((one[0] == other[0]) & (one[1] < other[1]))
        return tuple(jnp.where(is_first, a, b) for a, b in zip(one, other))

    start = np.array(-np.inf, x.dtype), np.array(np.iinfo(dtype).max, dtype)
    return tuple(lax.reduce_window((x, places), start, larger, *_window(attrs, x.ndim)))


def max_pool_grad_by_places(attrs: Attrs, x: Any, g: Any, places: Any) -> Any:
    """MaxPoolGradWithArgmax."""
    flat = jnp.zeros(x.size, g.dtype)
    if not attrs["include_batch_in_index"]:
        images = np.arange(x.shape[0]).astype(places.dtype).reshape((-1,) + (1,) * (x.ndim - 1))
        places = places + images * np.array(np.prod(x.shape[1:]), places.dtype)
    return flat.at[jnp.reshape(places, (-1,))].add(jnp.reshape(g, (-1,))).reshape(x.shape)


def average_pool(attrs: Attrs, x: Any) -> Any:
    """AvgPool and AvgPool3D: padding does not count."""
    wide = traced(x).astype(summed_in(x.dtype))
    zero = np.zeros((), wide.dtype)
    total = lax.reduce_window(guarded(wide), zero, lax.add, *_window(attrs, x.ndim))
    return (total / _in_windows(attrs, x.shape, wide.dtype)).astype(x.dtype)


def _in_windows(attrs: Attrs, shape: Any, dtype: Any) -> Any:
    """How many elements of a tensor of this shape are in each window; one number where all of a dimension are alike.

    It is known: XLA would fold a sum over a tensor of ones, of the images' size, when it compiles.
    """
    counts = np.ones((), dtype)
    for dim, size, stride, (low, high) in zip(shape, *_paddings(attrs, shape)):
        first = np.arange(0, dim + low + high - size + 1, stride) - low
        inside = np.minimum(first + size, dim) - np.maximum(first, 0)
        counts = np.multiply.outer(counts, inside[:1] if np.all(inside == inside[:1]) else inside)
    return counts.astype(dtype)


def _paddings(attrs: Attrs, shape: Any) -> tuple[Any, Any, Any]:
    """Sizes and strides of the window, and (before, behind) of each dimension."""
    sizes, strides, padding = _window(attrs, len(shape))
    pads = lax.padtype_to_pads(shape, sizes, strides, padding) if isinstance(padding, str) else padding
    return sizes, strides, pads


def average_pool_grad(attrs: Attrs, shape: Any, g: Any) -> Any:
    """AvgPoolGrad and AvgPool3DGrad: of each element the sum over the windows that contain it."""
    dims, dtype = ints(shape), summed_in(g.dtype)
    sizes, strides, pads = _paddings(attrs, dims)
    shares = traced(g).astype(dtype) / _in_windows(attrs, dims, dtype)
    amounts = [
        (size - 1 - low, dim - (count - 1) * stride - 1 + low, stride - 1)
        for dim, count, size, stride, (low, _) in zip(dims, g.shape, sizes, strides, pads)
    ]
    zero = np.zeros((), dtype)
    spread = lax.pad(shares, zero, amounts)
    total = lax.reduce_window(guarded(spread), zero, lax.add, sizes, (1,) * g.ndim, "VALID")
    return total.astype(g.dtype)


RULES = {
    **dict.fromkeys(("Conv2D", "Conv3D"), _forward(plain)),
    **dict.fromkeys(("Conv2DBackpropInput", "Conv3DBackpropInputV2"), _of_input(plain)),
    **dict.fromkeys(("Conv2DBackpropFilter", "Conv3DBackpropFilterV2"), _of_filter(plain)),
    "DepthwiseConv2dNative": _forward(depthwise),
    "DepthwiseConv2dNativeBackpropInput": _of_input(depthwise),
    "DepthwiseConv2dNativeBackpropFilter": _of_filter(depthwise),
    "MaxPool": Rule(max_pool),
    "MaxPoolV2": Rule(max_pool, known=(1, 2)),
    "MaxPool3D": Rule(max_pool),
    "MaxPoolGrad": Rule(max_pool_grad),
    "MaxPoolGradV2": Rule(max_pool_grad, known=(3, 4)),
    "MaxPool3DGrad": Rule(max_pool_grad),
    "MaxPoolGradGrad": Rule(max_pool_grad_grad),
    "MaxPoolGradGradV2": Rule(max_pool_grad_grad, known=(3, 4)),
    "MaxPool3DGradGrad": Rule(max_pool_grad_grad),
    "MaxPoolWithArgmax": Rule(max_pool_with_places),
    "MaxPoolGradWithArgmax": Rule(max_pool_grad_by_places),
    "AvgPool": Rule(average_pool),
    "AvgPool3D": Rule(average_pool),
    "AvgPoolGrad": Rule(average_pool_grad, known=(0,)),
    "AvgPool3DGrad": Rule(average_pool_grad, known=(0,)),
}
