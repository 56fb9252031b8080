"""tf.contrib on TensorFlow 2: every row of the table is there, and computes what the formulas say."""

import inspect
import itertools
import json
import os
import pathlib
import subprocess
import sys

import contrib_cases
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.util import tf_decorator  # noqa: TID251

from npu_shim.compat.names import exports, faces, moved, names

pytestmark = [
    pytest.mark.skipif(names.tensorflow_1(), reason="TensorFlow 1 has the real tf.contrib"),
    pytest.mark.skipif(exports.file_of("tf_slim") is None, reason="tf-slim is not installed: npu-shim[contrib]"),
    pytest.mark.filterwarnings("ignore"),
]
ROOT = pathlib.Path(__file__).resolve().parents[2]
ROWS = [(module, name, target) for module, rows in names.table()["contrib"].items() for name, target in rows.items()]
# rows that only some TensorFlow has
SOME = {"tf.data.experimental.CheckpointInputPipelineHook"}
contrib = faces.Face("")


@pytest.fixture(autouse=True, scope="module")
def finders_of_this_file():
    """What is moved brings finders with it, for the process."""
    before = list(sys.meta_path)
    yield
    sys.meta_path[:] = before


def run(make):
    with tf.Graph().as_default(), tf.Session() as session:
        fetches = make()
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer(), tf.tables_initializer()])
        return session.run(fetches)


def close(actual, wanted, steps=16):
    """Whether float32 values are equal but for rounding in that many steps."""
    np.testing.assert_allclose(actual, wanted, rtol=steps * 2.0**-23, atol=steps * 2.0**-23)


def here(target):
    package = names.full_target(target).split(".")[0]
    return exports.file_of(package) is not None and target not in SOME


@pytest.mark.skipif(not hasattr(tf, "estimator"), reason="this TensorFlow comes without Estimator")
def test_every_row_is_found():
    reachable = [(module, name) for module, name, target in ROWS if not target.startswith("!") and here(target)]
    assert len(reachable) > 600
    for module, name in reachable:
        path = module + "." + name
        assert names.resolve("tf.contrib." + path), path
        assert faces.get(path) is not None, path


# what has other parameters today, and why it stays so
OTHER = {
    "deprecated.": "tf.summary.scalar and so on: tag and value stand in the same places",
    "factorization.KMeansClustering": "Estimator's own class; random_seed is seed, in the same place",
    "layers.recompute_grad": "TensorFlow's own, without use_data_dep and tupleize_grads",
    "optimizer_v2.": "TensorFlow's optimizers of version 1",
    "tensorboard.": "TensorBoard's own: a writer may stand in the place of logdir",
    "training.": "TensorFlow's own",
    "util.": "TensorFlow's own",
}


def test_parameters_are_those_of_tensorflow_1():
    """Names as of 1.15.5 (mapping=, checkpoint_dir=, ...) were errors; results in another order were taken."""
    told = []
    for path, text in json.loads((ROOT / "tests/reference/contrib_signatures.json").read_text()).items():
        target = names.contrib_target(path)
        if target is None or target.startswith("!") or not here(target) or path.startswith(tuple(OTHER)):
            continue
        ours = inspect.signature(tf_decorator.unwrap(names.load(target))[1]).parameters.values()
        known = [our.name for our in ours if our.kind not in (our.VAR_POSITIONAL, our.VAR_KEYWORD)]
        wanted = [word.partition("=")[0] for word in text.split()]
        open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in ours)
        if known[: len(wanted)] != wanted and not open_ended:
            told.append("%s(%s): %s, expected %s" % (path, target, known, wanted))
    assert not told, "\n".join(told)


def test_what_is_not_here_says_what_to_use():
    for module, name, target in ROWS:
        if target.startswith("!"):
            assert len(target) > 10, name
            assert names.resolve("tf.contrib.%s.%s" % (module, name)) is None
    with pytest.raises(AttributeError, match=r"binary_svm_head is not here: use tf.contrib.estimator.* \[.*test_"):
        contrib.learn.binary_svm_head  # noqa: B018


def test_moved_names_are_found():
    moved.install()
    moved.install()
    for name, target in names.table()["moved"].items():
        if here(target):
            assert names.resolve(name), name
            assert names.load(target) is not None, name
    from tensorflow.python.framework import ops  # noqa: TID251
    from tensorflow.python.ops import control_flow_ops  # noqa: TID251

    assert control_flow_ops.while_loop(lambda i: i < 3, lambda i: i + 1, [0]) is not None
    assert isinstance(tf.constant(1), ops.Tensor)
    with pytest.raises(AttributeError, match="whil_loop"):
        control_flow_ops.whil_loop  # noqa: B018


def original():
    """A Python with TensorFlow 1.15, or None."""
    python = os.environ.get("NPU_SHIM_TEST_TF115") or str(ROOT / ".venv-tf115" / "bin" / "python")
    return python if os.path.exists(python) else None


@pytest.mark.nightly
@pytest.mark.skipif(not original(), reason="no Python with TensorFlow 1.15: NPU_SHIM_TEST_TF115")
def test_the_same_values_and_variables_as_the_original(tmp_path):
    # TensorFlow 2 says in the environment that it is there, and 1.15's XLA ends at a flag that it does not know
    env = {key: value for key, value in os.environ.items() if key not in ("TF2_BEHAVIOR", "XLA_FLAGS")}
    out = {}
    for name, python in (("original", original()), ("ours", sys.executable)):
        argv = [python, "-W", "ignore", os.path.dirname(contrib_cases.__file__), str(tmp_path / (name + ".npz"))]
        argv += (
            [] if os.environ.get("NPU_SHIM_NIGHTLY") else sorted(contrib_cases.CASES)[::4]
        )  # a quarter of them by day
        done = subprocess.run(
            argv, env={**env, "TF_CPP_MIN_LOG_LEVEL": "3"}, cwd=str(tmp_path), stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
        out[name] = np.load(str(tmp_path / (name + ".npz")))
    assert set(out["original"].files) == set(out["ours"].files)
    for key in out["original"].files:
        wanted, value = out["original"][key], out["ours"][key]
        assert value.dtype == wanted.dtype, key
        if value.dtype.kind == "f":
            # a few hundred roundings, of values around 1
            np.testing.assert_allclose(value, wanted, rtol=2.0**-15, atol=2.0**-15, err_msg=key)
        else:
            np.testing.assert_array_equal(value, wanted, err_msg=key)


# tf.contrib.seq2seq


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("normalize", [False, True])
def test_bahdanau_score(normalize):
    def make():
        memory, query = tf.constant(contrib_cases.values("m", 2, 4, 3)), tf.constant(contrib_cases.values("q", 2, 6))
        attend = contrib.seq2seq.BahdanauAttention(5, memory, [4, 2], normalize=normalize)
        alignments, _ = attend(query, attend.initial_state(2, tf.float32))
        weights = {v.op.name.split("/")[-2 if "kernel" in v.op.name else -1]: v for v in tf.trainable_variables()}
        return alignments, attend.keys, memory, query, weights

    alignments, keys, memory, query, w = run(make)
    memory[1, 2:] = 0
    close(keys, memory @ w["memory_layer"])
    total = keys + (query @ w["query_layer"])[:, None]
    v = w["attention_v"]
    if normalize:
        v, total = w["attention_g"] * v / np.sqrt((v * v).sum()), total + w["attention_b"]
    score = (v * np.tanh(total)).sum(-1)
    score[1, 2:] = -np.inf
    close(alignments, softmax(score))


def test_luong_score():
    def make():
        memory, query = tf.constant(contrib_cases.values("m", 2, 4, 3)), tf.constant(contrib_cases.values("q", 2, 6))
        attend = contrib.seq2seq.LuongAttention(6, memory, scale=True)
        return attend(query, attend.initial_state(2, tf.float32))[0], attend.keys, query

    alignments, keys, query = run(make)
    close(alignments, softmax((keys * query[:, None]).sum(-1)))


def test_luong_refuses_other_depths():
    with tf.Graph().as_default(), pytest.raises(ValueError, match="num_units=6"):
        contrib.seq2seq.LuongAttention(5, tf.zeros([2, 4, 3]))(tf.zeros([2, 6]), None)


def test_monotonic_attention_in_parallel_is_the_recursion():
    p, before = np.abs(contrib_cases.values("p", 3, 6)), softmax(contrib_cases.values("b", 3, 6))
    wanted = np.zeros([3, 6])
    for batch, i in itertools.product(range(3), range(6)):
        # to stop at i: to have been at k <= i, to pass k ... i - 1, and to stop
        wanted[batch, i] = p[batch, i] * sum(before[batch, k] * np.prod(1 - p[batch, k:i]) for k in range(i + 1))
    for mode in ("parallel", "recursive"):
        close(run(lambda: contrib.seq2seq.monotonic_attention(p, before, mode)), wanted, 64)  # noqa: B023
    with tf.Graph().as_default(), pytest.raises(ValueError, match="mode must be"):
        contrib.seq2seq.monotonic_attention(p, before, "soft")


class Chain(tf.nn.rnn_cell.RNNCell):
    """Logits that depend on the last token only: a Markov chain."""

    def __init__(self, table):
        super().__init__()
        self._table = table

    @property
    def state_size(self):
        return 1

    @property
    def output_size(self):
        return self._table.shape[1]

    def call(self, inputs, state):
        return tf.matmul(inputs, tf.constant(self._table)), state + 1.0


@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_a_wide_beam_finds_the_best_of_all_sequences(penalty):
    table, steps, end = 2 * contrib_cases.values("chain", 3, 3), 3, 0

    def make():
        decoder = contrib.seq2seq.BeamSearchDecoder(
            Chain(table), tf.eye(3), [1], end, tf.zeros([27, 1]), 27, length_penalty_weight=penalty
        )
        outputs, state, _ = contrib.seq2seq.dynamic_decode(decoder, maximum_iterations=steps)
        return outputs.predicted_ids, state.log_probs

    ids, log_probs = run(make)
    log_p, scores = np.log(softmax(table)), {}
    for sequence in itertools.product(range(3), repeat=steps):
        # a sequence is over with its first end token
        length = sequence.index(end) + 1 if end in sequence else steps
        score = sum(log_p[a, b] for a, b in zip((1, *sequence[: length - 1]), sequence[:length]))
        grown = length - 1 if end in sequence else length
        scores[sequence[:length]] = (score / ((5 + grown) / 6) ** penalty, score)
    best = max(scores, key=lambda s: scores[s][0])
    decoded = tuple(ids[0, :, 0])[: len(best)]
    assert decoded == best
    close(log_probs[0, 0], scores[best][1])


def test_decoding_ends_with_the_end_token_and_keeps_what_has_ended():
    # 1 -> 2 -> 0 (the end) and 2 -> 0
    table = np.float32([[9, 0, 0], [0, 0, 9], [9, 0, 0]])

    def make():
        helper = contrib.seq2seq.GreedyEmbeddingHelper(tf.eye(3), [1, 2], 0)
        decoder = contrib.seq2seq.BasicDecoder(Chain(table), helper, tf.zeros([2, 1]))
        return contrib.seq2seq.dynamic_decode(decoder, impute_finished=True, maximum_iterations=9)

    (outputs, ids), state, lengths = run(make)
    assert ids.tolist() == [[2, 0], [0, 0]]
    assert lengths.tolist() == [2, 1]
    assert state.tolist() == [[2.0], [1.0]]
    assert outputs[1, 1].tolist() == [0, 0, 0]


def test_scheduled_sampling_reads_the_sample_or_the_input():
    given = contrib_cases.values("in", 4, 5, 3)

    def make():
        helper = contrib.seq2seq.ScheduledEmbeddingTrainingHelper(
            tf.constant(given), [5] * 4, tf.eye(3) * 100, tf.constant([0.0, 1.0, 0.0, 1.0])
        )
        _, inputs = helper.initialize()
        ids = helper.sample(0, tf.zeros([4, 3]), None)
        return inputs, ids, helper.next_inputs(0, tf.zeros([4, 3]), None, ids)[1]

    first, ids, following = run(make)
    close(first, given[:, 0])
    assert ids[[0, 2]].tolist() == [-1, -1]
    close(following[[0, 2]], given[[0, 2], 1])
    close(following[[1, 3]], 100 * np.eye(3)[ids[[1, 3]]])


# tf.contrib.rnn


def lstm(x, state, kernel, bias, forget_bias):
    c, h = state
    i, j, f, o = np.split(np.concatenate([x, h], 1) @ kernel + bias, 4, 1)
    c = c / (1 + np.exp(-f - forget_bias)) + np.tanh(j) / (1 + np.exp(-i))
    h = np.tanh(c) / (1 + np.exp(-o))
    return h, (c, h)


def test_block_cells_are_lstm():
    def make():
        x = tf.constant(contrib_cases.values("x", 5, 3, 4))
        fused = contrib.rnn.LSTMBlockFusedCell(6, forget_bias=0.5, name="same")
        outputs, state = fused(x, dtype=tf.float32)
        cell = contrib.rnn.LSTMBlockCell(6, forget_bias=0.5, name="same", reuse=True)
        stepped, _ = tf.nn.static_rnn(cell, tf.unstack(x), dtype=tf.float32, scope=tf.get_variable_scope())
        return outputs, tf.stack(stepped), state, x, tf.trainable_variables()

    outputs, stepped, last, x, (kernel, bias) = run(make)
    close(outputs, stepped)
    state = (np.zeros([3, 6]), np.zeros([3, 6]))
    for step in range(5):
        h, state = lstm(x[step], state, kernel, bias, 0.5)
        close(outputs[step], h)
    close(last.c, state[0])


def test_layer_norm_lstm():
    def make():
        cell = contrib.rnn.LayerNormBasicLSTMCell(4)
        x, h = (tf.constant(contrib_cases.values(n, 3, 4)) for n in "xh")
        step = cell(x, tf.nn.rnn_cell.LSTMStateTuple(h, h))
        return step, x, h, [v for v in tf.trainable_variables() if "kernel" in v.name]

    (output, state), x, h, (kernel,) = run(make)

    def norm(v):
        return (v - v.mean(1, keepdims=True)) / v.std(1, keepdims=True)

    def sigmoid(v):
        return 1 / (1 + np.exp(-v))

    i, j, f, o = (norm(g) for g in np.split(np.concatenate([x, h], 1) @ kernel, 4, 1))
    c = norm(h * sigmoid(f + 1) + sigmoid(i) * np.tanh(j))
    close(state.c, c, 64)
    close(output, np.tanh(c) * sigmoid(o), 64)


# tf.contrib.opt, tf.contrib.crf


def trained(make, steps=3, use_resource=True):
    def graph():
        w = tf.get_variable("w", initializer=[1.0, -2.0, 0.5], use_resource=use_resource)
        return make().minimize(tf.reduce_sum(tf.square(w)), var_list=[w]), w

    with tf.Graph().as_default(), tf.Session() as session:
        train, w = graph()
        session.run(tf.global_variables_initializer())
        values = []
        for _ in range(steps):
            session.run(train)
            values.append(session.run(w))
        return values


@pytest.mark.parametrize("use_resource", [True, False])
def test_decay_is_decoupled(use_resource):
    values = trained(lambda: contrib.opt.AdamWOptimizer(0.01, 0.1), use_resource=use_resource)
    w, m, v = np.array([1.0, -2.0, 0.5]), 0.0, 0.0
    for t, value in enumerate(values, 1):
        g = 2 * w
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        w = w - 0.01 * w - 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        np.testing.assert_allclose(value, w, rtol=1e-4)


def test_only_chosen_variables_decay():
    with tf.Graph().as_default(), tf.Session() as session:
        a, b = (tf.get_variable(n, initializer=[4.0]) for n in "ab")
        make = contrib.opt.extend_with_decoupled_weight_decay(tf.train.GradientDescentOptimizer)
        train = make(0.25, learning_rate=0.0).minimize(tf.reduce_sum(a + b), decay_var_list=[a])
        session.run(tf.global_variables_initializer())
        session.run(train)
        assert session.run([a, b]) == [[3.0], [4.0]]


@pytest.mark.parametrize("use_resource", [True, False])
def test_lars(use_resource):
    make = lambda: contrib.opt.LARSOptimizer(0.5, weight_decay=0.1, eeta=0.1)  # noqa: E731
    w, m = np.array([1.0, -2.0, 0.5]), 0.0
    for value in trained(make, use_resource=use_resource):
        g = 2 * w
        norms = np.linalg.norm(w), np.linalg.norm(g)
        m = 0.9 * m + 0.5 * 0.1 * norms[0] / (norms[1] + 0.1 * norms[0]) * (g + 0.1 * w)
        w = w - m
        close(value, w)


@pytest.mark.parametrize("use_resource", [True, False])
def test_lars_of_sparse_gradients_is_plain_momentum(use_resource):
    gradient = np.array([[2.0, 4.0], [0.0, 0.0], [1.0, 2.0]])
    with tf.Graph().as_default(), tf.Session() as session:
        tables, train = [], []
        for nesterov in (False, True):
            options = {"initializer": tf.ones_initializer(), "use_resource": use_resource}
            tables.append(tf.get_variable("t%d" % nesterov, [3, 2], **options))
            loss = tf.reduce_sum(tf.nn.embedding_lookup(tables[-1], [0, 0, 2]) * [[1.0, 2.0]])
            optimizer = contrib.opt.LARSOptimizer(0.5, weight_decay=0.1, use_nesterov=nesterov)
            train.append(optimizer.minimize(loss))
        session.run(tf.global_variables_initializer())
        for _ in range(2):
            session.run(train)
        for value, factor in zip(session.run(tables), (1 + 1.9, 1.9 + 2.71)):
            close(value, 1 - 0.5 * factor * gradient)


def test_averages_are_saved_in_the_place_of_the_variables(tmp_path):
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", initializer=[8.0])
        optimizer = contrib.opt.MovingAverageOptimizer(tf.train.GradientDescentOptimizer(0.25), average_decay=0.5)
        train = optimizer.minimize(tf.reduce_sum(tf.square(w)))
        saver = optimizer.swapping_saver()
        session.run(tf.global_variables_initializer())
        session.run(train)
        assert session.run(w) == [4.0]
        path = saver.save(session, str(tmp_path / "model"))
    saved = {name: tf.train.load_variable(path, name) for name, _ in tf.train.list_variables(path)}
    assert saved["w"] == [6.0]
    assert [v for name, v in saved.items() if name != "w"] == [[4.0]]


@pytest.mark.parametrize("shape", [[2, 1, 3], [None, None, 3]])
def test_crf_of_single_words_has_a_gradient(shape):
    """Regression: a batch of sentences of one word ended the training step."""
    given = contrib_cases.values("words", 2, 1, 3)
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, shape)
        score, _ = contrib.crf.crf_log_likelihood(x, tf.constant([[1], [2]]), tf.constant([1, 1]), tf.ones([3, 3]))
        [gradient] = session.run(tf.gradients(score, x), {x: given})
    chances = np.exp(given) / np.exp(given).sum(2, keepdims=True)
    close(gradient, np.eye(3)[[[1], [2]]] - chances)


def test_crf_sums_over_all_sequences():
    unary, transitions = contrib_cases.values("u", 1, 4, 3), contrib_cases.values("t", 3, 3)

    def score(tags):
        return sum(unary[0, i, t] for i, t in enumerate(tags)) + sum(transitions[a, b] for a, b in zip(tags, tags[1:]))

    every = {tags: score(tags) for tags in itertools.product(range(3), repeat=4)}
    best = max(every, key=every.get)

    def make():
        likelihood, _ = contrib.crf.crf_log_likelihood(unary, [[0, 2, 1, 1]], [4], tf.constant(transitions))
        return likelihood, contrib.crf.crf_decode(unary, tf.constant(transitions), [4])

    likelihood, (tags, top) = run(make)
    close(likelihood, [every[0, 2, 1, 1] - np.log(np.exp(list(every.values())).sum())])
    assert tuple(tags[0]) == best
    close(top, [every[best]])
    tags, top = contrib.crf.viterbi_decode(unary[0], transitions)
    assert tuple(tags) == best
    close(top, every[best])


# tf.contrib.opt


def test_sign_decays_are_their_formulas():
    sign_decay = faces.find("opt.python.training.sign_decay")
    steps = np.array([0.0, 3, 7, 10, 12])
    done = np.minimum(steps, 10) / 10
    wanted = [
        1 - done,
        np.where(done * 2 >= 1.5, 0, (1 + np.cos(4 * np.pi * done)) / 2),
        np.where(done * 3 >= 2, 0, (1 + np.cos(np.pi * np.mod(np.minimum(steps, 10) * 3, 10) / 10)) / 2),
    ]
    decays = [
        sign_decay.get_linear_decay_fn(10), sign_decay.get_cosine_decay_fn(10, 2, 1.5),
        sign_decay.get_restart_decay_fn(10, 3, 2),
    ]  # fmt: skip
    actual = run(lambda: [[decay(tf.constant(int(step))) for step in steps] for decay in decays])
    close(np.array(actual), np.array(wanted))
    with pytest.raises(ValueError, match="global_step is required for cosine_decay"):
        decays[1](None)


@pytest.mark.parametrize("p", [2, 4, 6])
def test_roots_of_matrices_by_iteration(p):
    half = np.random.RandomState(p).randn(5, 5)
    matrix = half @ half.T + np.eye(5)
    functions = faces.find("opt.python.training.matrix_functions")
    root, square = run(
        lambda: [
            functions.matrix_inverse_pth_root(tf.constant(matrix), 5, -1.0 / p, ridge_epsilon=0.0),
            functions.matrix_square_root(tf.constant(matrix), 5, ridge_epsilon=1e-9),
        ]
    )
    np.testing.assert_allclose(np.linalg.matrix_power(root, p) @ matrix, np.eye(5), atol=1e-5)
    np.testing.assert_allclose(square @ square, matrix, rtol=1e-6, atol=1e-6)


def test_averages_of_partitioned_variables_are_swapped(tmp_path):
    """A Saver took the parts of a variable for variables of their own."""
    path, scope = str(tmp_path / "model"), {"partitioner": tf.fixed_size_partitioner(2)}
    with tf.Graph().as_default(), tf.Session() as session:
        with tf.variable_scope("", **scope):
            v = tf.get_variable("v", initializer=tf.constant([1.0, 2.0, 3.0]))
        optimizer = contrib.opt.MovingAverageOptimizer(tf.train.GradientDescentOptimizer(1.0), average_decay=0.5)
        train = optimizer.minimize(tf.reduce_sum(v), var_list=list(v))
        saver = optimizer.swapping_saver()
        session.run(tf.global_variables_initializer())
        session.run(train)
        saver.save(session, path)
    reader = tf.train.NewCheckpointReader(path)
    assert reader.get_tensor("v").tolist() == [0.5, 1.5, 2.5]  # the average of v and v - 1
    assert reader.get_tensor("v/ExponentialMovingAverage").tolist() == [0.0, 1.0, 2.0]


# tf.contrib.layers


def test_sparse_tensors_of_dense_ones_and_their_rows():
    sparse_ops = faces.find("layers.python.ops.sparse_ops")
    dense = np.array([[0, 7, 0, 9], [0, 0, 0, 0], [5, 0, 0, 0]])

    def make():
        sparse = sparse_ops.dense_to_sparse_tensor(dense)
        return [
            sparse, sparse_ops.sparse_row_envelope(sparse), sparse_ops.indicators_to_sparse_ids(dense),
            sparse_ops.dense_to_sparse_tensor([["a", "", "b"]]), sparse_ops.dense_to_sparse_tensor([1, -1], -1),
        ]  # fmt: skip

    sparse, rows, ids, words, other = run(make)
    assert (sparse.indices.tolist(), sparse.values.tolist()) == ([[0, 1], [0, 3], [2, 0]], [7, 9, 5])
    assert rows.tolist() == [4, 0, 1]
    assert (ids.indices.tolist(), ids.values.tolist(), ids.dense_shape.tolist()) == (
        [[0, 0], [0, 1], [2, 0]], [1, 3, 0], [3, 2],
    )  # fmt: skip
    assert words.values.tolist() == [b"a", b"b"]
    assert other.indices.tolist() == [[0]]
    with pytest.raises(ValueError, match="same axis"):
        sparse_ops.sparse_row_envelope(None, 1, 1)


def test_crosses_of_features(caplog):
    cross = faces.find("layers.python.ops.sparse_feature_cross_op").sparse_feature_cross

    def make():
        words = tf.sparse.from_dense([["a", ""], ["b", "c"]])
        numbers = tf.constant([[1, 2], [3, 4]])
        hashed = cross([words, numbers], hashed_output=True, num_buckets=100, hash_key=7)
        return [cross([words, numbers]), hashed, tf.sparse.cross_hashed([words, numbers], 100, 7), cross([words], True)]

    actual, hashed, wanted, _ = run(make)
    assert actual.values.tolist() == [b"a_X_1", b"a_X_2", b"b_X_3", b"b_X_4", b"c_X_3", b"c_X_4"]
    assert hashed.values.tolist() == wanted.values.tolist()
    assert "other hashes than TensorFlow 1.15" in caplog.text
    with pytest.raises(TypeError, match="must be SparseTensors or Tensors"):
        cross([[1]])
