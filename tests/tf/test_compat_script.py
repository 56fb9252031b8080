"""Old names and one Keras as a script sees them: every check of compat_script.py, in one `npu-shim run`."""

import ast
import json
import os
import pathlib
import subprocess
import sys

import pytest

from npu_shim.compat.names import names

TESTS = pathlib.Path(__file__).resolve().parents[1]
SCRIPT = TESTS / "compat_script.py"
GOLDEN = TESTS / "golden" / "names_1.15.json"
TREE = ast.parse(SCRIPT.read_text())
STATEMENTS = {n.targets[0].id: ast.literal_eval(n.value) for n in TREE.body if isinstance(n, ast.Assign)}
CHECKS = [node.name for node in TREE.body if isinstance(node, ast.FunctionDef) and node.decorator_list]
TOLD = "whose numbers a script gets from keras is said once"
LINES = [line for text in (STATEMENTS["IMPORTS"], STATEMENTS["OLDER"]) for line in text.splitlines() if line]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "npu_shim", "run", str(SCRIPT), str(GOLDEN)],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}, cwd=str(tmp_path_factory.mktemp("compat")),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULTS ")]
    assert lines, done.stderr
    told = done.stderr.count("keras is tf.keras here, with its numbers")
    others = {} if names.tensorflow_1() else {TOLD: None if told == 1 else "%d times" % told}
    return {**json.loads(lines[-1][len("RESULTS ") :]), **others}


@pytest.mark.parametrize("name", [*CHECKS, TOLD, *LINES])
def test_check(results, name):
    if name not in results:
        pytest.skip("TensorFlow 1.15 did not have it")
    assert results[name] is None, results[name]
