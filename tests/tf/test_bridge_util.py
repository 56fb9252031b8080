"""The vendor's small pieces: gradient shards, values of the job, the overflow flag, inputs, deformable convolution."""

import sys

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.bridge.ops import deformable, float_status, gen_ops, inputs, ops, resources
from npu_shim.distributed.sharding import shards

RNG = np.random.RandomState(3)


def test_gradients_and_weights_have_owners(monkeypatch):
    monkeypatch.setattr(shards, "_items", [])
    with tf.Graph().as_default():
        weights = [tf.get_variable("w%d" % n, shape) for n, shape in enumerate(([8, 8], [8, 8], [4, 4], []))]
        pairs = [(tf.zeros(w.shape, name="g"), w) for w in weights[:3]] + [(None, weights[3])]
        shards.add_grads_and_vars(pairs, 2)
        assert [item.size for item in shards.get_all_grad_item()] == [256, 256, 64]
        assert [shards.get_gid_by_grad(gradient) for gradient, _ in pairs[:3]] == [0, 1, 1]
        assert [shards.get_gid_by_weight(w) for w in weights] == [0, 1, 1, -1]
        assert shards.GradDivisionItem(tf.zeros([]), weights[3]).size == 0


def test_init_resource_remembers_the_ranks():
    resources.set_value("mine", 3)
    assert resources.get_value("mine") == 3
    with tf.Graph().as_default():
        resources.close_session(resources.init_resource()[0])
    assert (resources.get_value("npu_rank_id"), resources.get_value("npu_rank_size")) == (0, 1)
    assert resources.get_value("mine", "gone") == "gone"
    resources.global_dict_init()
    assert resources.get_value("npu_rank_id") is None


def test_what_has_nothing_to_do_off_the_npu_does_nothing():
    from npu_bridge import tf_adapter
    from npu_bridge.estimator.npu import npu_common, npu_hook, npu_plugin
    from npu_bridge.scoped_graph_manager import ScopedGraphManager

    assert npu_common.NPUBasics("").size() == 1
    assert npu_plugin.npu_close() is None
    tf_adapter.PluginInit(graph_run_mode=1)
    assert tf_adapter.PluginFinalize() is tf_adapter.NpuClose() is None
    with tf.Graph().as_default():
        tf.train.get_or_create_global_step()
        with tf.train.MonitoredTrainingSession(hooks=[npu_hook.NPUShutDownHook()]) as session:
            with ScopedGraphManager():
                assert session.run(tf.train.get_global_step()) == 0


def test_the_migration_tool_is_a_module_of_the_bridge(tmp_path, monkeypatch):
    if sys.version_info < (3, 9):
        pytest.skip("needs Python 3.9, whose ast says where code ends")
    from npu_bridge.convert_tf2npu.main import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text("x = 1\n")
    assert main(["--input", "a.py", "--output", "out", "--main", "a.py", "--distributed_mode", "horovod"]) == 0
    assert (tmp_path / "out" / "a.py").read_text() == "from npu_bridge.npu_init import *\nx = 1\n"


def test_ranks_under_their_experimental_names(monkeypatch):
    from npu_bridge.experimental import hccl

    assert (hccl.get_actual_rank_size(), hccl.get_user_rank_size(), hccl.get_user_rank_id()) == (1, 1, 0)
    monkeypatch.setenv("RANK_SIZE", "4")
    monkeypatch.setenv("RANK_ID", "3")
    assert (hccl.get_actual_rank_size(), hccl.get_user_rank_size(), hccl.get_user_rank_id()) == (4, 4, 3)


def test_variables_of_the_only_rank_stay_when_they_are_broadcast():
    from npu_bridge.estimator.npu.npu_hook import broadcast_global_variables

    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.get_variable("x", initializer=[1.0, 2.0])
        sent = broadcast_global_variables(0, 0)
        session.run(tf.global_variables_initializer())
        session.run(sent)
        assert session.run(x).tolist() == [1.0, 2.0]


def test_the_vendors_saver_saves_and_restores(tmp_path):
    from npu_bridge.estimator.npu import npu_saver

    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.get_variable("x", initializer=[1.0, 2.0])
        session.run(tf.global_variables_initializer())
        saver = npu_saver.NPUSaver(max_to_keep=1)
        path = saver.save(session, str(tmp_path / "model"), global_step=1)
        session.run(tf.assign(x, [0.0, 0.0]))
        npu_saver.NPUSaver(builder=npu_saver.NPUBulkSaverBuilder()).restore(session, path)
        assert session.run(x).tolist() == [1.0, 2.0]
        second = saver.save(session, str(tmp_path / "model"), global_step=2)
    assert [tf.train.checkpoint_exists(prefix) for prefix in (path, second)] == [False, True]


def test_a_decorated_session_prepares_its_config():
    class Session(tf.Session):
        __init__ = resources.decorator_tf_session(tf.Session.__init__)

    config = tf.ConfigProto()
    with tf.Graph().as_default():
        with Session("", None, config) as session:
            assert session.run(tf.constant(3)) == 3
        Session().close()
    assert [optimizer.name for optimizer in config.graph_options.rewrite_options.custom_optimizers] == ["NpuOptimizer"]


def test_keras_dropout_and_prelu_are_keras_own():
    from npu_bridge.tbe.npu_vector_ops import PReLU

    before = tf.keras.layers.Dropout.call
    from npu_bridge.estimator.npu import npu_convert_dropout  # noqa: F401

    assert tf.keras.layers.Dropout.call is before
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(7)
        x = tf.constant([[-2.0, 3.0]])
        y = PReLU(alpha_initializer=tf.keras.initializers.Constant(0.5))(x)
        dropped = tf.keras.layers.Dropout(0.25)(tf.ones([4000]), training=True)
        session.run(tf.global_variables_initializer())
        y, dropped = session.run([y, dropped])
    assert y.tolist() == [[-1.0, 3.0]]
    np.testing.assert_allclose(np.unique(dropped), [0.0, 4 / 3], rtol=1e-6)
    # a binomial share of 4000: four standard deviations
    assert abs((dropped != 0).mean() - 0.75) < 4 * np.sqrt(0.75 * 0.25 / 4000)


def test_ops_that_only_mark_something_run():
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.get_variable("x", initializer=2.0)
        markers = [resources.IterationOp(), resources.initialize_system(), resources.shutdown_system("end")]
        assert [op.name for op in markers] == ["IterationOp", "initialize_system", "end"]
        session.run([resources.variable_initializer_in_host([x]), *markers])
        assert resources.npu_compile(session, x, [x]) is None
        assert session.run(x) == 2.0


@pytest.mark.parametrize("values", [[1.0, 2.0], [np.inf, 2.0], [1.0, np.nan]])
def test_hand_made_loss_scaling_steps_when_gradients_are_finite(values):
    """The vendor's manual on two optimizers in one session.run, with its comparison of two statuses."""
    with tf.Graph().as_default():
        w = tf.get_variable("w", initializer=[5.0, 5.0])
        gradients = [tf.placeholder_with_default(values, [2]), tf.placeholder_with_default([0.5], [1])]
        allocated = gen_ops.npu_alloc_float_status()
        with tf.get_default_graph().control_dependencies(gradients):
            status = gen_ops.npu_get_float_status(allocated)
            cleared = gen_ops.npu_clear_float_status(status)
            second = gen_ops.npu_get_float_status_v2()
            with tf.control_dependencies([second]):
                zeros = gen_ops.npu_clear_float_status_v2()
        finite = tf.reduce_all(tf.equal(allocated, cleared))
        step = tf.cond(finite, lambda: tf.group(tf.assign_sub(w, gradients[0])), tf.no_op)
        with sessions.started() as session:
            _, flag, status, second, zeros = session.run([step, finite, status, second, zeros])
            after = session.run(w).tolist()
    expected = bool(np.isfinite(values).all())
    assert flag == expected
    assert after == ([4.0, 3.0] if expected else [5.0, 5.0])
    assert status.tolist() == [0.0 if expected else 1.0]
    assert second.tolist() == [0 if expected else 1] * 8
    assert (second.dtype, zeros.tolist()) == (np.int32, [0] * 8)


def test_a_flag_that_waits_for_nothing_is_an_error():
    with tf.Graph().as_default(), tf.control_dependencies([tf.constant(3)]):
        with pytest.raises(ValueError, match=r"^npu_shim: npu_get_float_status_v2: .* tf\.control_dependencies"):
            float_status.npu_get_float_status_v2()


def dataset(transformation):
    with tf.Graph().as_default(), tf.Session() as session:
        transformed = tf.data.Dataset.range(5).apply(transformation)
        element, elements = tf.data.make_one_shot_iterator(transformed).get_next(), []
        while True:
            try:
                elements.append(session.run(element).tolist())
            except tf.errors.OutOfRangeError:
                return elements


def test_dataset_transformations():
    assert dataset(inputs.map(lambda x: x * 2)) == [0, 2, 4, 6, 8]
    assert dataset(inputs.map(lambda x: x * 2, num_parallel_calls=2, deterministic=True)) == [0, 2, 4, 6, 8]
    assert dataset(inputs.map_and_batch(lambda x: x + 1, 2)) == [[1, 2], [3, 4], [5]]
    whole = inputs.map_and_batch(lambda x: x, 2, num_parallel_batches=1, drop_remainder=True)
    assert dataset(whole) == [[0, 1], [2, 3]]
    with pytest.raises(ValueError, match="output_device must be cpu or npu, got 'gpu'"):
        inputs.map(lambda x: x, output_device="gpu")
    with pytest.raises(ValueError, match="expected num_parallel_batches or num_parallel_calls"):
        inputs.map_and_batch(lambda x: x, 2, num_parallel_batches=1, num_parallel_calls=2)


def test_constants_from_files(tmp_path):
    values = RNG.randn(2, 3).astype(np.float16)
    values.tofile(str(tmp_path / "w.bin"))
    got = sessions.evaluated(lambda: inputs.file_constant([2, 3], tf.float16, file_path=str(tmp_path / "w.bin")))
    assert (got == values).all()
    assert got.dtype == np.float16
    with tf.Graph().as_default(), pytest.raises(ValueError, match="expected file_path=; file_id='x'"):
        inputs.file_constant([2, 3], tf.float16, file_id="x")


def test_images_and_shapes():
    image = RNG.randint(0, 255, [4, 5, 3]).astype(np.uint8)

    def build():
        png = tf.image.encode_png(image)
        return inputs.decode_image(png), inputs.decode_image_v3(png, channels=1), inputs.getshape(image)

    same, gray, shape = sessions.evaluated(build)
    assert (same == image).all()
    assert gray.shape == (4, 5, 1)
    assert shape.tolist() == [4, 5, 3]


def test_dropout_v4_is_dropout():
    with tf.Graph().as_default(), tf.Session() as session:
        one, other = [op(tf.ones([50]), 0.5, seed=3) for op in (ops.dropout, ops.dropout_v4)]
        assert set(session.run(other)) == {0.0, 2.0}
        assert one.shape == other.shape


def numpy_deformable(x, weights, offsets, stride, pads, dilation, groups):
    """Sample by sample, from the op's description."""
    batch, height, width, channels = x.shape
    rows, columns, _, outputs = weights.shape
    result = np.zeros([*offsets.shape[:3], outputs])
    moves = offsets.reshape(*offsets.shape[:3], 3, groups, rows, columns)

    def pixel(b, y, at, c):
        return x[b, y, at, c] if 0 <= y < height and 0 <= at < width else 0.0

    for b, oy, ox, r, k, c in np.ndindex(batch, *offsets.shape[1:3], rows, columns, channels):
        move_x, move_y, mask = moves[b, oy, ox, :, c // (channels // groups), r, k]
        y = oy * stride - pads[0] + r * dilation + move_y
        at = ox * stride - pads[2] + k * dilation + move_x
        y0, x0 = int(np.floor(y)), int(np.floor(at))
        value = sum(
            pixel(b, y0 + dy, x0 + dx, c) * (1 - abs(y - y0 - dy)) * (1 - abs(at - x0 - dx))
            for dy in (0, 1)
            for dx in (0, 1)
        )
        result[b, oy, ox] += mask * value * weights[r, k, c]
    return result


@pytest.mark.parametrize(("stride", "dilation", "groups"), [(1, 1, 1), (2, 1, 2), (1, 2, 1)])
def test_deformable_convolution_and_its_gradients(stride, dilation, groups):
    x, weights = RNG.randn(2, 6, 7, 4), RNG.randn(3, 2, 4, 5)
    pads = (1, 1, 0, 1)
    out = [(6 + 2 - dilation * 2 - 1) // stride + 1, (7 + 1 - dilation - 1) // stride + 1]
    offsets = RNG.randn(2, *out, 3 * groups * 6) * 1.5
    towards = RNG.randn(*offsets.shape)
    arguments = {"strides": [1, stride, stride, 1], "pads": pads, "dilations": [1, dilation, dilation, 1]}
    arguments["deformable_groups"] = groups
    with tf.Graph().as_default():
        image, kernel, moves = tf.constant(x), tf.constant(weights), tf.placeholder_with_default(offsets, offsets.shape)
        y = deformable.deformable_conv2d(image, kernel, moves, **arguments)
        turned = [tf.transpose(image, [0, 3, 1, 2]) for image in (image, moves)]
        swapped = {key: [v[0], v[3], v[1], v[2]] for key, v in arguments.items() if key in ("strides", "dilations")}
        nchw = deformable.deformable_conv2d(
            turned[0], kernel, turned[1], data_format="NCHW", **{**arguments, **swapped}
        )
        loss = tf.reduce_sum(tf.sin(y))
        by_image, by_kernel, by_moves = tf.gradients(loss, [image, kernel, moves])
        with tf.Session() as session:
            actual, other, g_x, g_w, g_o = session.run([y, nchw, by_image, by_kernel, by_moves])
            above, below = [session.run(loss, {moves: offsets + step * towards}) for step in (1e-6, -1e-6)]
    expected = numpy_deformable(x, weights, offsets, stride, pads, dilation, groups)
    np.testing.assert_allclose(actual, expected, atol=1e-12)
    np.testing.assert_allclose(other, expected.transpose(0, 3, 1, 2), atol=1e-12)
    np.testing.assert_allclose((above - below) / 2e-6, (g_o * towards).sum(), rtol=1e-5)
    # linear in the image and in the filter, so that both gradients along themselves are that of the result
    along = (np.cos(expected) * expected).sum()
    np.testing.assert_allclose([(g_x * x).sum(), (g_w * weights).sum()], [along, along], rtol=1e-9)


def test_unmoved_samples_are_a_convolution_also_in_mixed_precision(patched):
    x, weights = RNG.randn(1, 8, 8, 3).astype(np.float32), RNG.randn(3, 3, 3, 4).astype(np.float32)
    offsets = np.concatenate([np.zeros([1, 8, 8, 18]), np.ones([1, 8, 8, 9])], -1).astype(np.float32)
    with tf.Graph().as_default():
        images = tf.placeholder(tf.float32, x.shape)
        y = deformable.deformable_conv2d(images, weights, offsets, pads=[1, 1, 1, 1])
        expected = tf.nn.conv2d(images, weights, strides=1, padding="SAME")
        with tf.Session(config=sessions.config(precision_mode="force_fp32", npu_shim_profile="gpu")) as session:
            plain, wanted = session.run([y, expected], {images: x})
        with tf.Session(config=sessions.config(precision_mode="allow_mix_precision")) as session:
            ran = sessions.Ran(session, y, {images: x})
            assert set(ran.dtypes("Conv2D", "_FusedConv2D").values()) == {"float16"}
    # 27 products, each of factors rounded to the dtype
    np.testing.assert_allclose(plain, wanted, atol=27 * 16 * np.finfo(np.float16).eps)
    np.testing.assert_allclose(ran.values, wanted, atol=27 * 16 * np.finfo(np.float16).eps)


def test_what_the_original_refuses_is_refused():
    with tf.Graph().as_default():
        for wrong in ({"groups": 2}, {"modulated": False}):
            with pytest.raises(RuntimeError, match=r"^npu_shim: deformable_conv2d: expected groups=1, modulated=True"):
                deformable.deformable_conv2d(None, None, None, **wrong)
        with pytest.raises(ValueError, match="data_format must be NHWC or NCHW, got 'NWHC'"):
            deformable.deformable_conv2d(None, None, None, data_format="NWHC")
