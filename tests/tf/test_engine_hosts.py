"""Several hosts that run one script as one: the numbers of one device, files of the first alone, faults with a name.

Two processes of this machine stand for two hosts, `localhost` and `127.0.0.1`, with two CPU devices each. The script
runs once more in the test's own process, in TensorFlow's session: that says what is right.
"""

import json
import os
import pathlib
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from npu_shim.distributed.launcher import layout
from npu_shim.engine.runtime import own_input
from npu_shim.options import engine as options

PYTHON = os.environ.get(options.JAX) or (sys.executable if options.has_jax() else None)
pytestmark = pytest.mark.skipif(PYTHON is None, reason="no interpreter with JAX: NPU_SHIM_JAX names none")
NAMES = ("localhost", "127.0.0.1")
LONG = 240  # seconds, which no pair takes

# a network with dropout, whose last batch of an epoch, 6 rows, does not divide by 4 devices
TRAINS = """
import json, os, sys
import numpy as np
import tensorflow.compat.v1 as tf

def train(folder):
    tf.set_random_seed(3)
    random = np.random.RandomState(0)
    images, labels = random.rand(22, 4, 4, 1).astype("f"), random.randint(0, 3, 22)
    data = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(22, seed=1).batch(8).repeat(2)
    x, y = tf.data.make_one_shot_iterator(data).get_next()
    net = tf.nn.dropout(tf.layers.dense(tf.layers.flatten(x), 16, activation=tf.nn.relu), rate=0.3)
    logits = tf.layers.dense(net, 4)
    loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits_v2(labels=tf.one_hot(y, 4), logits=logits))
    tf.summary.scalar("loss", loss)
    step = tf.train.get_or_create_global_step()
    train = tf.train.AdamOptimizer(0.01).minimize(loss, step)
    saving = dict(checkpoint_dir=folder, save_checkpoint_steps=4, save_summaries_steps=2)
    losses = []
    with tf.train.MonitoredTrainingSession(log_step_count_steps=None, **saving) as session:
        while not session.should_stop():
            losses.append(float(session.run([loss, train])[0]))
    last = tf.train.latest_checkpoint(folder)
    reader = tf.train.load_checkpoint(last)
    return losses, {name: reader.get_tensor(name).tolist() for name in sorted(reader.get_variable_to_shape_map())}, last
"""
# what differs between hosts: values without a seed are the first host's; feeds that differ are errors
DIFFERS = """
seen = dict(trained=train(sys.argv[1]))
index = json.loads(os.environ["NPU_SHIM_ONE_JOB"])["index"]
with tf.Graph().as_default(), tf.Session() as session:
    x = tf.placeholder(tf.float32, [None, 3], "x")
    frozen, w = tf.Variable(tf.random_normal([3]), trainable=False), tf.Variable(tf.random_normal([3, 2]))
    loss = tf.reduce_mean(tf.square(tf.matmul(tf.nn.dropout(x, rate=0.5) * frozen, w) - 1.0))
    step = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    session.run(tf.global_variables_initializer())
    seen["unseeded"] = [float(session.run([loss, step], {x: np.ones([8, 3])})[0]) for _ in range(3)]
    seen["unseeded"].append([value.tolist() for value in session.run([frozen, w])])
    seen["errors"] = []
    for fed in (np.full([8, 3], index), np.ones([8 + 4 * index, 3])):
        try:
            session.run(step, {x: fed})
        except tf.errors.InvalidArgumentError as error:
            seen["errors"].append(error.message)
    seen["then"] = float(session.run([loss, step], {x: np.ones([8, 3])})[0])
print("SEEN " + json.dumps(seen), flush=True)
"""
# batches of which each host feeds its half; the second, of 14 rows, divides by two hosts, and not by four devices
BATCHES = """
import json, os, sys
import numpy as np
import tensorflow.compat.v1 as tf

def train(rows):
    tf.set_random_seed(3)
    random = np.random.RandomState(0)
    x, y, rate = (tf.placeholder(*of) for of in ((tf.float32, [None, 6]), (tf.int32, [None]), (tf.float32, [])))
    net = tf.layers.batch_normalization(tf.layers.dense(x, 16, use_bias=False), training=True)
    logits = tf.layers.dense(tf.nn.dropout(tf.nn.relu(net), rate=rate), 4)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        step = tf.train.AdamOptimizer(0.01).minimize(loss)
    losses, own = [], []
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for size in (16, 14, 16, 16):
            images, labels, part = random.rand(size, 6).astype("f"), random.randint(0, 4, size), rows(size)
            value, fetched, _ = session.run([loss, logits, step], {x: images[part], y: labels[part], rate: 0.3})
            losses.append(float(value))
            own.append(fetched.tolist())
        return losses, own, [value.tolist() for value in session.run(tf.global_variables())]
"""
HALVES = """
index = json.loads(os.environ["NPU_SHIM_ONE_JOB"])["index"]
seen = dict(trained=train(lambda size: slice(index * size // 2, (index + 1) * size // 2)), errors=[])
with tf.Graph().as_default(), tf.Session() as session:
    x, z = tf.placeholder(tf.float32, [None, 3], "x"), tf.placeholder(tf.float32, [3], "z")
    fixed = tf.data.make_one_shot_iterator(tf.data.Dataset.range(9).repeat().batch(4, drop_remainder=True)).get_next()
    w, little = tf.Variable(tf.ones([3, 2])), tf.Variable([1.0])
    loss = tf.reduce_mean(tf.square(tf.matmul(x * z, w)))
    sums = loss * tf.reduce_sum(tf.cast(fixed, tf.float32))
    steps = [tf.train.GradientDescentOptimizer(0.1).minimize(of) for of in (loss, sums, little * tf.reduce_sum(z))]
    session.run(tf.global_variables_initializer())
    for step, *fed in ((0, np.ones([8 + 4 * index, 3]), [1, 1, 1]), (0, np.ones([8, 3]), [1, 1, index]),
                       (1, np.ones([8, 3]), [1, 1, 1]), (2, np.ones([8, 3]), [1, 1, 1])):
        try:
            session.run(steps[step], dict(zip((x, z), fed)))
        except tf.errors.InvalidArgumentError as error:
            seen["errors"].append(error.message)
print("SEEN " + json.dumps(seen), flush=True)
"""
# an Estimator that trains in loops of steps on the device, twice in one process, and evaluates
ESTIMATOR = """
import json, sys
import numpy as np
import tensorflow.compat.v1 as tf
from npu_bridge.npu_init import *

def model(features, labels, mode):
    net = tf.nn.dropout(tf.layers.dense(features, 16, activation=tf.nn.relu), rate=0.3)
    loss = tf.reduce_mean(tf.square(tf.layers.dense(net, 1)[:, 0] - labels))
    train = tf.train.AdamOptimizer(0.01).minimize(loss, tf.train.get_global_step())
    return NPUEstimatorSpec(mode, loss=loss, train_op=train, eval_metric_ops={"mean": tf.metrics.mean(loss)})

def feed():
    random = np.random.RandomState(0)
    data = tf.data.Dataset.from_tensor_slices((random.rand(64, 4).astype("f"), random.rand(64).astype("f")))
    return data.shuffle(64, seed=1).repeat().batch(8)

made = dict(save_checkpoints_steps=4, tf_random_seed=3, precision_mode="must_keep_origin_dtype")
config = NPURunConfig(model_dir=sys.argv[1], iterations_per_loop=int(sys.argv[2]), log_step_count_steps=None, **made)
estimator = NPUEstimator(model_fn=model, config=config, model_dir=sys.argv[1])
for steps in sys.argv[3:]:
    estimator.train(feed, max_steps=int(steps))
names = sorted(estimator.get_variable_names())
seen = [float(estimator.evaluate(feed, steps=2)["loss"]), {n: estimator.get_variable_value(n).tolist() for n in names}]
print("SEEN " + json.dumps(seen), flush=True)
"""
FAULTY = """
import json, os, sys, time
import numpy as np
import tensorflow.compat.v1 as tf
x = tf.placeholder(tf.float32, [None, 3], "x")
w = tf.get_variable("w", [3, 2])
train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(tf.square(tf.matmul(x, w))))
second = json.loads(os.environ["NPU_SHIM_ONE_JOB"])["index"] == 1
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for number in range(60):
        session.run(train, {x: np.ones([8, 3])})
        if second and number == 5:
            if sys.argv[1] == "raises":
                raise ValueError("a fault of the script")
            if sys.argv[1] == "ends":
                sys.exit(0)
            if sys.argv[1] == "worker":
                from npu_shim.engine.device.worker import starting
                next(iter(starting._started.values())).kill()
            if sys.argv[1] == "sleeps":
                time.sleep(20)
"""


def launched(tmp_path, script, *words, more=("--devices", "2"), second=(), **environment):
    """(exit status, output) of both hosts."""
    path = tmp_path / "script.py"
    path.write_text(script)
    base = {name: value for name, value in os.environ.items() if not name.startswith(("NPU_SHIM_", "TF_CONFIG"))}
    env = {**base, options.JAX: PYTHON, "CUDA_VISIBLE_DEVICES": "-1", **environment}
    port, root = str(layout.free_ports(1)[0]), pathlib.Path(__file__).resolve().parents[2]
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "npu_shim", "launch", "--hosts", ",".join(NAMES), "--host-index", str(index),
             "--port", port, *more, *(second if index else ()), str(path), *words],
            env=env, cwd=str(root), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True,
        )
        for index in range(2)
    ]  # fmt: skip
    try:
        outputs = [process.communicate(timeout=LONG)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    return [(process.returncode, text) for process, text in zip(started, outputs)]


def expected(folder):
    """What the script trains in TensorFlow's session."""
    with tf.Graph().as_default():
        scope = {}
        exec(TRAINS, scope)
        return scope["train"](str(folder))


@pytest.mark.parametrize("share", ["off", pytest.param("all", marks=pytest.mark.nightly)])
def test_two_hosts_train_as_one_device(tmp_path, share):
    more = ["--devices", "2", "--set", "npu_shim_shard_state=" + share]
    both = launched(tmp_path, TRAINS + DIFFERS, str(tmp_path / "out"), more=more)
    assert [status for status, _ in both] == [0, 0], both
    seen = [json.loads(text.partition("SEEN ")[2].partition("\n")[0]) for _, text in both]
    losses, variables, last = expected(tmp_path / "own")
    for name, host, (_, text) in zip(NAMES, seen, both):
        np.testing.assert_allclose(host["trained"][0], losses, rtol=1e-6)
        assert sorted(host["trained"][1]) == sorted(variables)
        for variable, value in variables.items():
            np.testing.assert_allclose(host["trained"][1][variable], value, rtol=2e-5, atol=2e-6, err_msg=variable)
        assert "[host %s]" % name in text
        assert "2 of them (localhost, 127.0.0.1) run each training step as one program on 4 devices (cpu)" in text
        assert "which each feeds its part; host localhost writes checkpoints and summaries" in text
    # files are the first host's; the other one finds what it saved
    assert seen[0]["trained"][2] == str(tmp_path / "out" / os.path.basename(last))
    elsewhere = seen[1]["trained"][2]
    assert elsewhere.endswith(seen[0]["trained"][2])
    assert elsewhere != seen[0]["trained"][2]
    assert not os.path.exists(elsewhere + ".index")
    events = [name for name in os.listdir(tmp_path / "out") if "tfevents" in name]
    assert len(events) == 1
    # without seeds: the first host's values, in its session and in the other's
    assert seen[0]["unseeded"] == seen[1]["unseeded"]
    for host in seen:
        fed, shapes = host["errors"]
        assert "hosts: localhost and 127.0.0.1 are fed different values of 'x:0' in the run of" in fed
        assert "'x:0' has shape [8, 3] on localhost, and [12, 3] on 127.0.0.1" in shapes
    assert seen[0]["then"] == seen[1]["then"]


@pytest.mark.nightly
def test_two_hosts_with_halves_of_each_batch_train_as_one_with_whole_batches(tmp_path):
    both = launched(tmp_path, BATCHES + HALVES, more=["--devices", "2", "--input-per-host"])
    assert [status for status, _ in both] == [0, 0], both
    with tf.Graph().as_default():
        scope = {}
        exec(BATCHES, scope)
        losses, logits, variables = scope["train"](lambda size: slice(0, size))
    seen = [json.loads(text.partition("SEEN ")[2].partition("\n")[0]) for _, text in both]
    for index, (host, (_, text)) in enumerate(zip(seen, both)):
        np.testing.assert_allclose(host["trained"][0], losses, rtol=2e-6)
        for own, whole in zip(host["trained"][1], logits):  # of what has a row for each example, its own rows
            half = len(whole) // 2
            np.testing.assert_allclose(own, whole[index * half : (index + 1) * half], rtol=1e-4, atol=1e-5)
        for value, right in zip(host["trained"][2], variables):
            np.testing.assert_allclose(value, right, rtol=1e-4, atol=1e-5)
        assert "each has an input of its own, and a step's batch is the batches of all of them" in text
        sizes, values, rows, little = host["errors"]
        assert "'Placeholder:0'" not in sizes + values
        assert "'x:0' has shape [8, 3] on localhost, and [12, 3] on 127.0.0.1" in sizes
        assert "different values of 'z:0'" in values
        assert "leave its first dimension open" in values
        assert "'IteratorGetNext:0' has the fixed shape [4], so that the graph takes the batch of one host" in rows
        assert "runs in each host's session (it holds little work" in little
        assert "train by itself" in little


@pytest.mark.nightly
def test_an_estimator_trains_in_loops_on_two_hosts_and_goes_on_from_its_checkpoint(tmp_path):
    gpu = ["--set", "npu_shim_profile=gpu"]
    script = tmp_path / "plain.py"
    script.write_text(ESTIMATOR)
    for steps in (["4", "8"], ["16"]):
        both = launched(tmp_path, ESTIMATOR, str(tmp_path / "out"), "4", *steps, more=["--devices", "2", *gpu])
        assert [status for status, _ in both] == [0, 0], both
        command = [sys.executable, "-m", "npu_shim", "run", "--engine", "session", *gpu, str(script)]
        root = str(pathlib.Path(__file__).resolve().parents[2])
        command += [str(tmp_path / "own"), "1", *steps]
        alone = subprocess.run(command, stdout=subprocess.PIPE, cwd=root, text=True, check=True)
        texts = alone.stdout, *(text for _, text in both)
        seen = [json.loads(text.partition("SEEN ")[2].partition("\n")[0]) for text in texts]
        for loss, variables in seen[1:]:
            assert variables["global_step"] == int(steps[-1])
            np.testing.assert_allclose(loss, seen[0][0], rtol=1e-6)
            for name, value in seen[0][1].items():
                np.testing.assert_allclose(variables[name], value, rtol=2e-5, atol=2e-6, err_msg=name)
        assert all("a loop of up to 4 steps" in text for _, text in both)


def test_which_feeds_of_a_host_with_its_own_input_are_parts_of_the_batch():
    with tf.Graph().as_default() as graph:
        for name, shape in (("x", [None, 3]), ("any", None), ("rate", []), ("table", [5, 2])):
            tf.placeholder(tf.float32, shape, name)
        own = own_input.OwnInput(graph, 2, 1)
        feeds = {"x:0": np.ones([4, 3]), "any:0": 1.0, "rate:0": 0.5, "table:0": np.ones([5, 2])}
        assert own.rows(feeds, feeds, ()) == {"x:0": 4}
        assert own.rows({"any:0": np.ones(6)}, {"any:0"}, ()) == {"any:0": 6}
        assert own.shapes(["x:0", "rate:0"], [(4, 3), ()], {"x:0": 4}) == [(8, 3), ()]
        results = {"x:0": np.arange(8), "any:0": np.arange(6), "table:0": np.arange(8), "rate:0": 1.0}
        fetched = own.fetched(results, {"x:0": 4})
        assert fetched["x:0"].tolist() == [4, 5, 6, 7]
        assert [len(fetched[name]) for name in ("any:0", "table:0")] == [6, 8]
        for name, words in (("table:0", "has the fixed shape"), ("rate:0", "of one host's input alone")):
            with pytest.raises(tf.errors.InvalidArgumentError, match=words):
                own.rows(feeds, {"x:0", "any:0", "rate:0", "table:0"} - {name}, ())


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("raises", "host 127.0.0.1 has ended: ValueError: a fault of the script"),
        ("ends", "host 127.0.0.1 has come to the end of the script, and host localhost is at the run of 'Gradient"),
        ("worker", "host 127.0.0.1: the engine's worker has ended (killed by signal 9)"),
        ("sleeps", "host 127.0.0.1 has not come to the run of 'GradientDescent' within 8 s"),
    ],
)  # fmt: skip
def test_a_host_that_fails_is_named(tmp_path, how, words):
    began = time.monotonic()
    (status, text), _ = launched(tmp_path, FAULTY, how, HCCL_EXEC_TIMEOUT="8")
    assert status
    assert words in text, text
    assert time.monotonic() - began < LONG / 2


@pytest.mark.nightly
def test_hosts_that_do_not_fit_are_refused(tmp_path):
    for status, text in launched(tmp_path, FAULTY, "none", second=["--devices", "1"]):
        assert status
        assert "hosts: 127.0.0.1 was given devices=1, and localhost 2: they must be the same" in text
    other = ["--hosts", "localhost,other"]
    (status, text), _ = launched(tmp_path, FAULTY, "none", second=other, HCCL_CONNECT_TIMEOUT="8")
    assert status
    assert "host 127.0.0.1 has not come within 8 s" in text
