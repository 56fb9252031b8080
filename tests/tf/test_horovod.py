"""`horovod` where Horovod is not installed: two ranks end with the weights of one process on the whole batch."""

import importlib
import json
import sys

import forked
import pytest
import tensorflow.compat.v1 as tf

from npu_shim.bridge import horovod

TRAIN = """
import json, sys
import numpy as np, tensorflow as tf
import horovod.tensorflow as hvd
hvd.init()
seen = {"rank": hvd.rank(), "local": [hvd.local_rank(), hvd.local_size()], "size": hvd.size()}
r = np.random.RandomState(0)
X, I, Y = r.rand(8, 6).astype("f"), r.randint(0, 5, 8), r.rand(8, 3).astype("f")
mine = slice(hvd.rank(), None, hvd.size())
x, y = tf.placeholder(tf.float32, [None, 6]), tf.placeholder(tf.float32, [None, 3])
i = tf.placeholder(tf.int32, [None])
for name, options in {
    "plain": {}, "dense": {"sparse_as_dense": True}, "fp16": {"compression": hvd.Compression.fp16},
}.items():
    with tf.variable_scope(name, initializer=tf.random_uniform_initializer(-1, 1, seed=1 + hvd.rank())):
        rows, w = tf.get_variable("rows", [5, 6]), tf.get_variable("w", [6, 3])
        loss = tf.reduce_mean(tf.square(tf.matmul(x + tf.nn.embedding_lookup(rows, i), w) - y))
        step = tf.train.create_global_step() if name == "plain" else None
        optimizer = hvd.DistributedOptimizer(tf.train.MomentumOptimizer(0.1, 0.9), **options)
        tf.add_to_collection("train", optimizer.minimize(loss, step))
        assert optimizer.get_slot_names() == ["momentum"]
        tf.add_to_collection("read", rows)
        tf.add_to_collection("read", w)
config = tf.ConfigProto()
config.gpu_options.visible_device_list = str(hvd.local_rank())
hooks = [hvd.BroadcastGlobalVariablesHook(0), tf.train.StopAtStepHook(last_step=4)]
one = tf.constant(hvd.rank() + 1.0)
asked = {
    "gathered": hvd.allgather(tf.fill([hvd.rank() + 1], float(hvd.rank()))),
    "mean": hvd.allreduce(one), "sum": hvd.allreduce(one, average=False), "max": hvd.allreduce(one, op=hvd.Max),
    "scaled": hvd.allreduce(one, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.5),
    "halves": hvd.allreduce(tf.constant(10 * hvd.rank() + 10), op=hvd.Sum, prescale_factor=0.5),
    "whole": hvd.allreduce(tf.constant(4 * hvd.rank())), "sent": hvd.broadcast(one, hvd.size() - 1),
}
with tf.train.MonitoredTrainingSession(hooks=hooks, config=config) as session:
    while not session.should_stop():
        values, weights, _ = session.run(
            [asked, tf.get_collection("read"), tf.get_collection("train")], {x: X[mine], y: Y[mine], i: I[mine]}
        )
seen["values"] = {name: np.asarray(value).tolist() for name, value in values.items()}
seen["weights"] = [value.tolist() for value in weights]
"""
KERAS = """
import horovod.tensorflow.keras as hvd_keras
from horovod.keras import callbacks
tf.reset_default_graph()
tf.keras.backend.clear_session()
start = tf.keras.initializers.RandomUniform(-1, 1, seed=1 + hvd.rank())
model = tf.keras.Sequential([tf.keras.layers.Dense(3, input_shape=(6,), kernel_initializer=start)])
optimizer = hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.4, momentum=0.5))
model.compile(optimizer, "mse")
hvd_keras.broadcast_global_variables(0)
told = model.fit(X[mine], Y[mine], batch_size=len(X[mine]), epochs=4, verbose=0, shuffle=False, callbacks=[
    callbacks.BroadcastGlobalVariablesCallback(0), callbacks.MetricAverageCallback(),
    callbacks.LearningRateScheduleCallback(0.4, lambda epoch: 0.5 ** epoch, start_epoch=2),
]).history
seen["keras"] = [value.tolist() for value in model.get_weights()]
seen["loss"], seen["lr"] = [float(loss) for loss in told["loss"]], [float(lr) for lr in told["lr"]]
seen["reduced"] = float(hvd_keras.allreduce(hvd.rank() + 1.0))
"""
CLIPPED = """
import json
import numpy as np, tensorflow as tf
import horovod.tensorflow as hvd
hvd.init()
x, w = tf.placeholder(tf.float32, [2, 3]), tf.get_variable("w", initializer=np.eye(3, dtype="f"))
loss, step = tf.reduce_mean(tf.square(tf.matmul(x, w) - 0.5)), tf.train.create_global_step()
optimizer = tf.train.AdamOptimizer(0.1)
pairs = [(tf.where(tf.is_nan(g), tf.zeros_like(g), g), v) for g, v in optimizer.compute_gradients(loss)]
pairs = [(hvd.allreduce(tf.clip_by_value(g, -1.0, 1.0)), v) for g, v in pairs]
train = optimizer.apply_gradients(pairs, step)
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for bad in (False, True, False):
        session.run(train, {x: np.full([2, 3], np.inf if bad and hvd.rank() == 1 else 0.1 + hvd.rank())})
    scale = session.run(tf.get_collection("npu_shim/loss_scale"))
    seen = {"step": int(session.run(step)), "w": session.run(w).tolist(), "scale": [float(value) for value in scale]}
"""
TELL = """
print("SEEN", json.dumps(seen), flush=True)
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """{number of ranks: what each of them has seen}, for one and two."""
    folder = tmp_path_factory.mktemp("horovod")
    (folder / "train.py").write_text(TRAIN + KERAS + TELL)
    commands = [("npu-shim run train.py", folder), ("npu-shim launch -n 2 train.py", folder)]
    runs = {}
    for count, done in zip((1, 2), forked.run(commands)):
        assert done.status == 0, done.output
        told = [json.loads(line.split("SEEN ")[1]) for line in done.output.splitlines() if "SEEN {" in line]
        runs[count] = sorted(told, key=lambda one: one["rank"])
    return runs


def test_two_ranks_have_the_weights_of_one_process(seen):
    [alone], both = seen[1], seen[2]
    assert [one["rank"] for one in both] == [0, 1]
    assert [one["size"] for one in both] == [2, 2]
    assert [one["local"] for one in both] == [[0, 2], [1, 2]]
    for one in both:
        flat = [tf.nest.flatten(weights) for weights in one["weights"]]
        for number, (weights, wanted) in enumerate(zip(flat, alone["weights"])):
            low = number >= 4  # gradients that travelled in float16, four steps of momentum 0.9
            assert weights == pytest.approx(tf.nest.flatten(wanted), abs=2.0**-10 if low else 2.0**-21)
    assert both[0]["weights"] == both[1]["weights"]


def test_collectives(seen):
    for one in seen[2]:
        assert one["values"] == {
            "gathered": [0, 1, 1], "mean": 1.5, "sum": 3, "max": 2, "scaled": 3, "halves": 15, "whole": 2, "sent": 2,
        }  # fmt: skip
    assert seen[1][0]["values"] == {
        "gathered": [0], "mean": 1, "sum": 1, "max": 1, "scaled": 1, "halves": 5, "whole": 0, "sent": 1,
    }  # fmt: skip


def test_keras(seen):
    [alone], both = seen[1], seen[2]
    assert both[0]["keras"] == both[1]["keras"]
    wanted = tf.nest.flatten(alone["keras"])
    assert tf.nest.flatten(both[0]["keras"]) == pytest.approx(wanted, abs=2.0**-20)
    for one in both:
        assert one["loss"] == pytest.approx(alone["loss"], rel=2.0**-18)  # averaged over the ranks
        assert one["lr"] == pytest.approx([0.4, 0.4, 0.1, 0.05])
        assert one["reduced"] == 1.5


def test_ranks_skip_a_step_together_whose_overflow_is_clipped_before_they_exchange_it(tmp_path):
    (tmp_path / "train.py").write_text(CLIPPED + TELL)
    command = "npu-shim launch -n 2 --precision-mode allow_mix_precision train.py"
    [done] = forked.run([(command, tmp_path)])
    assert done.status == 0, done.output
    one, other = [json.loads(line.split("SEEN ")[1]) for line in done.output.splitlines() if "SEEN {" in line]
    assert one == other
    assert (one["step"], one["scale"]) == (2, [2.0**14])


class TestNames:
    @pytest.fixture(autouse=True)
    def installed(self, monkeypatch):
        known = [name for name in sys.modules if name.partition(".")[0] == horovod.ROOT]
        monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
        horovod.install()
        yield
        for name in [name for name in sys.modules if name.partition(".")[0] == horovod.ROOT and name not in known]:
            del sys.modules[name]

    def test_a_second_install_does_nothing(self):
        before = list(sys.meta_path)
        horovod.install()
        assert sys.meta_path == before

    def test_it_stays_out_where_horovod_is(self, monkeypatch, tmp_path):
        monkeypatch.setattr(sys, "meta_path", [f for f in sys.meta_path if not isinstance(f, horovod.Finder)])
        (tmp_path / "horovod").mkdir()
        (tmp_path / "horovod" / "__init__.py").write_text("own = True")
        monkeypatch.syspath_prepend(str(tmp_path))
        horovod.install()
        assert not any(isinstance(finder, horovod.Finder) for finder in sys.meta_path)
        assert importlib.import_module("horovod").own

    @pytest.mark.parametrize(("name", "words"), [
        ("horovod.tensorflow.elastic", "as many workers from beginning to end"),
        ("horovod.torch", "it is for PyTorch"),
        ("horovod.nothing", "npu_shim has horovod.keras"),
    ])  # fmt: skip
    def test_a_module_that_is_not_here_says_what_to_do(self, name, words):
        with pytest.raises(ImportError, match=words):
            importlib.import_module(name)

    @pytest.mark.parametrize("name", ["horovod.tensorflow", "horovod.keras", "horovod.tensorflow.keras"])
    def test_elastic_is_refused_by_name(self, name):
        with pytest.raises(AttributeError, match="elastic is not here"):
            importlib.import_module(name).elastic  # noqa: B018

    def test_before_init(self):
        hvd = importlib.import_module("horovod.tensorflow")
        hvd.shutdown()
        with pytest.raises(ValueError, match=r"Horovod has not been initialized; use hvd.init\(\)"):
            hvd.rank()

    @pytest.mark.parametrize(("options", "words"), [
        ({"backward_passes_per_step": 4}, "AccumulatingOptimizer"),
        ({"op": "adasum"}, "hvd.Adasum is not here"),
        ({"op": "average"}, "op is 'average', expected hvd.Average"),
        ({"op": "sum", "gradient_predivide_factor": 2.0}, "gradient_predivide_factor not supported with op != Average"),
    ])  # fmt: skip
    def test_what_the_optimizer_refuses(self, options, words):
        hvd = importlib.import_module("horovod.tensorflow")
        with pytest.raises(ValueError, match=words):
            hvd.DistributedOptimizer(tf.train.GradientDescentOptimizer(0.1), **options)

    def test_an_optimizer_of_another_kind(self):
        hvd = importlib.import_module("horovod.tensorflow")
        with pytest.raises(ValueError, match="doesn't inherit from either"):
            hvd.DistributedOptimizer(object())
