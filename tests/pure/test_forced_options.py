"""NPU_SHIM_OPTIONS and `npu-shim run --set`: what is forced on every session, and what cannot be read."""

import json
import os

import pytest

from npu_shim import cli
from npu_shim.options.entrances import forced
from npu_shim.rewriter.errors import ConfigError


def test_words_become_values_of_their_options():
    words = ["precision_mode=force_fp16", "use_off_line=true", "iterations_per_loop=10", "modify_mixlist="]
    assert forced.parsed([*words, "dump_path=a=b"], "--set") == {
        "precision_mode": "force_fp16", "use_off_line": True, "iterations_per_loop": 10, "modify_mixlist": None,
        "dump_path": "a=b",
    }  # fmt: skip
    assert forced.parsed(["modify_mixlist=a.json"], "--set") == {"modify_mixlist": os.path.abspath("a.json")}


def test_forced_values_win_and_a_mode_replaces_either_mode():
    own = {"precision_mode_v2": "mixed_float16", "modify_mixlist": "a.json", "dump_path": "d"}
    assert forced.merged(own, {}) == own
    asked = {"precision_mode": "force_fp16", "modify_mixlist": None}
    assert forced.merged(own, asked) == {"precision_mode": "force_fp16", "dump_path": "d"}
    assert forced.merged(own, {"modify_mixlist": "b.json"}) == {**own, "modify_mixlist": "b.json"}


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("precision_mod=x", "--set: no such option 'precision_mod' (did you mean 'precision_mode'?)"),
        ("precision_mode", "--set is 'precision_mode', expected KEY=VALUE"),
        ("iterations_per_loop=many", "--set: iterations_per_loop is 'many', expected a whole number"),
        ("graph_run_mode=2", "--set: graph_run_mode: '2' is not one of 0, 1"),  # it ran up to its first session
        ("use_off_line=perhaps", "--set: use_off_line is 'perhaps', expected true or false"),
    ],
)
def test_a_wrong_word_is_one_error_before_the_script_runs(word, told, tmp_path, capsys):
    (tmp_path / "script.py").write_text("raise SystemExit('it ran')")
    assert cli.main(["run", "--set", word, str(tmp_path / "script.py")]) == 2
    assert capsys.readouterr().err == "npu_shim: %s\n" % told


@pytest.mark.parametrize("text", ["{", "[1]", json.dumps({"precision_mod": "x"})])
def test_a_wrong_variable_is_named(text, monkeypatch):
    monkeypatch.setenv(forced.VARIABLE, text)
    with pytest.raises(ConfigError, match=forced.VARIABLE):
        forced.over({})


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"precision_mode": "x"}, "precision_mode: 'x' is not one of force_fp32, "),
        ({"precision_mode": 5}, "precision_mode: '5' is not one of force_fp32, "),
        ({"npu_shim_saturate": "maybe"}, 'npu_shim_saturate is "maybe", expected true or false'),
        ({"npu_shim_programs": 0}, "npu_shim_programs: must be at least 1, got 0"),
        ({"npu_shim_programs": [1]}, "npu_shim_programs is [1], expected a whole number"),
        ({"modify_mixlist": True, "dump_path": {}}, "dump_path is {}, expected a text"),
    ],
)
def test_a_wrong_value_in_the_variable_is_told_in_its_own_words(values, told, monkeypatch):
    monkeypatch.setenv(forced.VARIABLE, json.dumps(values))
    with pytest.raises(ConfigError) as error:
        forced.over({})
    assert "npu_shim: NPU_SHIM_OPTIONS: " + told in str(error.value)


def test_values_of_the_variable_may_take_options_away_and_leave_the_mode_to_the_device(monkeypatch):
    values = {"precision_mode": "auto", "modify_mixlist": None, "npu_shim_saturate": True, "npu_shim_programs": 4}
    monkeypatch.setenv(forced.VARIABLE, json.dumps(values))
    assert forced.of_environment() == values
