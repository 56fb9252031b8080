"""What the interpreters that this process starts have of its environment."""

import os
import subprocess
import sys

import pytest

from npu_shim.pjrt import other_python

SAY = "import sys; print(sys.dont_write_bytecode, sys.warnoptions, sys.path)"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("PYTHONDONTWRITEBYTECODE", "1", "True "),
        ("PYTHONWARNINGS", "ignore", "['ignore']"),
        ("PYTHONUNBUFFERED", "1", ""),
    ],
)
def test_what_the_user_wants_of_python_holds_in_other_interpreters(monkeypatch, name, value, said):
    monkeypatch.setenv(name, value)
    assert other_python.environment()[name] == value
    assert said in subprocess.check_output([sys.executable, "-c", SAY], env=other_python.environment()).decode()


@pytest.mark.parametrize("name", ["PYTHONPATH", "PYTHONHOME", "PYTHONINSPECT"])
def test_what_means_this_interpreter_does_not_reach_others(monkeypatch, name):
    monkeypatch.setenv(name, "/of/this/one")
    assert name not in other_python.environment()
    assert other_python.environment()["PATH"] == os.environ["PATH"]
    assert (
        "/of/this/one"
        not in subprocess.check_output(
            [sys.executable, "-c", SAY], env=other_python.environment(), stdin=subprocess.DEVNULL
        ).decode()
    )
