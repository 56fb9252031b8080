"""compile_step on real training graphs: BERT with reference variables, an LSTM in v1 loops."""

import numpy as np
import pytest
import reference_material
import sessions
import tensorflow.compat.v1 as tf

import npu_shim

pytestmark = sessions.NEEDS_ENGINE
STEPS = 20
FEWER = [pytest.param("bert_tiny_train", marks=pytest.mark.nightly), "lstm_lm_train"]  # graphs of the longer tests


class Real:
    """A graph of the reference material, its fetches and feeds, as seeded and as deterministic as kernels allow."""

    def __init__(self, name):
        about = reference_material.about(name)
        self.graph_def = reference_material.training_graph(name)
        self.init, self.fetches = about["init"], [about["loss"], about["train_op"]]
        self.fed = reference_material.feeds(name)
        shapes = {node.name: node for node in self.graph_def.node}
        for number, node in enumerate(self.graph_def.node):
            if "seed2" in node.attr:
                node.attr["seed"].i, node.attr["seed2"].i = 1, number + 1
            if name.startswith("bert") and node.name == "Assign_123":  # of global_step
                node.input.append("^group_deps")  # the learning rate reads it first: a session leaves that open
            if node.op == "RandomUniform" and "dropout" in node.name:
                _draw_once(node, shapes[node.input[0]], number)

    def session(self, config=None):
        graph = tf.Graph()
        with graph.as_default():
            tf.import_graph_def(self.graph_def, name="")
        session = tf.Session(graph=graph, config=config)
        session.run(self.init)
        return session

    def losses(self, run, steps=STEPS):
        return np.array([float(run(self.fed)[0]) for _ in range(steps)])


def _draw_once(node, shape, seed):
    """Makes a dropout's numbers a constant: XLA and the session's kernels draw from different streams."""
    drawn = np.random.RandomState(seed).uniform(size=tf.make_ndarray(shape.attr["value"].tensor))
    node.op = "Const"
    del node.input[:]
    node.attr.clear()
    node.attr["dtype"].type = tf.float32.as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(drawn.astype(np.float32)))


@pytest.fixture(scope="module", params=["bert_tiny_train", "lstm_lm_train"])
def real(request):
    return Real(request.param)


@pytest.fixture(scope="module")
def float32(real):
    """(losses of 20 steps in a session, the session's variables behind them by name, the compiled step)."""
    with real.session() as session:
        step = npu_shim.compile_step(session, real.fetches, list(real.fed))
        losses = real.losses(lambda fed: session.run(real.fetches, fed))
    return losses, step


@pytest.mark.by_day("lstm_lm_train")
def test_twenty_steps_are_those_of_the_session(real, float32):
    expected, step = float32
    losses = real.losses(step)
    # sums of some hundred products a layer; Adam makes more of them where gradients are small
    assert np.allclose(losses, expected, rtol=1000 * 2**-23)
    assert np.ptp(expected) > 100 * np.max(np.abs(losses - expected))


@pytest.mark.nightly  # test_compiled_devices.py has loops of a small graph
@pytest.mark.parametrize("real", FEWER, indirect=True)
def test_a_loop_on_the_device_is_the_single_steps_bit_by_bit(real):
    # the lengths of a sequence mask without maxlen are a shape, which XLA must know
    constants = {name: value for name, value in real.fed.items() if "lengths" in name}
    fed = {name: value for name, value in real.fed.items() if name not in constants}
    with real.session() as session:
        single, looped = (
            npu_shim.compile_step(session, real.fetches, list(fed), iterations_per_loop=count, constants=constants)
            for count in (1, 10)
        )
    for _ in range(10):
        last = single(fed)[0]
    assert looped({name: np.stack([value] * 10) for name, value in fed.items()})[0] == last
    one, other = single.state(), looped.state()
    assert all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.nightly  # twenty steps; test_compiled_low_precision.py has small graphs
@pytest.mark.slow
@pytest.mark.parametrize("real", FEWER, indirect=True)
def test_twenty_steps_in_mixed_precision_are_as_near_to_float32_as_the_sessions(real, float32, patched):
    expected, _ = float32
    with real.session(sessions.config(precision_mode="allow_mix_precision")) as session:
        step = npu_shim.compile_step(session, real.fetches, list(real.fed))
        in_session = real.losses(lambda fed: session.run(real.fetches, fed))
    assert sum(decision.becomes != decision.was for decision in step.plan.decisions()) > 50
    losses = real.losses(step)
    assert not np.array_equal(losses, expected)
    # XLA on a CPU rounds less often than the kernels do: near to the session's, or nearer to float32 than that
    roundings = np.maximum(16 * 2**-11 * expected, 2 * np.abs(in_session - expected))
    assert np.all(np.abs(losses - expected) <= roundings)
    assert np.all(np.abs(losses - in_session) <= 2 * roundings)


@pytest.mark.nightly  # test_compiled_devices.py has a checkpoint that goes both ways
@pytest.mark.parametrize("real", FEWER, indirect=True)
def test_state_goes_through_a_savers_checkpoint(real, float32, tmp_path):
    _, step = float32
    prefix = step.save(tmp_path / "model")
    with real.session() as session:
        variables = {op.name: op for op in session.graph.get_operations() if op.type in ("VariableV2", "VarHandleOp")}
        other = npu_shim.compile_step(session, real.fetches, list(real.fed))
    other.load(prefix)
    one, two = step.state(), other.state()
    assert set(one) <= set(variables)
    assert set(tf.train.load_checkpoint(prefix).get_variable_to_shape_map()) >= set(one)
    assert all(np.array_equal(one[name], two[name]) for name in one)
    assert other(real.fed)[0] == step(real.fed)[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.nightly, id="float32"),
        pytest.param({"precision_mode": "allow_mix_precision"}, id="mixed"),
    ],
)
def test_a_network_with_ctc_loss_trains_as_in_the_session(options):
    """Convolutions, batch norm, two loops of GRUs and CTCLoss, which is lowered."""
    real = Real("crnn_ctc_train")
    given = {name: value for name, value in real.fed.items() if name != "labels/shape:0"}
    with real.session() as session:
        step = npu_shim.compile_step(session, real.fetches, list(given), **options)
        expected = real.losses(lambda fed: session.run(real.fetches, fed), steps=5)
    losses = np.array([step(given)[0] for _ in range(5)])
    # sums over 100 steps of time and some hundred products each; the first losses fall from 400 to 15
    assert np.allclose(losses, expected, rtol=64 * 2**-11 if options else 1000 * 2**-23)
