"""The command npu-shim, as a user types it: in subprocesses where exit status and streams count."""

import gzip
import json
import os
import re
import subprocess
import sys

import forked
import pytest
import tensorflow.compat.v1 as tf
from sessions import command as main

from npu_shim import cli
from npu_shim.cli.graphs import graph_file
from npu_shim.pjrt import driver


def run(*argv, **env):
    """Runs `python -m npu_shim ARGV`; returns (exit status, stdout, stderr)."""
    done = subprocess.run(
        [sys.executable, "-m", "npu_shim", *map(str, argv)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **env}, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """A graph file: x -> MatMul -> Relu -> Exp -> loss."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [None, 4], "x")
        w = tf.get_variable("w", [4, 4], use_resource=True)
        tf.reduce_sum(tf.exp(tf.nn.relu(tf.matmul(x, w))), name="loss")
    path = tmp_path_factory.mktemp("graph") / "graph.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return path


MIX = ("--precision-mode", "allow_mix_precision")


@pytest.mark.parametrize(("gpu", "hidden"), [(True, None), (False, "2")])
def test_a_gpus_missing_libraries_are_not_hidden(gpu, hidden, monkeypatch, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("")
    monkeypatch.setattr(driver, "FILES", [str(tmp_path if gpu else tmp_path / "none")])
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "")
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL")
    monkeypatch.setattr(cli, "_module", lambda _: type("Run", (), {"main": staticmethod(lambda _: 0)}))
    assert cli.main(["run", str(script)]) == 0
    assert os.environ.get("TF_CPP_MIN_LOG_LEVEL") == hidden


def test_plan_prints_a_report(graph, capsys):
    status, out, _ = main(capsys, "plan", graph, "--fetches", "loss", *MIX)
    assert status == 0
    assert "white-listed" in out
    assert "allow_mix_precision: 2 of" in out.splitlines()[0]


def test_plan_json_has_the_documented_form(graph, capsys, tmp_path):
    path = tmp_path / "plan.json"
    assert main(capsys, "plan", graph, "--fetches", "loss", *MIX, "--device", "GPU", "--json", path)[0] == 0
    plan = json.loads(path.read_text())
    assert set(plan) == {"summary", "decisions", "casts", "unmatched", "warnings"}
    counts = {"nodes", "slots", "lowered", "casts_to_low", "casts_to_float32", "constants_to_low", "seconds"}
    assert set(plan["summary"]) == counts
    relu = next(d for d in plan["decisions"] if d["node"] == "Relu")
    assert relu == {
        "node": "Relu", "op": "Relu", "attr": "T", "index": None, "was": "float32", "becomes": "float16",
        "reason": "follows its low-precision producer", "because": "MatMul.T", "runs": "kernel of its dtype",
    }  # fmt: skip
    assert {"tensor": "x", "to": "float16", "folded": False, "consumers": ["MatMul:0"]} in plan["casts"]


@pytest.mark.parametrize("suffix", [".pb", ".pb.gz", ".pbtxt", ".pbtxt.gz"])
def test_plan_writes_a_graph_that_reads_again(graph, capsys, tmp_path, suffix):
    path = tmp_path / ("out" + suffix)
    assert main(capsys, "plan", graph, "--fetches", "loss", *MIX, "--device", "GPU", "--write", path)[0] == 0
    ops = [node.op for node in graph_file.read(str(path))[0].node]
    assert ops.count("Cast") == 3
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_meta_files_bring_their_train_op(capsys, tmp_path):
    with tf.Graph().as_default():
        w = tf.get_variable("w", [4, 4], use_resource=True)
        tf.train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(tf.matmul(w, w)))
        tf.train.export_meta_graph(str(tmp_path / "graph.meta"))
    status, out, _ = main(capsys, "plan", tmp_path / "graph.meta", *MIX)
    assert (status, "MatMul 3" in out) == (0, True)


FETCH = ["GRAPH", "--fetches", "loss"]
WRONG = {
    "misspelt mode": ([*FETCH, "--precision-mode", "allow_mix"], "precision_mode.*allow_mix_precision"),
    "misspelt mode, underscores": ([*FETCH, "--precision_mode=allow_mix"], "precision_mode.*allow_mix_precision"),
    "missing graph": (["/nowhere/graph.pb", "--fetches", "loss"], "/nowhere/graph.pb.*No such file"),
    "not a graph": (["JUNK", "--fetches", "loss"], "is not a graph"),
    "other suffix": ([__file__, "--fetches", "loss"], r"ends in \.pb"),
    "a folder that is not there": (["/nowhere/model", "--fetches", "loss"], "/nowhere/model.*No such file"),
    "two answers": ([*FETCH, "--json", "-", "--explain", "loss"], "--json - and --explain"),
    "unknown fetch": (["GRAPH", "--fetches", "los"], "fetch 'los' is not in the graph.*did you mean 'loss'"),
    "unknown feed": ([*FETCH, "--feeds", "y"], "feed 'y' is not in the graph"),
    "no fetch": (["GRAPH"], "--fetches is needed"),
    "missing mixlist": ([*FETCH, *MIX, "--modify-mixlist", "/nowhere/m.json"], "m.json.*cannot be read"),
    "mixlist without mixed mode": ([*FETCH, "--modify-mixlist", "m.json"], "modify_mixlist"),
    "unknown profile": ([*FETCH, "--profile", "ascend"], "profile: 'ascend' is not one of ascend910, gpu"),
    "unknown device": ([*FETCH, "--device", "TPU"], "'TPU', expected one of CPU, GPU, XLA"),
    "cannot be written": ([*FETCH, *MIX, "--write", "/nowhere/out.pb"], "/nowhere/out.pb.*cannot be written"),
}


@pytest.mark.parametrize("case", WRONG)
def test_bad_input_is_one_line_and_exit_status_2(graph, capsys, tmp_path, case):
    argv, message = WRONG[case]
    junk = tmp_path / "junk.pb"
    junk.write_bytes(b"\xff\x00not a graph at all")
    argv = [{"GRAPH": graph, "JUNK": junk}.get(word, word) for word in argv]
    status, out, err = main(capsys, "plan", *argv)
    assert (status, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert err.startswith("npu_shim: ")
    assert re.search(message, err)


@pytest.mark.slow
@pytest.mark.nightly  # each run of the tests hashes otherwise, and tests/golden/plans.txt holds whole plans
def test_two_hash_seeds_give_the_same_bytes(graph, tmp_path):
    outputs = []
    for seed in ("1", "2"):
        out, plan = tmp_path / (seed + ".pb"), tmp_path / (seed + ".json")
        argv = ("plan", graph, "--fetches", "loss", *MIX, "--write", out, "--json", plan)
        assert run(*argv, PYTHONHASHSEED=seed)[0] == 0
        values = json.loads(plan.read_text())
        del values["summary"]["seconds"]
        outputs.append((out.read_bytes(), values))
    assert outputs[0] == outputs[1]


SCRIPT = """
import os, sys
import tensorflow as tf
import tensorflow.keras.layers
from tensorflow.keras import backend
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.framework import ops
from tensorflow import estimator
assert __name__ == '__main__' and __file__ == sys.argv[0]
assert sys.path[0] == os.path.dirname(os.path.abspath(__file__))
assert not tf.executing_eagerly() and tf.Session and tf.placeholder and tf.layers.dense and tf.estimator.RunConfig
print(sys.argv[1:], tf.Session().run(tf.constant(3)))
if 'fail' in sys.argv: raise ValueError('the script failed')
sys.exit(7)
"""


def test_run_is_the_script_and_nothing_but_the_script(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    (tmp_path / "broken.py").write_text("def f(:\n")
    words = ("%s --flag 'a b'" % script, "%s fail" % script, "missing.py", "broken.py")
    right, fails, missing, broken = forked.run([("npu-shim run " + line, tmp_path) for line in words])
    assert right.status == 7
    assert "['--flag', 'a b'] 3" in right.output.splitlines()
    trace = fails.output[fails.output.index("Traceback") :].splitlines()
    assert fails.status == 1
    assert trace[1].strip().startswith('File "%s", line ' % script)
    assert "ValueError: the script failed" in trace
    assert missing.status == 2
    assert "missing.py' cannot be read: No such file" in missing.output
    assert broken.status == 1
    assert "SyntaxError" in broken.output.splitlines()[-1]


def test_doctor_trains_a_step(capsys):
    status, out, _ = main(capsys, "doctor")
    assert status == 0
    assert "self-test     passed" in out


def test_a_compressed_file_that_is_cut_off(graph, capsys, tmp_path):
    cut = tmp_path / "cut.pb.gz"
    cut.write_bytes(gzip.compress(graph.read_bytes())[:-20])
    status, _, err = main(capsys, "plan", cut, "--fetches", "loss")
    assert status == 2
    assert "cut.pb.gz" in err
