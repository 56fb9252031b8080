"""Steps whose attention is kernels, interpreted on a CPU, beside the same steps with what the graph has. Needs JAX."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

jax = pytest.importorskip("jax", reason="JAX is not installed (extra [pjrt])")

import test_xla_attention as cases  # noqa: E402

from npu_shim.engine.device.programs import InProcess  # noqa: E402
from npu_shim.export import programs  # noqa: E402
from npu_shim.pjrt import jax_compat  # noqa: E402
from npu_shim.pjrt.attention import substitution  # noqa: E402
from npu_shim.pjrt.program import Program  # noqa: E402
from npu_shim.rewriter import tf_internals  # noqa: E402

pytestmark = [
    pytest.mark.skipif(tf.__version__.startswith("1."), reason="TensorFlow 1.15.5 compiles no steps"),
    pytest.mark.usefixtures("control_flow_of_version_1"),
]


def program_of(step):
    """A step as a program on the CPU, with the variables' values."""
    described, hlo = programs.of(step, "highest")
    made = Program(jax, described, jax_compat.stablehlo(hlo), jax.devices("cpu")[0])
    with tf_internals.eager_mode():
        made.restore({each.name: each.variable.numpy() for each in step.state})
    return made


@pytest.fixture
def interpreted(monkeypatch):
    """Kernels on a CPU, interpreted."""
    monkeypatch.setattr(
        substitution, "for_device",
        lambda artifact, table, highest, device: substitution.substituted(artifact, table, highest, "cpu"),
    )  # fmt: skip


def losses(program, count=20, first=0):
    mask = np.ones([cases.BATCH, cases.LENGTH], np.int32)
    mask[:, cases.LENGTH - 3 :] = 0
    shape = [cases.BATCH, cases.LENGTH, cases.WIDTH]
    fed = (np.random.RandomState(number).normal(size=shape).astype("f") for number in range(first, first + count))
    (loss,) = [each.name for each in program.manifest.results if each.kind == "fetch"]
    return np.array([program.run({"x": each, "mask": mask})[loss] for each in fed])


@pytest.mark.parametrize(("way", "rate", "count"), [(cases.transformer, 0.3, 2), (cases.relative, 0.3, 2)])
def test_losses_of_kernels_are_those_of_the_composite(way, rate, count, request):
    """The gradient of a trained bias too."""
    step = cases.with_calls(cases.prepared(way, cases.FLOAT32, rate))
    expected = losses(program_of(step))
    request.getfixturevalue("interpreted")
    program = program_of(step)
    found = losses(program)
    assert sum(said == "kernel" for said in program.attention.values()) == count
    assert expected[-1] < expected[0]
    each = 64 * 2.0**-23 * np.arange(1, 21)  # each step builds on the one before
    assert (abs(found - expected) <= each * expected).all(), abs(found - expected) / expected


def test_losses_in_bfloat16_are_as_near_to_float32_as_those_of_the_composite(request):
    exact = losses(program_of(cases.with_calls(cases.prepared(cases.bert, cases.FLOAT32, 0.1))))
    step = cases.with_calls(cases.prepared(cases.bert, cases.BFLOAT16, 0.1))
    composite = losses(program_of(step))
    request.getfixturevalue("interpreted")
    program = program_of(step)
    found = losses(program)
    assert set(program.attention.values()) == {"kernel"}
    assert abs(found[0] - composite[0]) <= 2.0**-8 * composite[0]
    assert abs(found - exact).mean() <= 2 * abs(composite - exact).mean(), (found, composite, exact)


def test_a_restored_step_goes_on_with_the_same_bits(interpreted, tmp_path):
    step = cases.with_calls(cases.prepared(cases.bert, cases.BFLOAT16, 0.1))
    through = losses(program_of(step), 6)
    first = program_of(step)
    begin = losses(first, 3)
    first.save(str(tmp_path / "middle.npz"))
    again = program_of(step)
    again.restore(str(tmp_path / "middle.npz"))
    np.testing.assert_array_equal(np.concatenate([begin, losses(again, 3, 3)]), through)


def test_a_device_says_what_stays_as_the_graph_has_it():
    described, hlo = programs.of(cases.with_calls(cases.prepared(cases.bert, cases.BFLOAT16)), "default")
    loading = InProcess().load(described, hlo)
    why = "attention stays as the graph has it on this device: kernels are for GPUs, this is 'cpu'"
    assert loading.lines() == [why]
