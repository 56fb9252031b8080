"""Feeds that only casts to 16 bits read: they reach a device with memory of its own in 16 bits, rounded alike."""

from concurrent import futures
from types import SimpleNamespace

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.pjrt import arrays

jax = pytest.importorskip("jax", reason="JAX is not installed beside TensorFlow")

from npu_shim.engine.device import programs  # noqa: E402
from npu_shim.engine.runtime import prefetching  # noqa: E402
from npu_shim.step import platforms  # noqa: E402

pytestmark = pytest.mark.usefixtures("patched")
DRAW = np.random.RandomState(5)
IMAGES = DRAW.randn(4, 6, 6, 3).astype("f") * np.float32([1, 1e-7, 1e4])
WEIGHTS, LABELS = DRAW.rand(4).astype("f"), np.int32([0, 2, 1, 2])


def trained(mode, reads=False):
    """(losses, variables at last) of four steps, one of them with another batch; an iterator `reads` them, or not."""
    with tf.Graph().as_default():
        image = tf.placeholder(tf.float32, [None, 6, 6, 3], "image")
        weights, labels = tf.placeholder(tf.float32, [None], "weights"), tf.placeholder(tf.int32, [None], "labels")
        seen = tf.placeholder(tf.float32, [None, 6, 6, 3], "seen")  # a convolution's, and a sum's in float32
        batches = [slice(4), slice(4), slice(3), slice(4)]
        rows = [(IMAGES[b], WEIGHTS[b], LABELS[b], IMAGES[b] / 2) for b in batches]
        if reads:
            data = [tf.data.Dataset.from_tensors(row) for row in rows]
            data = data[0].concatenate(data[1]).concatenate(data[2]).concatenate(data[3])
            image, weights, labels, seen = tf.data.make_one_shot_iterator(data).get_next()
        start = tf.initializers.truncated_normal(stddev=1e-3, seed=3)
        y = tf.layers.conv2d(image, 4, 3, kernel_initializer=start) + tf.layers.conv2d(
            seen, 4, 3, kernel_initializer=start
        )
        logits = tf.layers.dense(tf.layers.flatten(y), 3, kernel_initializer=tf.initializers.glorot_normal(seed=4))
        loss = tf.losses.sparse_softmax_cross_entropy(labels, logits, weights) + 1e-6 * tf.reduce_sum(tf.abs(seen))
        train = tf.train.AdamOptimizer(0.01).minimize(loss)
        options = sessions.config(precision_mode=mode, npu_shim_profile="gpu", npu_shim_engine="pjrt")
        with tf.Session(config=options) as session:
            session.run(tf.global_variables_initializer())
            given = [{} if reads else dict(zip((image, weights, labels, seen), row)) for row in rows]
            losses = [session.run([loss, train], fed)[0] for fed in given]
            return losses, session.run(tf.trainable_variables())


@pytest.mark.parametrize(
    ("mode", "dtype"), [("allow_mix_precision_bf16", "bfloat16"), ("allow_mix_precision", "float16")]
)
def test_what_a_convolution_reads_is_fed_in_its_dtype_and_nothing_changes(monkeypatch, mode, dtype):
    wide, taken = trained(mode), []
    load = programs.InProcess.load

    def noted(self, manifest, *rest):
        taken.append({tensor.name: tensor.dtype for tensor in manifest.feeds})
        return load(self, manifest, *rest)

    monkeypatch.setattr(programs.InProcess, "load", noted)
    monkeypatch.setattr(platforms, "has_own_memory", lambda platform: True)
    narrow = trained(mode)
    assert taken
    for dtypes in taken:
        assert dtypes == {"image:0": dtype, "weights:0": "float32", "labels:0": "int32", "seen:0": "float32"}
    assert narrow[0] == wide[0]
    for one, other in zip(narrow[1], wide[1]):
        np.testing.assert_array_equal(one, other)


def test_what_an_iterator_reads_is_staged_in_the_dtype_in_which_the_step_uses_it(monkeypatch):
    wide, there = trained("allow_mix_precision", True), []
    place = programs.InProcess.place

    def noted(self, number, where, feeds):
        there.append({name: value.dtype.name for name, value in feeds.items()})
        return place(self, number, where, feeds)

    def at_once(self, function, *arguments):  # a thread of steps as short as these may have had no time yet
        done = futures.Future()
        try:
            done.set_result(function(*arguments))
        except tf.errors.OutOfRangeError as error:
            done.set_exception(error)
        return done

    monkeypatch.setattr(programs.InProcess, "place", noted)
    monkeypatch.setattr(prefetching.Background, "submit", at_once)
    monkeypatch.setattr(platforms, "has_own_memory", lambda platform: True)
    narrow = trained("allow_mix_precision", True)
    assert there
    for dtypes in there:
        assert sorted(dtypes.values()) == ["float16", "float32", "float32", "int32"]
    assert narrow[0] == wide[0]


ROWS = (DRAW.randn(7, 1 << 19) * np.float32(3e4)).astype("f")
LAYOUTS = {
    "rows": ROWS, "one row": ROWS.reshape(1, -1), "by columns": np.asfortranarray(ROWS), "every other": ROWS[:, ::-2],
    "other order of bytes": ROWS.astype(">f4"), "no element": ROWS[:0],
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_large_array_is_copied_by_several_cores_as_by_one(monkeypatch, dtype, layout):
    monkeypatch.setattr(arrays.os, "cpu_count", lambda: 5)
    value = LAYOUTS[layout]
    place, expected = (np.zeros(value.shape, arrays.dtype_of(dtype)) for _ in range(2))
    arrays.copy(value, place, "same_kind")
    with np.errstate(over="ignore"):
        expected[...] = value
    assert place.tobytes() == expected.tobytes()
    with pytest.raises(TypeError, match="Cannot cast"):
        arrays.copy(value, np.zeros(value.shape, np.int32))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "bool"])
def test_a_large_array_is_cast_on_its_way_as_numpy_casts_it(monkeypatch, dtype, layout):
    monkeypatch.setattr(arrays.os, "cpu_count", lambda: 5)
    value = LAYOUTS[layout]
    with np.errstate(over="ignore"):
        expected = value.astype(dtype)
    given, place = arrays.Uncast(value, dtype), np.ones(value.shape, dtype)
    arrays.copy(given, place)
    assert place.tobytes() == expected.tobytes() == np.asarray(given).tobytes()
    assert (given.shape, given.nbytes, np.shape(given)) == (expected.shape, expected.nbytes, expected.shape)


@pytest.mark.parametrize("dtype", arrays.NARROW)
def test_what_is_cast_to_float32_and_then_to_16_bits_is_rounded_twice(dtype):
    # above the middle of two numbers of 16 bits by less than float32 holds: once it is rounded, it is the middle
    step = 2.0 ** (-11 if dtype == "float16" else -9)
    value = np.tile([1 + 2 * step + 1e-12, 1 + step + 1e-12], 1 << 20)
    place, expected = (np.zeros(value.shape, arrays.dtype_of(dtype)) for _ in range(2))
    arrays.copy(arrays.Uncast(value, "float32"), place, "same_kind")
    expected[...] = value.astype("float32")
    assert place.tobytes() == expected.tobytes()
    assert place.tobytes() != value.astype(place.dtype).tobytes() or dtype == "bfloat16"  # whose cast goes by float32


def test_a_copy_waits_for_no_thread_that_has_not_begun(monkeypatch):
    monkeypatch.setattr(arrays.os, "cpu_count", lambda: 5)
    asked = []

    def never(work):
        asked.append(futures.Future())
        return asked[-1]

    monkeypatch.setattr(arrays, "_helpers", lambda: SimpleNamespace(submit=never))
    place = np.zeros_like(ROWS)
    arrays.copy(ROWS, place)
    np.testing.assert_array_equal(place, ROWS)
    assert [one.cancelled() for one in asked] == [True] * 4
