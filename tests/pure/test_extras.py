"""A missing extra names the command that installs it where this npu-shim came from."""

import importlib.util
import pathlib
import shutil

import pytest

from npu_shim.configs import extras

ROOT = pathlib.Path(__file__).resolve().parents[2]
META = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_in_the_checkout(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    assert extras.pip_install("report") == "pip install -e '.[report]'"
    monkeypatch.chdir(tmp_path)
    assert extras.pip_install("report") == "pip install -e '%s[report]'" % ROOT


def test_where_a_wheel_was_installed(tmp_path):
    place = tmp_path / "site-packages" / "npu_shim" / "configs" / "extras.py"
    place.parent.mkdir(parents=True)
    shutil.copy(extras.__file__, place)
    spec = importlib.util.spec_from_file_location("installed_extras", place)
    installed = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(installed)
    assert installed.pip_install("cpu-tf221,pjrt") == "pip install 'npu-shim[cpu-tf221,pjrt]'"


@pytest.mark.parametrize("extra", ["cpu", "gpu", "cpu-tf221", "gpu-tf221"])
def test_a_tensorflow_comes_with_what_contrib_report_and_plot_need(extra):
    declared = META.partition("\n%s = [" % extra)[2].partition("]\n")[0]
    assert '"npu-shim[contrib,report,plot]"' in declared
