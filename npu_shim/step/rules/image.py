"""Images: [batch, height, width, channels] resized, cropped, and taken apart."""

from __future__ import annotations

import math
from typing import Any, Callable

import jax
import jax.numpy as jnp
import numpy as np

from npu_shim.step.masks import cleared
from npu_shim.step.refusals import Unsupported
from npu_shim.step.rules.nn import pulled_back
from npu_shim.step.rules.table import Attrs, Rule
from npu_shim.step.values import Rows, ints, traced

HALF = np.float32(0.5)
MOST = 2**40  # elements of an image, beyond which a size is a mistake, of which the session tells


def _sizes(x: Any, size: Any) -> tuple[int, int]:
    """Height and width that are asked for; their places are made while the step is traced."""
    height, width = ints(size)
    if math.prod((x.shape[0], height, width, x.shape[-1])) > MOST:
        raise Unsupported("a result of %d x %d would have more than %d elements" % (height, width, MOST))
    return height, width


def _sources(attrs: Attrs, size: int, out: int) -> tuple[Any, bool]:
    """(Where each row of the result comes from: float32, as TensorFlow counts it; whether corners are aligned)."""
    aligned = bool(attrs["align_corners"]) and out > 1
    scale = np.float32((size - 1) / np.float32(out - 1) if aligned else size / np.float32(out))
    at = np.arange(out, dtype=np.float32)
    return ((at + HALF) * scale if attrs["half_pixel_centers"] else at * scale), aligned


# -- nearest -----------------------------------------------------------------------------------------------------------


def _nearest(attrs: Attrs, size: int, out: int) -> Any:
    sources, aligned = _sources(attrs, size, out)
    rounded = np.floor(sources + HALF) if aligned else np.floor(sources)
    return np.clip(rounded.astype(np.int64), 0, size - 1)


def nearest(attrs: Attrs, x: Any, size: Any) -> Any:
    """ResizeNearestNeighbor."""
    height, width = _sizes(x, size)
    rows, columns = _nearest(attrs, x.shape[1], height), _nearest(attrs, x.shape[2], width)
    return traced(x)[:, rows[:, None], columns[None, :]]


def _pulled_to(resize: Callable[..., Any], attrs: Attrs, g: Any, shape: tuple[int, ...]) -> Any:
    """The gradient of images of a shape that are resized."""
    like = jax.ShapeDtypeStruct(shape, g.dtype)
    return jax.linear_transpose(lambda x: resize(attrs, x, np.array(g.shape[1:3])), like)(traced(g))[0]


def nearest_grad(attrs: Attrs, g: Any, size: Any) -> Any:
    """ResizeNearestNeighborGrad: `size` is that of the images."""
    return _pulled_to(nearest, attrs, g, (g.shape[0], *ints(size), g.shape[3]))


def _gradient(resize: Callable[..., Any]) -> Rule:
    """ResizeBilinearGrad and ResizeBicubicGrad: inside in float32."""

    def gradient(attrs: Attrs, g: Any, original: Any) -> Any:
        return _pulled_to(resize, attrs, g.astype(np.float32), original.shape).astype(original.dtype)

    return Rule(gradient)


# -- bilinear ----------------------------------------------------------------------------------------------------------


def _weights(attrs: Attrs, size: int, out: int) -> tuple[Any, Any, Any]:
    sources, _ = _sources(attrs, size, out)
    sources = sources - HALF if attrs["half_pixel_centers"] else sources
    floor = np.floor(sources)
    lower = np.maximum(floor.astype(np.int64), 0)
    upper = np.clip(np.ceil(sources).astype(np.int64), 0, size - 1)
    return np.minimum(lower, size - 1), upper, (sources - floor).astype(np.float32)


def bilinear(attrs: Attrs, x: Any, size: Any) -> Any:
    """ResizeBilinear: float32."""
    height, width = _sizes(x, size)
    x = traced(x).astype(np.float32)
    top, bottom, down = _weights(attrs, x.shape[1], height)
    left, right, along = _weights(attrs, x.shape[2], width)
    down, along = down[:, None, None], along[:, None]

    def row(at: Any) -> Any:
        one, other = x[:, at][:, :, left], x[:, at][:, :, right]
        return one + (other - one) * along

    upper, lower = row(top), row(bottom)
    return upper + (lower - upper) * down


# -- bicubic -----------------------------------------------------------------------------------------------------------

STEPS = 1024  # in which TensorFlow's kernel tabulates the cubic between two rows


def _cubic(at: Any, a: float) -> Any:
    """The kernel's weights at distances `at`, multiples of 1 / STEPS up to 2: float32."""
    near = ((a + 2) * at - (a + 3)) * at * at + 1
    far = ((a * at - 5 * a) * at + 8 * a) * at - 4 * a
    return np.where(at <= 1, near, far).astype(np.float32)


def _cubic_weights(attrs: Attrs, size: int, out: int) -> Any:
    """How much each row of the result takes of each row of the image: float32 [out, size]."""
    sources, _ = _sources(attrs, size, out)
    by_half = attrs["half_pixel_centers"]  # then Keys' cubic, and nothing beyond the edges; else edges are repeated
    sources = sources - HALF if by_half else sources
    floor = np.floor(sources)
    step = np.rint((sources - floor) * np.float32(STEPS)) / STEPS
    result = np.zeros((out, size), np.float32)
    for shift, distance in ((-1, 1 + step), (0, step), (1, 1 - step), (2, 2 - step)):
        row = floor.astype(np.int64) + shift
        bounded = np.clip(row, 0, size - 1)
        weight = _cubic(distance, -0.5 if by_half else -0.75)
        np.add.at(result, (np.arange(out), bounded), np.where(row == bounded, weight, 0) if by_half else weight)
    return result / result.sum(1, keepdims=True, dtype=np.float32) if by_half else result


def bicubic(attrs: Attrs, x: Any, size: Any) -> Any:
    """ResizeBicubic: float32."""
    height, width = _sizes(x, size)
    down, along = _cubic_weights(attrs, x.shape[1], height), _cubic_weights(attrs, x.shape[2], width)
    return jnp.einsum("oh,bhwc,pw->bopc", down, traced(x).astype(np.float32), along, precision="highest")


# -- crops -------------------------------------------------------------------------------------------------------------


def _ticks(low: Any, high: Any, size: int, out: int) -> Any:
    """Where the rows of each crop come from: float32 [boxes, out]."""
    most = np.float32(size - 1)
    if out == 1:
        return HALF * (low + high)[:, None] * most
    step = (high - low) * most / np.float32(out - 1)
    return (low * most)[:, None] + np.arange(out, dtype=np.float32) * step[:, None]


def crop(attrs: Attrs, images: Any, boxes: Any, numbers: Any, size: Any) -> Any:
    """CropAndResize: float32 [boxes, height, width, channels]."""
    height, width = ints(size)
    images, boxes = traced(images).astype(np.float32), traced(boxes)
    down = _ticks(boxes[:, 0], boxes[:, 2], images.shape[1], height)
    along = _ticks(boxes[:, 1], boxes[:, 3], images.shape[2], width)
    is_in = _is_within(down, images.shape[1])[:, :, None] & _is_within(along, images.shape[2])[:, None]
    taken = _nearest_of if attrs.get("method", "bilinear") == "nearest" else _between
    values = taken(images, numbers, down, along)
    return jnp.where(is_in[..., None], values, np.float32(attrs.get("extrapolation_value", 0)))


def _is_within(ticks: Any, size: int) -> Any:
    return (ticks >= np.float32(0)) & (ticks <= np.float32(size - 1))


def _picked(images: Any, numbers: Any, rows: Any, columns: Any) -> Any:
    rows, columns = (part.astype(np.int32) for part in (rows[:, :, None], columns[:, None, :]))
    return images.at[numbers[:, None, None], rows, columns].get(mode="clip")


def _nearest_of(images: Any, numbers: Any, down: Any, along: Any) -> Any:
    return _picked(images, numbers, _rounded(down), _rounded(along))


def _rounded(ticks: Any) -> Any:
    return jnp.floor(ticks + HALF)


def _between(images: Any, numbers: Any, down: Any, along: Any) -> Any:
    top, left = jax.lax.stop_gradient(jnp.floor(down)), jax.lax.stop_gradient(jnp.floor(along))
    bottom, right = jax.lax.stop_gradient(jnp.ceil(down)), jax.lax.stop_gradient(jnp.ceil(along))
    across, below = (along - left)[:, None, :, None], (down - top)[:, :, None, None]

    def row(at: Any) -> Any:
        one, other = _picked(images, numbers, at, left), _picked(images, numbers, at, right)
        return one + (other - one) * across

    upper, lower = row(top), row(bottom)
    return upper + (lower - upper) * below


def crop_grad_image(attrs: Attrs, g: Any, boxes: Any, numbers: Any, size: Any) -> Any:
    """CropAndResizeGradImage."""
    images = jnp.zeros(ints(size), np.float32)
    shape = np.array(g.shape[1:3])
    return pulled_back(lambda x: crop(attrs, x, boxes, numbers, shape), images, g).astype(attrs["T"])


def crop_grad_boxes(attrs: Attrs, g: Any, images: Any, boxes: Any, numbers: Any) -> Any:
    """CropAndResizeGradBoxes."""
    shape = np.array(g.shape[1:3])
    return pulled_back(lambda where: crop(attrs, images, where, numbers, shape), boxes, g)


def _crop_rows(attrs: Attrs, images: Any, boxes: Any, numbers: Any, size: Any) -> Any:
    """CropAndResize by as many boxes as data says, of rows."""
    counts = [value.count for value in (boxes, numbers) if isinstance(value, Rows)]
    result = crop(attrs, cleared(images), cleared(boxes), cleared(numbers), size)
    return Rows(result, counts[0]) if counts else result


def _crop_grad_image_rows(attrs: Attrs, g: Any, boxes: Any, numbers: Any, size: Any) -> Any:
    """CropAndResizeGradImage, of crops of which there are as many as data says."""
    return crop_grad_image(attrs, cleared(g), cleared(boxes), cleared(numbers), size)


# -- others ------------------------------------------------------------------------------------------------------------


def contrast(attrs: Attrs, x: Any, factor: Any) -> Any:
    """AdjustContrastv2: away from the mean of each channel of each image."""
    x = traced(x)
    mean = jnp.mean(x.astype(np.float32), (-3, -2), keepdims=True)
    return ((x.astype(np.float32) - mean) * factor + mean).astype(x.dtype)


def windows(attrs: Attrs, x: Any, height: int, width: int, outside: Any) -> list[Any]:
    """For each place in a window, the elements of all windows there [batch, rows, columns, channels].

    Args:
        attrs: with strides, rates and padding, as of Dilation2D.
        x: images.
        height: of a window.
        width: of a window.
        outside: what stands beyond the edges.
    """
    (_, *strides, _), (_, *rates, _) = attrs["strides"], attrs["rates"]
    ends, pads = [], [(0, 0)]
    for size, count, stride, rate in zip(x.shape[1:3], (height, width), strides, rates):
        span = (count - 1) * rate + 1
        out = -(-size // stride) if attrs["padding"] == "SAME" else (size - span) // stride + 1
        more = max(0, (out - 1) * stride + span - size) if attrs["padding"] == "SAME" else 0
        pads.append((more // 2, more - more // 2))
        ends.append((out - 1) * stride + 1)
    x = jnp.pad(x, [*pads, (0, 0)], constant_values=outside)
    return [
        x[:, i * rates[0] :, j * rates[1] :][:, : ends[0] : strides[0], : ends[1] : strides[1]]
        for i in range(height) for j in range(width)
    ]  # fmt: skip


def patches(attrs: Attrs, x: Any) -> Any:
    """ExtractImagePatches: [batch, rows, columns, height * width * channels]."""
    _, height, width, _ = attrs["ksizes"]
    return jnp.concatenate(windows(attrs, traced(x), height, width, np.zeros((), x.dtype)), -1)


# -- projections -------------------------------------------------------------------------------------------------------


def _reflected(at: Any, size: Any) -> Any:
    """[abcd] as [dcba|abcd|dcba]."""
    turn = np.float32(2) * size
    low = jnp.where(at < turn, turn * jnp.trunc(-at / turn) + at, at)
    low = jnp.where(low < -size, low + turn, -low - np.float32(1))
    high = at - turn * jnp.trunc(at / turn)
    high = jnp.where(high >= size, turn - high - np.float32(1), high)
    return jnp.where(at < 0, low, jnp.where(at > size - np.float32(1), high, at))


def _wrapped(at: Any, size: Any) -> Any:
    """[abcd] as [abcd|abcd|abcd]."""
    one = np.float32(1)
    low = at + size * (jnp.trunc(-at / (size - one)) + one)
    high = at - size * jnp.trunc(at / (size - one))
    return jnp.where(at < 0, low, jnp.where(at > size - one, high, at))


FILLS: Any = {"REFLECT": _reflected, "WRAP": _wrapped, "NEAREST": lambda at, size: at}


def _filled_at(mode: str, at: Any, size: int) -> Any:
    """Where the element stands that is taken for one beyond an edge."""
    if mode == "CONSTANT":
        return at
    inside = FILLS[mode](at, np.float32(size)) if size > 1 else jnp.zeros_like(at)
    return jnp.clip(inside, 0, size - 1).astype(np.float32)


def projected(attrs: Attrs, images: Any, transforms: Any, size: Any, fill: Any = None) -> Any:
    """ImageProjectiveTransformV2, V3: (x, y) is of ((a x + b y + c) / k, (d x + e y + f) / k), k = g x + h y + 1."""
    images, transforms = traced(images), traced(transforms)
    (height, width), (batch, *limits, _) = ints(size), images.shape
    a = jnp.broadcast_to(transforms, (batch, 8)).T[:, :, None, None]
    x, y = np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32)[:, None]
    k = a[6] * x + a[7] * y + np.float32(1)
    there = (a[3] * x + a[4] * y + a[5]) / k, (a[0] * x + a[1] * y + a[2]) / k
    mode = attrs.get("fill_mode") or "CONSTANT"
    row, column = (_filled_at(mode, at, limit) for at, limit in zip(there, limits))
    fill = np.zeros((), images.dtype) if fill is None else jnp.asarray(fill).astype(images.dtype)
    taken = _projected_nearest if attrs["interpolation"] == "NEAREST" else _projected_between
    return jnp.where((k == np.float32(0))[..., None], fill, taken(images, row, column, fill))


def _read(images: Any, row: Any, column: Any, fill: Any) -> Any:
    (batch, height, width, _), zero = images.shape, np.float32(0)
    is_in = (row >= zero) & (row < np.float32(height)) & (column >= zero) & (column < np.float32(width))
    at = [jnp.where(is_in, part, zero).astype(np.int32) for part in (row, column)]
    return jnp.where(is_in[..., None], images[(np.arange(batch)[:, None, None], *at)], fill)


def _projected_nearest(images: Any, row: Any, column: Any, fill: Any) -> Any:
    row, column = (jnp.trunc(at + jnp.where(at < 0, -HALF, HALF)) for at in (row, column))  # half away from zero
    return _read(images, row, column, fill)


def _projected_between(images: Any, row: Any, column: Any, fill: Any) -> Any:
    kind = np.promote_types(images.dtype, np.float32) if images.dtype.kind == "f" else np.float32
    one, top, left = np.float32(1), jnp.floor(row), jnp.floor(column)
    down, along = ((at - floor)[..., None].astype(kind) for at, floor in ((row, top), (column, left)))
    up, back = ((floor + one - at)[..., None].astype(kind) for at, floor in ((row, top), (column, left)))

    def across(at: Any) -> Any:
        first, second = _read(images, at, left, fill).astype(kind), _read(images, at, left + one, fill).astype(kind)
        return back * first + along * second

    return (up * across(top) + down * across(top + one)).astype(images.dtype)


RULES = {
    "ImageProjectiveTransformV2": Rule(projected, known=(2,)),
    "ImageProjectiveTransformV3": Rule(projected, known=(2,)),
    "ResizeNearestNeighbor": Rule(nearest, known=(1,)),
    "ResizeNearestNeighborGrad": Rule(nearest_grad, known=(1,)),
    "ResizeBilinear": Rule(bilinear, known=(1,)),
    "ResizeBilinearGrad": _gradient(bilinear),
    "ResizeBicubic": Rule(bicubic, known=(1,)),
    "ResizeBicubicGrad": _gradient(bicubic),
    "CropAndResize": Rule(crop, known=(3,), rows=_crop_rows),
    "CropAndResizeGradImage": Rule(crop_grad_image, known=(3,), rows=_crop_grad_image_rows),
    "CropAndResizeGradBoxes": Rule(crop_grad_boxes),
    "AdjustContrastv2": Rule(contrast),
    "ExtractImagePatches": Rule(patches),
}
