"""Two processes of one job: their collectives, and a training that is the one of a single process on all data."""

import json
import os
import threading

import forked
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from npu_shim.distributed import cluster, layout

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
assert all((first[name] == again[name]).all() for name in first)
print(json.dumps([get_rank_size(), rank, {name: value.tolist() for name, value in first.items()}]))
"""

# rank r sends r + 1 elements to rank 0, one to rank 1, none to rank 2
EXCHANGES = """
from npu_bridge.npu_init import *
import json
rank = get_rank_id()
matrix = [[r + 1, 1, 0] for r in range(3)]
counts, received = matrix[rank], [row[rank] for row in matrix]
begins = [sum(counts[:i]) for i in range(3)]
data = tf.constant([100.0 * rank + i for i in range(sum(counts))])
fetches = {
    "v_c": hccl_ops.all_to_all_v_c(data, matrix, rank),
    "v": hccl_ops.all_to_all_v(data, counts, begins, received, [4, 2, 0] if rank == 1 else [0, 1, 3]),
}
with tf.Session() as session:
    first = session.run(fetches)
    again = session.run(fetches)
assert all((first[name] == again[name]).all() for name in first)
print(json.dumps({name: value.tolist() for name, value in first.items()}))
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
            ended = together([(each, folder) for each in lines])
            assert not any(each.status for each in ended), "\n".join(each.output for each in ended)
            return [json.loads(each.output.splitlines()[-1]) for each in ended]

        yield run


def test_collectives_of_two_ranks(run):
    one, other = run(COLLECTIVES, 2)
    assert (one[:2], other[:2]) == ([2, 0], [2, 1])
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
    for rank, found in enumerate((one[2], other[2])):
        assert {name: found[name] for name in shared} == shared
        assert found["scattered"] == [shared["sum"][rank]]
        # the sum of two ranks' ones, times this rank's x
        assert found["gradient"] == [2.0 * (1.0 + rank), 8.0]


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


@pytest.mark.skipif(not os.environ.get("NPU_SHIM_NIGHTLY"), reason="nightly")
def test_eleven_ranks_are_gathered_in_the_order_of_their_numbers(run):
    """TensorFlow's own order is that of names: 0, 1, 10, 2."""
    script = """
from npu_bridge.npu_init import *
import json
with tf.Session() as session:
    print(json.dumps(session.run(hccl_ops.allgather(tf.constant([get_rank_id()]), 11)).tolist()))
"""
    assert run(script, 11) == [list(range(11))] * 11


def test_exchanges_of_three_ranks(run):
    zero, one, two = run(EXCHANGES, 3)
    assert zero["v_c"] == zero["v"] == [0.0, 100.0, 101.0, 200.0, 201.0, 202.0]
    assert one["v_c"] == [1.0, 102.0, 203.0]
    assert one["v"] == [203.0, 0.0, 102.0, 0.0, 1.0]
    assert two["v_c"] == []
    assert two["v"] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("mode", ["force_fp32", "allow_mix_precision"])
def test_two_ranks_train_as_one_on_all_data(run, mode):
    (alone,) = run(TRAINING, 1, mode)
    one, other = run(TRAINING, 2, mode)
    assert one == other
    assert one[0] == alone[0] == 30
    # 30 steps, each with sums over 32 rows that two ranks add in another order; in float16 the products are rounded
    epsilon = np.finfo(np.float32 if mode == "force_fp32" else np.float16).eps
    for ours, expected in zip(one[1:], alone[1:]):
        np.testing.assert_allclose(ours, expected, atol=30 * epsilon)


def test_an_estimator_gives_all_ranks_the_first_ranks_weights(run):
    one, other = run(ESTIMATOR, 2)
    assert one == other


def test_of_ranks_that_share_a_folder_the_first_alone_writes_and_all_go_on_from_there(run, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    (wrote, values), (also, same) = run(SHARED, 2, str(whole), "6")
    assert (wrote[-2:], also) == (["add_summary", "save"], [])
    run(SHARED, 2, str(parts), "4")
    (_, resumed), _ = run(SHARED, 2, str(parts), "6")
    assert values == same == resumed
    assert len(list(whole.glob("events*"))) == 1


@pytest.mark.slow
@pytest.mark.parametrize("wrapped_by", ["class", "wrapper"])
def test_keras_on_two_ranks_is_keras_on_all_data(run, wrapped_by):
    (alone,) = run(KERAS, 1, wrapped_by)
    one, other = run(KERAS, 2, wrapped_by)
    assert one == other
    # 4 steps, each with a mean over 32 rows that two ranks add in another order, through matrix ops on float16 inputs
    for got, expected in zip(one, alone):
        np.testing.assert_allclose(got, expected, atol=4 * np.finfo(np.float16).eps)
