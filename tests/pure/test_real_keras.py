"""Which package keras is installed, told by its files."""

import itertools
import os
import subprocess
import sys
import types

import pytest

from npu_shim.compat import callers
from npu_shim.compat.keras import one_keras, real_keras
from npu_shim.rewriter.errors import ConfigError


@pytest.fixture
def install(monkeypatch, tmp_path):
    """Function that makes packages the installed ones: name -> text of their `__init__.py`."""
    monkeypatch.setenv(real_keras.LEGACY, "")  # so that it is put back
    monkeypatch.delenv(real_keras.LEGACY)
    monkeypatch.setattr(real_keras, "_late", [])
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    real_keras._tell_of_lacking.cache_clear()
    numbers, others = itertools.count(), list(sys.path)  # files are read once

    def install(**packages):
        installed = tmp_path / str(next(numbers)) / "site-packages"
        for name, text in packages.items():
            (installed / name).mkdir(parents=True)
            (installed / name / "__init__.py").write_text(text)
        without = [folder for folder in others if not callers.INSTALLED.intersection(folder.split(os.sep))]
        monkeypatch.setattr(sys, "path", [*without, str(installed)])

    return install


@pytest.mark.parametrize(
    ("text", "version"),
    [("__version__ = '2.3.1'\n", "2.3.1"), ("from . import layers\n__version__ = '2.2.4'\n", "2.2.4"),
     ('__version__ = "2.15.0"\n', None), ("__version__ = '2.4.3'\n", None), ("__version__ = '3.15.1'\n", None),
     ("from keras.src.version import __version__ as __version__\n", None), ("x = '__version__ = 2.3.1'\n", None)],
)  # fmt: skip
def test_versions_before_tf_keras_are_the_scripts_own(install, text, version):
    install(keras=text, tf_keras="")
    assert real_keras.version() == version
    assert ("keras" in one_keras._roots()) == (version is None)
    real_keras.choose()
    assert os.environ.get(real_keras.LEGACY) == (None if version is None else "1")


def test_importing_npu_shim_chooses_before_tensorflow_is_imported(tmp_path):
    for name, text in (("keras", "__version__ = '2.3.1'\n"), ("tf_keras", "")):
        (tmp_path / "site-packages" / name).mkdir(parents=True)
        (tmp_path / "site-packages" / name / "__init__.py").write_text(text)
    code = "import os, sys, npu_shim; print(os.environ.get('TF_USE_LEGACY_KERAS'), 'tensorflow' in sys.modules)"
    kept = {name: value for name, value in os.environ.items() if name != real_keras.LEGACY}
    for folder, chosen in (("site-packages", "1"), ("", "None")):
        environment = {**kept, "PYTHONPATH": str(tmp_path / folder)}
        done = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, check=True)
        assert done.stdout.decode().split() == [chosen, "False"]


def test_a_folder_of_the_scripts_is_none(install, monkeypatch, tmp_path):
    install(tf_keras="")
    (tmp_path / "keras").mkdir()
    (tmp_path / "keras" / "__init__.py").write_text("__version__ = '2.1.6'\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert real_keras.version() is None


def test_none_is_installed(install):
    install()
    assert real_keras.version() is None
    real_keras.require("2.15.1")


def test_an_old_keras_in_the_place_of_tensorflows(install):
    install(keras="__version__ = '2.2.4'\n")
    real_keras.choose()  # no tf_keras that tf.keras could be
    assert real_keras.LEGACY not in os.environ
    mends = r"2\.2\.4 has replaced .* 2\.15\.1 needs.* install --no-deps 'tf_keras==2\.15\.\*'; .*'keras==2\.15\.\*'"
    with pytest.raises(ConfigError, match=mends):
        real_keras.require("2.15.1")
    real_keras.require("1.15.5")  # which has its own inside
    install(keras="__version__ = '2.2.4'\n", tf_keras="")
    real_keras.require("2.15.1")


def test_tensorflow_was_imported_before(install, monkeypatch):
    install(keras="__version__ = '2.3.1'\n", tf_keras="")
    monkeypatch.setitem(sys.modules, "tensorflow", types.ModuleType("tensorflow"))
    monkeypatch.setenv(real_keras.LEGACY, "1")  # its Keras was chosen
    real_keras.choose()
    real_keras.require("2.15.1")
    monkeypatch.delenv(real_keras.LEGACY)
    real_keras.choose()
    with pytest.raises(ConfigError, match=r"before npu_shim.* keras 2\.3\.1 .* or set TF_USE_LEGACY_KERAS=1"):
        real_keras.require("2.15.1")


def test_keras_3_in_the_place_of_tensorflows(install, monkeypatch):
    install(keras="from keras.src.version import __version__\n", tf_keras="")
    inner = os.path.join(sys.path[-1], "keras", "src")
    os.makedirs(inner)
    with open(os.path.join(inner, "version.py"), "w") as f:
        f.write('__version__ = "3.3.3"\n')
    real_keras.require("2.21.0")  # which comes with it
    with pytest.raises(ConfigError, match=r"keras 3\.3\.3 has replaced .* stop: pip install 'keras==2\.15\.\*'"):
        real_keras.require("2.15.1")
    monkeypatch.setenv(real_keras.LEGACY, "1")
    real_keras.require("2.15.1")


def test_packages_that_an_old_keras_lacks(install, monkeypatch, caplog):
    install(keras="__version__ = '2.3.1'\n", tf_keras="", scipy="", six="", keras_applications="")
    for name in real_keras.NEEDS:
        monkeypatch.delitem(sys.modules, name, raising=False)
    real_keras.require("2.15.1")
    real_keras.require("2.15.1")
    (line,) = caplog.messages
    assert line.endswith("beside keras 2.3.1: pip install --no-deps pyyaml keras-preprocessing==1.1.2")


def test_its_own_modules_where_it_is_installed(install, monkeypatch):
    install(keras="__version__ = '2.3.1'\n", tf_keras="")
    for name in ("backend", "models"):
        module = types.ModuleType("keras." + name)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        assert getattr(real_keras, name)() is module


def test_doctor_says_which_keras_scripts_get(install):
    install(keras="__version__ = '2.2.4'\n", tf_keras="")
    assert real_keras.describe() == "2.2.4, of TensorFlow 1's time"
    install(keras='__version__ = "2.15.0"\n')
    assert "tf.keras by another name; Keras 2.3.1 itself: pip install" in real_keras.describe()
    assert "[keras1]'" in real_keras.describe()
