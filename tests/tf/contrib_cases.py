"""What tf.contrib computes, as cases that run under TensorFlow 1.15 (the original) and under ours.

    python contrib_cases.py OUT.npz [NAME...]

writes the values of every case. Variables start from values that derive from their names and shapes, so equal values
mean equal variable names as well. A case is a function (tf, contrib) -> (nested) tensors.
"""

import sys
import zlib

import numpy as np

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def values(name, *shape):
    """float32 values in [-1, 1) that derive from a name."""
    return np.random.RandomState(zlib.crc32(name.encode())).uniform(-1, 1, shape).astype(np.float32)


def run(tf, contrib, name):
    """{name/index: value} of one case; training ops are run three times."""
    out = {}
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(1)
        fetches = CASES[name](tf, contrib)
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer(), tf.tables_initializer()])
        for variable in tf.trainable_variables():
            variable.load(values(variable.op.name, *variable.shape.as_list()), session)
        session.run(tf.variables_initializer([v for v in tf.global_variables() if v not in tf.trainable_variables()]))
        out[name + "/variables"] = np.array(sorted(v.op.name for v in tf.global_variables()))
        train = tf.get_collection("train_of_case")
        for _ in range(3 if train else 0):
            session.run(train)
        for index, value in enumerate(session.run(_flat(fetches))):
            value = np.asarray(value)
            out["%s/%d" % (name, index)] = value.astype("S") if value.dtype == object else value
    return out


def _flat(x):
    if isinstance(x, dict):
        return [y for key in sorted(x) for y in _flat(x[key])]
    return [y for part in x for y in _flat(part)] if isinstance(x, (list, tuple)) else [x]


# tf.contrib.seq2seq


def _memory(tf):
    return tf.constant(values("memory", 3, 5, 4)), tf.constant([5, 2, 4])


def _decode(tf, contrib, cell, helper, state, **kwargs):
    layer = tf.layers.Dense(7, name="out", use_bias=False)
    decoder = contrib.seq2seq.BasicDecoder(cell, helper, state, layer)
    outputs, last, lengths = contrib.seq2seq.dynamic_decode(decoder, **kwargs)
    last = getattr(last, "cell_state", last)
    return outputs.rnn_output, outputs.sample_id, last, lengths


def _training(tf, contrib, make, **kwargs):
    memory, lengths = _memory(tf)
    cell = contrib.seq2seq.AttentionWrapper(tf.nn.rnn_cell.LSTMCell(6), make(memory, lengths), **kwargs)
    helper = contrib.seq2seq.TrainingHelper(tf.constant(values("in", 3, 4, 2)), tf.constant([4, 1, 3]))
    return _decode(tf, contrib, cell, helper, cell.zero_state(3, tf.float32), impute_finished=True)


@case
def bahdanau(tf, contrib):
    return _training(tf, contrib, lambda m, n: contrib.seq2seq.BahdanauAttention(5, m, n), attention_layer_size=3)


@case
def bahdanau_normalized(tf, contrib):
    return _training(tf, contrib, lambda m, n: contrib.seq2seq.BahdanauAttention(5, m, n, normalize=True))


@case
def luong_scaled(tf, contrib):
    return _training(
        tf, contrib, lambda m, n: contrib.seq2seq.LuongAttention(6, m, n, scale=True), output_attention=False
    )


@case
def luong_without_lengths(tf, contrib):
    return _training(tf, contrib, lambda m, n: contrib.seq2seq.LuongAttention(6, m), attention_layer_size=4)


@case
def monotonic(tf, contrib):
    out = []
    for mode in ("parallel", "recursive", "hard"):
        with tf.variable_scope(mode):
            out.append(_training(tf, contrib, lambda m, n: contrib.seq2seq.BahdanauMonotonicAttention(
                5, m, n, normalize=True, score_bias_init=-1.0, mode=mode)))  # noqa: B023  # fmt: skip
    out.append(_training(tf, contrib, lambda m, n: contrib.seq2seq.LuongMonotonicAttention(6, m, n, scale=True)))
    return out


@case
def two_mechanisms(tf, contrib):
    def make(m, n):
        return [contrib.seq2seq.BahdanauAttention(5, m, n), contrib.seq2seq.LuongAttention(6, m, n)]

    return _training(tf, contrib, make, attention_layer_size=[3, 2])


@case
def alignment_history(tf, contrib):
    memory, lengths = _memory(tf)
    mechanism = contrib.seq2seq.LuongAttention(6, memory, lengths)
    cell = contrib.seq2seq.AttentionWrapper(tf.nn.rnn_cell.GRUCell(6), mechanism, alignment_history=True)
    state, outputs = cell.zero_state(3, tf.float32), []
    for step in range(3):
        output, state = cell(tf.constant(values("step%d" % step, 3, 2)), state)
        outputs.append(output)
    return outputs, state.alignments, state.attention, state.time, state.alignment_history.stack()


@case
def greedy(tf, contrib):
    embedding = tf.get_variable("embedding", [7, 4])
    helper = contrib.seq2seq.GreedyEmbeddingHelper(embedding, [1, 2, 3], 0)
    cell = tf.nn.rnn_cell.GRUCell(6)
    return _decode(tf, contrib, cell, helper, cell.zero_state(3, tf.float32), maximum_iterations=6)


@case
def training_time_major(tf, contrib):
    inputs = tf.constant(values("in", 4, 3, 2))
    helper = contrib.seq2seq.TrainingHelper(inputs, tf.constant([0, 4, 2]), time_major=True)
    cell = tf.nn.rnn_cell.BasicLSTMCell(6)
    return _decode(tf, contrib, cell, helper, cell.zero_state(3, tf.float32), output_time_major=True)


@case
def scheduled_always_and_never(tf, contrib):
    out = []
    for probability in (0.0, 1.0):
        inputs = tf.constant(values("in", 3, 4, 6))
        helper = contrib.seq2seq.ScheduledOutputTrainingHelper(
            inputs, tf.constant([4, 1, 3]), tf.constant(probability), auxiliary_inputs=tf.constant(values("a", 3, 4, 2))
        )
        with tf.variable_scope("p%d" % probability):
            cell = tf.nn.rnn_cell.GRUCell(6)
            decoder = contrib.seq2seq.BasicDecoder(cell, helper, cell.zero_state(3, tf.float32))
            out.append(contrib.seq2seq.dynamic_decode(decoder))
    return out


@case
def scheduled_embedding_never(tf, contrib):
    embedding = tf.get_variable("embedding", [7, 2])
    helper = contrib.seq2seq.ScheduledEmbeddingTrainingHelper(
        tf.constant(values("in", 3, 4, 2)), tf.constant([4, 1, 3]), embedding, tf.constant(0.0)
    )
    cell = tf.nn.rnn_cell.GRUCell(6)
    return _decode(tf, contrib, cell, helper, cell.zero_state(3, tf.float32))


@case
def custom_and_inference_helpers(tf, contrib):
    cell = tf.nn.rnn_cell.GRUCell(3)
    start = tf.constant(values("start", 2, 3))
    inference = contrib.seq2seq.InferenceHelper(
        lambda outputs: outputs, [3], tf.float32, start, lambda samples: tf.reduce_sum(samples, 1) > 2.0
    )
    custom = contrib.seq2seq.CustomHelper(
        lambda: (tf.fill([2], False), start),
        lambda time, outputs, state: tf.cast(tf.argmax(outputs, 1), tf.int32),
        lambda time, outputs, state, sample_ids: (sample_ids > 1, outputs * 2.0, state),
    )
    return [
        contrib.seq2seq.dynamic_decode(
            contrib.seq2seq.BasicDecoder(cell, helper, cell.zero_state(2, tf.float32)), maximum_iterations=5
        )
        for helper in (inference, custom)
    ]


def _beam(tf, contrib, length_penalty, coverage_penalty, history):
    s2s, width = contrib.seq2seq, 4
    unknown = (tf.placeholder_with_default(t, [None, *t.shape.as_list()[1:]]) for t in _memory(tf))
    memory, lengths = (s2s.tile_batch(t, width) for t in unknown)
    mechanism = s2s.BahdanauAttention(5, memory, lengths)
    cell = s2s.AttentionWrapper(tf.nn.rnn_cell.LSTMCell(6), mechanism, alignment_history=history)
    decoder = s2s.BeamSearchDecoder(
        cell, tf.get_variable("embedding", [7, 4]), tf.placeholder_with_default([1, 2, 3], [None]), 0,
        cell.zero_state(3 * width, tf.float32), width,
        tf.layers.Dense(7, name="out"), length_penalty, coverage_penalty,
    )  # fmt: skip
    outputs, state, lengths = s2s.dynamic_decode(decoder, maximum_iterations=8)
    out = [
        outputs.predicted_ids,
        outputs.beam_search_decoder_output,
        state.log_probs,
        state.lengths,
        state.finished,
        lengths,
    ]
    return out + ([state.cell_state.alignment_history] if history else [])


@case
def beam(tf, contrib):
    return _beam(tf, contrib, 0.0, 0.0, False)


@case
def beam_with_penalties(tf, contrib):
    return _beam(tf, contrib, 0.8, 0.3, False)


@case
def beam_with_history(tf, contrib):
    return _beam(tf, contrib, 0.5, 0.0, True)


@case
def gather_tree(tf, contrib):
    ids = tf.constant(np.random.RandomState(0).randint(0, 5, [6, 3, 4]), tf.int32)
    parents = tf.constant(np.random.RandomState(1).randint(0, 4, [6, 3, 4]), tf.int32)
    return contrib.seq2seq.gather_tree(ids, parents, [6, 3, 0], 2)


@case
def sequence_loss(tf, contrib):
    logits, targets = tf.constant(values("logits", 3, 4, 5)), tf.constant([[0, 1, 2, 3], [4, 3, 2, 1], [1, 1, 1, 1]])
    weights = tf.constant([[1.0, 1, 1, 0], [1, 0.5, 0, 0], [0, 0, 0, 0]])
    flags = ["average_across_timesteps", "average_across_batch", "sum_over_timesteps", "sum_over_batch"]
    out = []
    for chosen in ("1100", "1000", "0100", "0000", "0011", "0010", "0001", "1001", "0110"):
        options = {flag: on == "1" for flag, on in zip(flags, chosen)}
        out.append(contrib.seq2seq.sequence_loss(logits, targets, weights, **options))
    return out


# tf.contrib.rnn


def _rnn(tf, cell, depth=4, scope=None, inputs=None):
    """Outputs and state of a cell over a sequence, and the gradients of their sum."""
    inputs = tf.constant(values("in", 3, 5, depth)) if inputs is None else inputs
    outputs, state = tf.nn.dynamic_rnn(cell, inputs, sequence_length=[5, 2, 4], dtype=tf.float32, scope=scope)
    return outputs, state, _gradients(tf, outputs)


def _gradients(tf, outputs):
    variables = sorted(tf.trainable_variables(), key=lambda v: v.op.name)
    return [g for g in tf.gradients(tf.reduce_sum(outputs * outputs), variables) if g is not None]


def _each(tf, cells, **kwargs):
    out = []
    for index, cell in enumerate(cells):
        out.append(_rnn(tf, cell, scope="cell%d" % index, **kwargs))
    return out


@case
def rnn_layer_norm(tf, contrib):
    make = contrib.rnn.LayerNormBasicLSTMCell
    return _each(
        tf, [make(6), make(6, layer_norm=False, forget_bias=0.5), make(6, norm_gain=0.5, activation=tf.nn.relu)]
    )


@case
def rnn_coupled(tf, contrib):
    make = contrib.rnn.CoupledInputForgetGateLSTMCell
    return _each(tf, [make(6), make(6, use_peepholes=True, num_proj=3, proj_clip=0.1), make(6, layer_norm=True),
                      make(6, state_is_tuple=False, num_unit_shards=3)])  # fmt: skip


@case
def rnn_searched(tf, contrib):
    rnn = contrib.rnn
    cells = [rnn.NASCell(6), rnn.NASCell(6, num_proj=3, use_bias=True), rnn.UGRNNCell(6), rnn.SRUCell(6)]
    return _each(tf, [*cells, rnn.IntersectionRNNCell(6, num_in_proj=6)])


@case
def rnn_independent(tf, contrib):
    rnn = contrib.rnn
    groups = [rnn.GLSTMCell(6, number_of_groups=2), rnn.GLSTMCell(8, num_proj=4, number_of_groups=2)]
    return _each(tf, [rnn.IndRNNCell(6), rnn.IndyGRUCell(6), rnn.IndyLSTMCell(6), *groups])


@case
def rnn_phased(tf, contrib):
    times = tf.constant(np.cumsum(np.abs(values("time", 3, 5, 1)), 1))
    inputs = (times, tf.constant(values("in", 3, 5, 4)))
    return _each(tf, [contrib.rnn.PhasedLSTMCell(6, use_peepholes=True)], inputs=inputs)


@case
def rnn_blocks(tf, contrib):
    make = contrib.rnn.LSTMBlockCell
    return _each(tf, [make(6), make(6, use_peephole=True, cell_clip=0.2, forget_bias=0.3), contrib.rnn.GRUBlockCell(6),
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
    out = _each(tf, [cell], inputs=inputs)
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
    return [*_each(tf, cells), tf.nn.dynamic_rnn(embedding, tf.expand_dims(ids, 2), dtype=tf.float32)]


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


# tf.contrib.opt


def _train(tf, make, sparse=True, dense=True):
    """Variables and slots after three steps of an optimizer, for reference and resource variables."""
    out = []
    for resource in (False, True):
        with tf.variable_scope("resource" if resource else "reference", use_resource=resource):
            table, w = tf.get_variable("table", [6, 3]), tf.get_variable("w", [3, 2])
            loss = 0.0
            if sparse:
                loss += tf.reduce_sum(tf.square(tf.nn.embedding_lookup(table, [0, 2, 2, 5]) - 0.3))
            if dense:
                loss += tf.reduce_sum(tf.square(tf.matmul(tf.constant(values("x", 4, 3)), w)))
            optimizer = make([v for v, used in ((table, sparse), (w, dense)) if used])
            variables = [v for v, used in ((table, sparse), (w, dense)) if used]
            tf.add_to_collection("train_of_case", optimizer.minimize(loss, var_list=variables))
            slots = [optimizer.get_slot(v, name) for v in variables for name in sorted(optimizer.get_slot_names())]
            out.append(variables + slots)
    return out


def _scoped(tf, scope, make, **kwargs):
    with tf.variable_scope(scope):
        return _train(tf, make, **kwargs)


@case
def opt_adams(tf, contrib):
    return [_scoped(tf, "x", lambda v: contrib.opt.AdaMaxOptimizer(0.1)),
            _scoped(tf, "n", lambda v: contrib.opt.NadamOptimizer(0.1), sparse=False),
            _scoped(tf, "l", lambda v: contrib.opt.LazyAdamOptimizer(0.1))]  # fmt: skip


@case
def opt_rates(tf, contrib):
    def clipped(v):
        return contrib.opt.VariableClippingOptimizer(
            tf.train.GradientDescentOptimizer(0.1), {v[0]: [0, 1], v[1]: [0]}, 0.5
        )

    return [_scoped(tf, "a", lambda v: contrib.opt.LARSOptimizer(0.5, weight_decay=0.1, eeta=0.1), sparse=False),
            _scoped(tf, "n", lambda v: contrib.opt.LARSOptimizer(0.5, use_nesterov=True), sparse=False),
            _scoped(tf, "s", lambda v: contrib.opt.LARSOptimizer(0.01, skip_list=["w"]), sparse=False),
            _scoped(tf, "add", lambda v: contrib.opt.AddSignOptimizer(0.1, alpha=0.5), sparse=False),
            _scoped(tf, "power", lambda v: contrib.opt.PowerSignOptimizer(0.1, base=2.0), sparse=False),
            _scoped(tf, "clip", clipped)]  # fmt: skip


@case
def opt_average(tf, contrib):
    optimizer = contrib.opt.MovingAverageOptimizer(tf.train.GradientDescentOptimizer(0.1), 0.5)
    w = tf.get_variable("w", [3, 2])
    tf.add_to_collection("train_of_case", optimizer.minimize(tf.reduce_sum(tf.square(w))))
    saver = optimizer.swapping_saver().as_saver_def()
    # what is saved under the variable's name is its average
    saved = tf.get_default_graph().get_operation_by_name("swapping_saver/SaveV2")
    return w, optimizer._ema.average(w), saved.inputs[1], list(saved.inputs)[3:], tf.constant(saver.version)


@case
def opt_clip_global(tf, contrib):
    w, z = tf.get_variable("w", [3, 2]), tf.get_variable("z", [2])
    pairs = tf.train.GradientDescentOptimizer(0.1).compute_gradients(
        tf.reduce_sum(tf.square(w)) + 0.0 * tf.reduce_sum(z)
    )
    clipped, norm = contrib.opt.clip_gradients_by_global_norm(pairs, 0.7)
    return [g for g, _ in clipped], norm


# tf.contrib.crf


@case
def crf(tf, contrib):
    inputs, tags = tf.constant(values("unary", 4, 5, 3)), tf.constant(np.arange(20).reshape(4, 5) % 3, tf.int32)
    lengths, bitmap = tf.constant([5, 1, 3, 0]), tf.constant(values("bitmap", 4, 5, 3) > -0.5)
    likelihood, transitions = contrib.crf.crf_log_likelihood(inputs, tags, lengths)
    decoded = contrib.crf.crf_decode(inputs, transitions, lengths)
    single = contrib.crf.crf_decode(inputs[:, :1], transitions, tf.constant([1, 1, 1, 0]))
    return [likelihood, tf.gradients(likelihood, transitions), decoded, single,
            contrib.crf.crf_multitag_sequence_score(inputs, bitmap, lengths, transitions),
            contrib.crf.crf_log_norm(inputs[:, :1], lengths, transitions)]  # fmt: skip


# the rest


@case
def hparams(tf, contrib):
    make, out = contrib.training.HParams, []

    def of(function):
        try:
            out.append(str(function()))
        except Exception as error:
            out.append("%s: %s" % (type(error).__name__, error))

    def fresh():
        return make(a=1, b=2.5, c="text", d=True, e=[1, 2], f=["x"], g=None)

    for text in ("a=3,b=1e-3,c=x y,d=false", "e=[4,5,6],f=[u,v]", "a=2.5", "a=1,a=2", "nope=1", "a", "d=maybe", "d=0",
                 "e[1]=7", "e=3", "c=", "a=[1]", "e[0]=[1]", "b=3", "e[1]=1,e[1]=2", "c=a=b", "e=[]"):  # fmt: skip
        of(lambda: sorted(fresh().parse(text).values().items(), key=str))  # noqa: B023
    for name, value in (
        ("a", 2.0),
        ("a", "2"),
        ("b", 2),
        ("c", 1),
        ("d", 1),
        ("e", 1),
        ("e", [1.5]),
        ("g", "any"),
        ("z", 1),
    ):
        of(lambda: fresh().override_from_dict({name: value}).get(name))  # noqa: B023
    of(lambda: fresh().to_json(sort_keys=True))
    of(lambda: repr(fresh()))
    of(lambda: fresh().parse_json('{"a": 4}').a)
    of(lambda: fresh().get("a", "x"))
    of(lambda: fresh().get("zz", "x"))
    of(lambda: fresh().add_hparam("a", 3))
    of(lambda: fresh().add_hparam("values", 3))
    of(lambda: fresh().add_hparam("h", []))
    of(lambda: "a" in fresh())
    of(lambda: contrib.training.parse_values("a=1,b=2,e[3]=4", {"a": int, "e": float}, ignore_unknown=True))
    return tf.constant(out)


@case
def images(tf, contrib):
    picture, c = tf.constant(values("image", 2, 6, 5, 3)), contrib.image
    turns = c.angles_to_projective_transforms([0.3, -1.2], 6.0, 5.0)
    moves = c.translations_to_projective_transforms([1.0, -2.0])
    flow = tf.constant(3 * values("flow", 2, 6, 5, 2))
    points = tf.constant(8 * values("points", 2, 7, 2))
    return [
        c.rotate(picture, 0.7),
        c.rotate(picture, [0.2, 3.0], "BILINEAR"),
        c.rotate(picture[0, :, :, 0], 1.0),
        c.translate(picture, [1.0, 2.0]),
        c.translate(picture[0], [0.5, -0.25], "BILINEAR"),
        c.compose_transforms(turns, moves),
        c.flat_transforms_to_matrices(turns),
        c.dense_image_warp(picture, flow),
        contrib.resampler.resampler(picture, points + 2.0),
        c.transform(picture, turns, output_shape=[3, 4]),
    ]


@case
def legacy_seq2seq(tf, contrib):
    s2s, cell = contrib.legacy_seq2seq, tf.nn.rnn_cell.GRUCell
    inputs = [tf.constant(values("in%d" % i, 3, 4)) for i in range(3)]
    states = tf.constant(values("states", 3, 5, 6))
    first = tf.constant(values("first", 3, 6))
    targets, weights = [tf.constant([0, 1, 2])] * 3, [tf.constant([1.0, 0.5, 0.0])] * 3
    outputs, state = s2s.attention_decoder(inputs, first, states, cell(6), num_heads=2, output_size=4)
    attended = s2s.attention_decoder(inputs, first, states, cell(6), scope="a", initial_state_attention=True)
    return [
        outputs,
        state,
        attended,
        s2s.rnn_decoder(inputs, first, cell(6)),
        s2s.basic_rnn_seq2seq(inputs, inputs, cell(6)),
        s2s.tied_rnn_seq2seq(inputs, inputs, cell(4), loop_function=lambda output, i: output * 2),
        s2s.sequence_loss_by_example(outputs, targets, weights),
        s2s.sequence_loss(outputs, targets, weights),
    ]


@case
def small_functions(tf, contrib):
    x = tf.constant(values("x", 3, 5))
    p = contrib.sparsemax.sparsemax(x * 3)
    labels = tf.one_hot([0, 1, 2], 5)
    ids = tf.constant([[0, 1, 1], [2, 0, 3]])
    f = contrib.framework
    return [
        p,
        contrib.sparsemax.sparsemax_loss(x * 3, p, labels),
        contrib.nn.scaled_softplus(x, 0.5, 1.0),
        contrib.layers.embed_sequence(ids, 4, 3),
        contrib.layers.embed_sequence(ids, 4, 3, unique=True, scope="u"),
        contrib.layers.bow_encoder(ids, 4, 3),
        contrib.layers.bow_encoder(ids, 4, 3, sparse_lookup=False, scope="d"),
        f.reduce_sum_n([x, x]),
        f.with_shape([3, 5], x),
        f.with_same_shape(x, x * 2),
        f.py_func(lambda a, b: {"c": a + b}, (x,), {"b": x}, {"c": tf.float32}, {"c": [3, 5]}),
        contrib.lookup.string_to_index(tf.constant(["b", "z"]), tf.constant(["a", "b"])),
    ]


@case
def cudnn_cells(tf, contrib):
    return _each(tf, [contrib.cudnn_rnn.CudnnCompatibleLSTMCell(6), contrib.cudnn_rnn.CudnnCompatibleGRUCell(6)])


@case
def datasets(tf, contrib):
    numbers = tf.data.Dataset.range(11)
    out = []
    for change in (contrib.data.batch_and_drop_remainder(4), contrib.data.sliding_window_batch(3, 2),
                   contrib.data.sliding_window_batch(3, window_shift=1, window_stride=2),
                   contrib.data.map_and_batch(lambda x: x * 2, 3), contrib.data.assert_element_shape([])):  # fmt: skip
        iterator = tf.data.make_one_shot_iterator(numbers.apply(change))
        first = iterator.get_next()
        with tf.control_dependencies([first]):
            out.append([first, iterator.get_next()])
    return out


@case
def slim_layers(tf, contrib):
    layers, x = contrib.layers, tf.constant(values("x", 2, 8, 8, 4))
    with contrib.framework.arg_scope(
        [layers.conv2d], normalizer_fn=layers.batch_norm, normalizer_params={"scale": True}
    ):
        y = layers.conv2d(x, 6, 3, stride=2)
    y = layers.separable_conv2d(layers.max_pool2d(y, 2), 4, 3, 1)
    z = layers.fully_connected(layers.flatten(y), 5, weights_regularizer=layers.l2_regularizer(0.1))
    group = layers.group_norm(x, groups=2)
    return [z, layers.layer_norm(z), layers.instance_norm(x), group, tf.losses.get_regularization_losses()]


def main(argv):
    import tensorflow as tf

    if tf.__version__.startswith("1."):
        contrib = tf.contrib
    else:
        tf = tf.compat.v1
        tf.disable_v2_behavior()
        from npu_shim.compat import faces

        contrib = faces.Face("")
    tf.logging.set_verbosity(tf.logging.ERROR)
    out = {}
    for name in argv[1:] or sorted(CASES):
        out.update(run(tf, contrib, name))
    np.savez(argv[0], **out)


if __name__ == "__main__":
    main(sys.argv[1:])
