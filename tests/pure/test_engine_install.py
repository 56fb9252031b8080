"""npu-shim engine install: the environment is there whole or not at all; and which engine `auto` takes then."""

import os
import subprocess
import sys

import pytest

from npu_shim import cli
from npu_shim.engine import installing
from npu_shim.engine.device.worker import environments
from npu_shim.options import engine as options
from npu_shim.rewriter.errors import ConfigError
from npu_shim.step import switch

PYTHON = os.environ.get(options.JAX) or (sys.executable if options.has_jax() else None)
HERE = sys.version_info[:2]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Where it is installed; this interpreter is suitable."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv(options.JAX, raising=False)
    monkeypatch.setattr(installing, "RELEASES", {HERE: "0.0"})
    return tmp_path / "npu_shim"


def entries(folder):
    return sorted(path.name.split(".")[0] for path in folder.iterdir() if path.name != "engine.lock")


def without_pip(monkeypatch, target):
    """In place of venv and pip: an environment whose interpreter is `target`."""

    def call(command, otherwise):
        if command[1:3] == ["-m", "venv"]:
            os.makedirs(os.path.join(command[3], "bin"))
            with open(os.path.join(command[3], "bin", "python"), "w") as file:
                file.write('#!/bin/sh\nexec %s "$@"\n' % target)
            os.chmod(file.name, 0o755)

    monkeypatch.setattr(installing, "_call", call)


@pytest.mark.skipif(PYTHON is None, reason="no interpreter with JAX: NPU_SHIM_JAX names none")
def test_the_environment_is_found_replaced_and_alone(folder, monkeypatch, capfd):
    without_pip(monkeypatch, PYTHON)
    assert options.interpreter() is None
    (folder / "engine.killed").mkdir(parents=True)
    assert cli.main(["engine", "install", "cpu", "--python", sys.executable]) == 0
    said = capfd.readouterr().out.splitlines()
    assert said[0].startswith("engine: JAX 0.")
    assert "in a worker, %s" % (folder / "engine" / "bin" / "python") in said[0]
    assert options.interpreter() == str(folder / "engine" / "bin" / "python")
    first = (folder / "engine").resolve()
    installing.install("cpu", sys.executable)
    assert (folder / "engine").resolve() != first
    assert entries(folder) == ["engine", "engine"]  # the link and what it points to


def test_an_environment_in_which_a_worker_runs_is_not_removed(folder):
    """Its interpreter is that of the folder: behind the link there may be another release when it imports more."""
    for name in ("engine.old", "engine.new"):
        (folder / name / "bin").mkdir(parents=True)
    python = folder / "engine.old" / "bin" / "python"
    python.write_text('#!/bin/sh\necho "$0" >&2\nread until\n')  # the worker
    python.chmod(0o755)
    installing._link(str(folder / "engine.old"), str(folder / "engine"))
    reading, writing = os.pipe()
    with environments.held(str(folder / "engine" / "bin" / "python")) as (resolved, marks):
        worker = subprocess.Popen([resolved], stdin=reading, stderr=subprocess.PIPE, pass_fds=marks)
    try:
        assert worker.stderr.readline().decode().strip() == str(python)
        installing._link(str(folder / "engine.new"), str(folder / "engine"))
        installing._remove_others(str(folder / "engine"))
        assert python.exists()
    finally:
        os.close(writing)
        worker.communicate()
        os.close(reading)
    installing._remove_others(str(folder / "engine"))
    assert entries(folder) == ["engine", "engine"]
    assert not python.exists()


def test_what_does_not_work_is_not_linked(folder, monkeypatch):
    without_pip(monkeypatch, "false")
    with pytest.raises(ConfigError, match="not an interpreter for the engine"):
        installing.install("cpu", sys.executable)
    assert entries(folder) == []


@pytest.mark.nightly  # makes an environment with pip, half a minute
def test_pip_that_fails_leaves_nothing(folder, monkeypatch, capfd):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(installing, "RELEASES", {HERE: "999.0"})
    assert cli.main(["engine", "install", "cuda12", "--python", sys.executable]) == 2
    said = capfd.readouterr()
    assert "pip did not install jax[cuda12]==999.0 (status 1); see its output above" in said.err
    assert "999.0" in said.out + said.err
    assert entries(folder) == []
    assert options.interpreter() is None


def test_interpreters_that_cannot_be_taken_are_named(folder, monkeypatch, capfd):
    monkeypatch.setattr(installing, "RELEASES", {(3, 98): "0.1", (3, 99): "0.2"})
    monkeypatch.setenv("PYENV_ROOT", str(folder))
    with pytest.raises(ConfigError, match=r"needs Python 3\.98 or 3\.99, .* \(seen: .*%d\.%d.*\)" % HERE):
        installing.install("cpu")
    with pytest.raises(ConfigError, match=r"is Python %d\.%d, expected 3\.98 or 3\.99" % HERE):
        installing.install("cpu", sys.executable)
    with pytest.raises(ConfigError, match="'/no/python' is no Python that runs, expected"):
        installing.install("cpu", "/no/python")
    assert not folder.exists()
    with pytest.raises(SystemExit):
        cli.main(["engine", "install", "cuda11"])
    assert "cuda11" in capfd.readouterr().err


def test_a_second_installation_at_once_is_an_error(folder):
    with installing._alone(str(folder)):
        with pytest.raises(ConfigError, match="another process installs the engine"):
            installing.install("cpu", sys.executable)


def test_a_folder_that_cannot_be_written_is_named(folder):
    folder.write_text("a file")
    with pytest.raises(ConfigError, match="'%s' cannot be written" % folder):
        installing.install("cpu", sys.executable)


@pytest.mark.skipif(options.has_jax(), reason="this interpreter has JAX")
@pytest.mark.parametrize(("said", "nvidia", "engine"), [("gpu", True, "pjrt"), ("cpu", True, "session"),
                                                        ("gpu", False, "session")])  # fmt: skip
def test_auto_takes_the_engine_where_the_worker_s_jax_sees_a_gpu(folder, monkeypatch, said, nvidia, engine):
    folder.mkdir()
    asked = folder / "asked"
    other = folder / "python"
    other.write_text("#!/bin/sh\ntouch %s\necho %s\n" % (asked, said))
    other.chmod(0o755)
    monkeypatch.setenv(options.JAX, str(other))
    monkeypatch.delenv(options.VARIABLE, raising=False)
    monkeypatch.setattr(options, "nvidia_here", lambda: nvidia)
    options.jax_here.cache_clear()
    assert options.wanted({}) == engine
    assert asked.exists() == nvidia  # nothing is started where there can be no GPU
    options.jax_here.cache_clear()


@pytest.mark.skipif(options.has_jax(), reason="this interpreter has JAX")
def test_without_jax_anywhere_the_message_says_how_to_get_it():
    with pytest.raises(ConfigError, match="npu-shim engine install, or NPU_SHIM_JAX=PYTHON"):
        options.require()


@pytest.mark.parametrize(
    ("given", "expected"), [("python3.12", "python3.12"), ("env/bin/python", "{here}/env/bin/python")]
)
def test_run_takes_the_interpreter_in_front_of_the_script(folder, tmp_path, monkeypatch, given, expected):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    monkeypatch.setenv(options.JAX, "/other/python")
    monkeypatch.setenv(options.VARIABLE, "session")
    ran = []
    monkeypatch.setattr("npu_shim.cli.scripts.run._run", lambda argv, begin: ran.append(argv) or 0)
    assert cli.main(["run", "--jax", given, "--engine=pjrt", "train.py", "--jax=own"]) == 0
    assert ran == [["train.py", "--jax=own"]]
    assert os.environ[options.JAX] == expected.format(here=os.getcwd())
    assert os.environ[options.VARIABLE] == "pjrt"


def test_run_without_the_interpreter_s_path_says_what_it_needs(capfd):
    assert cli.main(["run", "--jax"]) == 2
    assert "--jax needs the path of an interpreter with JAX" in capfd.readouterr().err


def test_the_word_that_chose_another_way_for_steps_has_no_effect_and_is_told(monkeypatch):
    monkeypatch.delenv(switch.VARIABLE, raising=False)
    assert switch.without_effect() == ""
    monkeypatch.setenv(switch.VARIABLE, "jax")
    assert switch.without_effect() == ""
    monkeypatch.setenv(switch.VARIABLE, "tensorflow")
    assert switch.without_effect() == "NPU_SHIM_STEP=tensorflow has no effect: steps are interpreted by JAX"
    monkeypatch.setenv(switch.VARIABLE, "jacks")
    with pytest.raises(ConfigError, match="NPU_SHIM_STEP is 'jacks', expected one of jax, tensorflow"):
        switch.without_effect()


def test_ranks_meet_inside_of_programs_unless_they_are_told_otherwise(monkeypatch):
    monkeypatch.delenv(options.RANKS, raising=False)
    assert options.ranks_meet_inside()
    monkeypatch.setenv(options.RANKS, "apart")
    assert not options.ranks_meet_inside()
    monkeypatch.setenv(options.RANKS, "togeter")
    with pytest.raises(ConfigError, match=r"NPU_SHIM_RANKS is 'togeter'.*did you mean 'together'"):
        options.ranks_meet_inside()
