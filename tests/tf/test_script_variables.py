"""Variables are what the script makes them, under npu_bridge as without it."""

import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
GOLDEN = HERE.parent / "golden" / "variables_1.15.5.json"


def test_a_variable_answers_as_under_tensorflow_1_15():
    env = {**os.environ, "NPU_SHIM_LOG": "off", "TF_CPP_MIN_LOG_LEVEL": "2"}
    command = [sys.executable, "-m", "npu_shim", "run", str(HERE / "variable_cases.py")]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    answers, expected = json.loads(done.stdout), json.loads(GOLDEN.read_text())
    assert {case: answers[case] for case in answers if answers[case] != expected.get(case)} == {}
    assert len(answers) == len(expected) >= 75
