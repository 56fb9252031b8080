"""The rows of scripts/test --all: the files that they name, the skips that they expect, and those that fail them."""

import ast
import importlib
import pathlib
import sys
import xml.etree.ElementTree as xml

import pytest
import skips
import tiers

test_all = importlib.import_module("test_all")  # scripts/test_all.py
TESTS = pathlib.Path(__file__).resolve().parents[1]
VERSIONS = {tier.tensorflow for tier in tiers.TIERS}
# what every environment of CI has, and without which tests/tf cannot run at all
NOWHERE = ("comes without", "no Estimator here", "'tensorflow", "'setuptools", "setuptools ", "no TensorFlow to read")
ALL = {part for extra in skips.BY_EXTRA for part in skips.reasons(extra, has_jax=False)}


def words(node):
    """The constant text of a reason: what is formatted into it or added to it is left out."""
    parts = (getattr(part, "value" if sys.version_info >= (3, 8) else "s", None) for part in ast.walk(node))
    return " ".join(part for part in parts if isinstance(part, str))


def told():
    """(file, reason) of every skip in the tests."""
    for path in sorted(TESTS.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call):
                continue
            name = getattr(call.func, "attr", "")
            named = [key.value for key in call.keywords if key.arg == "reason" and "skip" in name]
            if name == "skip":
                named += call.args[:1]
            if name == "importorskip":
                yield path.name, "could not import '%s" % words(call.args[0])
            for reason in map(words, named):
                yield from ((path.name, reason.replace("%s", version)) for version in VERSIONS)


def test_every_reason_is_expected_somewhere():
    reasons = list(told())
    assert len(reasons) > 100
    parts = (*ALL, *NOWHERE)
    assert [(name, text) for name, text in reasons if not any(part in text for part in parts)] == []


def test_nothing_is_expected_that_no_test_says():
    texts = [text for _, text in told()]
    names = ("could not import 'librosa", "could not import 'matplotlib")  # a parameter's
    assert [part for part in ALL if part not in names and not any(part in text for text in texts)] == []


def test_every_file_that_a_row_names_is_there():
    folders = {"tf": (*tiers.RULES, *tiers.AS_THE_REFERENCE), "pure": (*tiers.IMPORTS, *tiers.PLANS)}
    named = {"tests/%s/test_%s.py" % (folder, name) for folder, names in folders.items() for name in names}
    named |= {word.partition("=")[2] or word for tier in tiers.TIERS for word in tier.tests if word.endswith(".py")}
    assert len(named) > 60
    assert [path for path in sorted(named) if not (tiers.ROOT / path).exists()] == []


def test_every_file_that_needs_jax_beside_it_runs_in_the_row_that_has_jax():
    needing = [path for path in sorted(TESTS.rglob("test_*.py")) if 'importorskip("jax"' in path.read_text()]
    row = next(tier for tier in tiers.TIERS if tier.extra == "test-tf221")
    left_out = {word.partition("=")[2] for word in row.tests if word.startswith("--ignore=")}
    runs = [str(path.relative_to(tiers.ROOT)) for path in needing if path != pathlib.Path(__file__).resolve()]
    assert len(runs) > 8
    assert [name for name in runs if name in left_out or not name.startswith(row.tests)] == []


def test_every_environment_has_its_row():
    assert {tier.extra for tier in tiers.TIERS} == set(skips.BY_EXTRA)


def report(kind, reason):
    suite = xml.Element("testsuite", tests="2", failures="0", errors="0", skipped="1")
    xml.SubElement(suite, "testcase", classname="tests.tf.test_engine", name="test_a")
    case = xml.SubElement(suite, "testcase", classname="tests.tf.test_engine", name="test_b")
    xml.SubElement(case, "skipped", type=kind, message=reason)
    return suite


@pytest.mark.parametrize(
    ("extra", "has_jax", "kind", "reason", "is_expected"),
    [
        ("test", True, "pytest.skip", "no JAX, and NPU_SHIM_JAX names none", False),
        ("test", False, "pytest.skip", "no JAX, and NPU_SHIM_JAX names none", True),
        ("test", True, "pytest.skip", "tf-slim is not installed: npu-shim[contrib]", False),
        ("test-tf115", True, "pytest.skip", "tf-slim is not installed: npu-shim[contrib]", True),
        ("test-tf221", True, "pytest.skip", "JAX is not installed (extra [pjrt])", False),
        ("test", True, "pytest.skip", "JAX is not installed (extra [pjrt])", True),
        ("test", True, "pytest.skip", "could not import 'yaml': No module named 'yaml'", False),
        ("test", True, "pytest.xfail", "a fault of TensorFlow's", True),
    ],
)  # fmt: skip
def test_what_counts_as_unexpected(extra, has_jax, kind, reason, is_expected):
    surprises = [] if is_expected else [("tests.tf.test_engine::test_b", reason)]
    assert list(skips.unexpected(report(kind, reason), extra, has_jax)) == surprises


def test_an_unexpected_skip_fails_the_run(monkeypatch, capsys):
    def pytest_writes(tier, command, environment):
        root = report("pytest.skip", "no JAX, and NPU_SHIM_JAX names none")
        xml.ElementTree(root).write(command[command.index("--junitxml") + 1])
        return 0

    monkeypatch.setattr(test_all, "_call", pytest_writes)
    assert test_all._pytest(tiers.TIERS[0], [], {"NPU_SHIM_JAX": "python"}) == (1, 1, 0)
    assert "tests.tf.test_engine::test_b is skipped, and should run here: no JAX, and" in capsys.readouterr().out
    assert test_all._pytest(tiers.TIERS[0], [], {}) == (1, 0, 1)
