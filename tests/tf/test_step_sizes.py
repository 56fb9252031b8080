"""Ops of `npu_shim.step` at the sizes of networks, beside a session: long axes, many segments, large numbers.

Small cases do not show a count that stands still, an index of 8 bits, or a sum that loses what is small. 16 bits are
compared with float64 (`test_step_wide_sums`), since TensorFlow's own kernels add up in 16 bits.
"""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

jax = pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")
from step_runs import Step  # noqa: E402

RANDOM = np.random.RandomState(1)
TOLERANCE = 2e-5  # of the largest number of a result


def floats(*dims, scale=1.0):
    return (RANDOM.randn(*dims) * scale).astype(np.float32)


def whole(low, high, *dims, dtype=np.int32):
    return RANDOM.randint(low, high, dims, dtype=np.int64).astype(dtype)


def ids(count, *dims):
    return whole(0, count, *dims)


def with_gradient(y, *of):
    return [y, *tf.gradients(y, of)]


def texts():
    """Labels of four rows, 20 of each."""
    return tf.SparseTensor([[row, at] for row in range(4) for at in range(20)], ids(60, 80), [4, 20])


def factors(y):
    return [tf.linalg.cholesky(y), tf.linalg.inv(y), tf.linalg.logdet(y), tf.linalg.solve(y, y[:, :3] + 1)]


MANY, LARGE = 70_000, 2**31 - 1
SPREAD = np.concatenate([np.linspace(-100, 100, 2001), np.logspace(-40, 38, 400), -np.logspace(-40, 38, 400)])
BOXES = np.sort(RANDOM.rand(40, 2, 2), 1).reshape(40, 4).astype(np.float32)
TIES = np.round(floats(1, 113, 111, 4), 1)

# name -> (function of placeholders, what is fed, and the tolerance where it is another one)
COUNTS = {  # above 255, 2,048 and 65,504
    "argmax": (lambda x: tf.argmax(x, 1), np.round(floats(4, MANY), 1)),
    "argmax of bytes": (lambda x: tf.argmax(x, 0), whole(0, 200, MANY, dtype=np.uint8)),
    "bincount": (lambda x: tf.raw_ops.Bincount(arr=x, size=3, weights=np.zeros(0, "f")), ids(3, MANY)),
    "true": (lambda x: tf.math.count_nonzero(x, dtype=tf.int32), whole(0, 2, MANY, dtype=np.int8)),
    "where": (lambda x: tf.where(tf.equal(x, 1)), whole(0, 2, 3000, dtype=np.int8)),
    "unique": (lambda x: list(tf.unique_with_counts(x)), ids(500, MANY)),
    "top": (lambda x: list(tf.nn.top_k(x, 1000)), np.round(floats(20_000), 2)),
    "in the top": (lambda x: tf.nn.in_top_k(x, np.arange(64) * 300, 300), np.round(floats(64, MANY // 3), 1)),
    "sort": (lambda x: [tf.sort(x), tf.argsort(x, stable=True)], np.round(floats(20_000), 2)),
    "reversed rows": (lambda x, n: tf.reverse_sequence(x, n, seq_axis=1), floats(3, 700), np.int32([300, 699, 1])),
    "one of many classes": (lambda x: tf.one_hot(x, 300), whole(0, 256, 500, dtype=np.uint8)),
    "classes of bytes": (lambda x: tf.one_hot(tf.cast(x, tf.int64), 300), whole(-128, 128, 50, dtype=np.int8)),
    "rows by bytes": (lambda x: tf.gather(np.arange(600, dtype="f"), tf.cast(x, tf.int32)), whole(0, 256, 99,
                                                                                                  dtype=np.uint8)),
    "edges": (lambda x: tf.raw_ops.Bucketize(input=x, boundaries=list(np.linspace(-3, 3, 700))), floats(2000)),
    "places": (lambda x: tf.searchsorted(np.linspace(-3, 3, MANY).astype("f"), x), floats(500)),
    "band": (lambda x: tf.linalg.band_part(x, 3, -1), floats(300, 280)),
}  # fmt: skip
SUMS = {
    "sum": (lambda x: tf.reduce_sum(x), floats(1_000_000) + 1),
    "mean": (lambda x: tf.reduce_mean(x, 0), floats(MANY, 3) + 5),
    "moments": (lambda x: list(tf.nn.moments(x, [0])), floats(MANY) + 100, 1e-4),
    "squares": (lambda x: [tf.nn.l2_loss(x), tf.norm(x)], floats(300_000, scale=1e10)),
    "small squares": (lambda x: tf.nn.l2_normalize(x, 1), floats(4, MANY, scale=1e-10)),
    "cumulative": (lambda x: [tf.cumsum(x), tf.cumsum(x, exclusive=True, reverse=True)], floats(100_000)),
    "products": (lambda x: [tf.math.cumprod(1 + x / 1000), tf.reduce_prod(1 + x / 1000)], floats(5000), 1e-4),
    "log of a sum": (lambda x: [tf.reduce_logsumexp(x, 1), tf.math.cumulative_logsumexp(x, 1)], floats(2, 3000) * 20),
    "softmax": (lambda x: [tf.nn.softmax(x), tf.nn.log_softmax(x)], floats(4, MANY, scale=20)),
    "cross-entropy": (lambda x: tf.nn.sparse_softmax_cross_entropy_with_logits(labels=np.arange(16) * 3000, logits=x),
                      floats(16, 50_000, scale=10)),
    "bytes": (lambda x: [tf.reduce_sum(x, 0), tf.reduce_mean(x, 0)], whole(0, 255, MANY, 2, dtype=np.uint8)),
    "signed bytes": (lambda x: [tf.reduce_mean(x, 0), tf.reduce_mean(x)], whole(-128, 128, 3000, 2, dtype=np.int8)),
    "shorts": (lambda x: [tf.reduce_sum(x, 0), tf.reduce_mean(x, 0)], whole(-30000, 30000, MANY, 2, dtype=np.int16)),
    "whole numbers": (lambda x: [tf.reduce_sum(x, 0), tf.reduce_mean(x, 0), tf.cumsum(x)], whole(-LARGE, LARGE, 5000)),
    "long ones": (lambda x: tf.reduce_mean(x, 0), whole(-(2**62), 2**62, 3000, 2, dtype=np.int64)),
    "segments": (lambda x, at: [tf.math.unsorted_segment_sum(x, at, 500), tf.math.unsorted_segment_mean(x, at, 500),
                                tf.math.unsorted_segment_max(x, at, 500)], floats(MANY, 2), whole(-3, 500, MANY)),
    "segments of bytes": (lambda x, at: tf.math.unsorted_segment_sum(x, at, 3), whole(0, 9, 5000, dtype=np.int8),
                          ids(3, 5000)),
    "scattered": (lambda x, at: [tf.scatter_nd(at, x, [500, 2]), tf.tensor_scatter_nd_add(tf.ones([500, 2]), at, x)],
                  floats(MANY, 2), ids(500, MANY, 1)),
    "gathered": (lambda x, at: [tf.gather_nd(x, at), tf.gradients(tf.gather_nd(x, at), x)[0]], floats(300, 300, 2),
                 ids(300, MANY, 2)),
    "bias": (lambda x: tf.raw_ops.BiasAddGrad(out_backprop=x), floats(MANY, 3) + 1),
}  # fmt: skip
NUMBERS = {
    "range": (lambda x: [tf.range(0.0, 100.0, 0.01), tf.range(1.0, 0.0, -0.001), tf.linspace(-1.0, 1.0, 10_001),
                         tf.range(10**12, 10**12 + 10_000, 7, dtype=tf.int64)], floats(1)),
    "remainders": (lambda x, y: [tf.math.floormod(x, y), tf.truncatemod(x, y), tf.math.floordiv(x, y),
                                 tf.truncatediv(x, y)], whole(-LARGE, LARGE, 5000), whole(0, 999, 5000) * 2 - 999),
    "wrapped": (lambda x, y: [x * y, x + y, tf.square(x), tf.abs(x), -x], whole(-LARGE, LARGE, 500),
                whole(-LARGE, LARGE, 500)),
    "of floats": (lambda x: [tf.cast(x, tf.int32), tf.cast(x, tf.int64), tf.cast(tf.abs(x) % 256, tf.uint8)],
                  floats(5000, scale=1e5)),
    "halves of floats": (lambda x: [tf.cast(tf.cast(x, to), tf.float32) for to in (tf.float16, tf.bfloat16)],
                         SPREAD.astype("f")),
    "floats of long ones": (lambda x: [tf.cast(x, tf.float32), tf.cast(x, tf.float64), tf.cast(x, tf.int32)],
                            whole(-(2**62), 2**62, 5000, dtype=np.int64)),
    "compared": (lambda x: [tf.less(x, x[::-1]), tf.maximum(x, x[::-1]), tf.argmax(x), tf.reduce_max(x)],
                 whole(LARGE - 9, LARGE, 500)),
    **{name: (function, SPREAD.astype("f"), 2e-6) for name, function in {
        "exp": tf.exp, "expm1": tf.math.expm1, "tanh": tf.tanh, "sigmoid": tf.sigmoid, "softplus": tf.nn.softplus,
        "softsign": tf.nn.softsign, "erf": tf.math.erf, "erfc": tf.math.erfc, "sin": tf.sin, "cos": tf.cos,
        "atan": tf.atan, "sinh": tf.sinh, "cosh": tf.cosh, "asinh": tf.asinh, "rsqrt": tf.math.rsqrt,
        "log": tf.math.log, "log1p": tf.math.log1p, "elu": tf.nn.elu, "selu": tf.nn.selu,
        "log of sigmoid": tf.math.log_sigmoid, "rint": tf.math.rint, "round": tf.round,
        "floor": tf.floor, "i0e": tf.math.bessel_i0e,
    }.items()},
    "gamma": (lambda x: [tf.math.lgamma(x), tf.math.digamma(x)], np.abs(SPREAD).astype("f"), 2e-6),
    "poles of gamma": (lambda x: [tf.math.lgamma(x), tf.math.digamma(x)],
                       np.array([0, -0.0, -1, -2, -0.5, 3, np.inf, -np.inf, np.nan], "f"), 2e-6),
    "igamma": (lambda a, x: [tf.math.igamma(a, x), tf.math.igammac(a, x)], np.abs(floats(500)) * 30 + 0.01,
               np.abs(floats(500)) * 30),
    "betainc": (lambda a, b, x: tf.math.betainc(a, b, x), np.abs(floats(300)) * 30 + 0.01,
                np.abs(floats(300)) * 30 + 0.1, RANDOM.rand(300).astype("f")),
    "zeta": (lambda x, q: [tf.math.zeta(x, q), tf.pow(x, q)], np.abs(floats(300)) * 30 + 1.01,
             np.abs(floats(300)) + 0.1),
}  # fmt: skip
LAYERS = {
    "product": (lambda x, y: tf.matmul(x, y), floats(64, 4096), floats(4096, 32)),
    "attention": (lambda x, y: tf.einsum("bqhd,bkhd->bhqk", x, y), floats(2, 64, 4, 64), floats(2, 80, 4, 64)),
    "convolution": (lambda x, w: with_gradient(tf.nn.conv2d(x, w, [1, 2, 2, 1], "SAME"), x, w),
                    floats(2, 57, 55, 16), floats(5, 5, 16, 8)),
    "transposed": (lambda x, w: tf.nn.conv2d_transpose(x, w, [2, 57, 55, 8], [1, 2, 2, 1], "SAME"),
                   floats(2, 29, 28, 16), floats(5, 5, 8, 16)),
    "depthwise": (lambda x, w: tf.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], "SAME"), floats(2, 50, 50, 8),
                  floats(3, 3, 8, 2)),
    "volumes": (lambda x, w: tf.nn.conv3d(x, w, [1, 1, 2, 2, 1], "SAME"), floats(1, 8, 20, 20, 4),
                floats(3, 3, 3, 4, 8)),
    "pool": (lambda x: with_gradient(tf.nn.max_pool(x, [1, 3, 3, 1], [1, 2, 2, 1], "SAME"), x), TIES),
    "places of a pool": (lambda x: list(tf.nn.max_pool_with_argmax(x, [1, 3, 3, 1], [1, 2, 2, 1], "SAME")), TIES),
    "mean of a map": (lambda x: with_gradient(tf.nn.avg_pool(x, [1, 57, 57, 1], [1, 1, 1, 1], "VALID"), x),
                      floats(1, 60, 57, 4) + 5),
    "neighbours": (lambda x: tf.nn.lrn(x, 5, alpha=1e-4, beta=0.75), floats(2, 10, 10, 96) * 10),
    "batch norm": (lambda x: list(tf.nn.fused_batch_norm(x, [1.0] * 64, [0.5] * 64))[:3],
                   floats(8, 28, 28, 64) * 3 + 50, 5e-5),
    "its gradient": (lambda x: tf.gradients(tf.nn.fused_batch_norm(x, [1.0] * 32, [0.5] * 32)[0] * x, x)[0],
                     floats(8, 14, 14, 32) * 3 + 5, 5e-5),
    "resized": (lambda x: [tf.image.resize_bilinear(x, [377, 203]), tf.image.resize_nearest_neighbor(x, [377, 203]),
                           tf.image.resize_bilinear(x, [77, 303], align_corners=True),
                           tf.image.resize_nearest_neighbor(x, [77, 303], align_corners=True),
                           tf.image.resize_bilinear(x, [377, 103], half_pixel_centers=True),
                           tf.image.resize_bicubic(x, [377, 53])], floats(1, 133, 151, 3)),
    "crops": (lambda x, boxes: tf.image.crop_and_resize(x, boxes, np.arange(40) % 2, [14, 14]), floats(2, 60, 70, 4),
              BOXES),
    "colors": (lambda x: [tf.image.rgb_to_hsv(x), tf.image.adjust_hue(x, 0.3), tf.image.adjust_saturation(x, 1.7)],
               RANDOM.rand(60, 60, 3).astype("f")),
    "factors": (lambda x: factors(tf.matmul(x, x, transpose_b=True) + 100 * tf.eye(100)), floats(100, 100)),
    "spectrum": (lambda x: [tf.signal.fft(tf.cast(x, tf.complex64)), tf.signal.rfft(x, [1000])], floats(4, 4096)),
    "texts": (lambda x: with_gradient(tf.nn.ctc_loss(texts(), x, [100, 90, 80, 60]), x), floats(100, 4, 62), 1e-4),
}  # fmt: skip


def differs(got, want, tolerance):
    """What is wrong with a result, as text; None."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return "%s%s for %s%s" % (got.dtype, got.shape, want.dtype, want.shape)
    if want.dtype.kind not in "fc":
        return None if np.array_equal(got, want) else "%d of %d" % (np.sum(got != want), want.size)
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    got, want = got.astype(wide), want.astype(wide)
    finite = np.isfinite(want)
    if not np.array_equal(got[~finite], want[~finite], equal_nan=True):
        return "what is not finite"
    error = np.max(np.abs(got[finite] - want[finite]), initial=0)
    size = np.max(np.abs(want[finite]), initial=0)
    return None if error <= tolerance * size + 1e-37 else "by %.1e of %.1e" % (error, size)


@pytest.mark.parametrize("table", [COUNTS, SUMS, NUMBERS, LAYERS], ids=["counts", "sums", "numbers", "layers"])
def test_sizes_of_networks(table):
    with tf.Graph().as_default() as graph:
        feeds, fetches, owners = {}, [], []
        for name, (function, *given) in table.items():
            tolerance = given.pop() if isinstance(given[-1], float) else TOLERANCE
            fed = {tf.placeholder(value.dtype, value.shape): value for value in given}
            outputs = function(*fed)
            feeds.update(fed)
            tensors = [tf.convert_to_tensor(tensor) for tensor in (outputs if isinstance(outputs, list) else [outputs])]
            fetches += tensors
            owners += [(name, number, tolerance) for number in range(len(tensors))]
        with tf.Session() as session:
            wanted = session.run(fetches, feeds)
        results = Step(graph, fetches, feeds=list(feeds))(feeds)
    pairs = zip(owners, results, wanted)
    faults = {(name, at): differs(got, want, tolerance) for (name, at, tolerance), got, want in pairs}
    assert not any(faults.values()), "\n".join("%s: %s" % item for item in faults.items() if item[1])
