"""The examples of the README run as they stand."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
import tensorflow.compat.v1 as tf

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example_runs(number, tmp_path):
    script = tmp_path / "example.py"
    script.write_text(EXAMPLES[number])
    # what imports the compat module is a TensorFlow 2 script and runs with plain python
    launcher = [] if "tensorflow.compat.v1" in EXAMPLES[number] else ["-m", "npu_shim", "run"]
    done = subprocess.run(
        [sys.executable, *launcher, str(script)], cwd=str(tmp_path), env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    if "compile_step" in EXAMPLES[number] and tf.__version__ < "2":
        assert "a step is compiled by TensorFlow 2.15 or later" in done.stdout
        return
    assert done.returncode == 0, done.stdout
    if "allow_mix_precision" in EXAMPLES[number]:  # and it was rewritten: the log or the printed reasons say so
        assert "float16, casts" in done.stdout or "white-listed" in done.stdout


def test_there_are_examples_of_all_entrances():
    words = " ".join(EXAMPLES)
    assert all(word in words for word in ("NPURunConfig", "custom_optimizers", "npu_shim.rewrite"))


PATHS = set(re.findall(r"`((?:rewriter|npu_shim|configs|scripts)/[\w/.-]+)`", (ROOT / "README.md").read_text()))


@pytest.mark.parametrize("path", sorted(PATHS))
def test_paths_of_the_readme_exist(path):
    assert (ROOT / path).exists()
