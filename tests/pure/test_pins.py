"""Packages that libraries of TensorFlow 1's time pin, and TensorFlow 2 cannot use."""

import importlib
import sys
import types

import pytest

from npu_shim.compat.behaviour import versions
from npu_shim.compat.python import pins


@pytest.fixture
def installed(monkeypatch):
    """Installed versions, package -> version, in place of those of this environment."""
    versions = {}
    monkeypatch.setattr(pins, "_version", versions.get)
    return versions


def test_an_old_gast_is_told_with_the_command_that_mends_it(installed):
    installed["gast"] = "0.2.2"
    (told,) = pins.broken("2.15.1")
    assert told.startswith("gast 0.2.2 does not work with TensorFlow 2.15.1: AutoGraph reads no 'if'")
    assert told.endswith("pip install --no-deps 'gast>=0.4'")
    assert pins.broken("1.15.5") == []
    installed["gast"] = "0.4.0"
    assert pins.broken("2.15.1") == []


def test_an_old_gast_is_told_once_by_a_run(installed, caplog, monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    pins._tell.cache_clear()
    installed["gast"] = "0.2.2"
    for version in ("1.15.5", "2.15.1", "2.15.1"):
        pins.refuse(version)
    assert [record.getMessage().split(":")[1] for record in caplog.records] == [
        " gast 0.2.2 does not work with TensorFlow 2.15.1"
    ]


@pytest.mark.parametrize(("version", "refused"), [("0.8.0", True), ("0.7.0rc0", True), ("0.23.0", False)])
def test_an_old_probability_is_refused_where_it_is_imported(version, refused, installed, monkeypatch):
    installed["tensorflow-probability"] = version
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    pins.refuse("2.15.1")
    pins.refuse("2.15.1")
    (finder,) = (finder for finder in sys.meta_path if isinstance(finder, pins._Refusing))
    if not refused:
        assert finder.find_spec("tensorflow_probability") is None
        return
    with pytest.raises(ImportError, match=r"pip install --no-deps 'tensorflow-probability==0\.23\.0'"):
        finder.find_spec("tensorflow_probability")


def test_what_tensorflow_says_it_needs_is_told(installed, monkeypatch):
    lines = ["numpy <2.0.0,>=1.23.5", "keras <2.16,>=2.15.0", "six", "jax ; extra == 'jax'"]
    monkeypatch.setattr(importlib, "metadata", types.SimpleNamespace(requires=lambda name: lines), raising=False)
    installed.update({"tensorflow": "2.15.1", "numpy": "2.1.0", "keras": "2.3.1", "six": "1.10", "jax": "0.1"})
    (told,) = pins.unmet("2.15.1")
    assert told.startswith("numpy 2.1.0 is not what TensorFlow 2.15.1 needs: pip install --no-deps 'numpy")
    if sys.version_info < (3, 8):
        return
    with pytest.raises(pins.ConfigError, match=r"^npu_shim: numpy 2\.1\.0 is not what TensorFlow 2"):
        pins.require_numpy()
    installed["numpy"] = "1.26.4"
    pins.require_numpy()
    assert pins.unmet("2.15.1") == pins.unmet("1.15.5") == []


@pytest.mark.parametrize(("version", "told"), [("0.7.1", True), ("0.8.1", False)])
def test_a_library_that_refuses_tensorflow_2_is_told_the_version_that_scripts_are(version, told, monkeypatch):
    metadata = types.SimpleNamespace(version={"gpt-2-simple": version}.__getitem__, PackageNotFoundError=KeyError)
    monkeypatch.setattr(importlib, "metadata", metadata, raising=False)
    versions._is_of_then.cache_clear()
    assert versions._is_of_then("gpt_2_simple") is told
    assert not versions._is_of_then("somebody")
    versions._is_of_then.cache_clear()
