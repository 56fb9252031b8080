"""Trains in float16 from a loss scale of 2**32: what is learned, what is skipped, and how the scale moves."""

import numpy as np
import pytest
import reference_material
import sessions
import tensorflow.compat.v1 as tf
from sessions import named

from npu_shim.loss_scale.managers import managers, schedule
from npu_shim.loss_scale.optimizers import gradients
from npu_shim.loss_scale.optimizers.optimizer import NPULossScaleOptimizer

DIGITS = reference_material.FOLDER.parents[1] / "scripts" / "data" / "digits.npz"


def replayed(manager, flags):
    """Returns the scale after each step as the pure schedule has it."""
    state, scales = manager.initial_state, []
    for finite in flags:
        state = schedule.next_state(state, bool(finite))
        scales.append(float(state.loss_scale))
    return scales


def check(manager, flags, scales, global_step, attempted, skipped):
    flags = np.array(flags)
    assert scales == replayed(manager, flags)
    assert global_step == np.sum(flags)
    assert attempted == len(flags)
    assert skipped == np.sum(~flags)
    # the start is far too high: an unbroken run of skipped steps, two a halving, and then hardly any
    first = int(np.argmax(flags))
    assert first > 0  # odd where the second batch of a halving passes and the first did not: weights differ by version
    assert scales[first - 1] == 2.0 ** (32 - first // 2)
    assert np.mean(flags[first:]) > 0.9


def test_digits_in_float16(control_flow_of_version_1):
    data = np.load(str(DIGITS))
    images = data["images"].reshape(-1, 64).astype(np.float16) / 16
    labels = data["labels"].astype(np.int32)
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(1)
        x, y = tf.placeholder(tf.float16, [None, 64]), tf.placeholder(tf.int32, [None])
        h = x
        for i, width in enumerate((64, 10)):
            w = tf.get_variable("w%d" % i, [h.shape[1], width])
            b = tf.get_variable("b%d" % i, [width], initializer=tf.zeros_initializer())
            h = tf.matmul(h if i == 0 else tf.nn.relu(h), tf.cast(w, tf.float16)) + tf.cast(b, tf.float16)
        logits = tf.cast(h, tf.float32)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        manager = managers.ExponentialUpdateLossScaleManager(2**32, 100, 2, decr_ratio=0.5)
        optimizer = NPULossScaleOptimizer(tf.train.AdamOptimizer(5e-3), manager)
        global_step = tf.train.get_or_create_global_step()
        step = optimizer.minimize(loss, global_step)
        session.run(tf.global_variables_initializer())
        random, flags, scales = np.random.RandomState(0), [], []
        for _ in range(400):
            pick = random.randint(0, 1500, 64)
            flags.append(session.run([optimizer.grads_finite, step], {x: images[pick], y: labels[pick]})[0])
            scales.append(float(session.run(named("loss_scale:0"))))
        counts = session.run([global_step, optimizer.attempted_steps, optimizer.skipped_steps])
        predicted = np.argmax(session.run(logits, {x: images[1500:]}), 1)
    check(manager, flags, scales, *counts)
    assert np.mean(predicted == labels[1500:]) >= 0.85  # chance is 0.1; initial weights differ by version


@pytest.mark.nightly  # a whole training
def test_lstm_language_model_in_mixed_precision(patched, control_flow_of_version_1):
    """The stored training graph, its gradients scaled at their seed, its own optimizer replaced by a wrapped one."""
    definition = reference_material.training_graph("lstm_lm_train")
    config = sessions.config(precision_mode="allow_mix_precision")
    with tf.Graph().as_default() as graph, tf.Session(config=config) as session:
        manager = managers.ExponentialUpdateLossScaleManager(2**32, 1000, 2, decr_ratio=0.5)
        scale = tf.identity(manager.get_loss_scale())
        tf.import_graph_def(definition, {"gradients/grad_ys_0:0": scale}, name="")
        global_step = tf.get_variable("applied", initializer=0, use_resource=True)
        variables = [restored(type(global_step), name) for name in LSTM_VARIABLES]
        scaled = [graph.get_tensor_by_name(name) for name in l2_inputs(definition)]
        indices = graph.get_tensor_by_name("gradients/embedding_lookup_grad/Reshape_1:0")
        scaled[0] = tf.IndexedSlices(scaled[0], indices, tf.constant([10000, 256]))
        unscaled = gradients.unscale(zip(scaled, variables), scale)
        clipped, _ = gradients.clip_by_global_norm([g for g, _ in unscaled], 1.0)
        optimizer = NPULossScaleOptimizer(tf.train.AdamOptimizer(2e-3, name="Wrapped"), manager)
        step = optimizer.apply_gradients(zip(clipped, variables), global_step)
        session.run([tf.global_variables_initializer(), "init"])
        ids = np.random.RandomState(0).randint(0, 200, (1, 7))  # float16 products are slow on a CPU
        feeds = {"ids:0": ids[:, :-1], "targets:0": ids[:, 1:], "lengths:0": np.full(1, 6)}
        losses, flags, scales = [], [], []
        for _ in range(60):
            loss, finite, _ = session.run(["loss:0", optimizer.grads_finite, step], feeds)
            losses.append(loss)
            flags.append(finite)
            scales.append(float(session.run(manager.get_loss_scale())))
        counts = session.run([global_step, optimizer.attempted_steps, optimizer.skipped_steps])
    check(manager, flags, scales, *counts)
    applied = np.array(losses)[np.array(flags)]
    assert np.all(np.isfinite(losses))
    # it learns the one batch that it sees, from log(10000) on
    assert abs(applied[0] - np.log(10000)) < 0.5
    assert applied[-1] < 0.5 * applied[0]


LSTM_VARIABLES = (
    "emb",
    "rnn/multi_rnn_cell/cell_0/lstm_cell/kernel",
    "rnn/multi_rnn_cell/cell_0/lstm_cell/bias",
    "rnn/multi_rnn_cell/cell_1/lstm_cell/kernel",
    "rnn/multi_rnn_cell/cell_1/lstm_cell/bias",
    "dense/kernel",
    "dense/bias",
)


def l2_inputs(definition):
    """Returns the tensors whose global norm the graph takes: the raw gradients, in the order of its variables."""
    inputs = {n.name: n.input[0] for n in definition.node if n.name.startswith("global_norm/L2Loss")}
    names = ["global_norm/L2Loss"] + ["global_norm/L2Loss_%d" % i for i in range(1, len(inputs))]
    return [inputs[name] if ":" in inputs[name] else inputs[name] + ":0" for name in names]


def restored(resource_variable, name):
    from tensorflow.core.framework import variable_pb2

    return resource_variable.from_proto(
        variable_pb2.VariableDef(
            variable_name=name + ":0",
            initializer_name=name + "/Assign",
            snapshot_name=name + "/Read/ReadVariableOp:0",
            is_resource=True,
            trainable=True,
        )
    )
