"""A user's typed code: checkers accept what typing/consumer.py does, and refuse each mistake of typing/mistakes.py.

mypy comes with the tests; pyright (`npm install --global pyright`) is asked where it is on the PATH.
"""

import ast
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TYPING = ROOT / "tests" / "typing"
LINES = (TYPING / "mistakes.py").read_text().splitlines()
WRONG = [number for number, line in enumerate(LINES, 1) if "# wrong" in line]


def mypy(folder):
    """The lines of each file that mypy --strict refuses: (name of the file, line)."""
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed here; the environment of the reference TensorFlow has it")
    options = [
        "--strict",
        "--ignore-missing-imports",
        "--follow-imports=silent",
        "--config-file=",
        "--no-error-summary",
    ]
    command = [sys.executable, "-m", "mypy", *options, "consumer.py", "mistakes.py"]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    told = subprocess.run(command, cwd=str(folder), stdout=subprocess.PIPE, check=False, env=environment)
    errors = [line.split(":") for line in told.stdout.decode().splitlines() if ": error:" in line]
    return {(error[0], int(error[1])) for error in errors}


def pyright(folder):
    """The same lines of pyright."""
    program = shutil.which("pyright")
    if not program:
        pytest.skip("pyright is not on the PATH")
    settings = folder / "pyrightconfig.json"
    settings.write_text(json.dumps({"include": ["*.py"], "extraPaths": [str(ROOT)]}))
    command = [program, "-p", str(settings), "--outputjson", "--pythonpath", sys.executable]
    told = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    errors = [row for row in json.loads(told.stdout.decode())["generalDiagnostics"] if row["severity"] == "error"]
    return {(pathlib.Path(row["file"]).name, row["range"]["start"]["line"] + 1) for row in errors}


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_checkers_accept_the_consumer_and_refuse_the_mistakes(checker, tmp_path):
    for name in ("consumer.py", "mistakes.py"):
        shutil.copy(str(TYPING / name), str(tmp_path))
    assert checker(tmp_path) == {("mistakes.py", line) for line in WRONG}


def test_there_are_thirty_calls_and_five_mistakes():
    tree = ast.parse((TYPING / "consumer.py").read_text())
    assert sum(isinstance(node, ast.Call) for node in ast.walk(tree)) >= 30
    assert len(WRONG) == 5
