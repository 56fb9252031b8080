"""Which stored tensor belongs to which variable, as a table."""

import pytest

from npu_shim.loss_scale.checkpoints.names import canonical, is_state, match

F32, I32, I64 = ("float32", ()), ("int32", ()), ("int64", ())
F16, TABLE = ("float16", ()), ("float32", (9, 2))


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("cond/beta1_power", "beta1_power"),
        ("cond_1/beta2_power", "beta2_power"),
        ("gan/cond_12/beta1_power_1", "gan/beta1_power_1"),
        ("current_loss_scale", "loss_scale"),
        ("opt/current_loss_scale_1", "opt/loss_scale_1"),
        # not ours to rename
        ("cond/kernel", "cond/kernel"),
        ("condition/beta1_power", "condition/beta1_power"),
        ("beta1_power", "beta1_power"),
        ("w/Adam", "w/Adam"),
    ],
)
def test_canonical(name, plain):
    assert canonical(name) == plain


def test_state():
    assert [is_state(n) for n in ("loss_scale", "a/good_steps_1", "current_loss_scale", "bad_steps")] == [True] * 4
    assert [is_state(n) for n in ("my_loss_scale", "global_step", "loss_scale/kernel", "w")] == [False] * 4


@pytest.mark.parametrize(
    ("wanted", "stored", "sources", "problems"),
    [
        ({"beta1_power": F32}, {"cond/beta1_power": F32}, {"beta1_power": "cond/beta1_power"}, 0),
        ({"cond/beta1_power": F32}, {"beta1_power": F32}, {"cond/beta1_power": "beta1_power"}, 0),
        ({"cond/beta1_power": F32}, {"cond_1/beta1_power": F32}, {"cond/beta1_power": "cond_1/beta1_power"}, 0),
        ({"good_steps": I32}, {"good_steps": I64}, {"good_steps": "good_steps"}, 0),
        ({"loss_scale": F32}, {"w": F32}, {"loss_scale": None}, 0),
        ({"w": F32}, {"w": F32, "other": F32}, {"w": "w"}, 0),
        # what AccumulatingOptimizer gathers starts anew; a model's own weight of that name does not
        (
            {"w": F32, "w/accumulated": F32, "accumulated_steps": I32}, {"w": F32},
            {"w": "w", "w/accumulated": None, "accumulated_steps": None}, 0,
        ),
        ({"w": F32, "w/accumulated": F32}, {"w": F32}, {"w": "w"}, 1),
        # sums of float16 gradients are float32; of sparse ones the touched rows are kept
        (
            {"w": F16, "w/accumulated": F32, "accumulated_steps": I32}, {"w": F16},
            {"w": "w", "w/accumulated": None, "accumulated_steps": None}, 0,
        ),
        (
            {"t": TABLE, "t/accumulated_rows": TABLE, "t/touched_rows": ("bool", (9,)), "accumulated_steps": I32},
            {"t": TABLE}, {"t": "t", "t/accumulated_rows": None, "t/touched_rows": None, "accumulated_steps": None}, 0,
        ),
        (
            {"t": TABLE, "t/touched_rows": ("bool", (9, 2)), "accumulated_steps": I32},
            {"t": TABLE}, {"t": "t", "accumulated_steps": None}, 1,
        ),
        # one name, two candidates; nothing there; another shape; another dtype
        ({"beta1_power": F32}, {"cond/beta1_power": F32, "cond_1/beta1_power": F32}, {}, 1),
        ({"w": F32}, {"v": F32}, {}, 1),
        ({"w": F32}, {"w": ("float32", (2,))}, {}, 1),
        ({"w": F32}, {"w": ("float16", ())}, {}, 1),
    ],
)
def test_match(wanted, stored, sources, problems):
    actual, wrong = match(wanted, stored)
    assert actual == sources
    assert len(wrong) == problems
