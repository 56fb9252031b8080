"""What a file of tests leaves behind is an error of that file; and which combinations run by day. One run of pytest."""

import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parents[1]


def ran(folder):
    """What pytest says of the files in a folder, under the conftest.py of these tests."""
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "conftest", "-p", "no:cacheprovider", str(folder)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)])}
    return subprocess.run(argv, cwd=str(folder), env=env, stdout=subprocess.PIPE, text=True).stdout


# what a file does, and what is said of it: "" for what the next file does not meet
DOES = [
    ("os.environ['LEFT'] = '1'", "environment variables: LEFT None -> '1'"),
    ("sys.path.insert(0, '/nowhere')", "sys.path: "),
    ("os.chdir('/')", "the working folder: "),
    ("logging.getLogger('npu_shim').setLevel(7)", "loggers: npu_shim "),
    ("os.environ.pop('NOWHERE', None)", ""),
    ("logging.getLogger('absl').setLevel(30)", ""),
]
NEXT = """
import os, sys
def test_it():
    assert "LEFT" not in os.environ
    assert "/nowhere" not in sys.path
    assert os.getcwd() != "/"
"""

# of four combinations one by day; a name that no combination has
MARKED = """
import pytest
@pytest.mark.by_day("2-b")
@pytest.mark.parametrize("letter", ["a", "b"])
@pytest.mark.parametrize("number", [1, 2])
def test_some(number, letter):
    assert (number, letter) == (2, "b")
@pytest.mark.by_day("x", "z")
@pytest.mark.parametrize("name", ["x", "y"])
def test_misspelt(name):
    assert name == "x"
"""


def test_files_that_leave_something_behind_and_combinations_by_day(tmp_path, monkeypatch):
    monkeypatch.delenv("NPU_SHIM_NIGHTLY", raising=False)
    (tmp_path / "test_marks.py").write_text(MARKED)
    for number, (does, _) in enumerate(DOES):
        (tmp_path / ("test_%d.py" % number)).write_text("import logging, os, sys\ndef test_it():\n    %s\n" % does)
        (tmp_path / ("test_%d_next.py" % number)).write_text(NEXT)
    told = ran(tmp_path)
    for number, (_, said) in enumerate(DOES):
        leaves = "test_%d.py leaves behind: " % number
        assert leaves + said in told if said else leaves not in told, told
    assert "_next.py leaves behind" not in told
    assert "test_misspelt runs by day as what it has not: z" in told
    assert "%d passed, 4 skipped" % (2 * len(DOES) + 1) in told
    assert "%d errors in " % (sum(bool(said) for _, said in DOES) + 1) in told
