"""Random programs at every entrance: results, and the whole state after every run, as in plain TensorFlow. See fuzz/.

NPU_SHIM_NIGHTLY=1 in the environment runs a thousand programs of drawing.py and of wider.py an entrance;
NPU_SHIM_FUZZ_SEEDS=COUNT as many as it says, NPU_SHIM_FUZZ_FIRST=SEED from that seed of each on. A program that
differs is shrunk: `python scripts/fuzz.py ENTRANCE SEED`.
"""

import os
import pathlib
import subprocess
import sys

import pytest
import tensorflow.compat.v1 as tf
from fuzz import collected, planted, trials, wider

from npu_shim.options import engine

ROOT = pathlib.Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(tf.__version__.startswith("1."), reason="compile_step and export need TensorFlow 2.15")
NIGHTLY = 1000 if os.environ.get("NPU_SHIM_NIGHTLY") else None
ASKED = int(os.environ.get("NPU_SHIM_FUZZ_SEEDS") or 0) or NIGHTLY
FIRST = int(os.environ.get("NPU_SHIM_FUZZ_FIRST") or 0)
HAS_ENGINE = engine.has_jax() or engine.interpreter()
COUNTS = {
    "session": 1, "clusters": 1, "file": 1, "compiled": 1, "exported": 1, "engine": 1, "devices": 0, "collected": 1,
    "scaled": 2,
}  # fmt: skip


@pytest.mark.parametrize("entrance", [name for name, count in COUNTS.items() if count or ASKED])
def test_programs_give_what_plain_tensorflow_gives(entrance, monkeypatch):
    if entrance in ("engine", "devices", "compiled") and not HAS_ENGINE:
        pytest.skip("no JAX, and NPU_SHIM_JAX names none")
    if entrance == "exported" and not os.environ.get("NPU_SHIM_JAX"):
        pytest.skip("no interpreter with JAX: NPU_SHIM_JAX names none")
    count = ASKED or COUNTS[entrance]
    told = [line for first in (0, wider.FIRST) for line in trials.differing([entrance], first + FIRST, count)]
    assert not told, "\n".join(told)


@pytest.mark.parametrize("container", ["", "A"])
def test_ranks_leave_no_variable_to_those_of_the_next_program(container):
    with tf.Graph().as_default() as graph, tf.container(container):
        variable = tf.Variable(1.0, use_resource=True)
        is_there = tf.is_variable_initialized(variable)
    for _ in range(2):
        with collected.ranks(graph), tf.Session(collected.server().target, graph=graph) as session:
            assert not session.run(is_there)
            session.run(variable.initializer)


@pytest.mark.nightly
@pytest.mark.parametrize("fault", planted.FAULTS)
def test_a_planted_fault_is_found(fault):  # in a process of its own: some stop TensorFlow's threads for ever
    entrance = planted.FAULTS[fault].entrance
    if entrance in ("engine", "devices", "compiled") and not HAS_ENGINE:
        pytest.skip("no JAX, and NPU_SHIM_JAX names none")
    command = [sys.executable, "scripts/fuzz.py", entrance, "0", "--count", "300", "--fault", fault]
    done = subprocess.run(command, cwd=str(ROOT), stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stdout
