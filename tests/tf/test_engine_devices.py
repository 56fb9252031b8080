"""A session's training steps on several devices: the numbers of one device, whatever divides. CPUs stand for cards.

One network has what a split batch would change if each device computed for itself: batch norm, dropout, clipping by the
global norm, a sparse embedding, an optimizer that keeps averages.
"""

import logging
import os
import sys

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim import loss_scale
from npu_shim.compat.behaviour import strategies
from npu_shim.distributed.collectives import hccl
from npu_shim.engine import sessions as engine
from npu_shim.engine.device.worker import remote
from npu_shim.estimator import iterations
from npu_shim.options import devices as option
from npu_shim.options import engine as options
from npu_shim.options.words import SHARD_STATE

PYTHON = os.environ.get(options.JAX) or (sys.executable if options.has_jax() else None)
pytestmark = [
    pytest.mark.skipif(PYTHON is None, reason="no interpreter with JAX: NPU_SHIM_JAX names none"),
    pytest.mark.skipif(tf.__version__.startswith("1."), reason="the engine needs TensorFlow 2.15 or later"),
    pytest.mark.usefixtures("patched", "own_graph"),
]
ROWS = 8
PARTS = ("off", "optimizer", "all")
SHARES = ["each of the 4 has %d kB of the step's 4 kB of variables" % share for share in (3, 2)]
LOWERED = {"precision_mode": "allow_mix_precision"}


@pytest.fixture(autouse=True)
def in_a_worker(monkeypatch):
    """The devices are a worker's, which makes as many CPUs as are asked for; JAX here may have begun with one."""
    opened = lambda values: remote.Worker(PYTHON, None, option.of(values), SHARD_STATE.of(values))  # noqa: E731
    monkeypatch.setattr(engine, "open_device", opened)


def config(devices, **more):
    plain = {"precision_mode": "must_keep_origin_dtype", "npu_shim_profile": "gpu"}
    return sessions.config(**{**plain, "npu_shim_engine": "pjrt", "npu_shim_devices": str(devices), **more})


def network(ids, x, labels, optimizer=None, rate=0.25):
    """(loss, operation that trains)."""
    table = tf.get_variable("table", [11, 6])
    hidden = tf.concat([tf.nn.embedding_lookup(table, ids), x], 1)
    hidden = tf.layers.batch_normalization(tf.layers.dense(hidden, 16, use_bias=False), training=True)
    hidden = tf.nn.dropout(tf.nn.relu(hidden), rate=rate, seed=5)
    loss = tf.reduce_mean(tf.square(tf.layers.dense(hidden, 1)[:, 0] - labels))
    optimizer = optimizer or tf.train.AdamOptimizer(0.01)
    pairs = [(gradient, v) for gradient, v in optimizer.compute_gradients(loss) if gradient is not None]
    clipped, _ = tf.clip_by_global_norm([gradient for gradient, _ in pairs], 0.5)
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        step = tf.train.get_or_create_global_step()
        return loss, optimizer.apply_gradients(zip(clipped, [v for _, v in pairs]), step)


def batch(number, rows=ROWS):
    rng = np.random.RandomState(number)
    return rng.randint(0, 11, rows), rng.randn(rows, 3).astype("f"), rng.randn(rows).astype("f")


def placeholders():
    return (
        tf.placeholder(tf.int64, [None], "ids"), tf.placeholder(tf.float32, [None, 3], "x"),
        tf.placeholder(tf.float32, [None], "labels"),
    )  # fmt: skip


def device_of(session):
    return vars(session)[engine.ENGINE].device


def started(devices, **more):
    session = tf.Session(config=config(devices, **more))
    session.run(tf.global_variables_initializer())
    return session


def trained(devices, run, **more):
    """(what `run` returns for a session, the variables behind it, where its programs ran)."""
    with started(devices, **more) as session:
        results = run(session)
        return results, session.run(tf.global_variables()), device_of(session).where


def assert_same(run, devices=4, rtol=1e-5, shared=("off",), **more):
    losses, weights, _ = trained(1, run, **more)
    assert np.ptp(losses) > 0
    for shard_state in shared:
        others, on_many, where = trained(devices, run, npu_shim_shard_state=shard_state, **more)
        assert where.startswith("%d devices (cpu)" % devices)
        np.testing.assert_allclose(others, losses, rtol=rtol)
        sessions.assert_close(on_many, weights, rtol=rtol, atol=rtol * 0.01)


def test_a_fed_step_has_the_numbers_of_one_device_and_takes_a_last_smaller_batch(caplog):
    feeds = placeholders()
    loss, train = network(*feeds)
    fed = [dict(zip(feeds, batch(number, rows))) for number, rows in enumerate((ROWS, ROWS, ROWS, 3, ROWS))]
    logging.getLogger("npu_shim").propagate = True
    with caplog.at_level(logging.WARNING, "npu_shim"):
        assert_same(lambda session: [session.run([loss, train], one)[0] for one in fed], shared=PARTS)
    assert "no feed of a step can be split over 4 devices ('ids:0' [3], " in caplog.text
    assert [line.partition("devices: ")[2] for line in caplog.messages if "of variables" in line] == SHARES


@pytest.mark.nightly
def test_a_loop_over_an_iterator_has_the_numbers_of_one_device(counts):
    data = tf.data.Dataset.from_tensor_slices(tuple(map(np.stack, zip(*map(batch, range(12))))))
    iterator = tf.data.make_initializable_iterator(data)
    loss, train = network(*iterator.get_next())

    def run(session):
        session.run(iterator.initializer)
        looped = iterations.set_iteration_per_loop(session, train, 4)
        return [session.run([looped, loss])[1] for _ in range(3)]

    assert_same(run, 2)
    assert counts[1] == [4] * 3 * 2


def test_what_is_said_where_a_device_has_no_more_memory():
    assert engine.how_it_fits("INTERNAL: something else", {}) == ""
    said = engine.how_it_fits("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes", {})
    assert said.startswith("; what takes less memory: several devices (--devices N); a part of the variables on each")
    assert said.endswith("(npu_shim_shard_state=optimizer, or all); npu_shim_recompute=memory; a smaller batch")
    asked = {"npu_shim_devices": "4", "npu_shim_shard_state": "all", "npu_shim_recompute": "memory"}
    assert engine.how_it_fits("out of memory", asked) == "; what takes less memory: a smaller batch"


@pytest.mark.nightly
def test_weight_update_sharding_of_one_process_is_that_of_its_devices(caplog):
    feeds = placeholders()
    loss, train = network(*feeds, hccl.NPUDistributedOptimizer(tf.train.AdamOptimizer(0.01), True))
    fed = dict(zip(feeds, batch(0)))
    logging.getLogger("npu_shim").propagate = True
    with caplog.at_level(logging.WARNING, "npu_shim"):
        trained(4, lambda session: session.run([loss, train], fed))
    assert SHARES[0] in [line.partition("devices: ")[2] for line in caplog.messages]


@pytest.mark.nightly
def test_parameters_that_travel_in_bfloat16_have_the_numbers_of_one_device():
    feeds = placeholders()
    loss, train = network(*feeds)
    fed = [dict(zip(feeds, batch(number))) for number in range(4)]
    run = lambda session: [session.run([loss, train], one)[0] for one in fed]  # noqa: E731
    assert_same(run, rtol=2**-7, shared=("off", "all"), precision_mode="allow_mix_precision_bf16")


@pytest.mark.nightly
def test_a_scaled_step_in_float16_skips_on_all_devices_what_one_skips():
    feeds = placeholders()
    manager = loss_scale.ExponentialUpdateLossScaleManager(2**12, 2)
    loss, train = network(*feeds, loss_scale.NPULossScaleOptimizer(tf.train.AdamOptimizer(0.01), manager))
    fed = [dict(zip(feeds, batch(number))) for number in range(5)]
    fed[2][feeds[2]] = np.full(ROWS, 1e5, "f") * np.eye(ROWS, dtype="f")[0]  # the loss of one device's rows overflows

    def run(session):
        results = [session.run([loss, train, tf.train.get_global_step()], one) for one in fed]
        steps = session.run(tf.train.get_global_step())
        assert steps == 4
        return [result[0] for number, result in enumerate(results) if number != 2]

    assert_same(run, 2, rtol=2**-9, **LOWERED)


@pytest.mark.nightly
def test_a_checkpoint_goes_from_four_devices_to_two(tmp_path):
    feeds = placeholders()
    loss, train = network(*feeds, rate=0.0)
    saver, fed = tf.train.Saver(), dict(zip(feeds, batch(0)))
    with started(4) as session:
        for _ in range(3):
            session.run(train, fed)
        saver.save(session, str(tmp_path / "model"))
        expected = [session.run([loss, train], fed)[0] for _ in range(2)]
    with tf.Session(config=config(2)) as session:
        saver.restore(session, str(tmp_path / "model"))
        losses = [session.run([loss, train], fed)[0] for _ in range(2)]
    assert expected[0] != expected[1]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


def towers(count):
    """(mean loss, operation that trains) of a script that places a tower on each of several cards."""
    losses, every, optimizer = [], [], tf.train.AdamOptimizer(0.01)
    iterator = tf.data.make_one_shot_iterator(batches().repeat())
    for number in range(count):
        with tf.device("/gpu:%d" % number), tf.variable_scope("", reuse=tf.AUTO_REUSE):
            losses.append(loss_of(*iterator.get_next()))
            every.append(optimizer.compute_gradients(losses[-1]))
    means = [(tf.reduce_mean(tf.stack([g for g, _ in pairs]), 0), pairs[0][1]) for pairs in zip(*every)]
    return tf.add_n(losses) / count, optimizer.apply_gradients(means)


def mirrored(devices):
    """The same of a script with a strategy: (mean loss, operation that trains, operation that begins its input)."""
    strategy = tf.distribute.MirroredStrategy(devices)
    with strategy.scope():
        optimizer = tf.train.AdamOptimizer(0.01)

        def step(rows):
            loss = loss_of(*rows)
            with tf.control_dependencies([optimizer.minimize(loss)]):
                return tf.identity(loss)

        iterator = strategy.make_dataset_iterator(batches().unbatch().batch(ROWS * strategy.num_replicas_in_sync))
        losses = strategy.run(step, args=(iterator.get_next(),))
        return strategy.reduce("MEAN", losses, None), strategy.group(losses), iterator.initializer


def batches():
    return tf.data.Dataset.from_tensor_slices(tuple(map(np.stack, zip(*map(batch, range(12))))))


def loss_of(ids, x, labels):
    hidden = tf.concat([tf.one_hot(ids, 11), x], 1)
    prediction = tf.layers.dense(tf.layers.dense(hidden, 16, tf.nn.relu, name="a"), 1, name="b")
    return tf.reduce_mean(tf.square(prediction[:, 0] - labels))


@pytest.mark.nightly
def test_a_script_with_a_tower_on_each_card_has_the_numbers_of_one_device():
    loss, train = towers(3)
    assert_same(lambda session: [session.run([loss, train])[0] for _ in range(4)])


@pytest.mark.parametrize("named", [pytest.param(None, marks=pytest.mark.nightly, id="none"), ["/gpu:0", "/gpu:1"]])
def test_a_mirrored_strategy_has_the_numbers_of_one_device(named):
    """Two cards that TensorFlow does not have: it would wait for NCCL's exchange between them, in a session too."""
    strategies.install()
    loss, train, begin = mirrored(named)

    def run(session):
        session.run(begin)
        return [session.run([loss, train])[0] for _ in range(4)]

    assert_same(run)
