"""The cost of graphs on cards that are not there. Only what compiles needs JAX with its CUDA plugin."""

import json
import sys

import pytest
import tensorflow.compat.v1 as tf

from npu_shim import cli, configs
from npu_shim.export import cost
from npu_shim.pjrt import manifest
from npu_shim.pjrt.cost import compiling
from npu_shim.pjrt.cost.compiling import Compiled
from npu_shim.pjrt.cost.largest import CLOSE, MOST, largest

pytestmark = pytest.mark.skipif(tf.__version__.startswith("1."), reason="TensorFlow 1 does not give its programs away")
FETCHES = ["--fetches", "loss:0,train"]


@pytest.mark.parametrize(("base", "slope", "memory", "answer", "calls"), [
    (1e9, 0.2e9, 25.5e9, 122, 4),
    (24e9, 0.2e9, 25.5e9, 7, 4),
    (30e9, 0.2e9, 25.5e9, 0, 4),
    (1e9, 0, 25.5e9, MOST, 14),
])  # fmt: skip
def test_the_largest_batch_takes_few_compilations(base, slope, memory, answer, calls):
    tried = []

    def peak(batch):
        tried.append(batch)
        return base + slope * batch

    found = largest(peak, memory)
    assert answer - answer // CLOSE <= found <= answer
    assert len(tried) == len(set(tried)) <= calls


def test_the_largest_batch_where_memory_is_no_line():
    def peak(batch):  # the compiler computes again what does not fit, up to a point
        taken = 1 + 0.1 * batch
        return min(taken, 24.9) if taken < 40 else taken

    tried = []
    found = largest(lambda batch: tried.append(batch) or peak(batch), 25)
    assert peak(found) <= 25
    assert any(found < batch <= found + max(1, found // CLOSE) and peak(batch) > 25 for batch in tried)
    assert len(tried) < 20


def graph(batch=None):
    with tf.Graph().as_default() as made:
        x = tf.placeholder(tf.float32, [batch, 64], "x")
        w = tf.get_variable("w", [64, 32], use_resource=True)
        loss = tf.reduce_mean(tf.square(tf.matmul(x, w)), name="loss")
        tf.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
    return made


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Graphs as files, one of an open batch and one of 16; and a card with a megabyte of memory."""
    folder = tmp_path_factory.mktemp("graphs")
    for batch in (None, 16):
        (folder / ("%s.pb" % batch)).write_bytes(graph(batch).as_graph_def().SerializeToString())
    values = configs.load("cards", "t4.json")
    values["gpu_device_info"]["device_memory_size"] = 2**20
    (folder / "small.json").write_text(json.dumps(values))
    return folder


@pytest.fixture
def compiled(monkeypatch):
    """In the compiler's place: memory is 10 kB and 1 kB a sample, 500 bytes where a step has low products."""

    def pretend(folder, card, python=None):
        described = manifest.read(folder)
        seen.append((described, card.key))
        batch = described.feeds[0].shape[0]
        each = 500 if described.plan["lowered"] else 1000
        sizes = {"argument": sum(t.bytes for t in described.arguments), "output": 0, "alias": 0, "temp": batch * each}
        text = "HloModule m\n\nENTRY main {\n  p = f32[4]{0} parameter(0)\n  ROOT r = f32[4]{0} negate(p)\n}\n"
        return Compiled(described, text, text, sizes, "0")

    seen = []
    monkeypatch.setattr(compiling, "compiled", pretend)
    return seen


def test_the_largest_batches_of_a_graph(files, compiled, capsys):
    argv = ["cost", str(files / "None.pb"), *FETCHES, "--fit", str(files / "small.json"), "--jax", sys.executable]
    assert cli.main([*argv, "--precision-mode", "allow_mix_precision", "--json", "-"]) == 0
    out, err = capsys.readouterr()
    plain, mixed = json.loads(out)["forms"]
    room = 2**20 - 64 * 32 * 4
    for form, each in ((plain, 1000 + 64 * 4), (mixed, 500 + 64 * 4)):
        assert room // each * (1 - 1 / CLOSE) <= form["batch"] <= room // each
        assert form["cost"]["peak"] <= 2**20
    assert "as written: batch 8 takes " in err
    assert "does not fit" in err
    assert (plain["name"], mixed["name"]) == ("as written", "allow_mix_precision")
    assert cli.main(argv) == 0
    head, largest_ = (line.split() for line in capsys.readouterr().out.splitlines()[1:3])
    assert head == ["as", "written", "allow_mix_precision", "allow_mix_precision_bf16"]
    assert largest_[:3] == ["largest", "batch", str(plain["batch"])]


def test_a_batch_that_cannot_be_varied(files, compiled, capsys):
    argv = ["cost", str(files / "16.pb"), *FETCHES, "--fit", "t4", "--jax", sys.executable]
    assert cli.main(argv) == 2
    said = capsys.readouterr().err
    assert "no feed has an open first dimension ('x:0' [16, 64]); build the graph with None" in said
    assert cli.main(["cost", str(files), "--fit", "t4", "--jax", sys.executable]) == 2
    assert "has the batch it was exported with; --fit takes a graph" in capsys.readouterr().err
    assert cli.main([*argv, "--target", "t4"]) == 2
    assert "--fit finds a batch, --target takes the one that is given" in capsys.readouterr().err
    assert not compiled


def test_a_session_on_cards(compiled):
    made, said = graph(), []
    with tf.Session(graph=made) as session:
        found = cost.on_cards(
            session, ["loss:0", made.get_operation_by_name("train")], {"x:0": [16, 64]}, ["t4", "h100"], sys.executable,
            said.append, precision_mode="allow_mix_precision",
        )  # fmt: skip
    assert [each.name for each in found.costs] == ["as written", "allow_mix_precision"]
    assert [(card.key, [each.name for each in costs]) for card, costs in found.cards] == [
        (key, ["as written", "allow_mix_precision"]) for key in ("t4", "h100")
    ]
    assert [described.plan["lowered"] > 0 for described, _ in compiled] == [False, False, True, True]
    assert len(said) == 4
