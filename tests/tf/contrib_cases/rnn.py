"""tf.contrib.rnn and tf.contrib.cudnn_rnn."""

import numpy as np

from . import case, module, values


def _rnn(tf, cell, depth=4, scope=None, inputs=None):
    """Outputs and state of a cell over a sequence, and the gradients of their sum."""
    inputs = tf.constant(values("in", 3, 5, depth)) if inputs is None else inputs
    outputs, state = tf.nn.dynamic_rnn(cell, inputs, sequence_length=[5, 2, 4], dtype=tf.float32, scope=scope)
    return outputs, state, _gradients(tf, outputs)


def _gradients(tf, outputs):
    variables = sorted(tf.trainable_variables(), key=lambda v: v.op.name)
    return [g for g in tf.gradients(tf.reduce_sum(outputs * outputs), variables) if g is not None]


def _rnns(tf, cells, **kwargs):
    out = []
    for index, cell in enumerate(cells):
        out.append(_rnn(tf, cell, scope="cell%d" % index, **kwargs))
    return out


@case
def rnn_layer_norm(tf, contrib):
    make = contrib.rnn.LayerNormBasicLSTMCell
    return _rnns(
        tf, [make(6), make(6, layer_norm=False, forget_bias=0.5), make(6, norm_gain=0.5, activation=tf.nn.relu)]
    )


@case
def rnn_coupled(tf, contrib):
    make = contrib.rnn.CoupledInputForgetGateLSTMCell
    return _rnns(tf, [make(6), make(6, use_peepholes=True, num_proj=3, proj_clip=0.1), make(6, layer_norm=True),
                      make(6, state_is_tuple=False, num_unit_shards=3)])  # fmt: skip


@case
def rnn_searched(tf, contrib):
    rnn = contrib.rnn
    cells = [rnn.NASCell(6), rnn.NASCell(6, num_proj=3, use_bias=True), rnn.UGRNNCell(6), rnn.SRUCell(6)]
    return _rnns(tf, [*cells, rnn.IntersectionRNNCell(6, num_in_proj=6)])


@case
def rnn_independent(tf, contrib):
    rnn = contrib.rnn
    groups = [rnn.GLSTMCell(6, number_of_groups=2), rnn.GLSTMCell(8, num_proj=4, number_of_groups=2)]
    return _rnns(tf, [rnn.IndRNNCell(6), rnn.IndyGRUCell(6), rnn.IndyLSTMCell(6), *groups])


@case
def rnn_phased(tf, contrib):
    times = tf.constant(np.cumsum(np.abs(values("time", 3, 5, 1)), 1))
    inputs = (times, tf.constant(values("in", 3, 5, 4)))
    return _rnns(tf, [contrib.rnn.PhasedLSTMCell(6, use_peepholes=True)], inputs=inputs)


@case
def rnn_blocks(tf, contrib):
    make = contrib.rnn.LSTMBlockCell
    return _rnns(tf, [make(6), make(6, use_peephole=True, cell_clip=0.2, forget_bias=0.3), contrib.rnn.GRUBlockCell(6),
                      contrib.rnn.GRUBlockCellV2(6)])  # fmt: skip


@case
def rnn_fused(tf, contrib):
    inputs = tf.constant(values("in", 5, 3, 4))
    fused = contrib.rnn.LSTMBlockFusedCell(6, use_peephole=True, cell_clip=0.5)
    a = fused(inputs, dtype=tf.float32, sequence_length=[5, 2, 4])
    b = contrib.rnn.LSTMBlockFusedCell(6, name="other")(inputs, dtype=tf.float32)
    adaptor = contrib.rnn.TimeReversedFusedRNN(contrib.rnn.FusedRNNCellAdaptor(tf.nn.rnn_cell.GRUCell(6), True))
    c = adaptor(inputs, dtype=tf.float32, sequence_length=[5, 2, 4])
    return a, b, c, _gradients(tf, tf.concat([a[0], b[0], c[0]], 2))


@case
def rnn_convolutional(tf, contrib):
    inputs = tf.constant(values("in", 3, 5, 4, 4, 2))
    cell = contrib.rnn.Conv2DLSTMCell(input_shape=[4, 4, 2], output_channels=3, kernel_shape=[3, 3])
    out = _rnns(tf, [cell], inputs=inputs)
    skip = contrib.rnn.ConvLSTMCell(1, [4, 2], 3, [3], skip_connection=True, use_bias=False)
    with tf.variable_scope("skip"):
        return [*out, skip(tf.constant(values("in1", 3, 4, 2)), skip.zero_state(3, tf.float32))]


@case
def rnn_wrappers(tf, contrib):
    gru = tf.nn.rnn_cell.GRUCell
    cells = [contrib.rnn.AttentionCellWrapper(tf.nn.rnn_cell.BasicLSTMCell(6), 3, attn_vec_size=5),
             contrib.rnn.AttentionCellWrapper(gru(6), 2, attn_size=4, input_size=3, state_is_tuple=False),
             contrib.rnn.InputProjectionWrapper(gru(6), 3, tf.nn.relu), contrib.rnn.OutputProjectionWrapper(gru(6), 3),
             contrib.rnn.HighwayWrapper(gru(4)), contrib.rnn.HighwayWrapper(gru(4), False, 0.5)]  # fmt: skip
    ids = tf.constant([[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [1, 1, 1, 1, 1]])
    embedding = contrib.rnn.EmbeddingWrapper(gru(6), 5, 4)
    return [*_rnns(tf, cells), tf.nn.dynamic_rnn(embedding, tf.expand_dims(ids, 2), dtype=tf.float32)]


@case
def rnn_stacked(tf, contrib):
    def cells():
        return [tf.nn.rnn_cell.GRUCell(6), tf.nn.rnn_cell.LSTMCell(3)]

    inputs = tf.constant(values("in", 3, 5, 4))
    a = contrib.rnn.stack_bidirectional_dynamic_rnn(
        cells(), cells(), inputs, dtype=tf.float32, sequence_length=[5, 2, 4]
    )
    b = contrib.rnn.stack_bidirectional_rnn(cells(), cells(), tf.unstack(inputs, axis=1), dtype=tf.float32, scope="s")
    return a, b


@case
def cudnn_cells(tf, contrib):
    return _rnns(tf, [contrib.cudnn_rnn.CudnnCompatibleLSTMCell(6), contrib.cudnn_rnn.CudnnCompatibleGRUCell(6)])


@case
def rnn_grid(tf, contrib):
    make = contrib.rnn.GridLSTMCell
    inputs = tf.constant(values("in", 3, 4, 6))
    blocks = {"start_freqindex_list": [0, 2], "end_freqindex_list": [4, 6], "num_frequency_blocks": [3, 2]}
    cells = [
        make(3, feature_size=2, frequency_skip=2, num_frequency_blocks=[3], use_peepholes=True),
        make(3, feature_size=2, frequency_skip=1, num_frequency_blocks=[5], share_time_frequency_weights=True,
             use_peepholes=True, couple_input_forget_gates=True, num_unit_shards=2),
        make(2, feature_size=3, frequency_skip=1, num_frequency_blocks=[4], state_is_tuple=False, cell_clip=0.1),
        contrib.rnn.BidirectionalGridLSTMCell(2, feature_size=2, frequency_skip=1, num_frequency_blocks=[5],
                                              backward_slice_offset=1, use_peepholes=True),
    ]  # fmt: skip
    blocks["num_frequency_blocks"] = [3, 3]
    cells.append(make(2, feature_size=2, frequency_skip=1, forget_bias=0.5, **blocks))
    out = []
    for index, cell in enumerate(cells):
        outputs, state = tf.nn.dynamic_rnn(cell, inputs, dtype=tf.float32, scope="cell%d" % index)
        out.append([outputs, state, _gradients(tf, outputs)])
    return out


@case
def rnn_time_and_frequency(tf, contrib):
    out = []
    for index, options in enumerate(({}, {"use_peepholes": True, "cell_clip": 0.1, "num_unit_shards": 2})):
        cell = contrib.rnn.TimeFreqLSTMCell(3, feature_size=2, frequency_skip=2, **options)
        with tf.variable_scope("cell%d" % index):
            outputs, state = cell(tf.constant(values("in", 2, 6)), tf.constant(values("state", 2, 18)))
        out.append([outputs, state, _gradients(tf, outputs)])
    return out


@case
def rnn_normalized(tf, contrib):
    cells = module(tf, "rnn.python.ops.rnn_cell")
    weights, layers = cells.WeightNormLSTMCell, cells.LayerNormLSTMCell
    every = {"use_peepholes": True, "cell_clip": 0.3, "num_proj": 3, "proj_clip": 0.2}
    return _rnns(tf, [
        weights(5), weights(5, norm=False, forget_bias=0.5), weights(5, **every), layers(5), layers(5, **every),
        layers(5, layer_norm=True, norm_gain=0.7, norm_shift=0.1, **every), layers(5, layer_norm=True),
    ])  # fmt: skip


@case
def rnn_gated(tf, contrib):
    cells = module(tf, "rnn.python.ops.rnn_cell")
    return _rnns(tf, [cells.MinimalRNNCell(5), cells.CFNCell(5), cells.CFNCell(5, activation="sigmoid")])


@case
def rnn_turing(tf, contrib):
    cells = module(tf, "rnn.python.ops.rnn_cell")
    turing = [cells.NTMCell(contrib.rnn.LSTMCell(6), 5, 4, 1, 1, output_dim=3),
            cells.NTMCell(contrib.rnn.GRUCell(6), 7, 4, 2, 2, shift_range=2, clip_value=1)]  # fmt: skip
    out = []
    for index, cell in enumerate(turing):
        state = cell.zero_state(3, tf.float32)
        steps = []
        with tf.variable_scope("turing%d" % index) as scope:
            for step in range(3):
                output, state = cell(tf.constant(values("in%d" % step, 3, 4)), state)
                steps.append(output)
                scope.reuse_variables()
        out.append([steps, state.read_vector_list, state.w_list, state.M, tf.convert_to_tensor(state.time)])
    return out, _gradients(tf, tf.concat([step[0][-1] for step in out], 1))


@case
def rnn_recurrent(tf, contrib):
    recurrent = module(tf, "recurrent.python.ops.recurrent")
    w, inputs = tf.get_variable("w", [3, 3]), tf.constant(values("in", 5, 2, 3))

    def step(theta, state, x):
        return {"h": tf.tanh(tf.matmul(state["h"], theta["w"]) + x["x"])}, {}

    def double(theta, state, x, extras, gradient):
        h = step(theta, state, x)[0]["h"]
        given = tf.gradients(h, [theta["w"], state["h"], x["x"]], 2 * gradient["h"])
        return {"w": given[0]}, {"h": given[1]}, {"x": given[2]}

    out = []
    three = tf.constant(3)
    for kwargs in ({}, {"max_input_length": three}, {"max_input_length": three, "aligned_end": True},
                   {"cell_grad": double}):  # fmt: skip
        first = tf.constant(values("first", 2, 3))
        states, last = recurrent.Recurrent({"w": w}, {"h": first}, {"x": inputs}, step, **kwargs)
        loss = tf.reduce_sum(tf.square(states["h"])) + tf.reduce_sum(last["h"])
        # with aligned_end, 1.15.5's gradient takes zeros for the first state
        out.append([states, last, [] if "aligned_end" in kwargs else tf.gradients(loss, [w, first, inputs])])
    return out


@case
def rnn_functional(tf, contrib):
    functional = module(tf, "recurrent.python.ops.functional_rnn")
    inputs, lengths, out = tf.constant(values("in", 3, 5, 4)), tf.constant([5, 2, 4]), []
    for index, (kwargs, feed) in enumerate((
        ({}, inputs), ({"sequence_length": lengths}, inputs), ({"reverse": True}, inputs),
        ({"sequence_length": tf.constant([2, 1, 3]), "reverse": True}, inputs),
        ({"time_major": True}, tf.transpose(inputs, [1, 0, 2])),
    )):  # fmt: skip
        cell = contrib.rnn.LSTMCell(6)
        out.append(functional.functional_rnn(cell, feed, dtype=tf.float32, scope="way%d" % index, **kwargs))
    for index, fast in enumerate((False, True)):
        cells = [contrib.rnn.GRUCell(6), contrib.rnn.GRUCell(6)]
        out.append(functional.bidirectional_functional_rnn(
            *cells, inputs=inputs, dtype=tf.float32, sequence_length=lengths, fast_reverse=fast, scope="both%d" % index
        ))  # fmt: skip
    return out, _gradients(tf, tf.concat([tf.reshape(one[0], [-1]) for one in out], 0))
