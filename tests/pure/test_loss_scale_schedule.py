"""The pure schedule against the golden traces of the originals, and its own extensions."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
from loss_scale_golden import COLUMNS, contrib_cases, experimental_cases, mindspore_cases

from npu_shim.loss_scale.managers import schedule
from npu_shim.loss_scale.managers.mindspore import DynamicLossScaleManager
from npu_shim.rewriter.errors import ConfigError

SUPPLIERS = {"contrib": contrib_cases, "experimental": experimental_cases, "mindspore": mindspore_cases}
COUNTS = {"contrib": 18, "experimental": 7, "mindspore": 30}


def replay(case):
    """Yields (step, state) of a case from the start to its end or its error."""
    state = schedule.initial_state(case.rule, case.init)
    yield 0, state
    for step, symbol in enumerate(case.symbols, 1):
        try:
            state = schedule.next_state(state, symbol == "F")
        except schedule.ScaleExhausted as ended:
            assert case.error is not None, case.name
            assert case.error["step"] == step
            yield step, ended.state
            return
        yield step, state
    assert case.error is None, case.name


@pytest.mark.parametrize("family", sorted(SUPPLIERS))
def test_golden_traces_bit_by_bit(family):
    cases = SUPPLIERS[family]()
    assert len(cases) == COUNTS[family]
    for case in cases:
        compared = 0
        for step, state in replay(case):
            row = case.rows.get(step)
            if row is None:
                continue
            ours = [COLUMNS[c](state) for c in case.columns if c in COLUMNS]
            golden = [value for c, value in zip(case.columns, row) if c in COLUMNS]
            assert ours == golden, (case.name, step)
            compared += 1
        assert compared == len(case.rows), case.name


def test_ascend_differs_from_contrib_only_near_the_top_of_float32():
    common = {"growth_interval": 1, "growth_factor": 2}
    for start, same in ((2.0**100, True), (1.68e38, True), (1.7e38, False)):
        after = [
            schedule.next_state(schedule.initial_state(schedule.policy(name, **common), start), True).loss_scale
            for name in ("contrib", "ascend")
        ]
        assert bool(after[0] == after[1]) == same, start
    # contrib doubles 1.7e38 to 3.4e38, which is finite; ascend refuses at 3.4e38 / 2
    assert after == [np.float32(1.7e38) * np.float32(2), np.float32(1.7e38)]


def test_min_and_max_scale():
    rule = schedule.policy("contrib", growth_interval=1, backoff_interval=1, backoff_factor=0.5)
    rule = dataclasses.replace(rule, min_scale=2.0**-3, max_scale=4.0)
    state = schedule.initial_state(rule, 1.0)
    scales = []
    for finite in [True] * 4 + [False] * 7:
        state = schedule.next_state(state, finite)
        scales.append(float(state.loss_scale))
    assert scales == [2, 4, 4, 4, 2, 1, 0.5, 0.25, 0.125, 0.125, 0.125]


def test_hysteresis_forgives_the_first_overflows_since_the_last_growth():
    rule = schedule.policy("experimental", growth_interval=2, hysteresis=3)
    state = schedule.initial_state(rule, 64.0)
    scales = []
    for symbol in "OOOO FF O FF OOO".replace(" ", ""):
        state = schedule.next_state(state, symbol == "F")
        scales.append(float(state.loss_scale))
    # two forgiven, then every overflow halves until a growth restores the patience
    assert scales == [64, 64, 32, 16, 16, 32, 32, 32, 64, 64, 64, 32]


@pytest.mark.parametrize(
    ("settings", "start", "lost"),
    [
        ({"backoff_factor": 0.5}, 2.0**32, 34),
        ({"backoff_factor": 0.8}, 2.0**32, 100),
        ({"backoff_factor": 0.5}, 65519.0, 0),
        ({"backoff_factor": 0.5}, 65520.0, 2),
        ({"backoff_factor": 1.0}, 2.0**32, None),
        ({"backoff_factor": 0.5, "min_scale": 2.0**20}, 2.0**32, None),
        ({"backoff_factor": 0.5}, float("inf"), None),
    ],
)
def test_cost_of_a_start(settings, start, lost):
    state = schedule.initial_state(schedule.policy("contrib", **settings), start)
    assert schedule.skipped_until(state) == lost


def test_hysteresis_adds_to_the_cost_of_a_start():
    rule = schedule.policy("experimental", hysteresis=4)
    assert schedule.skipped_until(schedule.initial_state(rule, 2.0**17)) == 3 + 2


def test_state_is_frozen_and_untouched():
    state = schedule.initial_state("contrib", 8)
    schedule.next_state(state, False)
    assert state == schedule.initial_state("contrib", 8)
    with pytest.raises(dataclasses.FrozenInstanceError):
        state.loss_scale = 1.0


def test_unknown_names_are_answered_with_the_nearest():
    with pytest.raises(ConfigError, match=r"npu_shim: loss-scale policy 'contrb' is unknown \(did you mean 'contrib'"):
        schedule.policy("contrb")
    with pytest.raises(ConfigError, match=r"'growth_intervl' is unknown \(did you mean 'growth_interval'"):
        schedule.policy("contrib", growth_intervl=3)


def test_mindspore_manager_moves_on_the_host_and_ends_at_the_1001st_overflow():
    manager = DynamicLossScaleManager(4, 3000, 2000)
    for _ in range(2000):
        manager.update_loss_scale(False)
    assert manager.get_loss_scale() == 12000.0
    for _ in range(1000):
        manager.update_loss_scale(True)
    with pytest.raises(RuntimeError, match="npu_shim: 1001 steps in a row overflowed, the most allowed is 1000"):
        manager.update_loss_scale(True)
    assert manager.get_loss_scale() == 1.0
    assert manager.get_drop_overflow_update()


def test_mindspore_arguments():
    defaults = DynamicLossScaleManager()
    assert defaults.get_loss_scale() == 2**24
    with pytest.raises(ConfigError) as refused:
        DynamicLossScaleManager(0.5, 0, 2.5)
    assert len(refused.value.problems) == 3


def test_the_schedule_imports_no_tensorflow():
    code = (
        "import sys, npu_shim.loss_scale as s, npu_shim.loss_scale.managers.mindspore; s.next_state; s.POLICIES; "
        "sys.exit('tensorflow' in sys.modules)"
    )
    assert subprocess.call([sys.executable, "-c", code]) == 0


def scale_after(name, symbols, **changes):
    state = schedule.initial_state(schedule.policy(name, **changes), 1024.0)
    for symbol in symbols:
        state = schedule.next_state(state, symbol == "F")
    return float(state.loss_scale)


@pytest.mark.parametrize("name", sorted(schedule.POLICIES))
def test_every_policy_grows_at_its_2000th_finite_step(name):
    assert scale_after(name, "F" * 1999) == 1024.0
    assert scale_after(name, "F" * 2000) == 2048.0


@pytest.mark.parametrize(
    ("name", "one", "two"),
    [
        ("ascend", 1024.0, 1024.0 * np.float32(0.8)),
        ("contrib", 1024.0, 1024.0 * np.float32(0.8)),
        ("experimental", 512.0, 256.0),
        ("mindspore-manager", 512.0, 256.0),
        ("mindspore-cell", 512.0, 256.0),
        ("mindspore-scaler", 512.0, 256.0),
    ],
)
def test_overflows_until_a_policy_backs_off(name, one, two):
    assert scale_after(name, "N") == one
    assert scale_after(name, "NN") == two
