"""The recurrent layers against TensorFlow's own cells and against numpy loops."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.bridge.ops import rnn

TIME, BATCH, INPUTS, UNITS = 5, 3, 4, 6
RNG = np.random.RandomState(1)
X = RNG.randn(TIME, BATCH, INPUTS).astype(np.float32)
LENGTHS = np.array([5, 3, 1], np.int32)
# a chain of TIME steps of sums over INPUTS + UNITS products, each rounded
BOUND = 4 * TIME * (INPUTS + UNITS) * np.finfo(np.float32).eps


def run(build):
    return sessions.evaluated(build, seed=1)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.fixture(params=["kernel", "loop"])
def way(request, monkeypatch):
    """The LSTM's two ways to its results: TensorFlow's own op, and the loop that XLA can compile."""
    monkeypatch.setenv("NPU_SHIM_XLA", "on" if request.param == "loop" else "auto")
    return request.param


@pytest.mark.by_day("kernel-None", "loop-lengths1")
@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_lstm_and_its_gradients_are_those_of_tensorflows_cell(way, lengths):
    def build():
        x = tf.constant(X)
        layer = rnn.DynamicRNN(UNITS, tf.float32, forget_bias=1.0)
        y = layer(x, seq_length=lengths)[0]
        cell = tf.nn.rnn_cell.BasicLSTMCell(UNITS, forget_bias=1.0)
        expected, _ = tf.nn.dynamic_rnn(cell, x, lengths, dtype=tf.float32, time_major=True)
        with tf.control_dependencies([cell.weights[0].assign(layer.w), cell.weights[1].assign(layer.b + 0.0)]):
            copied = tf.no_op()
        loss, other = tf.reduce_sum(tf.sin(y)), tf.reduce_sum(tf.sin(expected))
        gradients = tf.gradients(loss, [x, *layer.weights]), tf.gradients(other, [x, *cell.weights])
        return copied, (y, expected), gradients

    with tf.Graph().as_default():
        tf.set_random_seed(1)
        copied, outputs, gradients = build()
        with sessions.started() as session:
            session.run(copied)
            (y, expected), (ours, theirs) = session.run([outputs, gradients])
    np.testing.assert_allclose(y, expected, atol=BOUND)
    for one, other in zip(ours, theirs):
        np.testing.assert_allclose(one, other, atol=BOUND * max(1.0, np.abs(other).max()))


@pytest.mark.by_day("loop")
def test_lstm_state_stays_past_a_sequences_end(way):
    y, h, c = run(lambda: rnn.DynamicRNN(UNITS, tf.float32)(tf.constant(X), seq_length=LENGTHS)[:3])
    assert (y[3:, 1] == 0).all()
    assert (h[3:, 1] == h[2, 1]).all()
    assert (c[1:, 2] == c[0, 2]).all()
    assert (y[:3, 1] == h[:3, 1]).all()


@pytest.mark.by_day("kernel")
def test_a_mask_says_the_same_as_lengths(way):
    def build():
        x = tf.constant(X)
        layer = rnn.DynamicRNN(UNITS, tf.float32)
        mask = np.repeat((np.arange(TIME)[:, None] < LENGTHS)[..., None], UNITS, 2).astype(np.float32)
        return layer(x, seq_length=LENGTHS), layer(x, seq_length=mask)

    for one, other in zip(*run(build)):
        assert (one == other).all()


def test_lstm_gates_and_beginning_state(way):
    h0, c0 = RNG.randn(1, BATCH, UNITS).astype(np.float32), RNG.randn(1, BATCH, UNITS).astype(np.float32)

    def build():
        layer = rnn.DynamicRNN(UNITS, tf.float32)
        return layer(tf.constant(X), init_h=h0, init_c=c0), layer.w, layer.b

    (y, h, c, i, j, f, o, tanhc), w, b = run(build)
    gates = np.concatenate([X[0], h0[0]], 1) @ w + b
    gi, gj, gf, go = np.split(gates, 4, 1)
    state = sigmoid(gf) * c0[0] + sigmoid(gi) * np.tanh(gj)
    expected = [sigmoid(go) * np.tanh(state), state, sigmoid(gi), np.tanh(gj), sigmoid(gf), sigmoid(go), np.tanh(state)]
    for got, value in zip((h, c, i, j, f, o, tanhc), expected):
        np.testing.assert_allclose(got[0], value, atol=BOUND)
    np.testing.assert_array_equal(y, h)


@pytest.mark.by_day("kernel")
def test_two_directions_are_two_layers(way):
    def build():
        x = tf.constant(X)
        layer = rnn.DynamicRNN(UNITS, tf.float32, direction="BIDIRECTIONAL")
        both = layer(x)
        one = rnn.DynamicRNN(UNITS, tf.float32)
        ahead = one(x, weight=layer.w[0], bias=layer.b[0])[0]
        back = one(x[::-1], weight=layer.w[1], bias=layer.b[1])[0][::-1]
        return both[0], ahead, back

    both, ahead, back = run(build)
    assert both.shape == (2, TIME, BATCH, UNITS)
    assert (both[0] == ahead).all()
    assert (both[1] == back).all()
    assert (ahead != back).any()


@pytest.mark.by_day("loop")
def test_the_way_back_begins_at_each_sequences_end(way):
    def build():
        x = tf.constant(X)
        layer = rnn.DynamicRNN(UNITS, tf.float32, direction="BIDIRECTIONAL")
        y, h = layer(x, seq_length=LENGTHS)[:2]
        alone = rnn.DynamicRNN(UNITS, tf.float32)
        one = alone(x[:3, 1:2][::-1], weight=layer.w[1], bias=layer.b[1])[0]  # sequence 1 has three steps
        return y, h, one

    y, h, one = run(build)
    np.testing.assert_allclose(y[1, :3, 1], one[::-1, 0], atol=BOUND)
    assert (y[:, 3:, 1] == 0).all()
    assert (h[0, 3:, 1] == h[0, 2, 1]).all()


def test_both_ways_give_the_same_results_and_gradients(monkeypatch):
    def build():
        x, layer = tf.constant(X), rnn.DynamicRNN(UNITS, tf.float32, forget_bias=1.0)
        built = []
        for setting in ("auto", "on"):
            monkeypatch.setenv("NPU_SHIM_XLA", setting)
            outputs = layer(x, seq_length=LENGTHS)
            loss = tf.reduce_sum(tf.sin(outputs[0])) + tf.reduce_sum(tf.cos(outputs[2]))
            built.append((outputs[:3], tf.gradients(loss, [x, *layer.weights])))
        kinds = [op.type for op in tf.get_default_graph().get_operations()]
        assert (kinds.count("BlockLSTM"), kinds.count("LoopCond") + kinds.count("While") > 0) == (1, True)
        return built

    one, other = run(build)
    for got, expected in zip(tf.nest.flatten(one), tf.nest.flatten(other)):
        np.testing.assert_allclose(got, expected, atol=BOUND * max(1.0, np.abs(expected).max()))


@pytest.mark.by_day("kernel")
def test_a_sequence_without_steps_keeps_the_beginning(way):
    h0, c0 = RNG.randn(2, 1, BATCH, UNITS).astype(np.float32)

    def build():
        layer = rnn.DynamicRNN(UNITS, tf.float32)
        return layer(tf.constant(X), seq_length=np.array([5, 0, 1]), init_h=h0, init_c=c0)[:3]

    y, h, c = run(build)
    assert (y[:, 1] == 0).all()
    assert (h[:, 1] == h0[0, 1]).all()
    assert (c[:, 1] == c0[0, 1]).all()


def test_the_lstm_runs_in_float16_in_mixed_precision(patched):
    with tf.Graph().as_default():
        y = rnn.DynamicRNN(UNITS, tf.float32)(tf.constant(X))[0]
        loss = tf.reduce_sum(tf.square(y))
        gradients = tf.gradients(loss, tf.trainable_variables())
        with sessions.started(config=sessions.config(precision_mode="allow_mix_precision")) as session:
            ran = sessions.Ran(session, [loss, gradients])
            assert set(ran.dtypes("BlockLSTM", "BlockLSTMGrad").values()) == {"float16"}
        with sessions.started(config=sessions.config(precision_mode="force_fp32")) as session:
            expected = session.run([loss, gradients])
    # the weights come from a seeded initializer, so that both sessions have the same
    bound = 4 * TIME * (INPUTS + UNITS) * np.finfo(np.float16).eps
    for got, value in zip(tf.nest.flatten(ran.values), tf.nest.flatten(expected)):
        np.testing.assert_allclose(got, value, atol=bound * max(1.0, np.abs(value).max()))


def test_batch_major_is_time_major_transposed():
    def build():
        one, other = rnn.DynamicRNN(UNITS, tf.float32), rnn.DynamicRNN(UNITS, tf.float32, time_major=False)
        return one(tf.constant(X))[0], other(tf.transpose(X, [1, 0, 2]))[0]

    one, other = run(build)
    assert (one == other.transpose(1, 0, 2)).all()


def test_cell_clip_bounds_the_state(way):
    c = run(lambda: rnn.DynamicRNN(UNITS, tf.float32, cell_clip=0.05)(tf.constant(10 * X))[2])
    assert np.abs(c).max() == np.float32(0.05)


def numpy_gru(weights, order, reset_after, attention=None, lengths=None):
    wi, wh, bi, bh = [weight.astype(np.float64) for weight in weights]
    h, steps = np.zeros((BATCH, UNITS)), []
    for t in range(TIME):
        gx, gh = np.split(X[t] @ wi + bi, 3, 1), np.split(h @ wh + bh, 3, 1)
        z, r = sigmoid(gx[0] + gh[0]), sigmoid(gx[1] + gh[1])
        if order == "rzh":
            z, r = r, z
        part = gh[2] if reset_after else (r * h) @ wh[:, 2 * UNITS :] + bh[2 * UNITS :]
        n = np.tanh(gx[2] + (r if reset_after else 1.0) * part)
        scaled = z if attention is None else (1 - attention[t][:, None]) * z
        new = (1 - scaled) * n + scaled * h
        h = new if lengths is None else np.where((t < lengths)[:, None], new, h)
        steps.append((h, h, z, r, n, part) if attention is None else (h, h, z, scaled, r, n, part))
    return [np.stack(values) for values in zip(*steps)]


@pytest.mark.parametrize("order", ["zrh", "rzh"])
@pytest.mark.parametrize("reset_after", [True, False])
@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_gru(order, reset_after, lengths):
    def build():
        layer = rnn.DynamicGRUV2(UNITS, tf.float32, gate_order=order, reset_after=reset_after)
        outputs = layer(tf.constant(X), seq_length=lengths)
        return outputs, [layer.weight_input, layer.weight_hidden, layer.bias_input, layer.bias_hidden]

    outputs, weights = run(build)
    expected = numpy_gru(weights, order, reset_after, lengths=lengths)
    assert len(outputs) == len(expected) == 6
    for got, value in zip(outputs, expected):
        np.testing.assert_allclose(got, value, atol=BOUND)


def test_gru_is_keras_gru_with_reset_after():
    def build():
        x = tf.constant(X)
        layer = rnn.DynamicGRUV2(UNITS, tf.float32)
        y = layer(x)[0]
        keras = tf.keras.layers.GRU(
            UNITS, recurrent_activation="sigmoid", reset_after=True, return_sequences=True, time_major=True
        )
        expected = keras(x)
        biases = tf.stack([layer.bias_input, layer.bias_hidden])
        values = [layer.weight_input, layer.weight_hidden, biases]
        with tf.control_dependencies([old.assign(new) for old, new in zip(keras.weights, values)]):
            return tf.no_op(), y, expected

    with tf.Graph().as_default():
        copied, y, expected = build()
        with sessions.started() as session:
            session.run(copied)
            y, expected = session.run([y, expected])
    np.testing.assert_allclose(y, expected, atol=BOUND)


@pytest.mark.by_day("DynamicAUGRU-False", "DynamicGRUV2-True")
@pytest.mark.parametrize("reset_after", [True, False])
@pytest.mark.parametrize("layer", [rnn.DynamicGRUV2, rnn.DynamicAUGRU])
def test_gru_gradients_are_difference_quotients(layer, reset_after):
    """In float64, where a central difference with step 1e-6 is good to about 1e-9."""
    attention = [RNG.rand(TIME, BATCH)] if layer is rnn.DynamicAUGRU else []
    directions = [RNG.randn(INPUTS, 3 * UNITS), RNG.randn(UNITS, 3 * UNITS), RNG.randn(3 * UNITS), RNG.randn(3 * UNITS)]
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        cell = layer(UNITS, tf.float64, reset_after=reset_after)
        loss = tf.reduce_sum(tf.sin(cell(tf.constant(X.astype(np.float64)), *attention, seq_length=LENGTHS)[0]))
        weights = [cell.weight_input, cell.weight_hidden, cell.bias_input, cell.bias_hidden]
        slopes = [tf.reduce_sum(g * d) for g, d in zip(tf.gradients(loss, weights), directions)]
        step = tf.placeholder(tf.float64, [])
        moves = [tf.assign_add(weight, step * direction) for weight, direction in zip(weights, directions)]
        with sessions.started() as session:
            for move, slope in zip(moves, session.run(slopes)):
                session.run(move, {step: 1e-6})
                above = session.run(loss)
                session.run(move, {step: -2e-6})
                below = session.run(loss)
                session.run(move, {step: 1e-6})
                np.testing.assert_allclose((above - below) / 2e-6, slope, atol=1e-7)


@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_augru(lengths):
    attention = RNG.rand(TIME, BATCH).astype(np.float32)

    def build():
        layer = rnn.DynamicAUGRU(UNITS, tf.float32)
        outputs = layer(tf.constant(X), attention, seq_length=lengths)
        gradients = tf.gradients(outputs[0], layer.weights)
        return outputs, [layer.weight_input, layer.weight_hidden, layer.bias_input, layer.bias_hidden], gradients

    outputs, weights, gradients = run(build)
    expected = numpy_gru(weights, "zrh", True, attention, lengths)
    assert len(outputs) == len(expected) == 7
    for got, value in zip(outputs, expected):
        np.testing.assert_allclose(got, value, atol=BOUND)
    assert all(np.abs(gradient).max() > 0 for gradient in gradients)


def test_full_attention_forgets_the_state():
    def build():
        outputs = rnn.DynamicAUGRU(UNITS, tf.float32)(tf.constant(X), np.ones((TIME, BATCH), np.float32))
        return outputs[0], outputs[5]

    y, new = run(build)
    assert (y == new).all()


def test_variables_have_the_vendors_names():
    with tf.Graph().as_default():
        rnn.DynamicRNN(UNITS, tf.float32)(tf.constant(X))
        rnn.DynamicGRUV2(UNITS, tf.float32)(tf.constant(X))
        # the layer's own scope is spelled differently by TensorFlow's versions
        names = {v.op.name.split("/", 1)[1] for v in tf.trainable_variables()}
    assert names == {
        "dynamicrnn/w",
        "dynamicrnn/b",
        "dynamicgruv2/weight_input",
        "dynamicgruv2/weight_hidden",
        "dynamicgruv2/bias_input",
        "dynamicgruv2/bias_hidden",
    }


def test_basic_lstm_cell_is_tensorflows():
    h, c = RNG.randn(BATCH, UNITS).astype(np.float32), RNG.randn(BATCH, UNITS).astype(np.float32)

    def build():
        cell = tf.nn.rnn_cell.BasicLSTMCell(UNITS, forget_bias=1.0)
        expected, state = cell(tf.constant(X[0]), tf.nn.rnn_cell.LSTMStateTuple(tf.constant(c), tf.constant(h)))
        w, b = cell.weights
        ours = rnn.basic_lstm_cell(X[0], h, c, w, b, 1.0, 1.0, True, "tanh")
        return ours[:2], (state.c, expected)

    ours, theirs = run(build)
    for one, other in zip(ours, theirs):
        np.testing.assert_allclose(one, other, atol=BOUND)


def test_npu_dynamic_rnn_is_static_rnn():
    def build():
        x = tf.constant(X)
        cell = tf.nn.rnn_cell.BasicLSTMCell(UNITS)
        ours, state = rnn.npu_dynamic_rnn(cell, x, dtype=tf.float32, sequence_length=LENGTHS)
        theirs, last = tf.nn.static_rnn(cell, tf.unstack(x), dtype=tf.float32, sequence_length=LENGTHS)
        return (ours, state.h), (tf.stack(theirs), last.h)

    ours, theirs = run(build)
    for one, other in zip(ours, theirs):
        np.testing.assert_allclose(one, other, atol=BOUND)


@pytest.mark.parametrize(
    ("layer", "option", "value"),
    [
        (rnn.DynamicRNN, "direction", "BIDIRECTION"),
        (rnn.DynamicRNN, "cell_type", "GRU"),
        (rnn.DynamicRNN, "use_peephole", True),
        (rnn.DynamicGRUV2, "direction", "BIDIRECTIONAL"),
        (rnn.DynamicGRUV2, "gate_order", "hzr"),
        (rnn.DynamicAUGRU, "keep_prob", 0.5),
    ],
)
def test_what_the_layers_do_not_do_is_refused(layer, option, value):
    words = "^npu_shim: %s: %s must be" % (layer.__name__, option)
    with tf.Graph().as_default(), pytest.raises(ValueError, match=words):
        layer(UNITS, tf.float32, **{option: value})
