"""What setuptools puts into a wheel: every data file of the packages, without a warning."""

import os
import pathlib
import runpy
import warnings
from unittest import mock

import pytest

setuptools = pytest.importorskip("setuptools")
pytest.importorskip("wheel", reason="setup.py makes wheels")
ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE = {".py", ".pyc", ".so"}


@pytest.fixture
def build_py(monkeypatch, tmp_path):
    """setuptools' command that gathers the files, as for a source tree whose manifest lists all of them."""
    monkeypatch.chdir(ROOT)
    (tmp_path / "SOURCES.txt").write_text("\n".join(str(path) for path in data_files()))
    # setuptools sets PLAT, and an old one warns of its own age and of pyproject.toml's tables
    with mock.patch.dict(os.environ), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with mock.patch.object(setuptools, "setup") as setup:
            runpy.run_path("setup.py")
        ours = ("cmdclass", "distclass")
        distribution = setuptools.Distribution({name: v for name, v in setup.call_args[1].items() if name not in ours})
        distribution.parse_config_files()
        command = distribution.get_command_obj("build_py")
        command.existing_egg_info_dir = str(tmp_path)
        command.ensure_finalized()
        yield command


def data_files():
    """Paths of the files in the packages' folders that are no modules, below the root."""
    for folder in ("npu_shim", "rewriter", "configs"):
        for path in sorted(pathlib.Path(folder).rglob("*")):
            if path.is_file() and path.suffix not in CODE and "__pycache__" not in path.parts:
                yield path


def test_a_wheel_has_all_data_files_and_setuptools_warns_of_none(build_py):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        packed = [pathlib.Path(source, file) for _, source, _, files in build_py.data_files for file in files]
    assert sorted(path for path in packed if path.suffix != ".py") == sorted(data_files())
    # a module that no package imports: Python does, when a script starts another
    assert pathlib.Path("npu_shim/compat/started/sitecustomize.py") in packed
