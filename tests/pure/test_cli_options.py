"""npu-shim options, and the page that is made of it."""

import pathlib

import pytest

from npu_shim import cli
from npu_shim.cli import options as command
from npu_shim.options import table as options

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "options.md"


def test_the_page_is_what_the_command_prints():
    # to make it again: npu-shim options --markdown > docs/options.md
    assert PAGE.read_text(encoding="utf-8") == command.markdown() + "\n"


def test_every_option_has_its_line_and_its_row():
    names = list(options.options())
    assert [line.split()[0] for line in command.listed()] == names
    rows = [line for line in command.markdown().splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == names
    # a column more would be a bar that is not escaped
    assert {row.replace("\\|", "").count("|") for row in rows} == {8}


def test_one_option_is_described(capsys):
    assert cli.main(["options", "dump_mode"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "dump_mode: " + options.options()["dump_mode"].meaning
    assert "  values: input, output, all" in lines
    assert "  where: parameter_map" in lines
    assert any(line.startswith("  status: honoured") for line in lines)


@pytest.mark.parametrize(("name", "nearest"), [("dump_stp", "dump_step"), ("precison_mode", "precision_mode")])
def test_a_misspelt_option_is_answered_with_the_nearest(capsys, name, nearest):
    assert cli.main(["options", name]) == 2
    assert capsys.readouterr().err == "npu_shim: there is no option '%s' (did you mean '%s'?)\n" % (name, nearest)
