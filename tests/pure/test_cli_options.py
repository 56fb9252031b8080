"""npu-shim options, and the page that is made of it."""

import os
import pathlib
import signal

import pytest

import npu_shim
from npu_shim import cli
from npu_shim.cli import options as command
from npu_shim.cli.scripts import run
from npu_shim.options import table as options

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "options.md"


def test_the_page_is_what_the_command_prints():
    # to make it again: npu-shim options --markdown > docs/options.md
    assert PAGE.read_text(encoding="utf-8") == command.markdown() + "\n"


def test_every_option_has_its_line_and_its_row():
    names = list(options.options())
    assert [line.split()[0] for line in command.listed()] == names
    rows = [line for line in command.markdown().splitlines() if line.startswith("| `")]
    assert sorted(row.split("`")[1] for row in rows) == sorted(names)
    # a column more would be a bar that is not escaped
    assert {row.replace("\\|", "").count("|") for row in rows} == {4}


def test_one_option_is_described(capsys):
    assert cli.main(["options", "dump_mode"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "dump_mode: " + options.options()["dump_mode"].meaning
    assert "  values: input, output, all" in lines
    assert "  where: parameter_map" in lines
    assert any(line.startswith("  status: honored") for line in lines)


@pytest.mark.parametrize(("name", "nearest"), [("dump_stp", "dump_step"), ("precison_mode", "precision_mode")])
def test_a_misspelt_option_is_answered_with_the_nearest(capsys, name, nearest):
    assert cli.main(["options", name]) == 2
    assert capsys.readouterr().err == "npu_shim: there is no option '%s' (did you mean '%s'?)\n" % (name, nearest)


@pytest.mark.parametrize("forked", [False, True])
def test_what_was_measured_is_told_before_sigterm(forked, tmp_path):
    """A scheduler's SIGTERM left no report, and a folder in /tmp."""
    told = tmp_path / "told"
    child = os.fork()
    if not child:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with run.before_sigterm(lambda: told.write_text("told")):
            if forked:
                os._exit(0 if os.fork() == 0 and os.kill(os.getpid(), signal.SIGTERM) else os.WTERMSIG(os.wait()[1]))
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
    _, status = os.waitpid(child, 0)
    if forked:
        assert os.WEXITSTATUS(status) == signal.SIGTERM
        assert not told.exists()
    else:
        assert os.WTERMSIG(status) == signal.SIGTERM
        assert told.read_text() == "told"


def test_the_command_tells_its_version(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    assert capsys.readouterr().out == "npu-shim %s\n" % npu_shim.__version__
