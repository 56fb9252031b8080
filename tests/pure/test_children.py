"""Which Python programs that a script starts are reached, and how; test_launcher.py has what they see then."""

import functools
import json
import os
import subprocess
import sys

import pytest

from npu_shim.compat import callers, children
from npu_shim.rewriter.errors import ConfigError

COMMANDS = {
    "script.py a -c": "script.py",
    "-u -W ignore -X dev script.py": "script.py",
    "-Wignore -Xdev -OO folder": "folder",
    "--check-hash-based-pycs never script.py": "script.py",
    "-m package.train --steps 3": "package.train",
    "-um package": "package",
    "-c print(1) -m x": "print(1)",
    "-ic": "",
    "- word": "-",
    "": "",
}
TOOLS = [
    "npu_shim", "npu_shim.cli", "/venv/bin/npu-shim", "pip", "/venv/bin/pip3.11", "tensorboard.main", "bin/tensorboard",
    os.path.join(callers.OURS, "pjrt", "entry.py"),
]  # fmt: skip
SCRIPTS = [
    "", "-", "train.py", "/home/pip/train.py", "import pip", "piper.py", "t2t_trainer", "pipeline", "npu.py",
    "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)",
]  # fmt: skip
# what a process that a script has started knows of it
SEEN = """
import json, os, sys
from npu_shim.compat import children
waits = any(isinstance(finder, children._Waiting) for finder in sys.meta_path)
own = getattr(sys.modules.get("sitecustomize"), "OWN", None)
print(json.dumps([waits, own, children.FOLDER in sys.path, "tensorflow" in sys.modules]))
"""


@pytest.mark.parametrize(("command", "program"), COMMANDS.items())
def test_what_a_command_runs(command, program):
    assert children.program(["python", *command.split()]) == program


def test_tools_are_no_scripts():
    assert [text for text in TOOLS if not children.is_tool(text)] == []
    assert [text for text in SCRIPTS if children.is_tool(text)] == []


@pytest.mark.parametrize("before", [None, "given"])
def test_the_environment_is_as_it_was_behind_the_scope(monkeypatch, before):
    monkeypatch.delenv(children.VARIABLE, raising=False)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if before:
        monkeypatch.setenv("PYTHONPATH", before)
    with children.reached(None), children.reached(None):
        folders = os.environ["PYTHONPATH"].split(os.pathsep)
        assert folders == [children.FOLDER, *([before] if before else [])]
        assert sys.prefix in os.environ[children.VARIABLE]
    assert os.environ.get("PYTHONPATH") == before
    assert children.VARIABLE not in os.environ
    with children.reached(None):
        os.environ["PYTHONPATH"] = "the script's own"
    assert os.environ.pop("PYTHONPATH") == "the script's own"


def test_it_can_be_switched_off(monkeypatch):
    monkeypatch.setenv(children.VARIABLE, "off")
    with children.reached(None):
        assert children.FOLDER not in os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv(children.VARIABLE, "of")
    with pytest.raises(ConfigError, match=r"NPU_SHIM_CHILDREN is 'of', expected on or off .did you mean 'off'"):
        with children.reached(None):
            pass


def seen(*options, **env):
    argv = [sys.executable, *options, "-c", SEEN]
    return json.loads(subprocess.run(argv, env={**os.environ, **env}, stdout=subprocess.PIPE, check=True).stdout)


def test_a_program_waits_for_tensorflow_and_keeps_the_sitecustomize_of_its_environment(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("OWN = 'of the environment'\n")
    with children.reached(None):
        assert seen() == [True, None, False, False]
        path = os.pathsep.join([os.environ["PYTHONPATH"], str(tmp_path)])
        assert seen(PYTHONPATH=path) == [True, "of the environment", False, False]
        elsewhere = os.environ[children.VARIABLE].replace(sys.prefix, "/another")
        assert seen(PYTHONPATH=path, NPU_SHIM_CHILDREN=elsewhere) == [False, "of the environment", False, False]
        assert seen("-E")[0] is False
    assert seen()[0] is False


def test_what_comes_first_comes_before_anything_else():
    code = "import os; print(os.environ.get('FIRST'))"
    with children.reached(None, functools.partial(exec, "import os; os.environ['FIRST'] = 'yes'")):
        printed = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout
    assert printed.decode().split() == ["yes"]
