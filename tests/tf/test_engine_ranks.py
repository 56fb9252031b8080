"""Ranks with the engine: a step is one program on all of them, with what they exchange inside, and trains as one
process on all of their data."""

import json
import re

import forked
import numpy as np
import pytest

from npu_shim.distributed.job import cluster, ranks
from npu_shim.distributed.launcher import layout
from npu_shim.distributed.liveness import watch
from npu_shim.engine.runtime import together
from npu_shim.options import engine
from npu_shim.pjrt import ranks as of_ranks
from npu_shim.pjrt.ranks import is_of_all, met

# one step has Horovod's optimizer with a sparse gradient, hccl's with a dense one and a mean over the ranks; in the
# third step the last rank has a row less, from the fourth on rank 0 writes a summary. One process builds all shares.
SCRIPT = """
import json, sys
import numpy as np
import tensorflow.compat.v1 as tf
import horovod.tensorflow as hvd
from npu_bridge.npu_init import hccl_ops, npu_tf_optimizer
tf.disable_eager_execution()
hvd.init()
rank, size, shares = hvd.rank(), hvd.size(), int(sys.argv[1])
chosen = [rank] if size > 1 else range(shares)
r = np.random.RandomState(0)
X, I, Y = r.rand(4 * shares, 6).astype("f"), r.randint(0, 300, 4 * shares), r.rand(4 * shares, 3).astype("f")
start = tf.random_uniform_initializer(-1, 1, seed=1 + rank)
rows, w, v = (tf.get_variable(*named, initializer=start) for named in [("r", [300, 6]), ("w", [6, 3]), ("v", [3, 3])])
losses, places = [], []
for share in chosen:
    x, y = tf.placeholder(tf.float32, [None, 6]), tf.placeholder(tf.float32, [None, 3])
    i = tf.placeholder(tf.int32, [None])
    hidden = tf.matmul(x + tf.nn.embedding_lookup(rows, i), w)
    losses.append(tf.reduce_mean(tf.square(tf.matmul(hidden, v) - y)))
    places.append((x, i, y))
loss = tf.add_n(losses) / len(losses)
step = tf.train.create_global_step()
steps = [
    hvd.DistributedOptimizer(tf.train.MomentumOptimizer(0.1, 0.9)).minimize(loss, step, [rows, w]),
    npu_tf_optimizer(tf.train.GradientDescentOptimizer(0.1)).minimize(loss, var_list=[v]),
]
mean = hvd.allreduce(loss)
summary = tf.summary.scalar("loss", loss)

def feed(number):
    fed = {}
    for share, given in zip(chosen, places):
        mine = np.arange(share, len(X), shares)[: 3 if number == 2 and share == shares - 1 else 4]
        fed.update(zip(given, (X[mine], I[mine], Y[mine])))
    return fed

means = []
with tf.train.MonitoredTrainingSession(hooks=[hvd.BroadcastGlobalVariablesHook(0)]) as session:
    for number in range(5):
        more = [summary] if rank == 0 and number >= 3 else []
        means.append(float(session.run([mean, *steps, *more], feed(number))[0]))
    weights = session.run([rows, w, v])
print("SEEN", json.dumps([means, [value.tolist() for value in weights]]), flush=True)
"""
SHARED = [("optimizer", ()), ("off", pytest.mark.nightly), ("all", pytest.mark.nightly)]
LINE = "RANK_SIZE=%d RANK_ID=%d NPU_SHIM_HOSTS=%s CUDA_VISIBLE_DEVICES= NPU_SHIM_ENGINE=pjrt "
LINE += "npu-shim run --precision-mode force_fp32 script.py %d"


@pytest.fixture(scope="module")
def at_once():
    """What `forked.server` yields."""
    with forked.server(3600) as run:
        yield run


@pytest.mark.skipif(not (engine.has_jax() or engine.interpreter()), reason="no JAX, and NPU_SHIM_JAX names none")
@pytest.mark.parametrize(("size", "words"), [
    (2, ""), pytest.param(4, "", marks=pytest.mark.nightly),
    *(pytest.param(2, "NPU_SHIM_DEVICES=2 NPU_SHIM_SHARD_STATE=%s" % word, marks=marks) for word, marks in SHARED),
])  # fmt: skip
def test_ranks_run_one_program_and_have_the_weights_of_one_process(at_once, tmp_path, size, words):
    (tmp_path / "script.py").write_text(SCRIPT)
    hosts = ",".join("localhost:%d" % port for port in layout.free_ports(size))
    alone = "NPU_SHIM_ENGINE=session npu-shim run --precision-mode force_fp32 script.py %d" % size
    lines = [alone, *(words + " " + LINE % (size, rank, hosts, size) for rank in range(size))]
    one, *others = at_once([(line, tmp_path) for line in lines])
    assert not any(ended.status for ended in (one, *others)), "\n".join(ended.output for ended in (one, *others))
    (means, weights), *seen = (json.loads(ended.output.split("SEEN ")[1].splitlines()[0]) for ended in (one, *others))
    for rank, ((own_means, own_weights), ended) in enumerate(zip(seen, others)):
        np.testing.assert_allclose(own_means, means, rtol=2.0**-18)
        for value, expected in zip(own_weights, weights):
            np.testing.assert_allclose(value, expected, atol=2.0**-19)
        assert own_weights == seen[0][1]  # to the bit
        taken = re.findall(r"engine: the run of .* is one program .*, which %d ranks run together" % size, ended.output)
        assert len(taken) == 2 if rank in (0, size - 1) else 1, ended.output  # with a summary; for a batch of its own
        assert "in its middle" not in ended.output
        assert "outside of the program" not in ended.output
        assert ("is one program on 2 devices (cpu)" in ended.output) == ("NPU_SHIM_DEVICES=2" in words)


TEXT = """
  %a.1 = f32[4,1]{1,0} all-reduce(%x), channel_id=1, replica_groups={{0,1,2}}, use_global_device_ids=true, to_apply=%r
  %b = (f32[2]{0}, f32[3]{0}) all-gather-start(%y), channel_id=2, replica_groups=[1,3]<=[3], dimensions={0}
  %c = f32[8]{0} all-reduce(%z), channel_id=3, replica_groups={{0,1},{2}}, to_apply=%r
  %d = f32[8]{0} add(%z, %z)
"""


def test_what_a_compiled_program_exchanges_is_read_from_its_text():
    exchanges = met(TEXT)
    assert exchanges == (
        "f32[4,1]{1,0} all-reduce replica_groups={{0,1,2}}",
        "(f32[2]{0}, f32[3]{0}) all-gather-start replica_groups=[1,3]<=[3]",
        "f32[8]{0} all-reduce replica_groups={{0,1},{2}}",
    )
    assert [is_of_all(exchange, 3) for exchange in exchanges] == [True, True, False]


OF_SEVERAL = """
  %a = f32[4]{0} all-reduce(%x), channel_id=1, replica_groups=[2,2]<=[4], use_global_device_ids=true, to_apply=%r
  %b = f32[3,3]{1,0} all-reduce(%y), channel_id=2, replica_groups={{0,2},{1,3}}, to_apply=%r
  %c = f32[8]{0} all-gather(%z), channel_id=3, replica_groups=[2,2]<=[2,2]T(1,0), dimensions={0}
  %d = f32[5]{0} all-reduce(%y), channel_id=4, replica_groups={{0,1,2,3}}, to_apply=%r
"""


def test_what_the_devices_of_one_rank_exchange_is_no_matter_of_the_others():
    exchanges = met(OF_SEVERAL, 2)
    assert exchanges == (
        "f32[3,3]{1,0} all-reduce replica_groups={{0,1}} of {{0,2},{1,3}}",
        "f32[8]{0} all-gather replica_groups={{0,1}} of [2,2]<=[2,2]T(1,0)",
        "f32[5]{0} all-reduce replica_groups={{0,1}} of {{0,1,2,3}}",
    )
    assert all(is_of_all(exchange, 2) for exchange in exchanges)
    assert not any(is_of_all(exchange, 3) for exchange in exchanges)
    assert len(met(OF_SEVERAL)) == 4


def test_what_is_assumed_of_the_others_is_of_its_ranks():
    assert (is_of_all("[0, 1, 2] [[4]]", 3), is_of_all("[0, 1] [[4]]", 3)) == (True, False)


@pytest.mark.parametrize(("visible", "local", "devices", "cards"), [
    ("3", 1, 1, None), ("", 1, 1, None), ("0,1,2,3", 1, 1, [1]), ("2,3", 3, 1, [1]), (None, 1, 1, [1]),
    ("4,5", 1, 2, None), ("0,1,2,3", 1, 2, [2, 3]), ("0,1,2,3", 1, "all", [2, 3]), ("0", 0, "all", None),
])  # fmt: skip
def test_a_rank_that_sees_several_cards_takes_its_own(monkeypatch, tmp_path, visible, local, devices, cards):
    for number in range(2):
        (tmp_path / ("nvidia%d" % number)).touch()
    monkeypatch.setattr(of_ranks, "CARDS", str(tmp_path / "nvidia[0-9]*"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert of_ranks.own_cards(of_ranks.Job("a:1", 4, local, local, 1, (), devices, 2)) == cards


class TestWhetherRanksHaveAProgramTogether:
    """In a job of three: all exchange A, ranks 0 and 1 exchange B besides."""

    A, B, C = "f32[4] all-reduce replica_groups={{0,1,2}}", "f32[8] all-reduce replica_groups={{0,1},{2}}", "s32[1] x"

    @pytest.fixture(autouse=True)
    def three_ranks(self, monkeypatch):
        monkeypatch.setattr(ranks, "addresses", lambda: ["a:1", "b:2", "c:3"])

    def rows(self, *exchanges):
        groups = [{1: [0, 1, 2], 7: [0, 1]}, {1: [0, 1, 2], 7: [0, 1]}, {1: [0, 1, 2]}]
        self.meetings = [cluster.Meeting(None, [0, 1, 2], known) for known in groups]
        return [together.brought(meeting, asked) for meeting, asked in zip(self.meetings, exchanges)]

    @pytest.mark.parametrize(("exchanges", "words"), [
        ([(A, B), (A, B), (A,)], ""),
        ([(A, B), None, (A,)], "rank 1 (b:2) has no program of it"),
        ([(A, B), (B, A), (A,)], "rank 0 (a:1) and rank 1 (b:2) exchange in another order, or in other sizes"),
        ([(A, B), (A, B), (A, A)], "rank 0 (a:1) and rank 2 (c:3) exchange in another order, or in other sizes"),
    ])  # fmt: skip
    def test_all_find_the_same(self, exchanges, words):
        rows = self.rows(*exchanges)
        assert {together.apart(meeting, rows) for meeting in self.meetings} == {words}


def test_a_program_that_the_ranks_do_not_have_together_is_given_up_after_a_few_steps():
    run = together.Shared("the run of 'train'", step=object())
    for _ in range(together.MOST):
        assert run.step is not None
        run.missed("rank 1 (b:2) has no program of it")
    assert run.step is None


def test_where_jax_does_not_bring_the_ranks_together_a_line_says_so(monkeypatch, caplog):
    """Rank 0 tells that it has no service; so this one, rank 1, keeps the programs around what ranks exchange."""
    monkeypatch.setattr(ranks, "world_rank", lambda: 1)
    monkeypatch.setattr(ranks, "addresses", lambda: ["a:1", "b:2"])
    monkeypatch.setattr(watch, "told", lambda rank, name: "")
    monkeypatch.setattr(together, "_jobs", [])
    said = []
    monkeypatch.setattr(together.lines, "once", said.append)
    assert together.worker({}) is None
    assert together.worker({}) is None  # it is not tried again
    words = "the ranks' steps are cut where they meet: JAX's distributed runtime: rank 0 (a:1) has none"
    assert said == ["engine: " + words]
    assert watch._told.pop(together.TOLD) == ""


def test_ranks_with_different_numbers_of_devices_end_with_an_error(monkeypatch):
    monkeypatch.setattr(ranks, "world_rank", lambda: 1)
    monkeypatch.setattr(ranks, "addresses", lambda: ["a:1", "b:2"])
    monkeypatch.setattr(watch, "told", lambda rank, name: ["a:7", 2])
    monkeypatch.setattr(together, "_jobs", [])
    words = r"rank 1 \(b:2\) has devices=4, and rank 0 \(a:1\) 2: give all ranks the same number"
    with pytest.raises(together.Unlike, match=words):
        together.worker({"npu_shim_devices": "4"})
