"""npu-shim plot: event files as a picture, and wrong input as one clear error."""

import re
import sys

import pytest
import tensorflow.compat.v1 as tf

from npu_shim import cli
from npu_shim.cli import plot
from npu_shim.configs import extras

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def write(folder, **scalars):
    with tf.Graph().as_default():
        writer = tf.summary.FileWriter(str(folder))
    for tag, values in scalars.items():
        for step, value in enumerate(values):
            writer.add_summary(tf.Summary(value=[tf.Summary.Value(tag=tag, simple_value=value)]), step)
    writer.close()


def size(path):
    data = path.read_bytes()
    assert data.startswith(SIGNATURE)
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


def test_a_plot_for_each_tag(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    write(tmp_path / "train", **{"loss": [3.0, 2.0, float("nan")], "npu_shim/loss_scale": [8.0, 4.0, 4.0]})
    write(tmp_path / "eval", loss=[3.5, 2.5])
    out, one = tmp_path / "all.png", tmp_path / "one.png"
    assert cli.main(["plot", str(tmp_path), "--out", str(out)]) == 0
    assert "2 plots" in capsys.readouterr().out
    assert cli.main(["plot", str(tmp_path), "--out", str(one), "--tag", "lo*"]) == 0
    assert size(out)[0] == 2 * size(one)[0]
    scalars = plot._scalars(str(tmp_path))
    assert scalars["loss"]["eval"] == [(0, 3.5), (1, 2.5)]
    assert scalars["npu_shim/loss_scale"] == {"train": [(0, 8.0), (1, 4.0), (2, 4.0)]}


def test_a_file_that_is_being_written_counts_as_far_as_it_goes(tmp_path):
    write(tmp_path, loss=[3.0, 2.0])
    [path] = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-5])
    assert plot._scalars(str(tmp_path)) == {"loss": {".": [(0, 3.0)]}}


@pytest.mark.parametrize(("out", "more", "message"), [
    ("a.jpg", [], "--out is '.*a.jpg', expected a file name that ends in .png"),
    ("nowhere/a.png", [], "--out: there is no folder"),
    ("a.png", ["--tag", "los"], "no scalar is called 'los' .did you mean 'loss'"),
])  # fmt: skip
def test_wrong_input_is_one_line_and_nothing_is_written(tmp_path, capsys, out, more, message):
    pytest.importorskip("matplotlib")
    write(tmp_path / "log", loss=[1.0])
    assert cli.main(["plot", str(tmp_path / "log"), "--out", str(tmp_path / out), *more]) == 2
    said = capsys.readouterr().err.strip()
    assert "\n" not in said
    assert re.search(message, said), said
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


@pytest.mark.parametrize(("kind", "message"), [
    ("none", "expected a folder with event files"), ("empty", "has no event files"), ("broken", "has a scalar that"),
    ("file", "expected a folder with event files"),
])  # fmt: skip
def test_a_folder_without_scalars(tmp_path, capsys, kind, message):
    pytest.importorskip("matplotlib")
    folder = tmp_path / "log"
    if kind == "file":
        folder.write_text("x")
    elif kind != "none":
        folder.mkdir()
    if kind == "broken":
        (folder / "events.out.tfevents.1").write_bytes(b"no record at all")
    assert cli.main(["plot", str(folder), "--out", str(tmp_path / "a.png")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "a.png").exists()


def test_without_matplotlib_the_way_out_is_told(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    write(tmp_path, loss=[1.0])
    assert cli.main(["plot", str(tmp_path), "--out", str(tmp_path / "a.png")]) == 2
    assert extras.pip_install("plot") in capsys.readouterr().err
