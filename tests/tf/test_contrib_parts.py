"""Parts of tf.contrib beside the main road: state savers, SciPy's optimizers, converted checkpoints, logs of events."""

import importlib
import sys

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from npu_shim.compat.behaviour import debug_hooks
from npu_shim.compat.names import exports, faces, names

pytestmark = [
    pytest.mark.skipif(names.tensorflow_1(), reason="TensorFlow 1 has the real tf.contrib"),
    pytest.mark.filterwarnings("ignore"),
]
contrib = faces.Face("")


@pytest.fixture(autouse=True)
def finders_as_before(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))  # contrib brings removed names back, for the process


@pytest.mark.skipif(exports.file_of("scipy") is None, reason="scipy is not installed")
@pytest.mark.parametrize("resource", [False, True])
def test_scipy_minimizes_over_a_session(resource):
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.get_variable("v", initializer=[7.0, 7.0], use_resource=resource)
        w = tf.get_variable("w", initializer=[[4.0]], use_resource=resource)
        factor = tf.placeholder(tf.float32, [])
        loss = factor * (tf.reduce_sum(tf.square(v)) + tf.reduce_sum(tf.square(w - 1.0)))
        session.run(tf.global_variables_initializer())
        told, steps = [], []
        plain = contrib.opt.ScipyOptimizerInterface(loss, var_to_bounds={v: ([1, 2], None)}, options={"maxiter": 50})
        plain.minimize(session, {factor: 2.0}, [loss], steps.append, told.append)
        np.testing.assert_allclose(session.run(v), [1, 2], atol=1e-3)
        np.testing.assert_allclose(session.run(w), [[1]], atol=1e-3)
        assert told[0] > told[-1]
        assert steps[-1].shape == (3,)
        session.run(tf.global_variables_initializer())
        held = {"equalities": [v[1] - 1.0], "inequalities": [v[0] - 1.0], "method": "SLSQP"}
        contrib.opt.ScipyOptimizerInterface(loss, **held).minimize(session, {factor: 1.0})
        np.testing.assert_allclose(session.run(v), [1, 1], atol=1e-3)
        for refused in ({"bounds": []}, {"jac": True}):
            with pytest.raises(ValueError, match=next(iter(refused))):
                contrib.opt.ScipyOptimizerInterface(loss, **refused).minimize(session, {factor: 1.0})


def test_decoders_of_legacy_seq2seq_take_what_scripts_give():
    legacy = contrib.legacy_seq2seq
    with tf.Graph().as_default(), tf.Session() as session:
        first, states, cell = tf.ones([2, 5]), tf.ones([2, 7, 6]), tf.nn.rnn_cell.LSTMCell(4)
        start = cell.zero_state(2, tf.float32)
        outputs, _ = legacy.attention_decoder(  # the inputs that loop_function replaces may be None
            [first, None, None], start, states, cell, loop_function=lambda prev, step: tf.concat([prev, prev[:, :1]], 1)
        )
        session.run(tf.global_variables_initializer())
        assert [output.shape for output in session.run(outputs)] == [(2, 4)] * 3
        logits, labels, weights = [tf.ones([2, 5])] * 3, [tf.one_hot([1, 2], 5)] * 3, [tf.ones([2])] * 3
        dense = legacy.sequence_loss(  # a loss of the script's own gets its labels as they are
            logits, labels, weights, softmax_loss_function=tf.nn.softmax_cross_entropy_with_logits
        )
        sparse = legacy.sequence_loss(logits, [tf.constant([[1], [2]])] * 3, weights)
        np.testing.assert_allclose(session.run([dense, sparse]), [np.log(5)] * 2, rtol=1e-6)


def test_an_old_table_is_filled_by_its_init():
    with tf.Graph().as_default(), tf.Session() as session:
        content = contrib.lookup.KeyValueTensorInitializer(tf.constant(["a", "b"]), tf.constant([3, 4], tf.int64))
        table = contrib.lookup.HashTable(content, -1)
        ids = contrib.lookup.IdTableWithHashBuckets(table, 1)
        ids.init.run()
        assert session.run(table.lookup(tf.constant(["b", "c"]))).tolist() == [4, -1]
        assert session.run(ids.lookup(tf.constant(["b", "c"]))).tolist() == [4, 2]
        assert (table.init, table.name) == (table.initializer, "hash_table")


def test_segments_of_sequences_carry_a_state():
    with tf.Graph().as_default(), tf.Session() as session:
        number = tf.placeholder(tf.int32, [])
        length = 2 + 2 * number  # 2, 4, 6 times in segments of 4
        row = tf.cast(tf.range(length), tf.float32)[:, None] + 10.0 * tf.cast(number, tf.float32)
        places = tf.stack([tf.range(length), tf.zeros_like(tf.range(length))], 1)
        sparse = tf.SparseTensor(tf.cast(places, tf.int64), row[:, 0], tf.cast([length, 1], tf.int64))
        batch = contrib.training.batch_sequences_with_states(
            tf.as_string(number), {"x": row, "sparse": sparse},
            {"which": number, "set": tf.SparseTensor([[0]], [number], [2])}, None, {"sum": tf.zeros([])}, num_unroll=4,
            batch_size=3, num_threads=1, capacity=3,
        )  # fmt: skip
        sums = batch.state("sum") + tf.reduce_sum(batch.sequences["x"], [1, 2])
        fetches = {
            "key": batch.key, "next": batch.next_key, "x": batch.sequences["x"][..., 0], "sums": sums,
            "length": batch.length, "total": batch.total_length, "which": batch.context["which"],
            "sparse": tf.sparse.to_dense(batch.sequences["sparse"])[..., 0],
            "set": tf.sparse.to_dense(batch.context["set"]),
        }  # fmt: skip
        save = batch.save_state("sum", sums)
        (runner,) = tf.get_collection(tf.GraphKeys.QUEUE_RUNNERS)
        for example in range(3):
            session.run(runner.enqueue_ops[0], {number: example})
        session.run(runner.close_op)
        first, _ = session.run([fetches, save])
        second, _ = session.run([fetches, save])
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(fetches)
        assert first["key"].tolist() == [b"00000_of_00001:0", b"00000_of_00001:1", b"00000_of_00002:2"]
        assert first["next"].tolist() == [b"STOP:0", b"STOP:1", b"00001_of_00002:2"]
        assert first["x"].tolist() == [[0, 1, 0, 0], [10, 11, 12, 13], [20, 21, 22, 23]]
        assert first["sparse"].tolist() == first["x"].tolist()
        assert first["set"].tolist() == [[0, 0], [1, 0], [2, 0]]
        assert (first["length"].tolist(), first["total"].tolist()) == ([2, 4, 4], [2, 4, 6])
        assert (second["key"].tolist(), second["which"].tolist()) == ([b"00001_of_00002:2"], [2])
        assert second["x"].tolist() == [[24, 25, 0, 0]]
        assert second["sums"].tolist() == [20 + 21 + 22 + 23 + 24 + 25]


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [({"initial_states": {}}, ValueError, "at least one state"), ({"initial_states": 1}, TypeError, "initial_states"),
     ({"input_sequences": {"a:b": tf.zeros}}, ValueError, "colon"), ({"capacity": 1}, ValueError, "capacity 1"),
     ({"input_context": {3: 1}}, TypeError, "context name"), ({"input_length": 2.0}, TypeError, "length dtype")],
)  # fmt: skip
def test_a_state_saver_refuses_what_does_not_fit(changes, error, words):
    given = {
        "batch_size": 2, "num_unroll": 2, "input_length": 2, "input_key": "k", "input_sequences": {"x": [1.0, 2.0]},
        "input_context": {}, "initial_states": {"s": 0.0},
    }  # fmt: skip
    with tf.Graph().as_default(), pytest.raises(error, match=words):
        contrib.training.SequenceQueueingStateSaver(**{**given, **changes})


def test_a_sequence_of_another_length_fails_when_it_runs():
    with tf.Graph().as_default(), tf.Session() as session:
        saver = contrib.training.SequenceQueueingStateSaver(
            1, 2, 3, "k", {"x": tf.placeholder_with_default([1.0, 2.0, 3.0], [None])}, {}, {"s": 0.0}
        )
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"multiple of: 2.*Consider setting pad=True"):
            session.run(saver.prefetch_op)


def test_old_names_of_a_checkpoint_become_new_ones(tmp_path):
    convert = faces.find("rnn.python.tools.checkpoint_convert")
    assert convert.RNN_NAME_REPLACEMENTS["lstm_cell/projection/weights"] == "lstm_cell/projection/kernel"
    assert len(set(convert.RNN_NAME_REPLACEMENTS.values())) <= len(convert.RNN_NAME_REPLACEMENTS)
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("a/gru_cell/gates/weights", initializer=[[1.0, 2.0]])
        tf.get_variable("other", initializer=3.0)
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, old)
    variables, renamed = convert.convert_names(old, new)
    assert renamed == {"a/gru_cell/gates/weights": "a/gru_cell/gates/kernel"}
    assert sorted(variables) == ["a/gru_cell/gates/kernel", "other"]
    assert tf.train.load_variable(new, "a/gru_cell/gates/kernel").tolist() == [[1, 2]]


def test_messages_stand_in_the_events_file(tmp_path):
    logs = importlib.import_module("npu_shim.compat.modules.tensorboard_logging")
    logs._clear_summary_writer()
    with pytest.raises(RuntimeError, match="set_summary_writer"):
        logs.info("no %s", "writer")
    with tf.Graph().as_default():
        writer = tf.summary.FileWriter(str(tmp_path))
        logs.set_summary_writer(writer)
        logs.info("below the verbosity")
        logs.warn("seen %d", 3)
        logs.set_verbosity(logs.DEBUG)
        logs.debug("now")
        writer.close()
    logs.set_verbosity(logs.WARN)
    logs._clear_summary_writer()
    with pytest.raises(ValueError, match="'LOUD' is no level"):
        logs.set_verbosity("LOUD")
    (file,) = tmp_path.iterdir()
    said = [event.log_message for event in tf.train.summary_iterator(str(file)) if event.HasField("log_message")]
    assert [(message.message, message.level) for message in said] == [("seen 3", 30), ("now", 10)]


def test_a_generator_feeds_an_estimator():
    make = faces.find("learn.python.learn.learn_io.generator_io").generator_input_fn

    def samples():
        for i in range(5):
            yield {"x": np.full([2], i, np.float32), "y": np.int64(i)}

    with tf.Graph().as_default(), tf.Session() as session:
        features, target = make(samples, "y", batch_size=3, shuffle=False)()
        assert session.run([features["x"], target])[0].tolist() == [[0, 0], [1, 1], [2, 2]]
        assert session.run(target).tolist() == [3, 4]
        with pytest.raises(KeyError, match="z"):
            make(samples, ["z"])()
        with pytest.raises(TypeError, match="generator"):
            make(lambda: [1])()
        with pytest.raises(TypeError, match="function"):
            make([1])


def test_parts_of_beam_search_by_their_private_names():
    private = faces.find("seq2seq.python.ops.beam_search_decoder")
    with tf.Graph().as_default(), tf.Session() as session:
        state = private.BeamSearchDecoderState(
            (), tf.zeros([1, 2]), tf.constant([[False, True]]), tf.ones([1, 2], tf.int64), ()
        )
        logits = tf.log([[[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]])
        output, after = private._beam_search_step(1, logits, (), state, tf.constant(1), 2, 2, 0.0, 0.0)
        ids, parents, finished, masked = session.run(
            [output.predicted_ids, output.parent_ids, after.finished, private._mask_probs(logits, 2, state.finished)]
        )
        assert (ids.tolist(), parents.tolist(), finished.tolist()) == ([[2, 0]], [[1, 0]], [[True, False]])
        assert masked[0, 1, 2] == 0
        assert masked[0, 1, 0] < -1e30
        rows = private._tensor_gather_helper(tf.constant([[1, 0]]), tf.constant([[5.0, 6.0]]), tf.constant(1), 2, [-1])
        assert session.run(rows).tolist() == [[6, 5]]
        assert session.run(private._length_penalty([1, 7], 1.0)).tolist() == [1, 2]


@pytest.mark.parametrize("resource", [False, True])
def test_zeros_initialize_what_has_no_value(resource):
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.get_variable("v", initializer=[1.0, 2.0], use_resource=resource)
        zeros = faces.find("framework.python.ops.variables").zero_initializer(v)
        session.run(zeros)
        assert session.run(v).tolist() == [0, 0]
        with pytest.raises(tf.errors.InvalidArgumentError, match="input is already initialized"):
            session.run(zeros)


def test_parts_of_a_variable_come_from_a_checkpoint(tmp_path):
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("v", initializer=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        tf.get_variable("w", initializer=7.0)
        session.run(tf.global_variables_initializer())
        path = tf.train.Saver().save(session, str(tmp_path / "model"))
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.get_variable("v", [3, 2], partitioner=tf.fixed_size_partitioner(2))
        w = tf.get_variable("w", [])
        op, feeds = contrib.framework.assign_from_checkpoint(path, [*v, w])
        session.run(op, feeds)
        assert session.run(tf.convert_to_tensor(v)).tolist() == [[1, 2], [3, 4], [5, 6]]
        assert session.run(w) == 7
        with pytest.raises(ValueError, match="other"):
            contrib.framework.assign_from_checkpoint(path, {"other": w})
        assert contrib.framework.assign_from_checkpoint(path, {"other": w}, ignore_missing_vars=True)[1] == {}
        with pytest.raises(ValueError, match="lh_shape"):
            contrib.framework.assign_from_checkpoint(path, {"v": w})


def test_hooks_of_the_debugger_take_log_usage(tmp_path):
    hooks = importlib.import_module("tensorflow.python.debug.wrappers.hooks")
    debug_hooks.take_log_usage(hooks)
    hooks.DumpingDebugHook(str(tmp_path), log_usage=False)
    with pytest.raises(TypeError, match="other"):
        hooks.DumpingDebugHook(str(tmp_path), other=False)
