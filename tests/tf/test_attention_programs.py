"""Steps whose attention is kernels, interpreted on a CPU, beside the same steps with what the graph has. Needs JAX."""

import types
from dataclasses import replace

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

jax = pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")

import test_attention_finder as cases  # noqa: E402

from npu_shim.engine.device.programs import InProcess  # noqa: E402
from npu_shim.export import traced  # noqa: E402
from npu_shim.pjrt.attention import substitution  # noqa: E402
from npu_shim.pjrt.placement import Placement  # noqa: E402
from npu_shim.pjrt.program import Program  # noqa: E402
from npu_shim.step import counters  # noqa: E402

pytestmark = [
    pytest.mark.skipif(tf.__version__.startswith("1."), reason="TensorFlow 1.15.5 compiles no steps"),
    pytest.mark.usefixtures("control_flow_of_version_1"),
]


def program_of(step):
    """A Prepared as a program on the CPU, with the variables' values."""
    described, artifact = interpreted_by_jax(step)
    program = Program(jax, described, artifact, Placement((jax.devices("cpu")[0],)))
    program.restore({place.name: place.value for place in step.state})
    return program


def interpreted_by_jax(prepared):
    """(Manifest, artifact) of a step for a GPU, lowered for this CPU."""
    device = InProcess()
    described, step = lowered_by(device, prepared)
    return described, device._lowered[step.content].artifact


def lowered_by(device, prepared):
    """(Manifest, Interpreted) of a step for a GPU, which this device has lowered."""
    there = types.SimpleNamespace(platform="gpu", lower=device.lower)
    shapes = [tuple(feed.shape.as_list()) for feed in prepared.feeds.values()]
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        return traced.of(prepared, shapes, {}, there)
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(True)


@pytest.fixture
def interpreted(monkeypatch):
    """Kernels on a CPU, interpreted."""
    monkeypatch.setattr(
        substitution, "for_devices",
        lambda artifact, table, highest, placement: substitution.substituted(artifact, table, highest, "cpu"),
    )  # fmt: skip


def losses(program, count=20, first=0):
    mask = np.ones([cases.BATCH, cases.LENGTH], np.int32)
    mask[:, cases.LENGTH - 3 :] = 0
    shape = [cases.BATCH, cases.LENGTH, cases.WIDTH]
    fed = (np.random.RandomState(number).normal(size=shape).astype("f") for number in range(first, first + count))
    (loss,) = [result.name for result in program.manifest.results if result.kind == "fetch"]
    return np.array([program.run({"x": rows, "mask": mask})[loss] for rows in fed])


@pytest.fixture
def spread_probabilities(monkeypatch):
    """Small kernels: gradients of probabilities near 0 and 1 are differences of equal numbers, mostly rounding."""
    monkeypatch.setattr(cases, "SPREAD", 0.1)


@pytest.mark.usefixtures("spread_probabilities")
@pytest.mark.parametrize(("way", "options", "rate"), [
    (cases.relative, cases.BFLOAT16, 0.1),  # the gradient of a trained bias too
    pytest.param(cases.transformer, cases.FLOAT32, 0.3, marks=pytest.mark.nightly),
    pytest.param(cases.bert, cases.BFLOAT16, 0.1, marks=pytest.mark.nightly),
])  # fmt: skip
def test_losses_of_kernels_are_those_of_the_composite(way, options, rate, request):
    """Over 20 steps, within the epsilon of what products are rounded to."""
    step = cases.prepared(way, options, rate)
    expected = losses(program_of(step))
    request.getfixturevalue("interpreted")
    program = program_of(step)
    actual = losses(program)
    assert list(program.attention.values()) == ["kernel"] * 2
    assert expected[-1] < expected[0]
    near = 2.0**-8 if options is cases.BFLOAT16 else 4 * 2.0**-23
    assert (abs(actual - expected) <= near * expected).all(), abs(actual - expected) / expected


@pytest.mark.usefixtures("spread_probabilities")
def test_a_step_changes_weights_as_the_composite_does(request):
    """In bfloat16, each step from the same weights, by an optimizer that keeps the size of gradients."""
    request.getfixturevalue("monkeypatch").setattr(
        tf.train, "AdamOptimizer", lambda rate: tf.train.GradientDescentOptimizer(2 * rate)
    )
    step = cases.prepared(cases.bert, cases.BFLOAT16, 0.1)
    composite = program_of(step)
    composite.compile()
    request.getfixturevalue("interpreted")
    program = program_of(step)
    for number in range(4):
        before = program.state()
        composite.restore(before)
        losses(composite, 1, number)
        losses(program, 1, number)
        expected, actual = composite.state(), program.state()
        for name in [name for name in before if name.startswith("layer")]:
            change = abs(expected[name] - before[name]).max()
            assert abs(actual[name] - expected[name]).max() <= 4 * 2.0**-8 * change, name


# what differs most is run by day, too
BY_DAY = (cases.by_hand, cases.chosen)


@pytest.mark.parametrize(
    "way", [way if way in BY_DAY else pytest.param(way, marks=pytest.mark.nightly) for way in cases.WAYS]
)
def test_calls_that_jax_interprets_compute_what_the_graph_does(way):
    """Each way to write it is taken, and trains as its nodes do."""
    prepared = cases.prepared(way, cases.FLOAT32)
    program = program_of(prepared)
    assert program.manifest.plan["attention"] == cases.with_calls(prepared).attention.counts()
    assert len(program.manifest.attention) >= 2
    plain = program_of(replace(prepared, manner=replace(prepared.manner, attention="off")))
    assert not plain.manifest.attention
    before, actual = losses(plain, 5), losses(program, 5)
    assert len(set(before)) == 5
    np.testing.assert_allclose(actual, before, rtol=2e-5)


def test_dropout_that_jax_interprets_has_the_counter_of_its_random_op():
    """A kernel's dropout draws other numbers than the op, as many as that: sessions and steps go on alike."""
    prepared = cases.prepared(cases.bert, cases.FLOAT32, 0.25)
    program, plain = map(program_of, (prepared, replace(prepared, manner=replace(prepared.manner, attention="off"))))
    before = program.state()
    first, others = losses(program, 3), losses(plain, 3)
    assert len({*first, *others}) == 6
    (name,) = [name for name in before if name.startswith(counters.STATE)]
    after = program.state()[name]
    np.testing.assert_array_equal(after, plain.state()[name])
    assert (after[:, 2] > 0).all()
    program.restore(before)
    np.testing.assert_array_equal(losses(program, 3), first)


@pytest.mark.nightly
def test_a_restored_step_goes_on_with_the_same_bits(interpreted, tmp_path):
    step = cases.prepared(cases.bert, cases.BFLOAT16, 0.1)
    through = losses(program_of(step), 6)
    first = program_of(step)
    begin = losses(first, 3)
    first.save(str(tmp_path / "middle.npz"))
    again = program_of(step)
    again.restore(str(tmp_path / "middle.npz"))
    np.testing.assert_array_equal(np.concatenate([begin, losses(again, 3, 3)]), through)


def test_a_device_says_what_stays_as_the_graph_has_it():
    prepared, device = cases.prepared(cases.bert, cases.BFLOAT16), InProcess()
    described, step = lowered_by(device, prepared)
    why = "attention stays as the graph has it on this device: kernels are for GPUs, this is 'cpu'"
    assert device.load(described, step.content).lines() == [why]
