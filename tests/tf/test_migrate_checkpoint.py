import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import reference_material
import sessions
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.checkpoint import files, index, migrate
from npu_shim.checkpoint.command import main
from npu_shim.checkpoint.plan import Options, plan

HERE = os.path.dirname(os.path.abspath(__file__))
BFLOAT16 = tf.bfloat16.as_numpy_dtype


def save(prefix, tensors, partitions=None, session_config=None, **options):
    """Saves `tensors` (name -> array) with a Saver and returns the checkpoint's path."""
    os.makedirs(os.path.dirname(prefix), exist_ok=True)
    with tf.Graph().as_default(), tf.Session(config=session_config) as session:
        for i, (name, value) in enumerate(sorted(tensors.items())):
            with tf.device("/cpu:%d" % (i % 2) if options.get("sharded") else None):
                variable = tf.get_variable(name, np.shape(value), tf.as_dtype(getattr(value, "dtype", tf.string)),
                                           tf.zeros_initializer() if not isinstance(value, bytes) else Text(),
                                           partitioner=partitions and tf.fixed_size_partitioner(partitions))
            start = 0
            for part in variable if partitions else [variable]:
                size = part.shape.as_list()[0] if partitions else None
                session.run(part.initializer)
                part.load(value[start:start + size] if partitions else value, session)
                start += size or 0
        return tf.train.Saver(**options).save(session, prefix)


class Text(tf.zeros_initializer):
    def __call__(self, shape, dtype=None, **kwargs):
        return tf.constant(b"", shape=shape)


def model(seed=0):
    rng = np.random.RandomState(seed)
    return {
        "net/w": rng.randn(8, 6).astype(np.float32), "net/w/Adam": rng.rand(8, 6).astype(np.float32) * 1e-9,
        "net/b": rng.randn(6).astype(BFLOAT16), "beta1_power": np.float32(0.9), "loss_scale": np.float32(2**20),
        "global_step": np.int64(2**40), "names": b"text\0\0",
    }


def contents(prefix):
    """name -> (dtype name, array, bfloat16 as bits)"""
    reader = files.Reader(prefix)
    return {n: (i.dtype, reader.read(n, i.dtype)) for n, i in reader.tensors().items()}


def same(first, second):
    return sorted(first) == sorted(second) and all(
        first[n][0] == second[n][0] and np.array_equal(first[n][1], second[n][1]) for n in first)


def hashes(folder):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir()) if p.is_file()}


@pytest.fixture
def source(tmp_path):
    return save(str(tmp_path / "source" / "m.ckpt"), model())


@pytest.fixture
def target(tmp_path):
    return str(tmp_path / "target" / "m16.ckpt")


def test_a_training_checkpoint_in_float16(source, target, tmp_path):
    before = hashes(tmp_path / "source")
    migration = npu_shim.migrate_checkpoint(source, target, "float16")
    expected = {n: (tf.as_dtype(v.dtype).name, v) for n, v in model().items() if n != "names"}
    for name in ("net/w", "net/b"):
        expected[name] = ("float16", model()[name].astype(np.float32).astype(np.float16))
    got = contents(target)
    assert got.pop("names")[1][()] == b"text\0\0"
    assert same(got, expected)
    assert {a.name for a in migration.plan.actions if a.kind == "cast"} == {"net/w", "net/b"}
    assert hashes(tmp_path / "source") == before
    assert sorted(os.listdir(os.path.dirname(target))) == [
        "m16.ckpt.data-00000-of-00001", "m16.ckpt.index", "m16.ckpt.manifest.json"]


@pytest.mark.parametrize("to", ["float16", "bfloat16", "float32"])
def test_what_it_writes_is_restored_by_a_plain_saver(source, target, to):
    npu_shim.migrate_checkpoint(source, target, to)
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("net/w", [8, 6], to)
        m = tf.get_variable("net/w/Adam", [8, 6])
        tf.train.Saver().restore(session, target)
        got, slot = session.run([w, m])
    assert np.array_equal(got, model()["net/w"].astype(tf.as_dtype(to).as_numpy_dtype))
    assert np.array_equal(slot, model()["net/w/Adam"])


FORMATS = {
    "V1": {"write_version": 1}, "sharded": {"sharded": True}, "partitioned": {"partitions": 3},
    "partitioned V1": {"write_version": 1, "partitions": 3},
}  # fmt: skip


@pytest.mark.parametrize("kind", list(FORMATS))
def test_every_format_is_read_as_the_same_tensors(tmp_path, target, kind):
    tensors = {"w": np.random.RandomState(1).randn(9, 4).astype(np.float32), "v": np.arange(6, dtype=np.float32)}
    config = tf.ConfigProto(device_count={"CPU": 2})
    path = save(str(tmp_path / "s" / "m"), tensors, session_config=config, **FORMATS[kind])
    assert os.path.exists(path + ".index") == ("V1" not in kind)
    assert os.path.exists(path + ".data-00001-of-00002") == (kind == "sharded")
    npu_shim.migrate_checkpoint(path, target, "float16")
    assert same(contents(target), {n: ("float16", v.astype(np.float16)) for n, v in tensors.items()})
    with tf.Graph().as_default(), tf.Session() as session:
        parts = tf.fixed_size_partitioner(3 if kind == "partitioned" else 2)
        w = tf.get_variable("w", [9, 4], tf.float16, partitioner=parts)
        builder = None if kind == "partitioned" else npu_shim.CastingSaverBuilder()
        tf.train.Saver({"w": w}, builder=builder).restore(session, target)
        assert np.array_equal(session.run(tf.convert_to_tensor(w)), tensors["w"].astype(np.float16))


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32], ids=lambda d: d.name)
@pytest.mark.parametrize("axis", [0, 1])
def test_partitions_keep_their_parts(tmp_path, target, dtype, axis):
    value = np.random.RandomState(1).randn(9, 7).astype(dtype.as_numpy_dtype)
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", [9, 7], dtype, partitioner=tf.fixed_size_partitioner(3, axis))
        parts = list(w)
        session.run([p.initializer for p in parts])
        for part, piece in zip(parts, np.array_split(value, 3, axis)):
            part.load(piece, session)
        path = tf.train.Saver().save(session, str(tmp_path / "m"))
    to = "float32" if dtype == tf.float16 else "float16"
    npu_shim.migrate_checkpoint(path, target, to)
    assert index.slices(target) == index.slices(path)
    assert [size for _, size in index.slices(path)["w"]] == [p.shape.as_list() for p in parts]
    assert same(contents(target), {"w": (to, value.astype(np.float32).astype(to))})


def test_checkpoints_without_partitions_have_no_slices(source, tmp_path):
    assert index.slices(source) == {}
    assert index.slices(str(tmp_path / "nothing")) == {}
    assert index.slices(save(str(tmp_path / "v1" / "m"), BIG, write_version=1)) == {}


def object_based(prefix, value):
    os.makedirs(os.path.dirname(prefix))
    with tf.Graph().as_default(), tf.Session() as session, session.as_default():
        w = tf.get_variable("w", initializer=value, use_resource=True)
        session.run(w.initializer)
        return tf.train.Checkpoint(layer=w).save(prefix, session=session)


@pytest.mark.parametrize("key", ["layer", "renamed"])
def test_object_based_checkpoints_keep_their_graph(tmp_path, target, key):
    value = np.float32([1.5, 2.5])
    path = object_based(str(tmp_path / "s" / "m"), value)
    rename = () if key == "layer" else (("^layer/", "renamed/"),)
    npu_shim.migrate_checkpoint(path, target, "float16", rename=rename, drop=("save_counter",))
    assert key + "/.ATTRIBUTES/VARIABLE_VALUE" in contents(target)
    with tf.Graph().as_default(), tf.Session() as session, session.as_default():
        w = tf.get_variable("w", [2], tf.float16, use_resource=True)
        tf.train.Checkpoint(layer=w).restore(target).assert_existing_objects_matched().run_restore_ops()
        assert session.run(w).tolist() == value.tolist()


def test_small_groups_make_more_files_of_the_same_tensors(source, tmp_path, monkeypatch):
    one, many = str(tmp_path / "one"), str(tmp_path / "many")
    npu_shim.migrate_checkpoint(source, one, "float16")
    monkeypatch.setattr(files, "GROUP", 1)
    npu_shim.migrate_checkpoint(source, many, "float16")
    assert os.path.exists(many + ".data-00006-of-00007")
    assert list(migrate.differences(one, many)) == []
    assert (tmp_path / "one.manifest.json").read_text() == (tmp_path / "many.manifest.json").read_text()


def test_the_manifest_describes_what_was_written(source, target):
    npu_shim.migrate_checkpoint(source, target, "float16", exclude=("net/b",))
    with open(target + ".manifest.json") as file:
        told = json.load(file)
    assert told["options"]["exclude"] == ["net/b"]
    assert told["ranges"]["net/w"]["count"] == 48
    reader = files.Reader(target)
    assert {t["new_name"]: t["sha256"] for t in told["tensors"]} == {
        n: files.checksum(reader.read(n, i.dtype)) for n, i in reader.tensors().items()}


def test_what_does_not_read_back_never_appears(source, target, monkeypatch):
    add = files.Writer.add
    monkeypatch.setattr(files.Writer, "add", lambda self, name, array, *rest: add(
        self, name, array + 1 if name == "net/w" else array, *rest))
    with pytest.raises(OSError, match=r"does not read back as it was written: net/w$"):
        npu_shim.migrate_checkpoint(source, target, "float16")
    assert os.listdir(os.path.dirname(target)) == []


BIG = {"big": np.float32([1, 70000, -1e9]), "small": np.float32([1, 2])}


@pytest.mark.parametrize(("policy", "code", "values"), [
    ("error", 1, None), ("inf", 0, [1, np.inf, -np.inf]), ("clamp", 0, [1, 65504, -65504])])
def test_values_beyond_float16(tmp_path, target, capsys, policy, code, values):
    path = save(str(tmp_path / "s" / "m"), BIG)
    assert main([path, target, "--to=float16", "--on-overflow", policy]) == code
    told = capsys.readouterr()
    if values is None:
        assert "npu_shim: 'big' has 2 of 3 values beyond float16, the largest 1e+09" in told.err
        assert os.listdir(os.path.dirname(target)) == []
    else:
        assert contents(target)["big"][1].tolist() == values
        assert "3 values: 2 overflow (largest 1e+09)" in told.out


def test_excluding_what_overflows(tmp_path, target):
    path = save(str(tmp_path / "s" / "m"), BIG)
    assert main([path, target, "--to=float16", "--exclude=^big$"]) == 0
    assert {n: d for n, (d, _) in contents(target).items()} == {"big": "float32", "small": "float16"}


def test_a_dry_run_reports_everything_and_writes_nothing(source, tmp_path, capsys):
    before = hashes(tmp_path / "source")
    report = tmp_path / "report.json"
    assert main([source, "--dry-run", "--to=float16", "--report-json=%s" % report]) == 0
    told = capsys.readouterr().out
    assert "cast   net/w  float32 -> float16 [8, 6]  model tensor" in told
    assert "keep   net/w/Adam  float32 [8, 6]  optimizer slot of 'net/w' stays float32" in told
    assert json.loads(report.read_text())["total"]["count"] == 54
    assert hashes(tmp_path / "source") == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report.json", "source"]


def test_diff(source, target, tmp_path, capsys):
    assert main([source, target, "--to=float16", "--drop=names", "--exclude=net/b"]) == 0
    capsys.readouterr()
    assert main(["--diff", source, target]) == 1
    lines = capsys.readouterr().out.splitlines()
    gap = np.abs(model()["net/w"].astype(np.float16).astype(np.float64) - model()["net/w"])
    assert lines[0] == "names: only in %s" % source
    assert lines[1] == "net/w: float32 (8, 6) and float16 (8, 6)"
    assert lines[2] == "net/w: %d of 48 values differ, by at most %g" % (np.count_nonzero(gap), gap.max())
    assert len(lines) == 3
    assert main(["--diff", target, target]) == 0


@pytest.mark.parametrize(("mode", "listed"), [("no", ["old"]), ("append", ["old", "m16"]), ("replace", ["m16"])])
def test_the_state_file_changes_on_request_only(tmp_path, mode, listed):
    folder = tmp_path / "s"
    path = save(str(folder / "old"), BIG, save_relative_paths=True)
    before = (folder / "checkpoint").read_text()
    assert main([path, str(folder / "m16"), "--to=bfloat16", "--update-state", mode]) == 0
    state = tf.train.get_checkpoint_state(str(folder))
    assert [os.path.basename(p) for p in state.all_model_checkpoint_paths] == listed
    assert os.path.basename(state.model_checkpoint_path) == listed[-1]
    assert tf.train.latest_checkpoint(str(folder)) == str(folder / listed[-1])
    assert ((folder / "checkpoint").read_text() == before) == (mode == "no")


def test_absolute_paths_in_the_state_file_stay_valid(tmp_path):
    folder = tmp_path / "s"
    path = save(str(folder / "old"), BIG)
    assert main([path, str(folder / "m16"), "--to=bfloat16", "--update-state=append"]) == 0
    shutil.move(str(folder), str(tmp_path / "moved"))
    assert [os.path.exists(p + ".index") for p in
            tf.train.get_checkpoint_state(str(tmp_path / "moved")).all_model_checkpoint_paths] == [True, True]


@pytest.mark.parametrize(("arguments", "code", "message"), [
    (["S", "S", "--to=float16"], 2, "never migrated in place"),
    (["S.index", "T", "--to=float16"], 2, "did you mean"),
    (["S", "T"], 2, "expected SRC DST --to DTYPE"),
    (["S", "--to=float16"], 2, "expected SRC DST --to DTYPE"),
    (["nothing", "T", "--to=float16"], 2, "there is no checkpoint 'nothing'"),
    (["S", "T", "--to=float8"], 2, "float8"),
    (["S", "T", "--to=float16", "--incude=x"], 2, "incude"),
    (["S", "T", "--to=float16", "--rename=x"], 2, "has no '=>'"),
    (["S", "T", "--to=float16", "--include=zzz", "--exclude=yyy"], 2, "exclude: 'yyy' matches no tensor"),
    (["S", "/proc/none/T", "--to=float16"], 3, "/proc/none"),
])
def test_errors_name_what_is_wrong(source, target, capsys, arguments, code, message):
    places = {"S": source, "T": target, "S.index": source + ".index"}
    assert main([places.get(a, a) for a in arguments]) == code
    told = capsys.readouterr().err
    assert told.startswith("npu_shim: ")
    assert message in told
    assert not os.path.exists(target + ".index")


def test_an_existing_target_is_replaced_on_request_only(source, target, capsys):
    assert main([source, target, "--to=float16"]) == 0
    assert main([source, target, "--to=bfloat16"]) == 2
    assert "exists (see --overwrite)" in capsys.readouterr().err
    assert contents(target)["net/w"][0] == "float16"
    assert main([source, target, "--to=bfloat16", "--overwrite"]) == 0
    assert contents(target)["net/w"][0] == "bfloat16"


@pytest.mark.parametrize("sharded", [False, True])
def test_a_target_of_the_old_format_exists_too(source, target, sharded, capsys):
    os.makedirs(os.path.dirname(target))
    with tf.Graph().as_default(), tf.Session() as session:
        session.run(tf.get_variable("net/w", initializer=tf.ones([2])).initializer)
        tf.train.Saver(write_version=tf.train.SaverDef.V1, sharded=sharded).save(session, target)
    folder = pathlib.Path(target).parent
    before = hashes(folder)
    assert main([source, target, "--to=float16"]) == 2
    assert "exists (see --overwrite)" in capsys.readouterr().err
    assert hashes(folder) == before
    assert main([source, target, "--to=float16", "--overwrite"]) == 0
    assert contents(target)["net/w"][0] == "float16"
    assert not set(before) & {path.name for path in folder.iterdir()} - {"checkpoint", "m16.ckpt.meta"}


def test_a_file_of_names(source, target, tmp_path):
    (tmp_path / "names.json").write_text('{"net/w": "new/kernel"}')
    assert main([source, target, "--to=float16", "--names=%s" % (tmp_path / "names.json")]) == 0
    assert contents(target)["new/kernel"][0] == "float16"


def test_the_function_takes_paths_and_dtypes_and_names_an_option_that_it_lacks(source, tmp_path):
    told = npu_shim.migrate_checkpoint(pathlib.Path(source), tmp_path / "half", tf.float16).plan
    assert told == npu_shim.migrate_checkpoint(source, str(tmp_path / "again"), "float16").plan
    with pytest.raises(npu_shim.ConfigError, match=r"no option 'exlude'.*did you mean 'exclude'"):
        npu_shim.migrate_checkpoint(source, str(tmp_path / "other"), "float16", exlude=["w"])


def test_the_script_shows_its_help_without_tensorflow():
    script = os.path.join(HERE, "..", "..", "scripts", "migrate_checkpoint.py")
    done = subprocess.run([sys.executable, "-X", "importtime", script, "--help"], capture_output=True, check=True)
    assert b"--on_overflow" in done.stdout
    assert b"tensorflow" not in done.stderr


# Crash safety


class Server:
    """The fork server of migration_server.py."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, os.path.join(HERE, "migration_server.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, universal_newlines=True)

    def start(self, *arguments, group=4096):
        self.process.stdin.write(json.dumps([group, *arguments]) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def status(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


@pytest.fixture(scope="module")
def server():
    server = Server()
    yield server
    server.process.stdin.close()
    server.process.wait()


KILLS = int(os.environ.get("NPU_SHIM_KILLS") or (200 if os.environ.get("NPU_SHIM_NIGHTLY") else 12))


@pytest.mark.slow
def test_killed_at_any_moment_the_target_is_complete_or_absent(tmp_path, server):
    rng = np.random.RandomState(0)
    tensors = {"t%02d" % i: rng.randn(40, 30).astype(np.float32) for i in range(24)}
    source = save(str(tmp_path / "s" / "m"), tensors)
    folder = tmp_path / "t"
    target = str(folder / "m16")
    expected = {n: ("float16", v.astype(np.float16)) for n, v in tensors.items()}
    before = hashes(tmp_path / "s")
    command = (source, target, "--to=float16", "--update-state=append", "--overwrite")
    server.start(*command)
    assert server.status() == 0  # the first run is slower than the others
    begun = time.time()
    server.start(*command)
    assert server.status() == 0
    duration = time.time() - begun
    moments, seen = random.Random(0), {"absent": 0, "complete": 0, "ended": 0}
    for number in range(KILLS):  # from the beginning of a run to behind its end
        if number % 2 == 0 and os.path.exists(target + ".index"):
            os.remove(target + ".index")
        child = server.start(*command)
        time.sleep((number + moments.random()) / KILLS * 1.4 * duration)
        os.kill(child, signal.SIGKILL)
        ended = server.status()
        assert ended in (0, -signal.SIGKILL)
        seen["ended"] += ended == 0
        complete = os.path.exists(target + ".index")
        seen["complete" if complete else "absent"] += 1
        if complete:
            assert same(contents(target), expected)
        assert hashes(tmp_path / "s") == before
        state = tf.train.get_checkpoint_state(str(folder))
        assert state.model_checkpoint_path == target
    print("killed %d times: %s, one run takes %.2f s" % (KILLS, seen, duration))
    assert min(seen["absent"], seen["complete"], KILLS - seen["ended"]) > KILLS // 40
    server.start(*command)
    assert server.status() == 0
    assert same(contents(target), expected)
    assert [p for p in os.listdir(str(folder)) if p.startswith(".")] == []


@pytest.fixture
def small_disk(tmp_path):
    """A function that mounts a tmpfs of so many KiB and returns its folder."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small tmpfs needs root")
    mounted = []

    def mount(size):
        folder = tmp_path / ("disk%d" % size)
        folder.mkdir()
        if subprocess.call(["mount", "-t", "tmpfs", "-o", "size=%dk" % size, "tmpfs", str(folder)]):
            pytest.skip("this machine does not let a test mount a tmpfs")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.call(["umount", str(folder)])


def test_a_full_disk_leaves_nothing(tmp_path, small_disk, capsys):
    tensors = {"t%d" % i: np.ones([200, 1024], np.float32) for i in range(4)}  # 1600 KiB in float16
    source = save(str(tmp_path / "s" / "m"), tensors)
    for size in (0 + 64, 800, 1600):
        folder = small_disk(size)
        assert main([source, str(folder / "m16"), "--to=float16", "--update-state=append"]) == 3
        assert capsys.readouterr().err.startswith("npu_shim: ")
        assert os.listdir(str(folder)) == []
    folder = small_disk(2400)
    assert main([source, str(folder / "m16"), "--to=float16"]) == 0
    assert main([source, str(folder / "other"), "--to=float16"]) == 3
    assert same(contents(str(folder / "m16")), {n: ("float16", v.astype(np.float16)) for n, v in tensors.items()})


# Round trips of trained models


def imported(name):
    """Imports a training graph; returns its description, its feeds and name -> tensor for a Saver."""
    tf.import_graph_def(reference_material.training_graph(name), name="")
    variables = {}
    for op in tf.get_default_graph().get_operations():
        if op.type == "VariableV2":
            variables[op.name] = op.outputs[0]
        elif op.type == "VarHandleOp":
            variables[op.name] = tf.raw_ops.ReadVariableOp(resource=op.outputs[0], dtype=op.get_attr("dtype"))
    return reference_material.about(name), reference_material.feeds(name), variables


@pytest.mark.parametrize(
    ("name", "back_too"),
    [
        ("lstm_lm_train", True),
        pytest.param("bert_tiny_train", True, marks=pytest.mark.nightly),
        pytest.param("resnet50_train", False, marks=pytest.mark.nightly),
    ],
)
def test_a_trained_model_goes_to_float16_and_back(tmp_path, name, back_too):
    with tf.Graph().as_default(), tf.Session() as session:
        meta, feeds, variables = imported(name)
        session.run(meta["init"])
        session.run(meta["train_op"], feeds)
        source = tf.train.Saver(variables).save(session, str(tmp_path / "trained"), write_meta_graph=False)

        half, back = str(tmp_path / "half"), str(tmp_path / "back")
        there = npu_shim.migrate_checkpoint(source, half, "float16")
        npu_shim.migrate_checkpoint(half, back, "float32")
        before = contents(source)
        cast = {a.name for a in there.plan.actions if a.kind == "cast"}
        expected = {n: (d, v.astype(np.float16).astype(np.float32) if n in cast else v)
                    for n, (d, v) in before.items()}
        assert same(contents(back), expected)
        assert 0 < len(cast) < len(before)

        casting = tf.train.Saver(variables, builder=npu_shim.CastingSaverBuilder())
        for path, saver in [(half, casting), (back, tf.train.Saver(variables))][: 1 + back_too]:
            session.run(meta["init"])
            saver.restore(session, path)
            values = session.run(variables)
            assert all(np.array_equal(values[n], expected[n][1]) for n in expected)
            assert np.isfinite(session.run([meta["loss"], meta["train_op"]], feeds)[0])
            after = session.run(variables)
            assert any(not np.array_equal(after[n], values[n]) for n in cast)
            assert all(np.isfinite(after[n]).all() for n in cast)


def test_a_trained_model_resumes_in_mixed_precision_from_float16(tmp_path, patched):
    with tf.Graph().as_default(), tf.Session() as session:
        meta, feeds, variables = imported("lstm_lm_train")
        session.run([meta["init"]])
        session.run(meta["train_op"], feeds)
        source = tf.train.Saver(variables).save(session, str(tmp_path / "trained"), write_meta_graph=False)
        npu_shim.migrate_checkpoint(source, str(tmp_path / "half"), "float16")
        casting = tf.train.Saver(variables, builder=npu_shim.CastingSaverBuilder())
        with tf.Session(config=sessions.config(precision_mode="allow_mix_precision")) as mixed:
            casting.restore(mixed, str(tmp_path / "half"))
            before = mixed.run(variables)
            ran = sessions.Ran(mixed, [meta["loss"], meta["train_op"]], feeds)
            after = mixed.run(variables)
    assert "float16" in ran.dtypes("MatMul", "_FusedMatMul").values()
    assert np.isfinite(ran.values[0])
    assert {v.dtype for n, v in after.items() if n != "global_step"} == {np.dtype("float32")}
    assert any(not np.array_equal(after[n], before[n]) for n in after if n != "global_step")


def test_training_resumes_in_float16_and_in_float32(tmp_path):
    rng = np.random.RandomState(0)
    x, y = rng.randn(64, 8).astype(np.float32), rng.randn(64, 1).astype(np.float32)

    def losses(dtype, steps, restore=None, getter=npu_shim.float32_variable_storage_getter):
        with tf.Graph().as_default(), tf.Session() as session:
            with tf.variable_scope("net", custom_getter=getter):
                w = tf.get_variable("w", [8, 1], dtype, tf.zeros_initializer())
            loss = tf.reduce_mean((tf.cast(tf.matmul(tf.cast(x, dtype), w), tf.float32) - y) ** 2)
            train = tf.train.AdamOptimizer(0.01).minimize(loss, tf.train.get_or_create_global_step())
            saver = tf.train.Saver(builder=npu_shim.CastingSaverBuilder())
            session.run(tf.global_variables_initializer())
            if restore:
                saver.restore(session, restore)
            trained = [session.run([loss, train])[0] for _ in range(steps)]
            return trained, saver.save(session, str(tmp_path / ("run%d" % len(os.listdir(str(tmp_path))))))

    first, path = losses(tf.float32, 30)
    npu_shim.migrate_checkpoint(path, str(tmp_path / "half"), "float16")
    assert contents(str(tmp_path / "half"))["net/w"][0] == "float16"
    assert contents(str(tmp_path / "half"))["net/w/Adam_1"][0] == "float32"
    for dtype in (tf.float16, tf.float32):
        resumed, _ = losses(dtype, 30, str(tmp_path / "half"))
        assert resumed[0] == pytest.approx(first[-1], rel=0.1)
        assert resumed[-1] < resumed[0] < first[0]
    low, _ = losses(tf.float16, 1, str(tmp_path / "half"), getter=None)  # float16 variables and slots
    assert low[0] == pytest.approx(first[-1], rel=0.1)


def test_the_plan_of_a_checkpoint_that_was_migrated_casts_nothing(source, target):
    npu_shim.migrate_checkpoint(source, target, "float16")
    again = plan(files.Reader(target).tensors(), Options(to="float16"))
    assert {a.kind for a in again.actions} == {"keep"}
