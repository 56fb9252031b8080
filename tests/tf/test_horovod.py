"""`horovod` where Horovod is not installed: two ranks end with the weights of one process on the whole batch."""

import importlib
import json
import re
import sys

import forked
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from npu_shim.bridge import horovod
from npu_shim.bridge.horovod import callbacks
from npu_shim.bridge.horovod import tensorflow as hvd
from npu_shim.compat.keras import real_keras
from npu_shim.loss_scale import ExponentialUpdateLossScaleManager, NPULossScaleOptimizer, automatic

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
    "plain": {}, "dense": {"sparse_as_dense": True}, "passes": {"backward_passes_per_step": 2},
    "fp16": {"compression": hvd.Compression.fp16},
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
    "job": [hvd.size_op(), hvd.rank_op(name="r"), hvd.local_size_op(), hvd.local_rank_op(), hvd.size_op("s")],
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
seen["summed"] = float(hvd_keras.allreduce(hvd.rank() + 1.0, op=hvd_keras.Sum, prescale_factor=2.0))
"""
# collectives of every dtype, against what NumPy makes of both ranks' arrays; "off" lists those that differ
DTYPES = """
import ml_dtypes
from npu_bridge.npu_init import hccl_ops, npu_allreduce
tf.reset_default_graph()
SMALL = {"bool": [[True, False, False, True], [True, True, False, False]], "int8": [[-100, 3, 5, -7], [-27, 4, 5, 3]]}
FLOATS = [[1.5, -2.25, 3.0, -0.5], [2.0, 4.5, 3.0, 0.25]]
GIVEN = {
    **SMALL, "uint8": [[100, 3, 5, 250], [101, 4, 5, 3]], "int16": [[-30000, 3, 5, -7], [-2000, 4, 5, 3]],
    "uint16": [[65000, 3, 5, 7], [500, 4, 5, 3]], "int32": [[-(2**30), 3, 5, -7], [7, 4, 5, 3]],
    "uint32": [[2**31 + 5, 3, 5, 7], [2**31 - 9, 4, 5, 3]], "int64": [[-(2**40) - 7, 3, 5, -7], [2**60 + 1, 4, 5, 3]],
    "uint64": [[2**40 + 7, 2**63 + 5, 5, 7], [2**53 + 1, 4, 5, 3]],
    **dict.fromkeys(("float16", "bfloat16", "float32", "float64"), FLOATS),
    "complex64": [[1.5 + 2j, 3, 5j, -7 - 1j], [2 - 0.5j, 4, 2 + 1j, 3]],
    "complex128": [[1.5 + 2j, 3, 5j, -7 - 1j], [2 - 0.5j, 4, 2 + 1j, 3]],
}
rank, size = hvd.rank(), hvd.size()
got, want = {}, {}
with np.errstate(over="ignore"):
    for name, rows in GIVEN.items():
        both = np.array(rows, ml_dtypes.bfloat16 if name == "bfloat16" else name)[:size]
        whole, complex_, t = name.startswith(("int", "uint")), name.startswith("complex"), tf.constant(both[rank])
        total = both[0] + both[1] if size == 2 else both[0]
        exact = [sum(map(int, column)) for column in zip(*both)] if whole else None
        answers = {
            "sum": (hvd.allreduce(t, op=hvd.Sum), total), "send": (hvd.broadcast(t, size - 1), both[-1]),
            "product": (hvd.allreduce(t, op=hvd.Product), both[0] * both[1] if size == 2 else both[0]),
            "rows": (hvd.allgather(t), both.reshape(-1)), "all": (hccl_ops.allgather(t, size), both.reshape(-1)),
            "part": (hccl_ops.reduce_scatter(t, "sum", size), np.split(total, size)[rank]),
            "two": (hccl_ops.broadcast([t, t + t if name != "bool" else t], 0)[0], both[0]),
        }
        if not complex_:
            low, high = both.min(0), both.max(0)
            answers.update(
                max=(hvd.allreduce(t, op=hvd.Max), high), min=(hvd.allreduce(t, op=hvd.Min), low),
                top=(hccl_ops.reduce_scatter(t, "max", size), np.split(high, size)[rank]),
            )
        if name != "bool":
            mean = [abs(n) // size * (-1 if n < 0 else 1) for n in exact] if whole else total / size  # whole: cut off
            answers["mean"] = hvd.allreduce(t), np.array(mean, both.dtype)
        if whole and size == 2 and name not in ("int64", "uint64"):
            answers["float mean"] = npu_allreduce(t), both.mean(0, np.float64)
        for which, (tensor, wanted) in answers.items():
            got["%s of %s" % (which, name)], want["%s of %s" % (which, name)] = tensor, wanted
    c = tf.constant(np.complex64(GIVEN["complex64"][rank]))
    factor = [np.complex64(row) for row in GIVEN["complex64"][:size]]
    for op, others in ((hvd.Sum, 1), (hvd.Product, np.conj(factor[1 - rank]) if size == 2 else 1)):
        # of the sum of both ranks' real parts: a gradient of 1 from each
        got["gradient of " + op] = tf.gradients(tf.math.real(hvd.allreduce(c, op=op)), c)[0]
        want["gradient of " + op] = np.complex64(size * np.ones(4) * others)
with tf.Session() as session:
    got = session.run(got)
same = lambda a, b: a.dtype == b.dtype and a.shape == b.shape and (a == b).all()
seen["off"] = {name: [str(got[name]), str(value)] for name, value in want.items() if not same(got[name], value)}
seen["compared"] = len(want)
seen["refused"] = []
for ask in (lambda: hvd.broadcast(tf.constant("a", name="words"), 0), lambda: hvd.allreduce(c, op=hvd.Max),
            lambda: hvd.allreduce(tf.constant([True]))):
    try:
        ask()
    except ValueError as error:
        seen["refused"].append(str(error))
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
    (folder / "train.py").write_text(TRAIN + KERAS + DTYPES + TELL)
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
            low = number >= 6  # gradients that travelled in float16, four steps of momentum 0.9
            assert weights == pytest.approx(tf.nest.flatten(wanted), abs=2.0**-10 if low else 2.0**-21)
    assert both[0]["weights"] == both[1]["weights"]


def test_collectives(seen):
    for rank, one in enumerate(seen[2]):
        assert one["values"] == {
            "gathered": [0, 1, 1], "mean": 1.5, "sum": 3, "max": 2, "scaled": 3, "halves": 15, "whole": 2, "sent": 2,
            "job": [2, rank, 2, rank, 2],
        }  # fmt: skip
    assert seen[1][0]["values"] == {
        "gathered": [0], "mean": 1, "sum": 1, "max": 1, "scaled": 1, "halves": 5, "whole": 0, "sent": 1,
        "job": [1, 0, 1, 0, 1],
    }  # fmt: skip


def test_collectives_of_every_dtype_are_numpys(seen):
    for runs in seen.values():
        for one in runs:
            assert (one["off"], one["compared"] > 120) == ({}, True)
    average = "npu_shim: hvd.allreduce: the average of bool is no bool: cast it, or use op=hvd.Max or hvd.Min"
    assert seen[1][0]["refused"] == [average]  # one rank exchanges nothing
    for one in seen[2]:
        text, order, told = one["refused"]
        assert text == "npu_shim: ranks cannot exchange 'words:0': it is string, expected numbers or bool"
        assert "which is complex64: complex numbers have no order, expected 'sum' or 'prod'" in order
        assert told == average


def test_keras(seen):
    [alone], both = seen[1], seen[2]
    assert both[0]["keras"] == both[1]["keras"]
    wanted = tf.nest.flatten(alone["keras"])
    assert tf.nest.flatten(both[0]["keras"]) == pytest.approx(wanted, abs=2.0**-20)
    for one in both:
        assert one["loss"] == pytest.approx(alone["loss"], rel=2.0**-18)  # averaged over the ranks
        assert one["lr"] == pytest.approx([0.4, 0.4, 0.1, 0.05])
        assert (one["reduced"], one["summed"]) == (1.5, 6.0)


def test_misspelt_arguments_are_errors():
    for name in ("allreduce", "allgather", "broadcast", "broadcast_variables", "DistributedOptimizer"):
        root = {"root_rank": 0} if name.startswith("broadcast") else {}
        told = "hvd.%s() got an unexpected keyword argument 'comprssion'" % name
        with pytest.raises(TypeError, match=re.escape(told)):
            getattr(hvd, name)([1.0], comprssion=None, **root)


@pytest.mark.parametrize(
    ("given", "meant"), [((3,), (None, 3)), ((0.5,), (0.5, 5)), ((0.5, 3), (0.5, 3)), ((1, 3), (1, 3)), ((), (None, 5))]
)
def test_a_warm_up_takes_its_epochs_first_too_as_before_horovod_0_21(given, meant):
    warm_up = callbacks.LearningRateWarmupCallback(*given)
    assert (warm_up.initial_lr, warm_up.end_epoch) == meant


def test_tf_keras_has_a_session_of_its_own_beside_a_real_keras(monkeypatch):
    def no_keras(name):
        raise AssertionError("the package keras is asked for its " + name)

    monkeypatch.setattr(real_keras, "_module", no_keras)
    of_tf = importlib.import_module(horovod.FACES["horovod.tensorflow.keras"])
    tf.keras.backend.clear_session()
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])
    model.compile(tf.keras.optimizers.SGD(0.5), "mse")
    monkeypatch.setattr(hvd, "broadcast_global_variables", lambda root: tf.global_variables_initializer())
    of_tf.broadcast_global_variables(0)
    halves = of_tf.callbacks.LearningRateScheduleCallback(0.5, lambda epoch: 0.5)
    assert model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0, callbacks=[halves]).history["lr"] == [0.25]
    tf.keras.backend.clear_session()


@pytest.mark.nightly  # test_rank_collectives.py has an overflow of one rank
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

    @pytest.mark.parametrize("name", sorted(horovod.FACES))
    def test_each_module_is_imported_in_each_form(self, name):
        above, _, last = name.rpartition(".")
        face = importlib.import_module(horovod.FACES[name])
        shown = next(key for key, value in vars(face).items() if isinstance(value, type))
        for form in (
            "import %s; got = %s.%s" % (name, name, shown), "import %s as m; got = m.%s" % (name, shown),
            "from %s import %s as m; got = m.%s" % (above, last, shown), "from %s import %s as got" % (name, shown),
            "from %s import *; got = %s" % (name, shown),
        ):  # fmt: skip
            names = {}
            exec(form, names)
            assert names["got"] is getattr(face, shown), form
            for module in [module for module in sys.modules if module.partition(".")[0] == horovod.ROOT]:
                del sys.modules[module]

    def test_before_init(self):
        hvd = importlib.import_module("horovod.tensorflow")
        hvd.shutdown()
        with pytest.raises(ValueError, match=r"Horovod has not been initialized; use hvd.init\(\)"):
            hvd.rank()
        with pytest.raises(ValueError, match="has not been initialized"):
            hvd.mpi_threads_supported()
        assert [hvd.nccl_built(), hvd.mpi_built(), hvd.gloo_built(), hvd.mpi_enabled()] == [0, False, False, False]
        assert importlib.import_module("horovod").__version__.split(".") >= ["0", "19"]
        with tf.Graph().as_default(), pytest.raises(ValueError, match="process_set_id=2 is not here"):
            hvd.size_op(2)

    @pytest.mark.parametrize(("options", "words"), [
        ({"backward_passes_per_step": 0}, "every=0 is not accepted, expected a whole number of at least 1"),
        ({"op": "adasum"}, "hvd.Adasum is not here"),
        ({"op": "average"}, "op is 'average', expected hvd.Average"),
        ({"op": "sum", "gradient_predivide_factor": 2.0}, "gradient_predivide_factor not supported with op != Average"),
    ])  # fmt: skip
    def test_what_the_optimizer_refuses(self, options, words):
        hvd = importlib.import_module("horovod.tensorflow")
        with pytest.raises(ValueError, match=words):
            hvd.DistributedOptimizer(tf.train.GradientDescentOptimizer(0.1), **options)

    @pytest.mark.parametrize(("average", "moved"), [(False, 4.0), (True, 1.0)])
    def test_several_backward_passes_apply_the_sum_of_their_gradients(self, average, moved):
        hvd = importlib.import_module("horovod.tensorflow")
        hvd.init()
        with tf.Graph().as_default(), tf.Session() as session:
            x = tf.placeholder(tf.float32, [])
            dense, rows = tf.get_variable("dense", initializer=0.0), tf.get_variable("rows", initializer=[0.0, 0.0])
            loss = x * (dense + tf.gather(rows, 1))
            options = {"backward_passes_per_step": 4, "average_aggregated_gradients": average}
            step = tf.train.create_global_step()
            train = hvd.DistributedOptimizer(tf.train.GradientDescentOptimizer(0.5), **options).minimize(loss, step)
            session.run(tf.global_variables_initializer())
            told = []
            for value in (1.0, 0.0, 1.0, 2.0, 5.0):
                session.run(train, {x: value})
                told.append(session.run([dense, rows, step]))
        for at, (one, both, count) in enumerate(told):
            wanted = -0.5 * moved if at >= 3 else 0.0
            assert (one, both.tolist(), count) == (wanted, [0.0, wanted], at + 1)  # the step counts all

    def test_several_backward_passes_of_a_keras_optimizer(self):
        hvd = importlib.import_module("horovod.tensorflow.keras")
        hvd.init()
        names = []
        for options, moved in (
            ({"backward_passes_per_step": 4}, 2.0), ({}, 0.5),
            ({"backward_passes_per_step": 4, "average_aggregated_gradients": True}, 0.5),
        ):  # fmt: skip
            tf.keras.backend.clear_session()
            layer = tf.keras.layers.Embedding(2, 1, input_length=1, embeddings_initializer="zeros")
            model = tf.keras.Sequential([layer, tf.keras.layers.Flatten()])
            optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.5, momentum=0.9), **options)
            model.compile(optimizer, "mae")
            rows = []
            for weight in (1.0, 0.0, 1.0, 2.0, 5.0)[: 5 if options else 1]:
                model.train_on_batch([[1]], [[100.0]], sample_weight=np.array([weight]))
                rows.append(model.get_weights()[0].ravel().tolist())
            assert rows == [[0, 0]] * (3 if options else 0) + [[0, moved]] * (2 if options else 1)
            assert tf.keras.backend.get_value(optimizer.iterations) == (5 if options else 1)
            names.append([weight.name for weight in optimizer.weights])
        assert names[0] == names[1] == names[2]
        with pytest.raises(ValueError, match="every=0 is not accepted"):
            hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1), backward_passes_per_step=0)

    @pytest.mark.parametrize("how", ["around", "inside", "automatic", "keras"])
    def test_several_backward_passes_with_a_loss_scale(self, how, without_automatic_scale):
        hvd = importlib.import_module("horovod.tensorflow")
        hvd.init()
        if how in ("automatic", "keras"):
            automatic.install("auto", lambda: True)
        with tf.Graph().as_default(), tf.Session() as session:
            x, w = tf.placeholder(tf.float32, []), tf.get_variable("w", initializer=0.0, use_resource=True)
            optimizer = (tf.keras.optimizers.SGD if how == "keras" else tf.train.GradientDescentOptimizer)(0.5)
            manager = ExponentialUpdateLossScaleManager(2.0**10, 1000, decr_every_n_nan_or_inf=1, decr_ratio=0.5)
            if how == "inside":
                optimizer = NPULossScaleOptimizer(optimizer, manager)
            optimizer = hvd.DistributedOptimizer(optimizer, backward_passes_per_step=2)
            if how == "around":
                optimizer = NPULossScaleOptimizer(optimizer, manager)
            train = optimizer.get_updates(x * w, [w]) if how == "keras" else optimizer.minimize(x * w)
            session.run(tf.global_variables_initializer())
            told = []
            for value in (1.0, 2.0, 4.0, np.inf, 1.0, 1.0, 3.0):
                session.run(train, {x: value})
                told.append(float(session.run(w)))
        # a scale inside skips the window in which a pass overflows; the others leave that pass out of it
        after = [-1.5, -2.5, -2.5] if how == "inside" else [-4.0, -4.0, -6.0]
        assert told == [0.0, -1.5, -1.5, -1.5, *after]

    def test_an_optimizer_of_another_kind(self):
        hvd = importlib.import_module("horovod.tensorflow")
        with pytest.raises(ValueError, match="doesn't inherit from either"):
            hvd.DistributedOptimizer(object())
