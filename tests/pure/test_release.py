"""What a release consists of: one version, extras that texts may name, and what it leaves to a person."""

import importlib.machinery
import importlib.util
import pathlib
import re

import distributions
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def script(name):
    """A script without a suffix, as a module."""
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / "scripts" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


release = script("release")


def declared_extras():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = text.partition("[project.optional-dependencies]\n")[2].partition("\n[")[0]
    return set(re.findall(r"^([\w-]+) = \[", section, re.MULTILINE))


def texts():
    """What users read of commands that install: pages, messages of the package, comments of the scripts."""
    folders = (("docs", "*.md"), ("npu_shim", "*.py"), ("rewriter", "*.py"), ("configs", "*.*"), ("scripts", "*"))
    paths = [path for folder, form in folders for path in (ROOT / folder).rglob(form)]
    for path in [*ROOT.glob("*.md"), ROOT / "pyproject.toml", *paths]:
        if path.is_file() and path.suffix in (".md", ".py", ".json", ".toml", ""):
            yield path.relative_to(ROOT), path.read_text(encoding="utf-8")


NAMED = re.compile(r"(?:npu-shim|['\"]\.)\[([a-z][\w,-]*)\]")


def test_extras_that_texts_name_are_those_of_the_package():
    named = [(path, extra) for path, text in texts() for group in NAMED.findall(text) for extra in group.split(",")]
    assert len(named) > 30
    assert [(path, extra) for path, extra in named if extra not in declared_extras()] == []
    assert set(distributions.EXTRAS.values()) <= declared_extras()


def test_every_tensorflow_has_a_wheel_and_an_extra():
    assert set(distributions.rows()) == set(distributions.EXTRAS)


def test_the_version_stands_in_one_place():
    version = distributions.version()
    homes = [path for path, text in texts() if path.parts[0] in ("npu_shim", "scripts") and version in text]
    assert [str(path) for path in homes] == ["npu_shim/__init__.py"]
    assert 'dynamic = ["version", "license"]' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_the_changelog_begins_with_the_version():
    headings = re.findall(r"^## \[(.*)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == distributions.version()


@pytest.mark.parametrize(
    ("heading", "first"), [("[1.2.3] - unreleased", "1. CHANGELOG.md"), ("[1.2.3] - 2026-12-01", "1. git tag")]
)
def test_what_is_left_for_a_person(heading, first):
    built = [("1.2.3.tar.gz", "2.15", False), ("1.2.3+tf215-py3-none-linux_x86_64.whl", "2.15", True)]
    artifacts = [release.Artifact(distributions.DIST / ("npu_shim-" + name), *rest) for name, *rest in built]
    told = release.left_for_a_person("1.2.3", heading, artifacts)
    assert told.splitlines()[1].startswith(first)
    assert "twine upload dist/npu_shim-1.2.3.tar.gz " in told
    assert "\n   dist/npu_shim-1.2.3+tf215-py3-none-linux_x86_64.whl" in told
