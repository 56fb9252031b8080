"""The cost of graphs on cards that are not there. Only what compiles needs JAX with its CUDA plugin."""

import json
import sys

import pytest
import tensorflow.compat.v1 as tf

from npu_shim import cli, configs
from npu_shim.export import cost, fit
from npu_shim.options import engine
from npu_shim.pjrt import manifest
from npu_shim.pjrt.cost import card_report, cards, compiling
from npu_shim.pjrt.cost.compiling import Compiled
from npu_shim.pjrt.cost.largest import CLOSE, MOST, largest
from npu_shim.xla.sources import Source

pytestmark = pytest.mark.skipif(not engine.has_jax(), reason="JAX is not beside this TensorFlow")
FETCHES = ["--fetches", "loss:0,train"]
MIXED = {"precision_mode": "allow_mix_precision"}


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

    answer_found = largest(peak, memory)
    assert answer - answer // CLOSE <= answer_found <= answer
    assert len(tried) == len(set(tried)) <= calls


def test_the_largest_batch_where_memory_is_no_line():
    def peak(batch):  # the compiler computes again what does not fit, up to a point
        taken = 1 + 0.1 * batch
        return min(taken, 24.9) if taken < 40 else taken

    tried = []
    batch_size = largest(lambda batch: tried.append(batch) or peak(batch), 25)
    assert peak(batch_size) <= 25
    assert any(batch_size < batch <= batch_size + max(1, batch_size // CLOSE) and peak(batch) > 25 for batch in tried)
    assert len(tried) < 20


def graph(batch=None):
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [batch, 64], "x")
        w = tf.get_variable("w", [64, 32], use_resource=True)
        loss = tf.reduce_mean(tf.square(tf.matmul(x, w)), name="loss")
        tf.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
    return graph


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

    def pretend(folder, card, python=None, placement=compiling.ONE):
        described = manifest.read(folder)
        seen.append((described, card.key))
        batch = described.feeds[0].shape[0]
        bytes_each = 500 if described.plan["lowered"] else 1000
        sizes = {
            "argument": sum(t.bytes for t in described.arguments),
            "output": 0,
            "alias": 0,
            "temp": batch * bytes_each,
        }
        text = "HloModule m\n\nENTRY main {\n  p = f32[4]{0} parameter(0)\n  ROOT r = f32[4]{0} negate(p)\n}\n"
        return Compiled(described, text, text, sizes, "0")

    seen = []
    monkeypatch.setattr(compiling, "compiled", pretend)
    return seen


def test_the_largest_batches_of_a_graph(files, compiled, capsys):
    argv = ["cost", str(files / "None.pb"), *FETCHES, "--fit", str(files / "small.json"), "--jax", sys.executable]
    assert cli.main([*argv, "--precision-mode", "allow_mix_precision", "--json", "-"]) == 0
    out, err = capsys.readouterr()
    plain, mixed, again = json.loads(out)["forms"]
    room = 2**20 - 64 * 32 * 4
    for form, bytes_each in ((plain, 1000 + 64 * 4), (mixed, 500 + 64 * 4)):
        assert room // bytes_each * (1 - 1 / CLOSE) <= form["batch"] <= room // bytes_each
        assert form["cost"]["peak"] <= 2**20
    assert "as written: batch 8 takes " in err
    assert "does not fit" in err
    names = ("as written", "allow_mix_precision", "allow_mix_precision, recompute memory")
    assert (plain["name"], mixed["name"], again["name"]) == names
    assert [described.plan["recompute"]["mode"] for described, _ in compiled[:: len(compiled) - 1]] == ["off", "memory"]
    assert cli.main(argv) == 0
    head, largest_ = (line.split() for line in capsys.readouterr().out.splitlines()[1:3])
    assert " ".join(head) == " ".join(fit.FORMS)
    assert largest_[:3] == ["largest", "batch", str(plain["batch"])]


def test_a_mode_that_lowers_nothing_is_said(compiled):
    said = []
    step = (graph(), ["loss:0", "train"], {"x:0": [16, 64]}, ["t4"], sys.executable, said.append)
    cost.on_cards(*step, **cost.AS_WRITTEN)
    assert said[0].endswith(" lowers nothing of this step; npu-shim plan says why")
    said.clear()
    cost.on_cards(*step, **MIXED)
    assert not [line for line in said if "lowers nothing" in line]


def test_a_batch_that_cannot_be_varied(files, compiled, capsys, tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    argv = ["cost", str(files / "16.pb"), *FETCHES, "--fit", "t4", "--jax", sys.executable]
    assert cli.main(argv) == 2
    said = capsys.readouterr().err
    assert "no feed has an open first dimension ('x:0' [16, 64]); build the graph with None" in said
    assert cli.main(["cost", str(tmp_path), "--fit", "t4", "--jax", sys.executable]) == 2
    assert "has the batch it was exported with; --fit takes a graph" in capsys.readouterr().err
    assert cli.main([*argv, "--target", "t4"]) == 2
    assert "--fit finds a batch, --target takes the one that is given" in capsys.readouterr().err
    assert not compiled


def test_a_session_on_cards(compiled):
    g, said = graph(), []
    with tf.Session(graph=g) as session:
        on_cards = cost.on_cards(
            session, ["loss:0", g.get_operation_by_name("train")], {"x:0": [16, 64]}, ["t4", "h100"], sys.executable,
            said.append, precision_mode="allow_mix_precision",
        )  # fmt: skip
    assert [cost.name for cost in on_cards.costs] == ["as written", "allow_mix_precision"]
    assert [(card.key, [cost.name for cost in costs]) for card, costs in on_cards.cards] == [
        (key, ["as written", "allow_mix_precision"]) for key in ("t4", "h100")
    ]
    assert [described.plan["lowered"] > 0 for described, _ in compiled] == [False, False, True, True]
    assert len(said) == 4


def variable(name, shape):
    return tf.get_variable(name, shape, use_resource=True)


def fed(shape, dtype=tf.float32):
    return tf.placeholder(dtype, shape, "x")


def update():
    return variable("w", [2**20]).assign_sub(0.1 * fed([2**20]), read_value=False)


def product():
    return tf.matmul(fed([4096, 512]), variable("w", [512, 4096]))


def lookup():
    return tf.gather(variable("w", [50000, 64]), fed([256], tf.int32))


def loop():
    x, start = fed([256, 1024]), variable("w", [256, 1024]).read_value()
    return tf.while_loop(lambda i, a: i < 10, lambda i, a: (i + 1, tf.tanh(a) * x), (0, start))[1]


def momentum():
    loss = tf.reduce_sum(tf.square(tf.matmul(fed([2048, 2048]), variable("w", [2048, 2048]))))
    return tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)


KB, MB = 2**10, 2**20


@pytest.mark.parametrize(("step", "options", "moved", "temporary", "peak"), [
    # w and x are read, w is written in its place
    (update, cost.AS_WRITTEN, 3 * 4 * MB, 0, 2 * 4 * MB),
    # f32[4096,512] x f32[512,4096]: both are read, the result is written
    (product, cost.AS_WRITTEN, (8 + 8 + 64) * MB, 0, (8 + 8 + 64) * MB),
    # of 50000 rows only the 256 that are looked up are read, and written with what says which
    (lookup, cost.AS_WRITTEN, 2 * 256 * 64 * 4 + 256 * 4, 0, 50000 * 64 * 4 + 256 * 64 * 4 + 256 * 4),
    # the variable is copied, for the loop writes; ten times a and x are read and a is written
    (loop, cost.AS_WRITTEN, (2 + 10 * 3) * MB, 0, 3 * MB),
    # float16, in units of f32[2048,2048], 16 MB: x and w are converted, 2 * (1 + 0.5); x @ w and x^T @ dy take 3 * 0.5
    # each; w and m are read and written and dw is read, 4.5; of x, w, dy and dw in float16 at most three live at once
    (momentum, MIXED, (3 + 1.5 + 1.5 + 4.5) * 16 * MB, 1.5 * 16 * MB, 4.5 * 16 * MB),
])  # fmt: skip
def test_five_steps_cost_what_a_hand_counts(plugin, tmp_path, step, options, moved, temporary, peak):
    """Issue "The GPU without a GPU": bytes and memory agree with a hand count within 2 %."""
    with tf.Graph().as_default() as graph:
        fetch = step()
    x = graph.get_tensor_by_name("x:0")
    folder, card = str(tmp_path / "step"), cards.card("h100")
    cost.write_form(folder, Source.of(graph), [fetch], {x.name: x.shape.as_list()}, **options)
    reported = card_report.of_compiled("step", compiling.compiled(folder, card, plugin), card)
    assert reported.moved == pytest.approx(moved, rel=0.02)
    assert reported.peak == pytest.approx(peak, rel=0.02)
    assert reported.temporary == pytest.approx(temporary, rel=0.02, abs=KB)
    assert not reported.over
    assert not reported.notes


def test_a_card_that_takes_the_target_and_a_step_that_does_not_fit(plugin, files, capsys):
    argv = ["cost", str(files / "None.pb"), *FETCHES, "--batch", "4096", "--target", str(files / "small.json")]
    assert cli.main([*argv, "--jax", plugin, "--precision-mode", "allow_mix_precision"]) == 0
    out = capsys.readouterr().out
    assert "small: Tesla T4, 1.05 MB, 320.00 GB/s" in out
    (room,) = (line for line in out.splitlines() if line.startswith("of the card's memory"))
    assert room.count("MB too much") == 2
