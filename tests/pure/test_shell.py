"""Which files are shell scripts, and how `npu-shim run` runs one; test_run_quiet.py runs one that trains."""

import os
import signal
import subprocess
import sys

import pytest

from npu_shim.compat import children, shell
from npu_shim.rewriter.errors import ConfigError

FIRST_LINES = {
    "#!/bin/sh": True,
    "#!/bin/bash -e": True,
    "#! /usr/bin/env bash": True,
    "#!/usr/bin/env -S bash -e": True,
    "#!/usr/bin/env -iS LANG=C bash": True,
    "#!/usr/bin/env --split-string=dash": True,
    "#!/usr/bin/env -S python3 -u": False,
    "#!/usr/bin/env -S": False,
    "#!/usr/bin/env python3": False,
    "#!/usr/bin/python3 -u": False,
    "#!/nowhere/bash": False,
    "import tensorflow as tf": False,
    "#!": False,
    "": False,
}
RUNS = """
import sys
from npu_shim.compat import shell
sys.exit(shell.run(sys.argv[1], sys.argv[2:]))
"""


def written(folder, name, *lines):
    path = folder / name
    path.write_text("\n".join([*lines, ""]))
    return str(path)


@pytest.mark.parametrize(("first", "is_shell"), FIRST_LINES.items())
def test_the_first_line_says_what_it_is(tmp_path, first, is_shell):
    assert shell.is_script(written(tmp_path, "train", first)) == is_shell


def test_the_name_says_what_it_is(tmp_path):
    assert shell.is_script(written(tmp_path, "train_1p.sh", "python train.py"))
    assert not shell.is_script(written(tmp_path, "train.py", "print()"))
    assert [word for word in ("-", "-m", str(tmp_path), "nowhere.sh") if shell.is_script(word)] == []


def ran(*words, **settings):
    return subprocess.run(
        [sys.executable, "-c", RUNS, *words], env={**os.environ, **settings}, capture_output=True, text=True,
        check=False, timeout=100,
    )  # fmt: skip


def test_it_runs_as_under_its_shell_with_this_python(tmp_path):
    asks = 'for name in python python3 python3.7 python3.7.5; do $name -c "import sys; print(sys.prefix)" "x y"; done'
    done = ran(written(tmp_path, "train.sh", "set -e", 'echo "$# $2"', asks, "false", "echo never"), "a", "b c")
    assert done.stdout.splitlines() == ["2 b c", *[sys.prefix] * 4]
    assert done.returncode == 1
    split = ran(written(tmp_path, "split.sh", "#!/usr/bin/env -S bash -e", "false", "echo never"))
    assert (split.returncode, split.stdout) == (1, "")
    assert ran(written(tmp_path, "killed.sh", "kill -KILL $$")).returncode == 128 + signal.SIGKILL


def test_its_programs_are_reached(tmp_path):
    code = "import sys; from npu_shim.compat import children; print(isinstance(sys.meta_path[0], children._Waiting))"
    (tmp_path / "own.py").write_text("value = 7\n")
    anew = "python -c 'import own; print(own.value)'"
    starts = ['%s -c "%s"' % (sys.executable, code), 'export PYTHONPATH="%s"' % tmp_path, 'python3 -c "%s"' % code]
    done = ran(written(tmp_path, "train.sh", *starts, anew, "python -c 'import sys; sys.exit(3)'"))
    assert (done.stdout.split(), done.returncode) == (["True", "True", "7"], 3)


def test_a_scheduler_that_ends_it_ends_the_shell(tmp_path):
    lines = ["trap 'echo ended; exit 7' TERM", "echo begun", "while :; do sleep 0.1; done"]
    argv = [sys.executable, "-c", RUNS, written(tmp_path, "train.sh", *lines)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "begun\n"
        process.terminate()
        assert process.communicate(timeout=100) == ("ended\n", None)
    assert process.returncode == 7


def test_who_handles_the_signal_already_is_told_too(tmp_path):
    path = written(tmp_path, "train.sh", "trap 'echo ended; exit 7' TERM", "echo begun", "while :; do sleep 0.1; done")
    # in one write: print's end of line is another, between which the shell may write
    handles = "import os, signal\nsignal.signal(signal.SIGTERM, lambda *_: os.write(1, b'told\\n'))\n"
    with subprocess.Popen([sys.executable, "-c", handles + RUNS, path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "begun\n"
        process.terminate()
        assert sorted(process.communicate(timeout=100)[0].split()) == ["ended", "told"]
    assert process.returncode == 7


def test_it_is_refused_where_its_programs_are_left_alone(tmp_path, monkeypatch):
    monkeypatch.setenv(children.VARIABLE, "off")
    with pytest.raises(ConfigError, match=r"train.sh' is a shell script, whose programs NPU_SHIM_CHILDREN=off leaves"):
        shell.run(written(tmp_path, "train.sh", "true"), [])
