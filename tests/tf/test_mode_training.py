"""Every mode that is meant for training trains handwritten digits as well as float32 does."""

import os
import pathlib

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.loss_scale import ExponentialUpdateLossScaleManager, NPULossScaleOptimizer
from npu_shim.rewriter.tables.policy import PRECISION_MODE

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("patched")]
DIGITS = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "data" / "digits.npz"
NIGHTLY = bool(os.environ.get("NPU_SHIM_NIGHTLY"))
SEEDS = (1, 2, 3) if NIGHTLY else (1,)


def accuracy(seed, **parameters):
    """Accuracy on the 297 digits that are not trained on, after 300 steps of a network with one hidden layer."""
    data = np.load(str(DIGITS))
    images = data["images"].reshape(-1, 64).astype(np.float32) / 16
    labels = data["labels"].astype(np.int32)
    with tf.Graph().as_default():
        x, y = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int32, [None])
        with tf.variable_scope(
            "net", use_resource=True, initializer=tf.truncated_normal_initializer(stddev=0.1, seed=seed)
        ):
            h = tf.nn.relu(tf.matmul(x, tf.get_variable("w1", [64, 128])) + tf.get_variable("b1", [128]))
            logits = tf.matmul(h, tf.get_variable("w2", [128, 10]))
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        manager = ExponentialUpdateLossScaleManager(2**15, 100, decr_ratio=0.5)
        step = NPULossScaleOptimizer(tf.train.AdamOptimizer(3e-3), manager).minimize(loss)
        correct = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1, output_type=tf.int32), y), tf.float32))
        rng = np.random.RandomState(seed)
        with sessions.started(config=sessions.config(**parameters)) as session:
            for _ in range(300):
                pick = rng.randint(0, 1500, 64)
                session.run(step, {x: images[pick], y: labels[pick]})
            return float(session.run(correct, {x: images[1500:], y: labels[1500:]}))


@pytest.fixture(scope="module")
def float32():
    import npu_shim

    npu_shim.patch()
    score = np.mean([accuracy(s, precision_mode="must_keep_origin_dtype", npu_shim_profile="gpu") for s in SEEDS])
    npu_shim.unpatch()
    return score


TRAINING = [mode for mode, policy in PRECISION_MODE.items() if policy.training and mode != "must_keep_origin_dtype"]


@pytest.mark.by_day("allow_mix_precision", "allow_mix_precision_bf16", "cube_fp16in_fp32out")
@pytest.mark.parametrize("mode", TRAINING)
def test_ends_within_a_point_of_float32(mode, float32):
    score = np.mean([accuracy(seed, precision_mode=mode) for seed in SEEDS])
    assert float32 > 0.9
    assert score >= float32 - 0.01
