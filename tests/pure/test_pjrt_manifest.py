"""The folder of an exported step: whole or absent, the same bytes for the same step, clear errors."""

import json
import subprocess
import sys

import numpy as np
import pytest

from npu_shim.pjrt import arrays, manifest
from npu_shim.pjrt.manifest import Manifest, Tensor
from npu_shim.rewriter.errors import ConfigError

STATE = Tensor("state", "layer/w", (2,), "float32", "parameter")
MADE = Manifest(
    (Tensor("feed", "x:0", (3,), "int32"), STATE, Tensor("state", "rate", (), "float32", "other")),
    (Tensor("fetch", "loss:0", (), "float32"), STATE),
    plan={"lowered": 1}, versions={"tensorflow": "2.15.1"},
)  # fmt: skip
VALUES = [("layer/w", np.float32([1, 2])), ("rate", np.float32(0.5))]


def test_what_is_written_is_read(tmp_path):
    folder = str(tmp_path / "new" / "step")
    written = manifest.write(folder, b"program", MADE, VALUES)
    assert manifest.read(folder) == written
    assert manifest.program(folder, written) == b"program"
    assert {name: value.tolist() for name, value in manifest.state(folder, written).items()} == {
        "layer/w": [1, 2], "rate": 0.5
    }  # fmt: skip
    assert written.donated == {"layer/w"}
    assert [t.name for t in written.feeds] == ["x:0"]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["step"]


def test_the_same_step_gives_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        manifest.write(str(tmp_path / name), b"program", MADE, VALUES)
    for file in (manifest.FILE, manifest.STATE):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_an_export_that_fails_leaves_nothing(tmp_path):
    def values():
        yield VALUES[0]
        raise RuntimeError("the checkpoint broke off")

    with pytest.raises(RuntimeError, match="broke off"):
        manifest.write(str(tmp_path / "step"), b"program", MADE, values())
    assert not list(tmp_path.iterdir())


def test_a_folder_in_use_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="exists; an export goes to a new or empty folder"):
        manifest.write(str(tmp_path), b"program", MADE)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("text", ["{}", "[]", "not json", '{"format": 1}', '{"format": 1, "arguments": [{"a": 1}]}'])
def test_a_manifest_that_is_none(tmp_path, text):
    (tmp_path / manifest.FILE).write_text(text)
    with pytest.raises(ConfigError, match="is no manifest of an exported step"):
        manifest.read(str(tmp_path))


def test_a_later_format_and_a_missing_folder(tmp_path):
    folder = str(tmp_path / "step")
    manifest.write(folder, b"program", MADE)
    values = json.loads((tmp_path / "step" / manifest.FILE).read_text())
    (tmp_path / "step" / manifest.FILE).write_text(json.dumps(dict(values, format=2)))
    with pytest.raises(ConfigError, match="has format 2; this npu_shim reads format 1"):
        manifest.read(folder)
    with pytest.raises(ConfigError, match="is no exported step: No such file"):
        manifest.read(str(tmp_path / "absent"))


def test_arrays_that_are_cut_off(tmp_path):
    path = tmp_path / "a.npz"
    arrays.write(str(path), VALUES)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ConfigError, match="holds no arrays that can be read"):
        arrays.read(str(path))


def test_nothing_here_imports_tensorflow_or_jax():
    code = "import sys, npu_shim.pjrt, npu_shim.cost; print([n for n in ('tensorflow', 'jax') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    assert done.stdout.decode().strip() == "[]"
