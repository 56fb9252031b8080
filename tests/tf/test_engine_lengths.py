"""Lengths that follow from what is fed: decoders that run as long as the longest sentence of a batch."""

import logging
import re

import forked
import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.engine import sessions as engine
from npu_shim.engine.runtime import loading, runs
from npu_shim.options import engine as options
from npu_shim.options.reports import ledger
from npu_shim.xla.passes import static_shapes

HAS_ENGINE = not tf.__version__.startswith("1.") and (options.has_jax() or options.interpreter())
if HAS_ENGINE and not options.has_jax():
    no_engine = pytest.mark.nightly  # a worker takes minutes
else:
    no_engine = pytest.mark.skipif(not HAS_ENGINE, reason="the engine needs TensorFlow 2.15 or later, and JAX")
pytestmark = pytest.mark.usefixtures("patched", "control_flow_of_version_1")
ROWS, WORDS, STEPS = 3, 5, 9


def built(goes_on):
    """A decoder of sentences that end by their lengths, as dynamic_decode is one: (loss, outputs, train, feeds)."""
    x, lengths = tf.placeholder(tf.float32, [ROWS, WORDS], "x"), tf.placeholder(tf.int32, [ROWS], "lengths")
    w = tf.get_variable("w", [WORDS, WORDS], initializer=tf.initializers.orthogonal(seed=1))

    def step(time, finished, state, outputs):
        state = tf.where(finished, state, tf.tanh(tf.matmul(state, w)))
        outputs = outputs.write(time, state)
        return time + 1, tf.logical_or(finished, time + 1 >= lengths), state, outputs

    outputs = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[ROWS, WORDS])
    start = tf.constant(0), lengths <= 0, x, outputs
    outputs = tf.while_loop(lambda time, finished, *_: goes_on(time, finished), step, start)[-1].stack()
    loss = tf.reduce_mean(tf.square(outputs - 1.0))  # over all that was decoded: an element too many would show
    return loss, outputs, tf.train.GradientDescentOptimizer(0.5).minimize(loss), (x, lengths)


ENDS = [
    lambda time, finished: tf.logical_not(tf.reduce_all(finished)),
    lambda time, finished: tf.logical_and(time < STEPS, tf.logical_not(tf.reduce_all(finished))),  # a bound is no size
]
LENGTHS = [[2, 4, 1], [4, 4, 4], [1, 2, 1], [3, 1, 4]]


def trained(kind, ends):
    """(losses, decoded, weights at last, the session) of steps with different lengths."""
    with tf.Graph().as_default():
        loss, outputs, train, (x, lengths) = built(ends)
        value = np.linspace(-1, 1, ROWS * WORDS, dtype="f").reshape(ROWS, WORDS)
        with sessions.opened(kind) as session:
            steps = [session.run([loss, outputs, train], {x: value, lengths: length})[:2] for length in LENGTHS]
            return steps, session.run(tf.trainable_variables()), session


@no_engine
@pytest.mark.parametrize("ends", ENDS, ids=["by lengths", "by lengths and a bound"])
def test_a_decoder_as_long_as_what_is_fed_trains_as_in_the_session(ends):
    wanted, weights, _ = trained("session", ends)
    actual, own, session = trained("pjrt", ends)
    for (loss, outputs), (expected, decoded) in zip(actual, wanted):
        assert outputs.shape == decoded.shape
        np.testing.assert_allclose(loss, expected, rtol=1e-5)
        np.testing.assert_allclose(outputs, decoded, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(own, weights, rtol=1e-4, atol=1e-5)
    taken = [known for known in vars(session)[engine.ENGINE].known.values() if known.step is not None]
    assert len(taken) == 1, [known.reason for known in vars(session)[engine.ENGINE].known.values()]
    assert len(taken[0].programs) == len({max(length) for length in LENGTHS})


@no_engine
def test_a_compiled_decoder_is_as_long_as_its_constants_or_feeds_say():
    with tf.Graph().as_default() as graph:
        loss, outputs, train, (x, lengths) = built(ENDS[0])
        tf.global_variables_initializer()
        value = np.linspace(-1, 1, ROWS * WORDS, dtype="f").reshape(ROWS, WORDS)
        config = sessions.config(precision_mode="must_keep_origin_dtype", npu_shim_profile="gpu")
        with tf.Session(graph=graph, config=config) as session:
            session.run("init")
            fetches, feeds = [loss, outputs, train], {x: value, lengths: LENGTHS[0]}
            fixed = npu_shim.compile_step(session, fetches, [x], constants={lengths: LENGTHS[0]})
            fed = npu_shim.compile_step(session, fetches, [x, lengths])
            for _ in range(2):
                wanted = session.run(fetches, feeds)
                for actual in (fixed({x: value}), fed(feeds)):
                    assert actual[1].shape == (max(LENGTHS[0]), ROWS, WORDS)
                    np.testing.assert_allclose(actual[0], wanted[0], rtol=1e-5)
                    np.testing.assert_allclose(actual[1], wanted[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ends", ENDS, ids=["by lengths", "by lengths and a bound"])
def test_the_length_of_an_array_that_grows_is_not_that_at_which_it_starts(ends):
    with tf.Graph().as_default() as graph:
        _, outputs, _, _ = built(ends)
        inferred = static_shapes.loopless(graph.as_graph_def()).as_graph_element(outputs.name)
    assert inferred.shape.as_list() == [None, ROWS, WORDS]


@no_engine
def test_a_mask_as_long_as_the_longest_of_what_is_fed_has_a_program_for_each_such_length():
    """The session computes the longest length in front of the program, and the lengths stay data."""

    def run(kind):
        with tf.Graph().as_default():
            x, lengths = tf.placeholder(tf.float32, [ROWS, WORDS], "x"), tf.placeholder(tf.int32, [ROWS], "lengths")
            mask = tf.sequence_mask(lengths, dtype=tf.float32)
            y = tf.matmul(x, tf.get_variable("w", [WORDS, WORDS], initializer=tf.initializers.orthogonal(seed=1)))
            loss = tf.reduce_mean(tf.square(y[:, : tf.shape(mask)[1]] - 1.0) * mask)
            train = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
            value = np.linspace(-1, 1, ROWS * WORDS, dtype="f").reshape(ROWS, WORDS)
            with sessions.opened(kind) as session:
                return [session.run([loss, train], {x: value, lengths: n})[0] for n in LENGTHS], session

    wanted, (actual, session) = run("session")[0], run("pjrt")
    np.testing.assert_allclose(actual, wanted, rtol=1e-5)
    (known,) = [known for known in vars(session)[engine.ENGINE].known.values() if known.step is not None]
    assert len(known.programs) == len({max(length) for length in LENGTHS})


SCRIPT = """
import numpy as np
import tensorflow as tf
from tensorflow.contrib import seq2seq
from tensorflow.contrib.rnn import GRUCell
from tensorflow.python.layers.core import Dense
import npu_bridge.npu_init

rows, words, size = 4, 24, 8
rng = np.random.RandomState(0)

def uniform(seed):
    return tf.random_uniform_initializer(-0.3, 0.3, seed=seed)

source, lengths = tf.placeholder(tf.int32, [rows, None]), tf.placeholder(tf.int32, [rows])
target = tf.placeholder(tf.int32, [rows, None])
with tf.variable_scope("s", initializer=uniform(1)):
    embedding = tf.get_variable("embedding", [words, size])
    outputs, states = tf.nn.bidirectional_dynamic_rnn(
        GRUCell(4), GRUCell(4), tf.nn.embedding_lookup(embedding, source), lengths, dtype=tf.float32)
    memory, state = tf.concat(outputs, -1), tf.concat(states, -1)
    projection = Dense(words, use_bias=False, kernel_initializer=uniform(2))
    shifted = tf.concat([tf.fill([rows, 1], 1), target[:, :-1]], 1)
    helper = seq2seq.TrainingHelper(tf.nn.embedding_lookup(embedding, shifted), lengths + 1)
    attention = seq2seq.LuongAttention(size, memory, memory_sequence_length=lengths, scale=True)
    cell = seq2seq.AttentionWrapper(GRUCell(size), attention, attention_layer_size=size)
    start = cell.zero_state(rows, tf.float32).clone(cell_state=state)
    training, _, _ = seq2seq.dynamic_decode(seq2seq.BasicDecoder(cell, helper, start, projection))
loss = seq2seq.sequence_loss(
    training.rnn_output, target, tf.sequence_mask(lengths + 1, tf.shape(target)[1], dtype=tf.float32))
train = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
config = tf.ConfigProto()
entry = config.graph_options.rewrite_options.custom_optimizers.add()
entry.name = "NpuOptimizer"
entry.parameter_map["precision_mode"].s = b"must_keep_origin_dtype"
entry.parameter_map["npu_shim_profile"].s = b"gpu"
with tf.Session(config=config) as session:
    session.run(tf.global_variables_initializer())
    for longest in (6, 6, 4):
        given, wanted = np.zeros([rows, longest], np.int32), np.zeros([rows, longest + 1], np.int32)
        count = rng.randint(3, longest + 1, rows)
        count[0] = longest
        for row, length in enumerate(count):
            word = rng.randint(3, words, length)
            given[row, :length], wanted[row, :length], wanted[row, length] = word, word[::-1], 2
        print("loss %.7f" % session.run([loss, train], {source: given, lengths: count, target: wanted})[0])
    print("weights %.7f" % sum(np.abs(value).sum() for value in session.run(tf.trainable_variables())))
"""


@no_engine
@pytest.mark.slow
def test_an_attention_encoder_decoder_whose_lengths_are_fed(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    lines = ["npu-shim run --engine %s script.py" % kind for kind in ("session", "pjrt")]
    session, program = forked.run([(line, tmp_path) for line in lines])
    assert (session.status, program.status) == (0, 0), program.output
    assert len(re.findall("is one program on cpu.*compiled in", program.output)) == 2, program.output
    actual, wanted = (re.findall(r"^(?:loss|weights) (\S+)$", done.output, re.MULTILINE) for done in (program, session))
    assert len(wanted) == 4
    np.testing.assert_allclose(np.array(actual, float), np.array(wanted, float), rtol=1e-5)


NMT = """
import sys
import numpy as np
import tensorflow as tf
from tensorflow.contrib import seq2seq
from tensorflow.python.layers import core

words, size = 12, 8
rng = np.random.RandomState(0)


def placeholder(rank):
    return tf.placeholder(tf.int32, [None] * rank)


def lstm(units):
    return tf.contrib.rnn.DropoutWrapper(tf.contrib.rnn.BasicLSTMCell(units), 1.0)


class Model:
    def __init__(self, mode):
        tf.get_variable_scope().set_initializer(tf.random_uniform_initializer(-0.3, 0.3, seed=3))
        self.feeds = placeholder(2), placeholder(1), placeholder(2), placeholder(2), placeholder(1)
        source, lengths, given, wanted, until = self.feeds
        batch, step = tf.size(lengths), tf.Variable(0, trainable=False)
        embedding = tf.get_variable("embedding", [words, size])
        projection = core.Dense(words, use_bias=False, name="projection")
        outputs, states = tf.nn.bidirectional_dynamic_rnn(
            lstm(size // 2), lstm(size // 2), tf.nn.embedding_lookup(embedding, tf.transpose(source)), lengths,
            dtype=tf.float32, time_major=True, swap_memory=True)
        state = tf.contrib.rnn.LSTMStateTuple(*(tf.concat(each, 1) for each in zip(*states)))
        memory = tf.transpose(tf.concat(outputs, -1), [1, 0, 2])
        attention = seq2seq.LuongAttention(size, memory, memory_sequence_length=lengths, scale=True)
        cell = seq2seq.AttentionWrapper(lstm(size), attention, attention_layer_size=size)
        start = cell.zero_state(batch, tf.float32).clone(cell_state=state)
        if mode == "infer":
            helper = seq2seq.GreedyEmbeddingHelper(embedding, tf.fill([batch], 1), 2)
            decoder = seq2seq.BasicDecoder(cell, helper, start, output_layer=projection)
            most = tf.to_int32(tf.round(tf.to_float(tf.reduce_max(lengths)) * 2.0))
            decoded = seq2seq.dynamic_decode(decoder, maximum_iterations=most, output_time_major=True)[0]
            self.sample = decoded.sample_id
        else:
            helper = seq2seq.TrainingHelper(
                tf.nn.embedding_lookup(embedding, tf.transpose(given)), until, time_major=True)
            decoder = seq2seq.BasicDecoder(cell, helper, start)
            decoded = seq2seq.dynamic_decode(decoder, output_time_major=True, swap_memory=True)[0]
            with tf.variable_scope("decoder"):  # where the greedy decoder calls it
                logits = projection(decoded.rnn_output)
            crossent = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.transpose(wanted), logits=logits)
            weights = tf.transpose(tf.sequence_mask(until, tf.shape(wanted)[1], dtype=tf.float32))
            self.loss = tf.reduce_sum(crossent * weights) / tf.to_float(batch)
        if mode == "train":
            variables = tf.trainable_variables()
            rate = tf.cond(step < 3, lambda: 0.9 ** tf.to_float(step), lambda: 0.5)
            gradients = tf.gradients(self.loss, variables, colocate_gradients_with_ops=True)
            gradients, self.norm = tf.clip_by_global_norm(gradients, 5.0)
            optimizer = tf.train.GradientDescentOptimizer(rate)
            self.update = optimizer.apply_gradients(zip(gradients, variables), global_step=step)
        self.saver = tf.train.Saver()


def batch(longest):
    lengths = rng.randint(2, longest + 1, 4)
    lengths[0] = longest
    source = rng.randint(3, words, [4, longest])
    given = np.concatenate([np.ones([4, 1], int), source], 1)
    return source, lengths, given, np.concatenate([source, np.full([4, 1], 2)], 1), lengths + 1


def session_of(mode):
    with tf.Graph().as_default() as graph:
        model, session = Model(mode), tf.Session(graph=graph)
        session.run(tf.global_variables_initializer())
    return model, session


model, session = session_of("train")
for longest in (4, 5, 4):
    feeds = dict(zip(model.feeds, batch(longest)))
    _, loss, norm = session.run([model.update, model.loss, model.norm], feeds)
    print("loss %.7f" % loss)
    print("norm %.7f" % norm)
path = model.saver.save(session, "model")
for mode in ("eval", "infer"):
    model, session = session_of(mode)
    model.saver.restore(session, path)
    feeds = dict(zip(model.feeds, batch(4)))
    if mode == "eval":
        print("loss %.7f" % session.run(model.loss, feeds))
    else:
        print("words", session.run(model.sample, {key: feeds[key] for key in model.feeds[:2]}).T.tolist())
"""


@no_engine
@pytest.mark.slow
def test_an_nmt_that_trains_evaluates_and_decodes(tmp_path):
    (tmp_path / "script.py").write_text(NMT)
    lines = ["npu-shim run --engine %s script.py" % kind for kind in ("session", "pjrt")]
    session, program = forked.run([(line, tmp_path) for line in lines])
    assert (session.status, program.status) == (0, 0), program.output
    assert len(re.findall("is one program on cpu.*compiled in", program.output)) == 2, program.output  # of lengths 5, 6
    actual, wanted = (re.findall(r"^(?:loss|norm) (\S+)$", done.output, re.MULTILINE) for done in (program, session))
    assert len(wanted) == 7
    np.testing.assert_allclose(np.array(actual, float), np.array(wanted, float), rtol=1e-5)
    assert len({re.search("^words .*", done.output, re.MULTILINE)[0] for done in (program, session)}) == 1


@no_engine
def test_a_variable_s_handle_is_no_value(caplog):  # of a number of classes that a variable decides: a raw TypeError
    def run(kind):
        with tf.Graph().as_default():
            x = tf.placeholder(tf.float32, [2, 2], "x")
            h = tf.matmul(x, tf.get_variable("w", initializer=np.eye(2, dtype=np.float32), use_resource=True))
            counts = tf.bincount(tf.cast(h, tf.int32), minlength=3)
            fetches = [counts, tf.train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(h))]
            with sessions.opened(kind) as session:
                return session.run(fetches, {x: [[1, 0], [2, 2]]})[0].tolist()

    logging.getLogger("npu_shim").propagate = True
    assert run("pjrt") == run("session") == [1, 1, 2]
    assert "TypeError" not in caplog.text


def test_a_step_that_is_refused_is_told_of_at_the_end(monkeypatch):
    monkeypatch.setattr(ledger, "_noted", {})
    known = runs.Known("the run of 'train'")
    known.refuse(ValueError("no such shape\nand more"))
    assert ledger.of_process() == (ledger.Fact(ledger.LEFT, "the run of 'train': ValueError: no such shape"),)


def test_shapes_that_never_return_are_not_remembered_for_ever(monkeypatch):
    monkeypatch.setattr(loading, "AT_FIRST_SIGHT", 0)
    monkeypatch.setattr(loading, "SEEN", 3)
    known = runs.Known("a run")
    for length in range(10):
        assert loading._waits(known, (0, (length,)))
        assert not loading._waits(known, (0, (length,)))  # it comes again
        assert len(known.seen) <= 3
