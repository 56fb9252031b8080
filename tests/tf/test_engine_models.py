"""Training of real models on PJRT: 20 losses as in the session, in float32 and mixed precision."""

import numpy as np
import pytest
import reference_material
import sessions
import tensorflow.compat.v1 as tf
import test_compiled_resnet as resnet

from npu_shim import loss_scale
from npu_shim.engine import sessions as engine
from npu_shim.engine.partition import facts
from npu_shim.options import engine as options

pytestmark = [
    *sessions.NEEDS_ENGINE,
    *([] if options.has_jax() else [pytest.mark.nightly]),  # a worker takes minutes
    pytest.mark.usefixtures("patched", "control_flow_of_version_1"),
]
STEPS = 20
DRAWS = ("RandomUniform", "RandomStandardNormal", "TruncatedNormal")
# Float32: what other orders of sums leave, times what a step of training makes of it. Mixed: the session's kernels
# round a result to float16 where XLA's fused ones keep float32 inside, 2**-11 of a number each time. In loops they also
# round each step's product for a weight's gradient, which a program sums in float32: of lstm_lm_train's losses the
# program's are at most 0.0010 from float32's, the session's 0.0048.
TOLERANCE = {"must_keep_origin_dtype": 1e-4, "allow_mix_precision": 6e-3}
modes = pytest.mark.parametrize("mode", TOLERANCE)


def config(mode, kind):
    return sessions.config(precision_mode=mode, npu_shim_profile="gpu", npu_shim_engine=kind)


def compared(build, mode):
    """Losses of a model in the session and on PJRT, from the same weights; `build` makes (init, fetches, feeds)."""
    losses = []
    with tf.Graph().as_default():
        tf.set_random_seed(5)
        init, fetches, feeds = build()
        for kind in ("session", "pjrt"):
            with tf.Session(config=config(mode, kind)) as session:
                session.run(init)
                losses.append([session.run(fetches, fed)[0] for fed in feeds])
        known = vars(session)[engine.ENGINE].known.values()
    assert len([run for run in known if run.step]) == 1, [run.reason for run in known]
    np.testing.assert_allclose(losses[1], losses[0], rtol=TOLERANCE[mode])
    assert losses[0][-1] != losses[0][0]


def of_reference(name):
    """What `compared` builds of a graph of the reference material."""
    about, graph_def = reference_material.about(name), reference_material.training_graph(name)
    for number, node in enumerate(graph_def.node):
        if "seed2" in node.attr:
            node.attr["seed"].i, node.attr["seed2"].i = 1, number + 1
    _count_up_last(graph_def)
    fetches, fed = [about["loss"], about["train_op"]], reference_material.feeds(name)

    def build():
        tf.import_graph_def(graph_def, name="")
        return about["init"], fetches, [dict(fed, **drawn)] * STEPS

    drawn = _drawn(graph_def, fetches, fed, about["init"])
    return build


def _count_up_last(graph_def):
    """A learning rate of the global step: TensorFlow reads it before or after it is counted up, as it happens."""
    readers = [node.name for node in graph_def.node if "global_step/read" in node.input]
    for node in graph_def.node:
        if node.op.startswith("Assign") and node.input[0] == "global_step" and node.name != "global_step/Assign":
            waits = ["^" + name for name in readers if name not in (node.name, node.input[1])]
            node.input.extend(waits)


def _drawn(graph_def, fetches, fed, init):
    """Random numbers of a step, to be fed: each engine draws its own."""
    nodes = {node.name: node for node in graph_def.node}
    needed = facts.needed_by(nodes.__getitem__, [name.partition(":")[0] for name in fetches], list(fed))
    names = [name + ":0" for name, node in needed.items() if node.op in DRAWS]
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(graph_def, name="")
        session.run(init)
        return dict(zip(names, session.run(names, fed))) if names else {}


@modes
@pytest.mark.parametrize("name", ["bert_tiny_train", "lstm_lm_train"])
def test_graphs_of_the_reference_material(name, mode):
    compared(of_reference(name), mode)


def test_a_network_with_ctc_whose_loss_is_lowered():
    compared(of_reference("crnn_ctc_train"), "must_keep_origin_dtype")


@modes
def test_lenet_with_a_loss_scale_that_grows(mode):
    def build():
        x, y = tf.placeholder(tf.float32, [None, 12, 12, 1]), tf.placeholder(tf.int32, [None])
        hidden = tf.layers.max_pooling2d(tf.layers.conv2d(x, 6, 5, padding="same", activation=tf.nn.relu), 2, 2)
        hidden = tf.layers.max_pooling2d(tf.layers.conv2d(hidden, 16, 3, activation=tf.nn.relu), 2, 2)
        logits = tf.layers.dense(tf.layers.flatten(hidden), 10)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        manager = loss_scale.ExponentialUpdateLossScaleManager(2.0**10, 5, 2, 2, 0.5)
        optimizer = loss_scale.NPULossScaleOptimizer(tf.train.MomentumOptimizer(0.05, 0.9), manager)
        train = optimizer.minimize(loss, tf.train.get_or_create_global_step())
        random = np.random.RandomState(0)
        feeds = [{x: random.rand(16, 12, 12, 1), y: random.randint(0, 10, 16)} for _ in range(STEPS)]
        init = tf.group(tf.global_variables_initializer(), tf.local_variables_initializer())
        return init, [loss, "loss_scale:0", train], feeds

    compared(build, mode)


@modes
def test_a_decoder_with_attention_over_a_dynamic_rnn(mode):
    def build():
        source, target = tf.placeholder(tf.float32, [4, 6, 8]), tf.placeholder(tf.int32, [4, 5])
        lengths = tf.placeholder(tf.int32, [4])
        encoded, state = tf.nn.dynamic_rnn(tf.nn.rnn_cell.GRUCell(16), source, lengths, dtype=tf.float32)
        embedded = tf.nn.embedding_lookup(tf.get_variable("emb", [12, 16]), target)
        memory = tf.layers.dense(encoded, 16, use_bias=False)

        def step(number, hidden, losses):
            query = tf.layers.dense(hidden, 16, use_bias=False, name="query", reuse=tf.AUTO_REUSE)
            weights = tf.nn.softmax(tf.reduce_sum(memory * query[:, None], 2))
            context = tf.reduce_sum(encoded * weights[..., None], 1)
            given = tf.concat([embedded[:, number], context, hidden], 1)
            hidden = tf.layers.dense(given, 16, tf.tanh, name="cell", reuse=tf.AUTO_REUSE)
            logits = tf.layers.dense(hidden, 12, name="out", reuse=tf.AUTO_REUSE)
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=target[:, number + 1], logits=logits)
            return [number + 1, hidden, losses + tf.reduce_mean(loss)]

        _, _, loss = tf.while_loop(lambda number, *_: number < 4, step, [0, state, 0.0], maximum_iterations=4)
        train = tf.train.AdamOptimizer(0.01).minimize(loss)
        random = np.random.RandomState(0)
        fed = {source: random.randn(4, 6, 8), target: random.randint(0, 12, [4, 5]), lengths: [6, 6, 5, 3]}
        return tf.global_variables_initializer(), [loss, train], [fed] * STEPS

    compared(build, mode)


class InEngine:
    """A session with the engine, with the methods of a compiled step."""

    def __init__(self, session, fetches, _, mode):
        with session.graph.as_default():
            self._saver = tf.train.Saver(tf.global_variables())
            self._variables = {variable.op.name: variable for variable in tf.global_variables()}
        self.session, self._fetches = tf.Session(graph=session.graph, config=config(mode, "pjrt")), fetches

    def load(self, path):
        self._saver.restore(self.session, path)

    def __call__(self, fed):
        return self.session.run(self._fetches, fed)

    def state(self):
        return self.session.run(self._variables)


@pytest.mark.nightly  # ResNet-50, whole at night
@pytest.mark.parametrize(("mode", "dtype"), [("must_keep_origin_dtype", "float32"), ("allow_mix_precision", "float16")])
def test_resnet_50_from_the_states_of_the_session_s_steps(mode, dtype, tmp_path):
    def step_of(*arguments):
        return InEngine(*arguments, mode)

    step = resnet.follow(resnet.thin(), dtype, tmp_path / "model", config(mode, "session"), step_of=step_of)
    (known,) = (run for run in vars(step.session)[engine.ENGINE].known.values() if run.step)
    assert len(known.programs) == 1
    step.session.close()


@pytest.fixture
def own_graph():
    with tf.Graph().as_default():
        tf.set_random_seed(5)
        yield


@pytest.mark.parametrize(
    "mode", ["must_keep_origin_dtype", pytest.param("allow_mix_precision", marks=pytest.mark.nightly)]
)
@pytest.mark.usefixtures("own_graph")
def test_two_networks_with_an_optimizer_each_and_savers_from_either_side(mode, tmp_path):
    """A GAN with (transposed) convolutions: 20 losses each, and those behind a checkpoint in the middle."""
    tolerance = 10 * TOLERANCE[mode]  # two networks that push each other
    noise, real = tf.placeholder(tf.float32, [4, 8]), tf.placeholder(tf.float32, [4, 8, 8, 1])

    def judge(images):
        with tf.variable_scope("judge", reuse=tf.AUTO_REUSE):
            hidden = tf.nn.leaky_relu(tf.layers.conv2d(images, 4, 3, 2, "same", name="a"))
            return tf.layers.dense(tf.layers.flatten(hidden), 1, name="b")

    with tf.variable_scope("maker"):
        hidden = tf.reshape(tf.layers.dense(noise, 4 * 4 * 4, tf.nn.tanh), [4, 4, 4, 4])
        fake = tf.tanh(tf.layers.conv2d_transpose(hidden, 1, 3, 2, "same"))
    losses = [tf.reduce_mean(tf.nn.softplus(-judge(real))) + tf.reduce_mean(tf.nn.softplus(judge(fake))),
              tf.reduce_mean(tf.nn.softplus(-judge(fake)))]  # fmt: skip
    trains = [tf.train.AdamOptimizer(0.002).minimize(loss, var_list=tf.trainable_variables(scope))
              for loss, scope in zip(losses, ("judge", "maker"))]  # fmt: skip
    random = np.random.RandomState(0)
    data = [{noise: random.randn(4, 8), real: np.tanh(random.randn(4, 8, 8, 1) + 1)} for _ in range(STEPS)]
    saver = tf.train.Saver()

    def train(session, path, feeds, out):
        saver.restore(session, str(tmp_path / path))
        trained = [[session.run(pair, fed)[0] for pair in zip(losses, trains)] for fed in feeds]
        saver.save(session, str(tmp_path / out))
        return trained

    with sessions.started(config=config(mode, "session")) as session:
        saver.save(session, str(tmp_path / "start"))
        wanted = train(session, "start", data[:10], "session") + train(session, "session", data[10:], "end")
        with tf.Session(config=config(mode, "pjrt")) as other:
            actual = train(other, "start", data[:10], "pjrt") + train(other, "session", data[10:], "end")
            known = [run for run in vars(other)[engine.ENGINE].known.values() if run.step]
        again = train(session, "pjrt", data[10:], "end")
    assert [len(run.programs) for run in known] == [1, 1]
    np.testing.assert_allclose(actual, wanted, rtol=tolerance)
    np.testing.assert_allclose(again, wanted[10:], rtol=tolerance)
