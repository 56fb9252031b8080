"""The vendor's ops against numpy formulas written independently of ours, and gradients against finite differences."""

import math

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.bridge.ops import gen_ops, ops, optimizer_steps

RNG = np.random.RandomState(0)


def close(got, expected, dtype=np.float32, terms=8):
    """Equality up to `terms` roundings of the dtype, relative to the largest value."""
    expected = np.asarray(expected, np.float64)
    bound = terms * np.finfo(dtype).eps * max(1.0, np.max(np.abs(expected)))
    np.testing.assert_allclose(got, expected, rtol=0, atol=bound)


def numpy_gelu(x):
    return np.array([0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))) for v in x])


def numpy_fast_gelu(x):
    return np.array([v / (1 + math.exp(-1.702 * v)) for v in x])


def numpy_fast_gelu_v2(x):
    return np.array(
        [v * (math.copysign(1, v) * (-0.1444 * (min(abs(0.7071 * v), 1.769) - 1.769) ** 2 + 0.5) + 0.5) for v in x]
    )


ACTIVATIONS = [
    (ops.gelu, ops.gelu_grad, numpy_gelu),
    (ops.fast_gelu, ops.fast_gelu_grad, numpy_fast_gelu),
    (ops.fast_gelu_v2, ops.fast_gelu_v2_grad, numpy_fast_gelu_v2),
]


@pytest.mark.parametrize(("op", "gradient", "formula"), ACTIVATIONS)
def test_activation_and_its_gradient(op, gradient, formula):
    # 2.5018 is where the clipping of fast_gelu_v2 begins: no difference quotient across it
    x = np.array([-8.0, -3.0, -1.0, -0.1, 0.05, 0.7, 2.0, 3.0, 8.0])
    dy = RNG.randn(x.size)

    def build():
        inputs = tf.constant(x)
        y = op(inputs)
        return y, tf.gradients(y, inputs, dy)[0], gradient(dy, inputs)

    y, automatic, explicit = sessions.evaluated(build)
    step = 1e-6
    slope = dy * (formula(x + step) - formula(x - step)) / (2 * step)
    close(y, formula(x), np.float64)
    np.testing.assert_allclose(automatic, slope, atol=1e-8)  # the quotient's own error: eps / step is about 2e-10
    close(explicit, automatic, np.float64, 32)


@pytest.mark.parametrize("op", [activation[0] for activation in ACTIVATIONS])
def test_activation_keeps_the_dtype_and_large_values(op):
    y = sessions.evaluated(lambda: op(tf.constant([-1e4, 0.0, 30.0], tf.float16)))
    assert y.dtype == np.float16
    assert y.tolist() == [0.0, 0.0, 30.0]


def test_gelu_is_reached_by_the_vendors_handle():
    from npu_bridge.estimator.npu_aicore_ops import npu_aicore_ops
    from npu_bridge.estimator.npu_unary_ops import npu_unary_ops
    from npu_bridge.helper import helper

    assert npu_unary_ops.gelu is npu_aicore_ops.gelu is helper.get_gen_ops().gelu is ops.gelu


def test_dropout_scales_what_it_keeps():
    x = RNG.rand(200, 300).astype(np.float32) + 1.0

    def build():
        inputs = tf.constant(x)
        y = ops.dropout(inputs, 0.7, seed=3)
        return y, tf.gradients(y, inputs)[0]

    y, gradient = sessions.evaluated(build)
    kept = y != 0
    close(y[kept], x[kept] / 0.7, terms=4)
    # a binomial share: four standard deviations
    assert abs(kept.mean() - 0.7) < 4 * math.sqrt(0.7 * 0.3 / x.size)
    close(gradient, kept / 0.7, terms=4)


def test_dropout_decides_once_for_a_noise_shape():
    y = sessions.evaluated(lambda: ops.dropout(tf.ones([50, 8]), 0.5, noise_shape=[50, 1], seed=1))
    assert set(np.unique(y.mean(axis=1))) == {0.0, 2.0}


def test_dropout_repeats_with_the_seed():
    first, second = [sessions.evaluated(lambda: ops.dropout(tf.ones([100]), 0.5, seed=7), seed=1) for _ in range(2)]
    other = sessions.evaluated(lambda: ops.dropout(tf.ones([100]), 0.5, seed=8), seed=1)
    assert (first == second).all()
    assert (first != other).any()


def test_dropout_takes_a_tensor():
    y = sessions.evaluated(lambda: ops.dropout(tf.ones([1000]), tf.constant(0.25)))
    assert set(np.unique(y)) == {0.0, 4.0}


def test_dropout_of_nothing_is_the_input():
    with tf.Graph().as_default():
        x = tf.ones([3])
        assert ops.dropout(x, 1.0) is x
        assert ops.dropout(x, 1) is x


@pytest.mark.parametrize("keep", [0.0, -0.1, 1.5])
def test_dropout_refuses_a_share_out_of_range(keep):
    with tf.Graph().as_default(), pytest.raises(ValueError, match=r"^npu_shim: dropout: keep_prob must be above 0"):
        ops.dropout(tf.ones([3]), keep)


def test_dropout_refuses_integers():
    with tf.Graph().as_default(), pytest.raises(ValueError, match=r"^npu_shim: dropout: x has to be a float tensor"):
        ops.dropout(tf.constant([1, 2]), 0.5)


def test_lars():
    w, g = RNG.randn(4, 3).astype(np.float32), RNG.randn(4, 3).astype(np.float32)
    other_w, other_g = RNG.randn(5).astype(np.float32), RNG.randn(5).astype(np.float32)

    def expected(w, g):
        norm = math.sqrt((w.astype(np.float64) ** 2).sum())
        return 0.001 * norm / (math.sqrt((g.astype(np.float64) ** 2).sum()) + 1e-4 * norm + 1e-5) * (g + 1e-4 * w)

    first, second = sessions.evaluated(lambda: optimizer_steps.LARS([w, other_w], [g, other_g], 1e-4))
    close(first, expected(w, g))
    close(second, expected(other_w, other_g))
    clipped = sessions.evaluated(lambda: optimizer_steps.LARSV2(w, g, 1e-4, 1e-9, use_clip=True))
    close(clipped, g + 1e-4 * w)
    close(sessions.evaluated(lambda: optimizer_steps.LARSV2(w, g, 1e-4, 1e-9)), expected(w, g))


def numpy_moments(g, v, m):
    return v * 0.99 + g * g * 0.01, m * 0.9 + g * 0.1


@pytest.mark.parametrize("decay", [None, 0.01])
def test_adam_step_writes_into_variables(decay):
    g, v, m, w = RNG.randn(4, 6)
    v = v * v

    def build():
        variables = [tf.Variable(value) for value in (v, m, w)]
        constants = (0.9, 0.1, 0.99, 0.01)
        if decay is None:
            step = optimizer_steps.adam_apply_one_assign(g, *variables, 0.1, *constants, 1e-8)
        else:
            step = optimizer_steps.adam_apply_one_with_decay_assign(g, *variables, 0.1, *constants, decay, 1e-8)
        with tf.control_dependencies(step):
            return step, [tf.identity(variable.read_value()) for variable in variables]

    step, stored = sessions.evaluated(build)
    new_v, new_m = numpy_moments(g, v, m)
    new_w = w - 0.1 * (new_m / (np.sqrt(new_v) + 1e-8) + (decay or 0.0) * w)
    for got, kept, expected in zip(step, stored, (new_v, new_m, new_w)):
        close(got, expected, np.float64, 16)
        close(kept, expected, np.float64, 16)


def test_adam_step_of_plain_tensors_assigns_nothing():
    values = RNG.rand(4, 5)
    v, _, _ = sessions.evaluated(
        lambda: optimizer_steps.adam_apply_one_assign(*values, 0.1, 0.9, 0.1, 0.99, 0.01, 1e-8)
    )
    close(v, numpy_moments(values[0], values[1], values[2])[0], np.float64)


def test_two_halves_of_a_lamb_step():
    g, v, m, w = RNG.randn(4, 6)
    v = v * v

    def build():
        variables = [tf.Variable(v), tf.Variable(m)]
        weight = tf.Variable(w)
        update, new_v, new_m = optimizer_steps.lamb_apply_optimizer_assign(
            g, *variables, weight, 0.9, 0.1, 0.99, 0.01, 1e-6, tf.constant(3.0, tf.float64), 1.0, 0.01
        )
        length, step = tf.norm(weight), tf.norm(update)
        return update, new_v, new_m, optimizer_steps.lamb_apply_weight_assign(length, step, 0.1, update, weight)

    update, got_v, got_m, weight = sessions.evaluated(build)
    new_v, new_m = numpy_moments(g, v, m)
    expected = new_m / (1 - 0.9**3) / (np.sqrt(new_v / (1 - 0.99**3)) + 1e-6) + 0.01 * w
    close(got_v, new_v, np.float64)
    close(got_m, new_m, np.float64)
    close(update, expected, np.float64, 64)
    close(weight, w - 0.1 * np.linalg.norm(w) / np.linalg.norm(expected) * expected, np.float64, 64)


@pytest.mark.parametrize(("weight_length", "length"), [(0.0, 2.0), (2.0, 0.0)])
def test_lamb_ratio_is_one_without_lengths(weight_length, length):
    weight = sessions.evaluated(
        lambda: optimizer_steps.lamb_apply_weight_assign(
            tf.constant(weight_length), tf.constant(length), 0.1, tf.constant([1.0]), tf.constant([5.0])
        )
    )
    close(weight, [4.9])


def test_layer_norm():
    x, gamma, beta = RNG.randn(2, 3, 8), RNG.randn(8), RNG.randn(8)
    y, mean, variance = sessions.evaluated(lambda: ops.layer_norm(x, gamma, beta, 2, -1, 1e-5))
    expected_mean, expected_variance = x.mean(2, keepdims=True), x.var(2, keepdims=True)
    close(mean, expected_mean, np.float64)
    close(variance, expected_variance, np.float64)
    close(y, (x - expected_mean) / np.sqrt(expected_variance + 1e-5) * gamma + beta, np.float64, 64)


def test_small_ops():
    x = RNG.randn(3, 4)
    close(sessions.evaluated(lambda: ops.centralization(x, [1])), x - x.mean(1, keepdims=True), np.float64)
    close(sessions.evaluated(lambda: ops.prelu(x, 0.25)), np.where(x > 0, x, 0.25 * x), np.float64)
    sparse = np.array([[0, 2], [3, 0]])
    assert sessions.evaluated(lambda: ops.nonzero(sparse)).tolist() == [[0, 1], [1, 0]]
    assert sessions.evaluated(lambda: ops.nonzero(sparse, transpose=True, output_type=tf.int32)).dtype == np.int32


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scatter_elements(axis):
    data, updates = np.zeros((3, 4)), RNG.randn(2, 3)
    indices = np.array([[2, 0, 1], [0, 2, 2]])
    expected = data.copy()
    for i in range(2):
        for j in range(3):
            expected[(indices[i, j], j) if axis == 0 else (i, indices[i, j])] = updates[i, j]
    assert (sessions.evaluated(lambda: ops.scatter_elements(data, indices, updates, axis)) == expected).all()


def test_k_means_step():
    x = np.array([[0.0, 0.0], [0.0, 1.0], [9.0, 9.0]])
    y = np.array([[0.0, 0.0], [10.0, 10.0]])
    squares = (y * y).sum(1)[None], (x * x).sum(1)[:, None]
    total, count, distance = sessions.evaluated(lambda: ops.k_means_centroids(x, y, *squares))
    assert total.tolist() == [[0.0, 1.0], [9.0, 9.0]]
    assert count.tolist() == [[2.0], [1.0]]
    close(distance, [3.0], np.float64, 512)


def test_random_choice_draws_true_places_without_repetition():
    mask = np.array([[True, False, True], [False, True, True]])
    indices, valid = sessions.evaluated(lambda: ops.random_choice_with_mask(tf.constant(mask), 3, seed=1))
    drawn = {tuple(index) for index in indices}
    assert len(drawn) == 3
    assert all(mask[index] for index in drawn)
    assert valid.all()
    indices, valid = sessions.evaluated(lambda: ops.random_choice_with_mask(tf.constant(mask), 6, seed=1))
    assert valid.tolist() == [True] * 4 + [False] * 2
    assert indices.shape == (6, 2)


def test_dense_image_warp_moves_whole_and_half_pixels():
    image = RNG.rand(1, 4, 5, 2)
    flow = np.zeros((1, 4, 5, 2))
    assert (sessions.evaluated(lambda: ops.dense_image_warp(image, flow)) == image).all()
    flow[..., 0] = 1.0
    down = sessions.evaluated(lambda: ops.dense_image_warp(image, flow))
    close(down[0, 1:], image[0, :-1], np.float64)
    close(down[0, 0], image[0, 0], np.float64)
    flow[..., 0], flow[..., 1] = 0.0, -0.5
    right = sessions.evaluated(lambda: ops.dense_image_warp(image, flow))
    close(right[0, :, :-1], (image[0, :, :-1] + image[0, :, 1:]) / 2, np.float64)


def test_dense_image_warp_has_both_gradients():
    image, flow = RNG.rand(1, 4, 5, 1), RNG.rand(1, 4, 5, 2) * 0.8 + 0.1

    def build():
        inputs, moves = tf.constant(image), tf.placeholder_with_default(flow, flow.shape)
        total = tf.reduce_sum(tf.square(ops.dense_image_warp(inputs, moves)))
        return total, tf.gradients(total, [inputs, moves])

    total, (by_image, by_flow) = sessions.evaluated(build)
    moved = flow.copy()
    moved[0, 2, 2, 1] += 1e-6
    nudged = sessions.evaluated(
        lambda: tf.reduce_sum(tf.square(ops.dense_image_warp(tf.constant(image), tf.constant(moved))))
    )
    np.testing.assert_allclose(by_flow[0, 2, 2, 1], (nudged - total) / 1e-6, atol=1e-4)
    close((by_image * image).sum(), 2 * total, np.float64, 64)


def test_jpegs_are_decoded_cut_and_resized():
    def build():
        jpeg = tf.image.encode_jpeg(tf.cast(tf.fill([16, 16, 3], 100), tf.uint8))
        from npu_bridge.image import image_ops

        return image_ops.decode_and_resize_jpeg(jpeg, [8, 4]), image_ops.decode_and_crop_and_resize_jpeg(
            jpeg, [2, 2, 8, 8], [4, 4]
        )

    whole, part = sessions.evaluated(build)
    assert (whole.shape, part.shape, whole.dtype) == ((8, 4, 3), (4, 4, 3), np.uint8)
    assert abs(int(part.mean()) - 100) <= 1


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("npu_bridge.npu_cpu.lru_cache", "LruCache"),
        ("npu_bridge.npu_cpu.npu_cpu_ops", "embeddingrankid"),
        ("npu_bridge.estimator.npu_aicore_ops", "prodforcesea"),
        ("npu_bridge.estimator.npu_ops", "outfeed_enqueue_op"),
        ("npu_bridge.hccl.hccl_ops", "remote_read"),
        ("npu_bridge.estimator.npu.npu_plugin", "init_rdma_pool"),
        ("npu_bridge.embedding", "EmbeddingService"),
        ("npu_shim.bridge.ops.gen_ops", "npu_onnx_graph_op"),
    ],
)
def test_what_has_no_equivalent_says_so_when_it_is_called(module, name):
    import importlib

    function = getattr(importlib.import_module(module), name)
    with pytest.raises(NotImplementedError, match=r"^npu_shim: %s has no equivalent off the NPU: \w+" % name):
        function(1, of="anything")


def test_an_unknown_name_is_no_attribute():
    assert not hasattr(gen_ops, "gelou")
