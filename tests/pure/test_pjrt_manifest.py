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


@pytest.mark.parametrize("text", ["{}", "[]", "not json", '{"arguments": [{"a": 1}]}'])
def test_a_manifest_that_is_none(tmp_path, text):
    (tmp_path / manifest.FILE).write_text(text)
    with pytest.raises(ConfigError, match="is not the manifest of an exported step"):
        manifest.read(str(tmp_path))


def test_a_later_format_and_a_missing_folder(tmp_path):
    folder = str(tmp_path / "step")
    manifest.write(folder, b"program", MADE)
    values = json.loads((tmp_path / "step" / manifest.FILE).read_text())
    (tmp_path / "step" / manifest.FILE).write_text(json.dumps(dict(values, format=3)))
    with pytest.raises(ConfigError, match="has format 3; this npu_shim reads format 2"):
        manifest.read(folder)
    with pytest.raises(ConfigError, match="is not an exported step: No such file"):
        manifest.read(str(tmp_path / "absent"))


@pytest.mark.parametrize("change", [lambda t: t.reverse(), lambda t: t.pop(), lambda t: t[0].update(name="y:0")])
def test_a_manifest_that_was_changed_is_not_read(tmp_path, change):
    manifest.write(str(tmp_path / "step"), b"program", MADE)
    values = json.loads((tmp_path / "step" / manifest.FILE).read_text())
    change(values["arguments"])
    (tmp_path / "step" / manifest.FILE).write_text(json.dumps(values))
    with pytest.raises(ConfigError, match="is not the manifest that was exported"):
        manifest.read(str(tmp_path / "step"))


INTEGERS, FLOATS, BYTES = np.dtype(np.int32), np.dtype(np.float32), np.dtype(np.uint8)
AS_IT_IS = [  # a list for uint8 was refused, 2.7 for int32 became 2
    ([1, 255], BYTES), ([2.0], INTEGERS), (np.int64([7]), INTEGERS), (np.float64([0.5]), FLOATS), (3, FLOATS),
    (np.array([True]), FLOATS),
]  # fmt: skip
CHANGED = [
    ([1, 256], BYTES, "has 256, which uint8 cannot hold"),
    ([-1], BYTES, "has -1, which uint8 cannot hold"),
    (2.7, INTEGERS, "has 2.7, which int32 cannot hold"),
    (np.int64([2**40]), INTEGERS, "has 1099511627776, which int32 cannot hold"),
    (np.float32([1]), INTEGERS, "is float32, expected int32"),
    (["a"], FLOATS, "is <U1, expected float32"),
    (np.complex64([1]), FLOATS, "is complex64, expected float32"),
]


@pytest.mark.parametrize(("value", "dtype"), AS_IT_IS)
def test_values_take_a_dtype_that_holds_them(value, dtype):
    array = arrays.as_dtype("feed 'x:0'", value, dtype)
    assert array.dtype == dtype
    assert np.array_equal(array, value)


@pytest.mark.parametrize(("value", "dtype", "message"), CHANGED)
def test_values_that_a_dtype_cannot_hold_are_told(value, dtype, message):
    with pytest.raises(ConfigError, match="feed 'x:0' " + message):
        arrays.as_dtype("feed 'x:0'", value, dtype)


def test_arrays_that_are_cut_off(tmp_path):
    path = tmp_path / "a.npz"
    arrays.write(str(path), VALUES)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ConfigError, match="has no arrays that can be read"):
        arrays.read(str(path))


def test_nothing_here_imports_tensorflow_or_jax():
    code = "import sys, npu_shim.pjrt.cost; print([n for n in ('tensorflow', 'jax') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    assert done.stdout.decode().strip() == "[]"
