"""scripts/compare_versions: what counts as a difference, and that the table of kept ones is sound."""

import ast
import importlib
import json
import pathlib
import re
import sys
from unittest import mock

import pytest

HERE = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "versions"


@pytest.fixture(scope="module")
def compare():
    with mock.patch.object(sys, "path", [str(HERE), *sys.path]):
        return importlib.import_module("compare")


@pytest.mark.parametrize(
    ("old", "new", "kinds"),
    [
        (["a", "b=1"], ["a", "b=1", "c=2"], []),
        (["a", "b=1"], ["a", "b=1.0"], []),
        (["f=<function g>"], ["f=<function h>"], []),
        (["a", "b=1"], ["a", "**kwargs"], []),
        (["a", "b=1"], ["a"], ["parameter gone"]),
        (["a", "b", "name=None"], ["a", "b", "c=0", "name=None"], ["parameter elsewhere"]),
        (["a=1"], ["a=2"], ["other default"]),
        (["a=-1"], ["a=None"], ["other default"]),
        ("value", ["a"], []),
        (["a"], None, ["name gone"]),
    ],
)
def test_parameters(compare, old, new, kinds):
    sides = [{"tf": "value", "tf.f": old}, {"tf": "value", **({} if new is None else {"tf.f": new})}]
    assert [difference.kind for difference in compare.of_signatures(*sides)] == kinds


def test_what_a_lost_class_had_is_told_once(compare):
    old = {"tf.C": "class", "tf.C.run": ["self"], "tf.D": "class", "tf.D.run": ["self"]}
    assert [signature.what for signature in compare.of_signatures(old, {"tf.D": "class"})] == ["tf.C", "tf.D.run"]


@pytest.mark.parametrize(
    ("old", "new", "kinds"),
    [
        ("float32(?, 3)", "float32(2, 3)", []),
        ("float32(?, 3)", "float32(None, 3)", []),
        ("float32<unknown>", "float32(?, ?)", []),
        ("(Dimension(2),)", "(2,)", []),
        ("! TypeError: no", "float32(2,)", []),
        ("! TypeError: no", "! ValueError: no", []),
        ("float32(2, 3)", "float32(?, 3)", ["shapes: other"]),
        ("float32(?, ?)", "float32<unknown>", ["shapes: other"]),
        ("float32(2,)", "float64(2,)", ["shapes: other"]),
        ("float32(?,)", "! TypeError: no", ["shapes: refused"]),
    ],
)
def test_shapes(compare, old, new, kinds):
    assert [difference.kind for difference in compare.of_results("shapes", {"f()": old}, {"f()": new})] == kinds


def test_values_are_equal_but_for_rounding(compare):
    nan = float("nan")
    assert compare.close([[2, 1.0, nan, float("inf")], None], [[2, 1.0001, nan, float("inf")], None])
    assert not compare.close([[2, 1.0]], [[2, 1.01]])
    assert not compare.close([[2, 1.0]], [[2, 1.0], [2, 1.0]])
    kinds = [value.kind for value in compare.of_values({"f": [1.0], "g": [1.0], "h": "! no"}, {"f": "! E", "g": [2.0]})]
    assert kinds == ["values: refused", "values: other"]


def test_variables_are_compared_by_collection(compare):
    old = {"f()": {"variables": ["lstm/kernel:0"], "updates": ["a"]}, "g()": "! no"}
    new = {"f()": {"variables": ["lstm/cell/kernel:0"], "updates": ["a"]}, "g()": {}}
    assert [layer.what for layer in compare.of_layers(old, new)] == ["f() | variables"]
    assert [change.kind for change in compare.of_layers(old, {"f()": "! E", "g()": {}})] == ["layers: refused"]


def test_what_is_kept_has_a_reason(compare, capsys):
    rows = json.loads((HERE / "kept.json").read_text())
    assert all(row["why"] and re.compile(row["what"]) and re.compile(row["kind"]) for row in rows)
    kept = compare.Difference("values: other", "tf.nn.nce_loss(...)", "1", "2")
    still_open = compare.Difference("name gone", "tf.nn.conv2d", "", "")
    assert compare.report([kept], None, False) == 0
    assert "conv2d" not in capsys.readouterr().out
    assert compare.report([kept, still_open], [kept], False) == 1
    assert "tf.nn.conv2d" in capsys.readouterr().out


def test_a_new_difference_under_a_reason_by_module_is_open(compare):
    rows = json.loads((HERE / "kept.json").read_text())
    kinds = [
        *("name gone", "parameter gone", "parameter elsewhere", "by keyword only", "other default"),
        *("call refused", "call other"),
    ]
    calls = [
        "%s.invented",
        "%s.invented(1, 2)",
        "import %s; %s.invented.made_up('a')",
        "from %s import invented; invented()",
    ]
    for library in compare.LIBRARIES:
        for kind in kinds:
            for call in calls:
                new = compare.Difference(kind, call.replace("%s", library), "1", "2")
                assert compare.reason_of(new, rows, compare.listed(library)) is None, new
    (kind, (what, *_)) = next(iter(compare.listed("scipy").items()))
    assert compare.reason_of(compare.Difference(kind, what, "1", "2"), rows, compare.listed("scipy"))
    assert compare.reason_of(compare.Difference(kind, what, "1", "2"), rows) is None


def test_names_are_listed_under_rows_that_want_it(compare, tmp_path, monkeypatch):
    rows, names = tmp_path / "kept.json", tmp_path / "names.json"
    rows.write_text(
        json.dumps(
            [{"kind": ".*", "what": "^lib", "why": "so", "listed": True}, {"kind": ".*", "what": "^a", "why": "so"}]
        )
    )
    names.write_text("{}")
    monkeypatch.setattr(compare, "ROWS", rows)
    monkeypatch.setattr(compare, "LISTED", names)
    changes = [compare.Difference("name gone", what, "", "") for what in ("lib.f", "a.g")]
    assert compare.report(changes, None, False, names=compare.listed("lib")) == 1
    compare.keep("lib", changes)
    assert compare.listed("lib") == {"name gone": ["lib.f"]}
    assert compare.report(changes, None, False, names=compare.listed("lib")) == 0


def test_calls_of_a_library_are_told_of_once_a_function(compare):
    with mock.patch.object(sys, "path", [str(HERE), *sys.path]):
        library = importlib.import_module("compare_library")
    assert library.equal("<f8(2,)[1, nan]", "<f8(2,)[1.0002, nan]")
    assert not library.equal("<f8(2,)[1, 2]", "<f4(2,)[1, 2]")
    assert not library.equal("<f8()[1]", "<f8()[1.1]")
    old = {"np.f(1)": "1", "np.f(2)": "2", "np.g()": "! TypeError: no", "np.h()": "3"}
    new = {"np.f(1)": "! ValueError: 1", "np.f(2)": "! ValueError: 2", "np.g()": "1", "np.h()": "4"}
    told = [(change.kind, change.what) for change in library.of_calls(old, new)]
    assert told == [("call refused", "np.f(1)"), ("call other", "np.h()")]


def test_expressions_are_python():
    for table in ("shapes", "numbers", "layers", "numpy"):
        lines = (HERE / (table + ".txt")).read_text().splitlines()
        assert len(lines) == len(set(lines)) > 50
        for line in lines:
            compile(line, table, "eval")


def test_lines_of_a_library_are_statements_that_end_in_an_expression():
    libraries = json.loads((HERE / "libraries.json").read_text())
    tables = [name for name in libraries if (HERE / (name + ".txt")).exists()]
    assert len(tables) == len(libraries) == 13
    for table in tables:
        lines = (HERE / (table + ".txt")).read_text().splitlines()
        assert len(lines) == len(set(lines)), table
        assert all(isinstance(ast.parse(line).body[-1], ast.Expr) for line in lines), table


def test_parameters_that_are_keywords_today_and_other_names_are_told_apart(compare):
    changes = list(compare.of_parameters("f", ["x", "axis=0", "selem=None"], ["x", "*", "axis=0", "footprint=None"]))
    assert [(change.kind, change.old) for change in changes] == [
        ("parameter gone", "selem"), ("by keyword only", "x, axis=0, selem=None")
    ]  # fmt: skip
