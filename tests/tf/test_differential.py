"""Random training steps through every entrance: to the bit what plain TensorFlow gives. See differential.py.

The engine's entrance is tried with random orders of runs as well, see differential_runs.py. NPU_SHIM_NIGHTLY=1 in the
environment tries two thousand steps an entrance.
"""

import functools
import os

import differential
import differential_runs
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.options import engine

pytestmark = [
    pytest.mark.skipif(tf.__version__.startswith("1."), reason="compile_step and export need TensorFlow 2.15"),
    pytest.mark.usefixtures("control_flow_of_version_1", "activated"),
    pytest.mark.nightly,  # test_fuzz.py has programs at the same entrances
]
NIGHTLY = 2000 if os.environ.get("NPU_SHIM_NIGHTLY") else None
COUNT = NIGHTLY or 4  # of steps an entrance; fuzz/ draws programs for the same entrances
ENGINE, SCRIPTS = NIGHTLY or 4, NIGHTLY or 2  # a script has about ten programs
INTERPRETER = os.environ.get("NPU_SHIM_JAX")
HAS_ENGINE = pytest.mark.skipif(
    not (engine.has_jax() or engine.interpreter()), reason="no JAX, and NPU_SHIM_JAX names none"
)


@functools.lru_cache(maxsize=40)
def plain(seed):
    """(Step, what it gives in a session of TensorFlow's own)."""
    step = differential.build(seed)
    return step, differential.in_session(step)


def options(seed):
    return differential.MODES[seed % len(differential.MODES)]


def check(run, count):
    """Holds steps against plain TensorFlow; `run` takes a step and options."""
    told = []
    for seed in range(count):
        step, expected = plain(seed)
        try:
            problems = differential.differences(run(step, options(seed)), expected)
        except Exception as error:
            problems = ["%s: %s" % (type(error).__name__, error)]
        if problems:
            told.append("seed %d, %s: %s\n    %s" % (seed, options(seed), problems[0], "\n    ".join(step.text)))
    assert not told, "\n".join(told)


def test_in_a_session():
    check(differential.with_optimizer, COUNT)


def test_rewritten_to_a_file_and_back(tmp_path):
    check(lambda step, given: differential.rewritten(step, given, tmp_path / "step.pb"), COUNT)


def test_in_a_session_with_clusters():
    check(functools.partial(differential.with_optimizer, npu_shim_xla="on"), COUNT)


@HAS_ENGINE
def test_as_a_compiled_step():
    check(differential.compiled, COUNT)


@HAS_ENGINE
def test_in_the_engine(counts):
    def run(step, given):
        del counts[1][:]
        ran = differential.with_optimizer(step, given, npu_shim_engine="pjrt")
        assert counts[1] == [1] * differential.RUNS, "the engine did not take every step"
        return ran

    check(run, ENGINE)


@HAS_ENGINE
def test_in_the_engine_among_other_runs(tmp_path, counts):
    told = []
    for seed in range(SCRIPTS):
        script = differential_runs.build(seed)
        config = sessions.config(**differential.as_parameters(options(seed)), npu_shim_engine="pjrt")
        folders = [tmp_path / ("%d%s" % (seed, side)) for side in ("plain", "engine")]
        expected = differential_runs.perform(script, folders[0])
        actual = differential_runs.perform(script, folders[1], config)
        problems = differential_runs.differences(script, actual, expected)
        told += ["seed %d, %s: %s" % (seed, options(seed), problem) for problem in problems[:1]]
    assert not told, "\n".join(told)
    assert len(counts[1]) >= 3 * SCRIPTS  # runs of a device: what takes nothing shows nothing


@pytest.mark.skipif(not INTERPRETER, reason="no interpreter with JAX: NPU_SHIM_JAX names none")
def test_exported_and_run_under_jax(tmp_path):
    folders = [tmp_path / str(seed) for seed in range(COUNT)]
    for seed, folder in enumerate(folders):
        folder.mkdir()
        differential.exported(plain(seed)[0], options(seed), folder)
    steps = [plain(seed)[0] for seed in range(COUNT)]
    ran = iter(differential.under_jax(folders, steps, INTERPRETER))

    def result(step, given):
        ended = next(ran)
        if isinstance(ended, str):
            raise RuntimeError(ended)
        return ended

    check(result, COUNT)
