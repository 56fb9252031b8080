"""Checkpoint migration: regressions."""

import json
import os

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from test_migrate_checkpoint import contents, hashes, save

from npu_shim.checkpoint import files, migrate
from npu_shim.checkpoint.command import main

TENSORS = {"net/w": np.arange(12, dtype=np.float32).reshape(3, 4), "net/w/Adam": np.full([3, 4], 1e-9, np.float32)}


@pytest.fixture
def source(tmp_path):
    return save(str(tmp_path / "source" / "m.ckpt"), TENSORS)


@pytest.fixture
def target(tmp_path):
    return str(tmp_path / "target" / "n.ckpt")


def told(capsys, *arguments):
    """Returns (exit status, what went to standard error)."""
    code = main([str(a) for a in arguments])
    return code, capsys.readouterr().err


def damaged(source, tmp_path, ending, change):
    """Returns the prefix of a copy of a checkpoint one of whose files is changed."""
    prefix = str(tmp_path / "damaged.ckpt")
    for path in files._files(source):
        with open(path, "rb") as file:
            content = file.read()
        if path.endswith(ending):
            content = change(bytearray(content))
        with open(prefix + path[len(source):], "wb") as file:
            file.write(content)
    return prefix


def flipped(at):
    def change(content):
        content[at % len(content)] ^= 0xFF
        return bytes(content)

    return change


def test_damaged_files_end_in_a_message_and_status_3(source, target, tmp_path, capsys):
    size = os.path.getsize(source + ".index")
    cases = [(".index", flipped(at)) for at in range(0, size, 3)]
    cases += [(ending, lambda c, n=n: bytes(c[:n])) for ending in (".index", "00001") for n in (0, 1, 7, 60)]
    refused = 0
    for ending, change in cases:
        prefix = damaged(source, tmp_path, ending, change)
        code, said = told(capsys, prefix, target, "--to", "float16", "--overwrite")
        assert code in (0, 3), said
        if code == 0:  # a byte between the blocks, which nobody reads
            assert sorted(contents(target)) == sorted(TENSORS)
        else:
            refused += 1
            assert said.startswith("npu_shim: ")
            assert len(said.strip().splitlines()) == 1
    assert refused > len(cases) // 2


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"net/w": 3}', "3 is not a name"),
        ("[1]", "is not an object"),
        ("{", "is not JSON"),
        (b"\xff", "not JSON"),
        (None, ""),
    ],
)
def test_a_bad_file_of_names(source, target, tmp_path, capsys, content, problem):
    path = tmp_path / "names.json"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    code, said = told(capsys, source, target, "--to", "float16", "--names", path)
    assert code == (3 if content is None else 2)
    assert problem in said
    assert "names" in said


@pytest.mark.parametrize("where", ["missing/report.json", "", "source"])
def test_a_report_that_cannot_be_written_is_told_beforehand(source, target, tmp_path, capsys, where):
    path = tmp_path / where
    code, said = told(capsys, source, target, "--to", "float16", "--report_json", path)
    assert code == 3
    assert str(path) in said
    assert not os.path.exists(target + ".index")


def test_a_report_is_there_only_when_something_was_done(source, target, tmp_path, capsys):
    path = tmp_path / "report.json"
    assert told(capsys, source, source, "--to", "float16", "--report_json", path)[0] == 2
    assert not path.exists()
    assert told(capsys, source, target, "--to", "float16", "--report_json", path)[0] == 0
    assert json.loads(path.read_text())["warnings"] == []


def test_a_path_that_reads_like_an_overflow_is_a_wrong_argument(target, capsys):
    assert told(capsys, "some values beyond float16", target, "--to", "float16")[0] == 2


@pytest.mark.parametrize("failing", range(1, 7))
@pytest.mark.parametrize("kind", [OSError, KeyboardInterrupt])
def test_a_failure_while_replacing_changes_nothing(source, target, tmp_path, monkeypatch, failing, kind):
    migrate.migrate_checkpoint(source, target, "float16")
    before = hashes(tmp_path / "target")
    rename, calls = os.rename, []

    def fail(*arguments):
        calls.append(arguments)
        if len(calls) == failing:
            raise kind("no space")
        return rename(*arguments)

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(kind):
        migrate.migrate_checkpoint(source, target, "bfloat16", overwrite=True)
    monkeypatch.undo()
    assert len(calls) > failing - 1
    assert hashes(tmp_path / "target") == before
    assert sorted(os.listdir(str(tmp_path / "target"))) == sorted(before)


def test_killed_while_replacing_the_next_run_brings_the_old_checkpoint_back(source, target, tmp_path):
    migrate.migrate_checkpoint(source, target, "float16")
    before = hashes(tmp_path / "target")
    writer = files.Writer(target)
    for path in files._files(target):
        os.rename(path, os.path.join(writer.folder, files.OLD, os.path.basename(path)))
    files._in_use.clear()  # the process is gone
    files.remove_leftovers(target)
    assert hashes(tmp_path / "target") == before
    assert not os.path.exists(writer.folder)


def test_a_leftover_with_our_own_number_is_no_obstacle(source, target):
    os.makedirs(os.path.dirname(target))
    left = files._working_folder(target, os.getpid())  # a container starts again: the same host name, the same number
    os.makedirs(os.path.join(left, "parts"))
    migrate.migrate_checkpoint(source, target, "float16")
    assert contents(target)["net/w"][0] == "float16"
    assert not os.path.exists(left)


@pytest.mark.parametrize("link", ["folder", "file"])
def test_a_target_that_is_the_source_through_a_link(source, tmp_path, capsys, link):
    before = hashes(tmp_path / "source")
    if link == "folder":
        os.symlink(os.path.dirname(source), str(tmp_path / "other"))
        target = str(tmp_path / "other" / "m.ckpt")
    else:
        target = str(tmp_path / "other.ckpt")
        for path in files._files(source):
            os.symlink(path, target + path[len(source):])
    code, said = told(capsys, source, target, "--to", "float16", "--overwrite")
    assert code == 2
    assert "is the source" in said
    assert hashes(tmp_path / "source") == before


def test_what_is_lost_to_zero_and_what_could_be_either_is_named(tmp_path, target, capsys):
    source = save(str(tmp_path / "m.ckpt"), {
        "emb": np.ones([9, 2], np.float32), "emb/rows": np.full(9, 1e-12, np.float32), "a": np.ones(3, np.float32),
        "a/mask": np.ones(3, np.float32),
    })  # fmt: skip
    code, said = told(capsys, source, target, "--to", "float16", "--drop_optimizer")
    assert code == 0
    ambiguous, lost = said.splitlines()
    assert ambiguous.startswith("npu_shim: 'a/mask' could be the model's or an optimizer's: it is neither narrowed nor")
    assert lost == "npu_shim: 'emb/rows' loses 9 of 9 values to zero (see --exclude)"
    assert contents(target)["a/mask"][0] == "float32"


def test_a_model_in_a_scope_called_training_is_cast(tmp_path, target, capsys):
    with tf.Graph().as_default(), tf.Session() as session:
        with tf.variable_scope("training"):
            w = tf.get_variable("w", initializer=np.ones([2, 3], np.float32))
        tf.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(tf.square(w)))
        session.run(tf.global_variables_initializer())
        source = tf.train.Saver().save(session, str(tmp_path / "m.ckpt"))
    assert told(capsys, source, target, "--to", "float16", "--drop_optimizer") == (0, "")
    assert {n: d for n, (d, _) in contents(target).items()} == {"training/w": "float16"}


@pytest.mark.skipif(not tf.__version__.startswith("2.15"), reason="tf.keras of TensorFlow 2.15 has both layouts")
@pytest.mark.parametrize("layout", ["names", "objects"])
def test_keras_optimizers_are_told_from_the_model(tmp_path, target, capsys, layout):
    with tf.Graph().as_default(), tf.Session() as session:
        tf.keras.backend.set_session(session)
        model = tf.keras.Sequential([tf.keras.layers.Dense(3, input_shape=(4,), name="dense")])
        optimizer = tf.keras.optimizers.legacy.Adam(1e-3) if hasattr(tf.keras.optimizers, "legacy") else "adam"
        model.compile(optimizer, "mse")
        model.train_on_batch(np.ones([2, 4], np.float32), np.ones([2, 3], np.float32))
        if layout == "names":
            source = tf.train.Saver().save(session, str(tmp_path / "m.ckpt"))
        else:
            with session.as_default():
                source = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(str(tmp_path / "m.ckpt"))
    code, said = told(capsys, source, target, "--to", "float16", "--drop_optimizer")
    assert (code, said) == (0, "")
    floats = {n: d for n, (d, _) in contents(target).items() if d.startswith("float")}
    assert sorted(n.split("/.ATTR")[0].split("/")[-1] for n in floats) == ["bias", "kernel"]
    assert set(floats.values()) == {"float16"}


def test_the_list_of_a_folders_checkpoints_is_no_checkpoint(source, target, tmp_path, capsys):
    """Regression: it was read as a checkpoint in TensorFlow's first format: "not an sstable"."""
    listing = tmp_path / "source" / "checkpoint"
    listing.write_text('model_checkpoint_path: "m.ckpt"\n')
    code, said = told(capsys, listing, target, "--to=float16")
    assert code == 2
    assert "is the list of a folder's checkpoints (did you mean '%s'?)" % listing.parent in said
