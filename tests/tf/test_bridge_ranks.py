"""Two processes of one job: their collectives, and a training that is the one of a single process on all data."""

import itertools
import json
import re
import threading

import forked
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from npu_shim import cli
from npu_shim.distributed.collectives import hccl
from npu_shim.distributed.job import cluster
from npu_shim.distributed.launcher import layout

COLLECTIVES = """
from npu_bridge.npu_init import *
import json
rank = get_rank_id()
create_group("backwards", 2, [1, 0])
x = tf.constant([1.0 + rank, 4.0])
v = tf.get_variable("v", initializer=[10.0 * rank, 1.0])
y = hccl_ops.allreduce(x * v, "sum")
fetches = {reduction: hccl_ops.allreduce(x, reduction) for reduction in ("sum", "prod", "max", "min")}
fetches.update(
    gathered=hccl_ops.allgather(x, 2),
    gathered_backwards=hccl_ops.allgather(x, 2, group="backwards"),
    sent=hccl_ops.broadcast([v], 1)[0],
    first=hccl_ops.broadcast([x], 0, group="backwards")[0],
    scattered=hccl_ops.reduce_scatter(x, "sum", 2),
    gradient=tf.gradients(y, v)[0],
    mean=npu_allreduce([x])[0],
)
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    first = session.run(fetches)
    again = session.run(fetches)
    try:
        session.partial_run_setup([y, x], [])
    except tf.errors.OpError as error:
        refused = [type(error).__name__, error.message]
    handle = session.partial_run_setup([x], [])  # without collectives it works
    assert session.partial_run(handle, x).tolist() == [1.0 + rank, 4.0]
assert all((first[name] == again[name]).all() for name in first)
print(json.dumps([get_rank_size(), rank, {name: value.tolist() for name, value in first.items()}, refused]))
"""

# rank r sends r + 1 elements to rank 0, one to rank 1, none to rank 2
EXCHANGES = """
from npu_bridge.npu_init import *
import json, time
rank = get_rank_id()
matrix = [[r + 1, 1, 0] for r in range(3)]
counts, received = matrix[rank], [row[rank] for row in matrix]
begins = [sum(counts[:i]) for i in range(3)]
data = tf.constant([100.0 * rank + i for i in range(sum(counts))])
fetches = {
    "v_c": hccl_ops.all_to_all_v_c(data, matrix, rank),
    "v": hccl_ops.all_to_all_v(data, counts, begins, received, [4, 2, 0] if rank == 1 else [0, 1, 3]),
}
square = tf.constant([[1.0 + rank, r + 2.0] for r in range(3)])
fetches.update({name: hccl_ops.reduce_scatter(square, name, 3) for name in ("sum", "prod", "max", "min")})
fetches["gradient"] = tf.gradients(fetches["sum"] * (rank + 1.0), square)[0]
with tf.Session() as session:
    first = session.run(fetches)
    again = session.run(fetches)
assert all((first[name] == again[name]).all() for name in first)
found = {name: value.tolist() for name, value in first.items()}

# groups that not all ranks are in, in runs of their own and together with the world's
mine = tf.constant([10.0 ** rank])
everyone, pairs = hccl_ops.allreduce(mine, "sum"), {"pair": [2, 0], "low": [0, 1], "high": [1, 2]}
for name, members in pairs.items():
    if rank in members:
        create_group(name, 2, members)
inside = {name: hccl_ops.allreduce(mine, "sum", group=name) for name in pairs if rank in pairs[name]}
if rank in pairs["pair"]:
    turned = tf.constant([[rank], [5 + rank]])
    inside["turned"] = hccl_ops.reduce_scatter(turned, "sum", 2, group="pair")
together = [everyone, inside["pair"]] if "pair" in inside else [everyone]
with tf.Session() as session:
    found["together"] = [[value.tolist() for value in session.run(together)] for _ in range(2)]
    found["inside"] = {name: session.run(inside[name]).tolist() for name in sorted(inside) for _ in range(2)}
    found["everyone"] = session.run(everyone).tolist()
    if rank == 1:
        try:
            session.run([inside["low"], inside["high"]])
        except tf.errors.InvalidArgumentError as error:
            found["refused"] = error.message
time.sleep(1)  # a fork ends without waiting for the others, which may still read from it
print(json.dumps(found))
"""

TRAINING = """
from npu_bridge.npu_init import *
import json, sys
import numpy as np
rank, size = get_rank_id(), get_rank_size()
tf.set_random_seed(rank)
data = np.random.RandomState(0).randn(32, 3).astype(np.float32)
x = tf.constant(data[rank::size])
start = [np.random.RandomState(seed).randn(*shape) for seed, shape in ((1 + rank, (3, 4)), (3 + rank, (4, 1)))]
v, w = [tf.get_variable("v%d" % i, initializer=np.float32(each)) for i, each in enumerate(start)]
loss = tf.reduce_mean(tf.square(tf.matmul(tf.tanh(tf.matmul(x, v)), w) - x[:, :1]))
manager = ExponentialUpdateLossScaleManager(2**10, 10, 2, decr_ratio=0.5)
optimizer = NPULossScaleOptimizer(npu_tf_optimizer(tf.train.MomentumOptimizer(0.02, 0.9)), manager, is_distributed=True)
step = tf.train.get_or_create_global_step()
train = optimizer.minimize(loss, global_step=step)
config = tf.ConfigProto()
entry = config.graph_options.rewrite_options.custom_optimizers.add()
entry.name = "NpuOptimizer"
entry.parameter_map["precision_mode"].s = sys.argv[1].encode()
with tf.train.MonitoredTrainingSession(config=config, hooks=npu_hooks_append()) as session:
    for _ in range(30):
        session.run(train)
    print(json.dumps([int(session.run(step)), *[each.tolist() for each in session.run([v, w])]]))
"""


# each rank begins with weights of its own and sees a data set of its own
ESTIMATOR = """
from npu_bridge.npu_init import *
import json, tempfile
import numpy as np
rank = get_rank_id()
def model_fn(features, labels, mode):
    start = np.random.RandomState(rank).randn(4, 1).astype(np.float32)
    weight = tf.get_variable("w", initializer=start)
    loss = tf.reduce_mean(tf.square(tf.matmul(features, weight) - labels))
    step = npu_tf_optimizer(tf.train.MomentumOptimizer(0.05, 0.9)).minimize(loss, tf.train.get_global_step())
    return NPUEstimatorSpec(mode, loss=loss, train_op=step)
def input_fn():
    x, y = np.split(np.random.RandomState(7 + rank).randn(8, 5).astype(np.float32), [4], 1)
    return tf.data.Dataset.from_tensors((x, y)).repeat()
config = NPURunConfig(model_dir=tempfile.mkdtemp(), precision_mode="force_fp32", iterations_per_loop=2)
estimator = NPUEstimator(model_fn, config=config)
estimator.train(input_fn, max_steps=5)
print(json.dumps(estimator.get_variable_value("w").tolist()))
"""

# both ranks have one folder; the second job goes on from the checkpoints of the first
SHARED = """
from npu_bridge.npu_init import *
import json, os, sys
import numpy as np
rank = get_rank_id()
def model_fn(features, labels, mode):
    weight = tf.get_variable("w", initializer=np.random.RandomState(rank).randn(4, 1).astype(np.float32))
    loss = tf.reduce_mean(tf.square(tf.matmul(features, weight) - labels))
    tf.summary.scalar("of all ranks", hccl_ops.allreduce(loss, "sum"))
    step = npu_tf_optimizer(tf.train.MomentumOptimizer(0.05, 0.9)).minimize(loss, tf.train.get_global_step())
    return NPUEstimatorSpec(mode, loss=loss, train_op=step)
def input_fn():
    x, y = np.split(np.random.RandomState(7 + rank).randn(8, 5).astype(np.float32), [4], 1)
    return tf.data.Dataset.from_tensors((x, y)).repeat()
steps = {"save_checkpoints_steps": 2, "save_summary_steps": 2}
estimator = NPUEstimator(model_fn, config=NPURunConfig(model_dir=sys.argv[1], precision_mode="force_fp32", **steps))
written = []
events = tf.summary.FileWriter
for cls, method in ((events, "add_event"), (events, "add_summary"), (tf.train.Saver, "save")):
    def noted(*args, original=getattr(cls, method), **kwargs):
        written.append(original.__name__)
        return original(*args, **kwargs)
    setattr(cls, method, noted)
estimator.train(input_fn, max_steps=int(sys.argv[2]))
values = [estimator.get_variable_value(name).tolist() for name in sorted(estimator.get_variable_names())]
print(json.dumps([sorted(set(written)), values]))
"""

# who calls what of hooks and listeners: two ranks, or a chief and a worker of plain TensorFlow that share a server
HOOKS = """
import json, sys, tempfile
if sys.argv[1] == "plain":
    import tensorflow.compat.v1 as tf
    tf.disable_v2_behavior()
else:
    from npu_bridge.npu_init import *

METHODS = {
    tf.train.SessionRunHook: ("begin", "after_create_session", "before_run", "after_run", "end"),
    tf.train.CheckpointSaverListener: ("begin", "before_save", "after_save", "end"),
}

def seen(estimator, spec, config, optimizer):
    called = set()
    def logged(kind, name):
        made = kind()
        for method in METHODS[kind]:
            setattr(made, method, lambda *_, method=method, **__: called.add(name + " " + method))
        return made
    def model_fn(features, labels, mode):
        loss = tf.reduce_mean(tf.square(tf.matmul(features, tf.get_variable("w", [4, 1]))))
        step = optimizer(0.1).minimize(loss, tf.train.get_global_step())
        hooks = {each: [logged(tf.train.SessionRunHook, each)] for each in ("training_hooks", "training_chief_hooks")}
        return spec(mode, loss=loss, train_op=step, **hooks)
    made = estimator(model_fn, config=config)
    hook, listener = logged(tf.train.SessionRunHook, "hooks"), logged(tf.train.CheckpointSaverListener, "listeners")
    made.train(lambda: tf.data.Dataset.from_tensors(tf.ones([2, 4])).repeat(), [hook], 4, saving_listeners=[listener])
    return sorted(called)

folder = sys.argv[2]
if sys.argv[1] == "plain":
    of, server = tf.estimator, tf.train.Server.create_local_server()
    found = []
    for is_chief in (True, False):
        config = of.RunConfig(model_dir=folder, save_checkpoints_steps=2)
        config._is_chief, config._master = is_chief, server.target
        found.append(seen(of.Estimator, of.EstimatorSpec, config, tf.train.GradientDescentOptimizer))
else:
    config = NPURunConfig(model_dir=folder, save_checkpoints_steps=2, precision_mode="force_fp32")
    wrapped = lambda rate: npu_tf_optimizer(tf.train.GradientDescentOptimizer(rate))
    found = seen(NPUEstimator, NPUEstimatorSpec, config, wrapped)
print(json.dumps(found))
"""

# the order of the data comes from the config's seed; each rank takes its share of it
SHARES = """
from npu_bridge.npu_init import *
import json, tempfile
import numpy as np
rank, size = get_rank_id(), get_rank_size()
table, taken = np.random.RandomState(3).randn(32, 5).astype(np.float32), []
class Taken(tf.train.SessionRunHook):
    def before_run(self, _):
        return tf.train.SessionRunArgs("taken:0")
    def after_run(self, _, values):
        taken.append(values.results.tolist())
def model_fn(features, labels, mode):
    numbers = tf.identity(labels, "taken")
    hidden = tf.tanh(tf.matmul(features[:, :4], tf.get_variable("v", [4, 3])))
    loss = tf.reduce_mean(tf.square(tf.matmul(hidden, tf.get_variable("w", [3, 1])) - features[:, 4:]))
    step = npu_tf_optimizer(tf.train.MomentumOptimizer(0.05, 0.9)).minimize(loss, tf.train.get_global_step())
    return NPUEstimatorSpec(mode, loss=loss, train_op=step, training_hooks=[Taken()])
def input_fn():
    data = tf.data.Dataset.range(32).shuffle(32).repeat(2).shard(size, rank).batch(8 // size)
    return data.map(lambda numbers: (tf.gather(tf.constant(table), numbers), numbers))
config = NPURunConfig(model_dir=tempfile.mkdtemp(), tf_random_seed=7, precision_mode="force_fp32")
estimator = NPUEstimator(model_fn, config=config)
estimator.train(input_fn)
print(json.dumps([taken, [estimator.get_variable_value(name).tolist() for name in ("v", "w")]]))
"""

KERAS = """
from npu_bridge.npu_init import *
import json, sys
import numpy as np
rank, size = get_rank_id(), get_rank_size()
set_keras_session_npu_config()
rng = np.random.RandomState(0)
x, y = rng.randn(32, 3).astype(np.float32), rng.randn(32, 1).astype(np.float32)
start = tf.keras.initializers.RandomNormal(seed=1 + rank)
model = tf.keras.Sequential([tf.keras.layers.Dense(1, kernel_initializer=start, input_shape=(3,))])
wrap = {"class": npu_keras_optimizer, "wrapper": npu_distributed_optimizer_wrapper}[sys.argv[1]]
model.compile(loss="mse", optimizer=wrap(tf.keras.optimizers.SGD(0.1, momentum=0.9)))
own = (x[rank::size], y[rank::size])
model.fit(*own, batch_size=32 // size, epochs=4, verbose=0, shuffle=False, callbacks=npu_callbacks_append())
print(json.dumps([each.tolist() for each in model.get_weights()]))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Function that runs a script in `size` processes; returns what each prints last, read as JSON."""
    folder = tmp_path_factory.mktemp("ranks")
    with forked.server() as together:

        def run(script, size, *arguments):
            hosts = ",".join("localhost:%d" % port for port in layout.free_ports(size))
            (folder / "script.py").write_text(script)
            line = "RANK_SIZE=%d RANK_ID=%d NPU_SHIM_HOSTS=%s CUDA_VISIBLE_DEVICES= python script.py %s"
            lines = [line % (size, rank, hosts, " ".join(arguments)) for rank in range(size)]
            ended = together([(line, folder) for line in lines])
            assert not any(rank.status for rank in ended), "\n".join(rank.output for rank in ended)
            return [json.loads(rank.output.splitlines()[-1]) for rank in ended]

        yield run


def test_collectives_of_two_ranks(run):
    one, other = run(COLLECTIVES, 2)
    assert (one[:2], other[:2]) == ([2, 0], [2, 1])
    for rank, (kind, text) in enumerate((one[3], other[3])):
        assert kind == "UnimplementedError"
        assert re.match(r"npu_shim: rank %d \(localhost:\d+\): a partial run .* 'CollectiveReduce" % rank, text), text
    shared = {
        "sum": [3.0, 8.0],
        "prod": [2.0, 16.0],
        "max": [2.0, 4.0],
        "min": [1.0, 4.0],
        "gathered": [1.0, 4.0, 2.0, 4.0],
        "gathered_backwards": [2.0, 4.0, 1.0, 4.0],  # in the order of the group's ranks
        "sent": [10.0, 1.0],
        "first": [2.0, 4.0],
        "mean": [1.5, 4.0],
    }
    for rank, seen in enumerate((one[2], other[2])):
        assert {name: seen[name] for name in shared} == shared
        assert seen["scattered"] == [shared["sum"][rank]]
        # the sum of two ranks' ones, times this rank's x
        assert seen["gradient"] == [2.0 * (1.0 + rank), 8.0]


def test_two_sessions_in_two_threads_start_one_server(monkeypatch):
    """The second thread asks for the server while the first is still starting it: an address can be taken once."""
    started, targets = [], []
    other = threading.Thread(target=lambda: targets.append(cluster.joined("", None)[0]))

    class Server:
        def __init__(self, *_, **__):
            started.append(self)
            self.target = "grpc://%d" % len(started)
            if len(started) == 1:
                other.start()
                other.join(0.5)  # it must wait for this one; without the lock it would have started its own by now

    monkeypatch.setenv("RANK_SIZE", "2")
    monkeypatch.setenv("RANK_ID", "1")
    monkeypatch.setattr(tf.train, "Server", Server)
    monkeypatch.setattr(cluster, "_servers", [])
    monkeypatch.setattr(cluster.atexit, "register", lambda *_: None)
    targets.append(cluster.joined("", None)[0])
    other.join()
    assert targets == ["grpc://1", "grpc://1"]
    assert len(started) == 1


@pytest.mark.parametrize(("gpus", "way", "nccl"), [(0, "nccl", False), (2, "", True), (2, "ring", False)])
def test_the_server_has_the_threads_and_devices_of_the_first_session(monkeypatch, gpus, way, nccl):
    started = []

    class Server:
        target = "grpc://here"

        def __init__(self, *_, config, **__):
            started.append(config)

    for name, value in {"RANK_SIZE": "2", "RANK_ID": "1", "NPU_SHIM_GPU_COLLECTIVES": way}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tf.train, "Server", Server)
    monkeypatch.setattr(tf.config.experimental, "list_physical_devices", lambda _: ["GPU"] * gpus)
    monkeypatch.setattr(cluster, "_servers", [])
    monkeypatch.setattr(cluster.atexit, "register", lambda *_: None)
    wanted = tf.ConfigProto(intra_op_parallelism_threads=3, inter_op_parallelism_threads=1)
    wanted.gpu_options.allow_growth = True
    _, sessions = cluster.joined("", wanted)
    cluster.joined("", None)
    (server,) = started
    assert server.intra_op_parallelism_threads == 3
    assert server.inter_op_parallelism_threads == 2  # one answers the others while an op of the script's waits
    assert server.gpu_options.allow_growth
    assert server.gpu_options.visible_device_list == ("1" if gpus else "")
    assert server.experimental.collective_nccl == sessions.experimental.collective_nccl == nccl


def test_the_plan_says_how_many_collectives_and_programs(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("RANK_SIZE", "2")
    monkeypatch.setenv("RANK_ID", "0")
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [64, 64], "x")
        weights = [tf.get_variable("w%d" % at, initializer=np.eye(64, dtype=np.float32)) for at in range(3)]
        loss = tf.reduce_mean(tf.matmul(tf.matmul(tf.matmul(x, weights[0]), weights[1]), weights[2]))
        optimizer = hccl.NPUDistributedOptimizer(tf.train.GradientDescentOptimizer(0.1))
        train = optimizer.minimize(loss, name="train")
        calls = [hccl.allreduce(weight.read_value(), "sum") for weight in weights]
        tf.group(*calls, name="calls")
    tf.io.write_graph(graph, str(tmp_path), "graph.pb", as_text=False)
    for name in ("RANK_SIZE", "RANK_ID"):
        monkeypatch.delenv(name)

    def said(fetch):
        assert cli.main(["plan", str(tmp_path / "graph.pb"), "--fetches", fetch]) == 0
        return next(line for line in capsys.readouterr().out.splitlines() if line.startswith("collectives: "))

    assert said(train.name).startswith("collectives: 1 in a run (1 CollectiveReduce), outside of what XLA compiles")
    has_engine = not tf.__version__.startswith("1.")
    monkeypatch.setenv("NPU_SHIM_RANKS", "apart")
    assert ("; engine pjrt: 2 programs around them" in said(train.name)) == has_engine
    monkeypatch.delenv("NPU_SHIM_RANKS")
    assert ("; engine pjrt: inside of one program of all ranks" in said(train.name)) == has_engine
    if has_engine:
        assert cli.main(["plan", str(tmp_path / "graph.pb"), "--fetches", train.name, "--engine"]) == 0
        assert re.search(r"of all ranks, which meet in it \(1\): '.*CollectiveReduce'", capsys.readouterr().out)
    assert "1 in a run (1 CollectiveReduce) of 3 calls" in said("calls")


@pytest.mark.parametrize("shape", [[3, 2], []])
def test_what_has_no_equal_parts_is_refused(monkeypatch, shape):
    monkeypatch.setenv("RANK_SIZE", "2")
    monkeypatch.setenv("RANK_ID", "0")
    with tf.Graph().as_default(), pytest.raises(ValueError, match="2 ranks cannot share the rows of"):
        hccl.reduce_scatter(tf.zeros(shape, name="zeros"), "sum", 2)


@pytest.mark.nightly
def test_eleven_ranks_are_gathered_in_the_order_of_their_numbers(run):
    """TensorFlow's own order is that of names: 0, 1, 10, 2."""
    script = """
from npu_bridge.npu_init import *
import json
with tf.Session() as session:
    print(json.dumps(session.run(hccl_ops.allgather(tf.constant([get_rank_id()]), 11)).tolist()))
"""
    assert run(script, 11) == [list(range(11))] * 11


@pytest.mark.nightly  # test_rank_collectives.py has those of two
def test_exchanges_of_three_ranks(run):
    results = zero, one, two = run(EXCHANGES, 3)
    check_parts(results)
    check_groups(results)
    assert zero["v_c"] == zero["v"] == [0.0, 100.0, 101.0, 200.0, 201.0, 202.0]
    assert one["v_c"] == [1.0, 102.0, 203.0]
    assert one["v"] == [203.0, 0.0, 102.0, 0.0, 1.0]
    assert two["v_c"] == []
    assert two["v"] == [0.0, 0.0, 0.0]


def check_parts(results):
    """Each rank's row of what three ranks reduce; the gradient is the sum of what each rank does with its own."""
    for rank, result in enumerate(results):
        other = rank + 2.0
        parts = {"sum": [6.0, 3 * other], "prod": [6.0, other**3], "max": [3.0, other], "min": [1.0, other]}
        assert {name: result[name] for name in parts} == {name: [row] for name, row in parts.items()}
        assert result["gradient"] == [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]


def check_groups(results):
    """A group of some ranks beside the world, in one run and in runs of its own, and in its own order."""
    for rank, result in enumerate(results):
        assert result["together"] == [[[111.0], [101.0]] if rank != 1 else [[111.0]]] * 2
        assert result["everyone"] == [111.0]
    assert results[0]["inside"] == {"low": [11.0], "pair": [101.0], "turned": [[12]]}
    assert results[1]["inside"] == {"low": [11.0], "high": [110.0]}
    assert results[2]["inside"] == {"pair": [101.0], "high": [110.0], "turned": [[2]]}
    one = r"'.*' .* of ranks \[\d, \d\]"
    said = r"npu_shim: rank 1 \(.*\): a run has the collectives %s and %s; run them one after the other" % (one, one)
    assert re.match(said, results[1]["refused"])


@pytest.mark.parametrize("mode", [pytest.param("force_fp32", marks=pytest.mark.nightly), "allow_mix_precision"])
def test_two_ranks_train_as_one_on_all_data(run, mode):
    (alone,) = run(TRAINING, 1, mode)
    one, other = run(TRAINING, 2, mode)
    assert one == other
    assert one[0] == alone[0] == 30
    # 30 steps, each with sums over 32 rows that two ranks add in another order; in float16 the products are rounded
    epsilon = np.finfo(np.float32 if mode == "force_fp32" else np.float16).eps
    for ours, expected in zip(one[1:], alone[1:]):
        np.testing.assert_allclose(ours, expected, atol=30 * epsilon)


@pytest.mark.nightly  # test_rank_collectives.py has an Estimator
def test_an_estimator_gives_all_ranks_the_first_ranks_weights(run):
    one, other = run(ESTIMATOR, 2)
    assert one == other


@pytest.mark.nightly  # test_rank_failures.py has ranks that go on from what the first has written
def test_of_ranks_that_share_a_folder_the_first_alone_writes_and_all_go_on_from_there(run, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    (wrote, values), (also, same) = run(SHARED, 2, str(whole), "6")
    assert (wrote[-2:], also) == (["add_summary", "save"], [])
    run(SHARED, 2, str(parts), "4")
    (_, resumed), _ = run(SHARED, 2, str(parts), "6")
    assert values == same == resumed
    assert len(list(whole.glob("events*"))) == 1


@pytest.mark.skipif(tf.__version__ >= "2.16", reason="no Estimator in plain TensorFlow")
def test_hooks_and_listeners_are_called_as_those_of_a_chief_and_a_worker(run, tmp_path):
    """Listeners, and hooks for the chief, belong to the rank that writes."""
    ((chief, worker),) = run(HOOKS, 1, "plain", str(tmp_path / "plain"))
    assert run(HOOKS, 2, "npu", str(tmp_path / "npu")) == [chief, worker]
    assert "listeners after_save" in chief
    assert {line.split()[0] for line in worker} == {"hooks", "training_hooks"}


@pytest.mark.nightly
@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.nightly)])
def test_shares_of_the_input_are_the_whole_batch(run, size):
    ((batches, alone),) = run(SHARES, 1)
    assert sorted(itertools.chain(*batches[:4])) == list(range(32))
    ended = run(SHARES, size)
    together = [sorted(itertools.chain(*shares)) for shares in zip(*(taken for taken, _ in ended))]
    assert together == [sorted(batch) for batch in batches]
    for _, values in ended:
        assert values == ended[0][1]
        for got, expected in zip(values, alone):
            np.testing.assert_allclose(got, expected, atol=64 * np.finfo(np.float32).eps)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("wrapped_by", [pytest.param("class", marks=pytest.mark.nightly), "wrapper"])
def test_keras_on_two_ranks_is_keras_on_all_data(run, wrapped_by):
    (alone,) = run(KERAS, 1, wrapped_by)
    one, other = run(KERAS, 2, wrapped_by)
    assert one == other
    # 4 steps, each with a mean over 32 rows that two ranks add in another order, through matrix ops on float16 inputs
    for got, expected in zip(one, alone):
        np.testing.assert_allclose(got, expected, atol=4 * np.finfo(np.float16).eps)
