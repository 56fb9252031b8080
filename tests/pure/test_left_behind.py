"""What a file of tests leaves behind is an error of that file, and the next one does not meet it."""

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


def test_it_is_an_error_and_is_put_back(tmp_path):
    for number, (does, _) in enumerate(DOES):
        (tmp_path / ("test_%d.py" % number)).write_text("import logging, os, sys\ndef test_it():\n    %s\n" % does)
        (tmp_path / ("test_%d_next.py" % number)).write_text(NEXT)
    told = ran(tmp_path)
    for number, (_, said) in enumerate(DOES):
        leaves = "test_%d.py leaves behind: " % number
        assert leaves + said in told if said else leaves not in told, told
    assert "_next.py leaves behind" not in told
    assert "%d passed, %d errors" % (2 * len(DOES), sum(bool(said) for _, said in DOES)) in told
