"""A loss that is not a number in float16 is told of, whichever way the run is started; other results are not."""

import collections
import re

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.cli.scripts import arguments, run
from npu_shim.options.entrances import forced
from npu_shim.session import lines
from npu_shim.session.observers import lost_losses

LOW = {"precision_mode": "allow_mix_precision"}
LARGE = {"x:0": np.full([4, 64], 3e6, np.float32)}
Pair = collections.namedtuple("Pair", ["train", "cost"])


@pytest.fixture(autouse=True)
def told(monkeypatch):
    npu_shim.patch()
    said = []
    monkeypatch.setattr(lines, "once", said.append)
    yield said
    npu_shim.unpatch()


def difference(name):
    """Of two layers, whose infinities in float16 leave NaN."""
    x = tf.placeholder(tf.float32, [None, 64], "x")
    sides = [tf.matmul(x, tf.get_variable("w%d" % n, [64, 64], initializer=tf.ones_initializer())) for n in range(2)]
    return tf.reduce_mean(sides[0] - sides[1], name=name)


WAYS = {
    "run": lambda session, loss: session.run(loss, LARGE),
    "name": lambda session, loss: session.run(["w0:0", loss.name], LARGE),
    "structure": lambda session, loss: session.run({"a": [Pair(loss.op, (loss,))], "b": {"c": "w0:0"}}, LARGE),
    "callable": lambda session, loss: session.make_callable([loss.op, loss], list(LARGE))(*LARGE.values()),
}


def lost(parameters, name="loss", way=WAYS["run"], times=2):
    with tf.Graph().as_default(), tf.Session(config=sessions.config(**parameters)) as session:
        loss = difference(name)
        session.run(tf.global_variables_initializer())
        for _ in range(times):
            way(session, loss)


@pytest.mark.parametrize("way", WAYS)
def test_it_is_told_once_in_a_session(told, way):
    lost(LOW, way=WAYS[way])
    assert [line.partition(" in ")[0] for line in told if "saturate" in line] == ["'loss:0' is nan"]


@pytest.mark.skipif(not hasattr(tf.keras.optimizers, "SGD"), reason="no Keras 2 here")
def test_keras_is_looked_at(told):
    with tf.Graph().as_default(), tf.Session(config=sessions.config(**LOW)) as session:
        tf.keras.backend.set_session(session)
        model = tf.keras.Sequential([tf.keras.layers.Dense(64, input_shape=(64,)), tf.keras.layers.Dense(1)])
        model.compile("sgd", lambda y_true, y_pred: y_pred - tf.square(y_pred) * 1e30)
        model.fit(LARGE["x:0"], np.zeros([4, 1]), verbose=0)
    assert len([line for line in told if "saturate" in line]) == 1


@pytest.mark.parametrize("way", ["run", "callable"])
def test_a_run_that_tensorflow_ends_is_explained(told, way):
    with pytest.raises(tf.errors.InvalidArgumentError, match="mine"):
        lost(LOW, "Mean", lambda session, loss: WAYS[way](session, tf.check_numerics(loss, "mine")))
    assert [line for line in told if "ends a run" in line] == [lost_losses.ENDED_TEXT]
    with pytest.raises(tf.errors.InvalidArgumentError, match="must feed a value"):
        lost(LOW, way=lambda session, loss: session.run(loss))
    assert len([line for line in told if "ends a run" in line]) == 1


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        (LOW, "clip/global_norm"),
        (LOW, "loss_scale"),
        ({**LOW, "npu_shim_saturate": True}, "loss"),
        ({"precision_mode": "allow_mix_precision_bf16"}, "loss"),
        ({"precision_mode": "must_keep_origin_dtype", "npu_shim_profile": "gpu"}, "loss"),
    ],
)
def test_nothing_else_is_told(told, parameters, name):
    lost(parameters, name)
    assert [line for line in told if "--calibrate" in line] == []


def test_any_number_that_is_nan_is_a_loss_that_may_be_lost(told):
    lost(LOW, "add_n")
    assert [line.partition(" in ")[0] for line in told if "saturate" in line] == ["'add_n:0' is nan"]


def test_what_is_advised_runs_and_is_float32(told, monkeypatch):
    """On every profile: the mode alone stopped at the first convolution of a script for an NPU."""

    def result():
        with tf.Graph().as_default(), tf.Session(config=sessions.config(**LOW)) as session:
            x = tf.placeholder(tf.float32, [1, 8, 8, 3])
            y = tf.nn.conv2d(x * 1e6, tf.ones([3, 3, 3, 4]), 1, "SAME", name="y")
            loss = tf.reduce_mean(y - 0.5 * y, name="loss")
            return session.run(loss, {x: np.ones([1, 8, 8, 3])})

    monkeypatch.setenv(forced.VARIABLE, "{}")
    assert not np.isfinite(result())
    (line,) = [line for line in told if "saturate" in line]
    words = re.search(r"in float32 \((.*?)\)", line).group(1).split()
    run.export_values(arguments.split("run", [*words, "script.py"], run.OPTIONS)[0])
    assert result() == pytest.approx(8e6, rel=0.5)
    assert all(words[n] in lost_losses.ENDED_TEXT for n in range(len(words)))


def test_finite_results_of_every_kind_are_looked_at_and_left():
    results = [1.0, np.float16(2), {"a": (None, np.ones(3))}, b"text", np.int64(1), Pair([[0]], [3.0])]
    assert list(lost_losses._numbers(results)) == [1.0, 2.0, 3.0]


def test_an_infinite_number_counts_where_the_run_trains(told):
    with tf.Graph().as_default(), tf.Session(config=sessions.config(**LOW)) as session:
        x = tf.placeholder(tf.float32, [None, 64], "x")
        large = tf.reduce_sum(tf.matmul(x, tf.ones([64, 64])), name="sum")
        session.run(large, LARGE)
        assert [line for line in told if "saturate" in line] == []
        session.run([tf.no_op(), large], LARGE)
    assert [line.partition(" in ")[0] for line in told if "saturate" in line] == ["'sum:0' is inf"]
