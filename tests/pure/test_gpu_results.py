"""Results of scripts/gpu_check: what a part leaves that is cut off, and that other cases go on behind an error."""

import json
import pathlib
import sys
from unittest import mock

import pytest

HERE = pathlib.Path(__file__).resolve().parents[2] / "scripts"
with mock.patch.object(sys, "path", [str(HERE), *sys.path]):
    import gpu_results

CARD = {"JAX": "0.7", "card": "1 x H200", "driver": ""}
CASES = ["a", "b", "c"]


def begun(folder, most=None):
    """Cases in the order in which a process of a part takes them, which ends in the middle of case number `most`."""
    rows, taken = gpu_results.Rows(folder, "part", CARD), []
    for case in rows.left(CASES):
        taken.append(case)
        if most is not None and len(taken) > most:
            return taken
        rows.add(case, True, figure=0.25)
    rows.end()
    return taken


def test_a_part_goes_on_where_it_was_cut_off_with_the_cases_that_it_has_not_begun(tmp_path):
    assert begun(tmp_path, 1) == ["a", "b"]
    assert begun(tmp_path) == ["c", "b"]
    assert begun(tmp_path) == []
    assert gpu_results.Rows(tmp_path, "part").ended == ""


def test_a_case_with_which_two_processes_end_is_wrong_and_left_out(tmp_path):
    assert [begun(tmp_path, 1), begun(tmp_path, 1), begun(tmp_path)] == [["a", "b"], ["c", "b"], []]
    text, wrong = gpu_results.report(tmp_path, {"part": "all"})
    assert wrong
    assert "- b: WRONG (why the process came to its end with it, 2 times)" in text


def test_an_error_is_the_result_of_its_case(tmp_path, capsys):
    rows = gpu_results.Rows(tmp_path, "part", CARD)
    for case in rows.left(CASES):
        with rows.tried(case):
            if case == "b":
                raise KeyError("no such node\nand more")
            rows.add(case, True)
    assert {case: row["ok"] for case, row in rows.rows.items()} == {"a": True, "b": False, "c": True}
    assert rows.rows["b"]["why"].startswith("KeyError: 'no such node")
    assert "Traceback" in capsys.readouterr().err


def test_what_could_not_be_tried_is_tried_again(tmp_path):
    rows = gpu_results.Rows(tmp_path, "part", CARD)
    rows.add("a", None, why="no wheels")
    assert "a: not tried (why no wheels)" in gpu_results.report(tmp_path, {"part": "all"})[0]
    assert begun(tmp_path) == CASES


def test_files_and_report_name_card_versions_and_dates(tmp_path):
    begun(tmp_path)
    read = json.loads((tmp_path / "part.json").read_text())
    assert read["machine"] == CARD
    assert all(row["date"][:2] == "20" for row in read["cases"].values())
    text, wrong = gpu_results.report(tmp_path, {"part": "all", "other": "more"})
    assert text.splitlines()[4] == "card 1 x H200, JAX 0.7"
    assert text.splitlines()[2] == read["cases"]["a"]["date"][:10]
    assert "## other: more\n\n- not begun" in text
    assert not wrong
    assert (tmp_path / "report.md").read_text() == text


def test_results_of_another_card_are_not_mixed(tmp_path):
    begun(tmp_path)
    with pytest.raises(ValueError, match="of another machine: give another --out"):
        gpu_results.Rows(tmp_path, "part", {**CARD, "card": "1 x A100"})


def test_what_ends_a_part_is_wrong_in_the_report(tmp_path):
    gpu_results.Rows(tmp_path, "part").end("ImportError: no JAX")
    text, wrong = gpu_results.report(tmp_path, {"part": "all"})
    assert wrong
    assert "- ended: WRONG (why ImportError: no JAX)" in text
    assert begun(tmp_path) == CASES
