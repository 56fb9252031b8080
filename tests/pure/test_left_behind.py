"""What a file of tests leaves behind is an error of that file, and the next one does not meet it."""

import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parents[1]


def ran(folder):
    """What pytest says of the files in a folder, under the conftest.py of these tests."""
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "conftest", "-p", "no:cacheprovider", str(folder)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)])}
    return subprocess.run(argv, cwd=str(folder), env=env, stdout=subprocess.PIPE, text=True).stdout


@pytest.mark.parametrize(
    ("leaves", "said"),
    [
        ("os.environ['LEFT'] = '1'", "environment variables: LEFT None -> '1'"),
        ("sys.path.insert(0, '/nowhere')", "sys.path: "),
        ("os.chdir('/')", "the working folder: "),
        ("logging.getLogger('npu_shim').setLevel(7)", "loggers: npu_shim "),
    ],
)
def test_it_is_an_error_and_is_put_back(tmp_path, leaves, said):
    (tmp_path / "test_a.py").write_text("import logging, os, sys\ndef test_it():\n    %s\n" % leaves)
    (tmp_path / "test_b.py").write_text(
        "import os, sys\ndef test_it():\n    assert 'LEFT' not in os.environ\n    assert '/nowhere' not in sys.path\n"
        "    assert os.getcwd() != '/'\n"
    )
    told = ran(tmp_path)
    assert "test_a.py leaves behind: " + said in told
    assert "2 passed, 1 error" in told


@pytest.mark.parametrize("does", ["os.environ.pop('NOWHERE', None)", "logging.getLogger('absl').setLevel(30)"])
def test_what_the_next_file_does_not_meet_is_none(tmp_path, does):
    (tmp_path / "test_a.py").write_text("import logging, os\ndef test_it():\n    %s\n" % does)
    assert "1 passed in" in ran(tmp_path)
