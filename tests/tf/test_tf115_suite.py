"""Methods of TensorFlow 1.15's own tests that pass under npu-shim still pass: a sample, or all with NPU_SHIM_NIGHTLY=1.

NPU_SHIM_TF115_TREE names a git directory with 1.15's source tree; see scripts/tf115_tests.
"""

import importlib
import json
import os
import pathlib
import subprocess
import sys
from unittest import mock

import pytest
import tensorflow as tf

from npu_shim.compat.names import names

SUITE = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "tf115_tests"
TREE = os.environ.get("NPU_SHIM_TF115_TREE")
LIMITS = {"method_s": 60, "file_s": 300, "idle_s": 60}
pytestmark = [
    pytest.mark.skipif(names.tensorflow_1(), reason="TensorFlow 1 has the real tf.contrib"),
    pytest.mark.skipif(not TREE, reason="NPU_SHIM_TF115_TREE names no git directory of TensorFlow 1.15's tree"),
    pytest.mark.slow,
]
at_night = pytest.mark.skipif(not os.environ.get("NPU_SHIM_NIGHTLY"), reason="runs with NPU_SHIM_NIGHTLY=1")


def test_a_sample_of_its_methods_passes(tmp_path):
    with mock.patch.object(sys, "path", [str(SUITE), *sys.path]):
        results, suites, trees = map(importlib.import_module, ("results", "suites", "tree"))
    sample = json.loads((SUITE / "sample.json").read_text())
    tree = trees.Tree(TREE, tmp_path, suites.SUITES["tensorflow"])
    tree.write(sample)
    lost = []
    with results.server(tf.__version__, False, [], tree.folder) as answer:
        for file, methods in sample.items():
            said = answer(dict(LIMITS, folder=str(tree.folder), file=str(tree.folder / file), only=methods))
            verdicts = {method: said["tests"].get(method, {"state": said["file"] or "gone"}) for method in methods}
            lost += [(file, name, verdict) for name, verdict in verdicts.items() if verdict["state"] != "pass"]
    assert not lost, json.dumps(lost, indent=1)


@at_night
def test_of_all_its_methods_95_in_100_pass(tmp_path):
    said, _ = suite(tmp_path, "--markdown")
    (row,) = [line for line in said.splitlines() if line.startswith("| all |")]
    passed = float(row.split("|")[-2].strip(" %"))
    assert passed >= (95 if tf.__version__.startswith("2.15") else 90), said


@at_night
@pytest.mark.parametrize("arguments", [
    ["contrib/mixed_precision", "training/experimental/loss_scale"],
    ["contrib/mixed_precision", "--option", "TF115_MANAGERS=npu_bridge"],
], ids=["tensorflow", "npu_bridge"])  # fmt: skip
def test_all_of_its_loss_scale_tests_pass(tmp_path, arguments):
    said, status = suite(tmp_path, "--open", *arguments)
    assert status == 0, said
    assert " 100.0 %" in said, said


@at_night
@pytest.mark.skipif(not os.environ.get("NPU_SHIM_JAX"), reason="NPU_SHIM_JAX names no Python with JAX")
def test_what_trains_in_the_session_trains_with_the_engine(tmp_path):
    words = ["contrib/opt", "contrib/rnn", "contrib/layers", "contrib/losses", "python/layers", "python/ops/nn_"]
    engine = ["--option=--engine=pjrt", "--option", "NPU_SHIM_JAX=" + os.environ["NPU_SHIM_JAX"]]
    said, status = suite(tmp_path, "--open", *engine, *words)
    assert status == 0, said


def suite(cache, *arguments):
    """Runs scripts/tf115_tests; returns (what it prints, its status)."""
    done = subprocess.run(
        [sys.executable, str(SUITE), "--tree", TREE, "--cache", str(cache), "--on", tf.__version__, *arguments],
        stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    return done.stdout, done.returncode
