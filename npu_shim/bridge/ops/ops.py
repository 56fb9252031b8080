"""The vendor's ops that have a formula, in TensorFlow's own ops, so that gradients come from TensorFlow.

Sources: Ascend adapter of 2023-12 (r1.15), npu_ops, npu_unary_ops, npu_aicore_ops; CANN operator documentation.
"""

from __future__ import annotations

import math
import numbers
from typing import Any, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.errors import ConfigError


def dropout(
    x: tf.Tensor, keep_prob: Any, noise_shape: Any = None, seed: int | None = None, name: str | None = None
) -> tf.Tensor:
    """Returns x with elements set to zero at random and the kept ones divided by `keep_prob`.

    Args:
        x: float Tensor.
        keep_prob: float or scalar Tensor, 0 < keep_prob <= 1: the share that is kept (not the rate that is dropped).
        noise_shape: shape of the decisions, broadcast to x; None decides for each element.
        seed: int or None.
        name: str or None.

    Raises:
        ConfigError: x is not float, or keep_prob is out of range.
    """
    x = tf.convert_to_tensor(x, name="x")
    if not x.dtype.is_floating:
        raise ConfigError("dropout: x has to be a float tensor, as it is scaled, got %s" % x.dtype.name)
    if isinstance(keep_prob, numbers.Real):
        if not 0 < keep_prob <= 1:
            raise ConfigError("dropout: keep_prob must be above 0 and at most 1, got %g" % keep_prob)
        if keep_prob == 1:
            return x
    return tf.nn.dropout(x, rate=1 - keep_prob, noise_shape=noise_shape, seed=seed, name=name)


def dropout_v4(
    x: tf.Tensor,
    keep_prob: Any,
    noise_shape: Any = None,
    seed: int | None = None,
    output_dtype: Any = tf.bool,
    name: str | None = None,
) -> tf.Tensor:
    """Returns `dropout`; output_dtype, the type of the NPU's mask, is not used."""
    return dropout(x, keep_prob, noise_shape, seed, name)


def gelu(x: tf.Tensor, name: str | None = None) -> tf.Tensor:
    """Returns 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), elementwise for a float tensor."""
    with tf.name_scope(name, "gelu", [x]):
        x = tf.convert_to_tensor(x)
        return 0.5 * x * (1.0 + tf.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))


def gelu_grad(dy: tf.Tensor, x: tf.Tensor, y: tf.Tensor | None = None, name: str | None = None) -> tf.Tensor:
    """Returns dy times gelu's derivative at x; y, which is gelu(x), is not needed."""
    with tf.name_scope(name, "gelu_grad", [dy, x]):
        x = tf.convert_to_tensor(x)
        slope = math.sqrt(2.0 / math.pi)
        tanh = tf.tanh(slope * (x + 0.044715 * x * x * x))
        inner = slope * (1.0 + 3 * 0.044715 * x * x)
        return dy * (0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * inner)


def fast_gelu(x: tf.Tensor, name: str | None = None) -> tf.Tensor:
    """Returns x / (1 + exp(-1.702 x)), elementwise for a float tensor."""
    with tf.name_scope(name, "fast_gelu", [x]):
        x = tf.convert_to_tensor(x)
        return x * tf.sigmoid(1.702 * x)


def fast_gelu_grad(dy: tf.Tensor, x: tf.Tensor, name: str | None = None) -> tf.Tensor:
    """Returns dy times fast_gelu's derivative at x."""
    with tf.name_scope(name, "fast_gelu_grad", [dy, x]):
        x = tf.convert_to_tensor(x)
        gate = tf.sigmoid(1.702 * x)
        return dy * (gate + 1.702 * x * gate * (1.0 - gate))


def fast_gelu_v2(x: tf.Tensor, name: str | None = None) -> tf.Tensor:
    """Returns x (sgn(x) (-0.1444 (min(|0.7071 x|, 1.769) - 1.769)^2 + 0.5) + 0.5), elementwise, with sgn(0) = 1."""
    with tf.name_scope(name, "fast_gelu_v2", [x]):
        x = tf.convert_to_tensor(x)
        short = tf.minimum(tf.abs(0.7071 * x), 1.769) - 1.769
        return x * (_sign(x) * (-0.1444 * short * short + 0.5) + 0.5)


def fast_gelu_v2_grad(dy: tf.Tensor, x: tf.Tensor, name: str | None = None) -> tf.Tensor:
    """Returns dy times fast_gelu_v2's derivative at x."""
    with tf.name_scope(name, "fast_gelu_v2_grad", [dy, x]):
        x = tf.convert_to_tensor(x)
        short = tf.minimum(tf.abs(0.7071 * x), 1.769) - 1.769
        value = _sign(x) * (-0.1444 * short * short + 0.5) + 0.5
        return dy * (value + x * (-2 * 0.1444 * 0.7071 * short))


def _sign(x):
    return tf.where(x >= 0, tf.ones_like(x), -tf.ones_like(x))


def centralization(x: tf.Tensor, axes: Sequence[int], name: str | None = None) -> tf.Tensor:
    """Returns x minus its mean over `axes` (list of int)."""
    with tf.name_scope(name, "centralization", [x]):
        x = tf.convert_to_tensor(x)
        return x - tf.reduce_mean(x, axes, keepdims=True)


def prelu(x: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
    """Returns max(x, 0) + weight min(x, 0), elementwise; weight is broadcast to x."""
    x = tf.convert_to_tensor(x)
    return tf.nn.relu(x) - weight * tf.nn.relu(-x)


def layer_norm(
    x: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    begin_norm_axis: int = 0,
    begin_params_axis: int = 0,
    epsilon: float = 0.0000001,
    name: str | None = None,
) -> list[tf.Tensor]:
    """Returns [normalized, mean, variance], normalized over the axes from `begin_norm_axis` on.

    Args:
        x: float Tensor.
        gamma: factor, of the shape of x from `begin_params_axis` on.
        beta: summand, likewise.
        begin_norm_axis: int, may be negative.
        begin_params_axis: int; the broadcast from the right end gives it.
        epsilon: float added to the variance.
        name: str or None.
    """
    with tf.name_scope(name, "layer_norm", [x]):
        x = tf.convert_to_tensor(x)
        rank = x.shape.rank
        axes = list(range(begin_norm_axis % rank, rank))
        mean, variance = tf.nn.moments(x, axes, keep_dims=True)
        return [tf.nn.batch_normalization(x, mean, variance, beta, gamma, epsilon), mean, variance]


def nonzero(x: tf.Tensor, transpose: bool = False, output_type: Any = tf.int64, name: str | None = None) -> tf.Tensor:
    """Returns the indices of the elements other than zero: [how many, rank of x], or transposed, in row-major order."""
    with tf.name_scope(name, "nonzero", [x]):
        x = tf.convert_to_tensor(x)
        places = tf.cast(tf.where(x if x.dtype == tf.bool else tf.not_equal(x, tf.zeros([], x.dtype))), output_type)
        return tf.transpose(places) if transpose else places


def scatter_elements(
    data: tf.Tensor, indices: tf.Tensor, updates: tf.Tensor, axis: int = 0, name: str | None = None
) -> tf.Tensor:
    """Returns data with data[.., indices[.., i, ..], ..] = updates[.., i, ..], the indices being along `axis`.

    Args:
        data: Tensor.
        indices: int Tensor of the rank of data.
        updates: Tensor of the shape of indices.
        axis: int.
        name: str or None.
    """
    with tf.name_scope(name, "scatter_elements", [data, indices, updates]):
        data, indices = tf.convert_to_tensor(data), tf.convert_to_tensor(indices)
        shape = tf.shape(indices, out_type=indices.dtype)
        rank = indices.shape.rank
        grid = tf.meshgrid(*[tf.range(shape[i]) for i in range(rank)], indexing="ij")
        grid[axis % rank] = indices
        return tf.tensor_scatter_nd_update(data, tf.stack(grid, axis=-1), updates)


def k_means_centroids(
    x: tf.Tensor,
    y: tf.Tensor,
    sum_square_y: tf.Tensor,
    sum_square_x: tf.Tensor | None,
    use_actual_distance: bool = False,
    name: str | None = None,
) -> tuple[tf.Tensor, ...]:
    """Returns (sum of each centroid's points [n, d], their number [n, 1], sum of the smallest distances [1]).

    Args:
        x: float Tensor [m, d], the points.
        y: float Tensor [n, d], the centroids.
        sum_square_y: float Tensor [1, n], the centroids' squared lengths.
        sum_square_x: float Tensor [m, 1], the points' squared lengths; None leaves them out of the distances.
        use_actual_distance: taken and not used: sum_square_x decides.
        name: str or None.
    """
    with tf.name_scope(name, "k_means_centroids", [x, y]):
        distances = sum_square_y - 2.0 * tf.matmul(x, y, transpose_b=True)
        if sum_square_x is not None:
            distances += sum_square_x
        nearest = tf.one_hot(tf.argmin(distances, 1), tf.shape(y)[0], dtype=x.dtype)
        total = tf.reshape(tf.reduce_sum(tf.reduce_min(distances, 1)), [1])
        return tf.matmul(nearest, x, transpose_a=True), tf.reduce_sum(nearest, 0)[:, tf.newaxis], total


def random_choice_with_mask(
    x: tf.Tensor, count: int, seed: int | None = 0, seed2: int | None = 0
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (indices [count, rank of x] int32, mask [count] bool): places where x is true, drawn without repetition.

    Where x has fewer than `count` true elements, the rest of the indices is 0 and its mask is False.

    Args:
        x: bool Tensor.
        count: int.
        seed: int; 0 with seed2 0 draws anew each time the program starts.
        seed2: int.
    """
    places = tf.random_shuffle(tf.cast(tf.where(x), tf.int32), seed=(seed * 65537 + seed2) or None)[:count]
    missing = count - tf.shape(places)[0]
    indices = tf.pad(places, [[0, missing], [0, 0]])
    return tf.reshape(indices, [count, x.shape.rank]), tf.range(count) < count - missing


def dense_image_warp(image: tf.Tensor, flow: tf.Tensor, name: str | None = None) -> tf.Tensor:
    """Returns image[b, y - flow[b, y, x, 0], x - flow[b, y, x, 1]], bilinear, clamped at the borders.

    Args:
        image: float Tensor [batch, height, width, channels].
        flow: float Tensor [batch, height, width, 2].
        name: str or None.
    """
    with tf.name_scope(name, "dense_image_warp", [image, flow]):
        image, flow = tf.convert_to_tensor(image), tf.convert_to_tensor(flow)
        batch, height, width = tf.unstack(tf.shape(image)[:3])
        rows, columns = tf.meshgrid(tf.range(height), tf.range(width), indexing="ij")
        at = tf.cast(tf.stack([rows, columns], -1), flow.dtype) - flow
        last = tf.cast(tf.stack([height, width]), flow.dtype) - 2.0
        low = tf.floor(tf.clip_by_value(at, 0.0, tf.maximum(last, 0.0)))
        part = tf.cast(tf.clip_by_value(at - tf.stop_gradient(low), 0.0, 1.0), image.dtype)
        base = tf.cast(low, tf.int32)
        batches = tf.broadcast_to(tf.reshape(tf.range(batch), [-1, 1, 1, 1]), [batch, height, width, 1])

        def corner(down, right):
            where = tf.minimum(base + tf.stack([down, right]), tf.stack([height, width]) - 1)
            return tf.gather_nd(image, tf.concat([batches, where], -1))

        y, x = part[..., :1], part[..., 1:]
        top = corner(0, 0) * (1.0 - x) + corner(0, 1) * x
        bottom = corner(1, 0) * (1.0 - x) + corner(1, 1) * x
        return top * (1.0 - y) + bottom * y


def decode_and_resize_jpeg(image: tf.Tensor, size: Any) -> tf.Tensor:
    """Returns a JPEG as uint8 [height, width, 3], resized bilinearly to `size` (int32 [2])."""
    return _resized(tf.image.decode_jpeg(image, channels=3), size)


def decode_and_crop_and_resize_jpeg(image: tf.Tensor, crop_size: Any, size: Any) -> tf.Tensor:
    """Returns the window `crop_size` ([top, left, height, width]) of a JPEG as uint8 [height, width, 3], resized."""
    return _resized(tf.image.decode_and_crop_jpeg(image, crop_size, channels=3), size)


def _resized(image, size):
    return tf.cast(tf.round(tf.image.resize_images(image, size)), tf.uint8)
