"""A wheel carries the hook for one TensorFlow; on another it is built, or the error says which wheel to install."""

import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest
import tensorflow as tf

from npu_shim.session.native import build

ROOT = pathlib.Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.nightly  # builds hooks again and again, and a wheel
MINOR = ".".join(tf.__version__.split(".")[:2])


@pytest.fixture(scope="module")
def carried(tmp_path_factory):
    """Folder with what a wheel for this TensorFlow carries."""
    folder = tmp_path_factory.mktemp("carried")
    build.build_for_wheel(str(folder))
    return folder


@pytest.fixture
def no_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("NPU_SHIM_CACHE", str(tmp_path / "cache"))


def test_what_a_wheel_carries_needs_no_compiler(carried, no_compiler, monkeypatch):
    monkeypatch.setattr(build, "BUILT", str(carried))
    assert os.path.dirname(build.build()) == str(carried)


def of_another_tensorflow(carried, folder):
    folder.mkdir()
    (hook,) = carried.iterdir()
    shutil.copy(str(hook), str(folder / hook.name.replace("-tf%s-" % MINOR, "-tf9.9-")))
    return str(folder)


def test_the_wheel_for_another_tensorflow_builds_its_hook(carried, monkeypatch, tmp_path):
    monkeypatch.setattr(build, "BUILT", of_another_tensorflow(carried, tmp_path / "built"))
    monkeypatch.setenv("NPU_SHIM_CACHE", str(tmp_path / "cache"))
    assert os.path.dirname(build.build()) == str(tmp_path / "cache")


def test_without_a_compiler_the_error_names_the_wheel(carried, no_compiler, monkeypatch, tmp_path):
    monkeypatch.setattr(build, "BUILT", of_another_tensorflow(carried, tmp_path / "built"))
    with pytest.raises(build.BuildError) as raised:
        build.build()
    assert "install g++" in str(raised.value)
    assert "npu_shim's wheel for TensorFlow %s" % MINOR in str(raised.value)
    assert "this one is for TensorFlow 9.9" in str(raised.value)


SESSION = """
import sys
import tensorflow.compat.v1 as tf
from npu_bridge.npu_init import *
import npu_shim
from npu_shim.session.native import build
build.BUILT = sys.argv[1] if sys.argv[1:] else build.BUILT
config = tf.ConfigProto()
entry = config.graph_options.rewrite_options.custom_optimizers.add()
entry.name = "NpuOptimizer"
with tf.Session(config=config) as session:
    print("ran", session.run(tf.reduce_sum(tf.matmul(tf.ones([2, 3]), tf.ones([3, 2])))), npu_shim.__file__)
"""


def run_session(*arguments, **environment):
    ran = subprocess.run(
        [sys.executable, "-c", SESSION, *arguments], env=dict(os.environ, **environment), cwd="/", check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    output = ran.stdout.decode()
    assert ran.returncode == 0, output
    return output


def test_sessions_run_with_what_a_wheel_carries(carried, tmp_path):
    assert "ran 12.0" in run_session(str(carried), CXX="no-such-compiler", NPU_SHIM_CACHE=str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_hook_that_does_not_load_here_is_built_again(carried, tmp_path):
    (hook,) = carried.iterdir()
    (tmp_path / "built").mkdir()
    (tmp_path / "built" / hook.name).write_bytes(b"no library")
    assert "ran 12.0" in run_session(str(tmp_path / "built"), NPU_SHIM_CACHE=str(tmp_path / "cache"))
    assert list((tmp_path / "cache").glob("hook-*.so"))


def test_a_wheel_runs_sessions_where_there_is_no_compiler(carried, tmp_path):
    pytest.importorskip("wheel", reason="setuptools cannot make wheels here")
    setuptools = pytest.importorskip("setuptools")
    if int(setuptools.__version__.split(".")[0]) < 64:
        pytest.skip("setuptools %s is too old for this project" % setuptools.__version__)
    source = tmp_path / "source"
    source.mkdir()
    for name in ("npu_shim", "rewriter", "configs"):
        shutil.copytree(str(ROOT / name), str(source / name), symlinks=True)
    for name in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copy(str(ROOT / name), str(source))
    env = dict(os.environ, NPU_SHIM_WHEEL=str(carried), NPU_SHIM_LABEL="tf" + MINOR.replace(".", ""))
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(tmp_path)]
    subprocess.run([*pip, str(source)], env=env, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert "+%s-py3-none-linux" % env["NPU_SHIM_LABEL"] in wheel.name
    zipfile.ZipFile(str(wheel)).extractall(str(tmp_path / "site"))
    nothing = {"CXX": "no-such-compiler", "NPU_SHIM_CACHE": str(tmp_path / "cache")}
    assert "ran 12.0 %s" % (tmp_path / "site") in run_session(PYTHONPATH=str(tmp_path / "site"), **nothing)
