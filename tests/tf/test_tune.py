"""`npu-shim tune` on whole scripts: planted faults are found, what is found trains as float32; mistakes are one error.

With three seeds each: benchmarks/tune.md, by scripts/bench_tune.py.
"""

import json
import pathlib
import re
import shutil

import forked
import pytest
import tensorflow.compat.v1 as tf

from npu_shim.rewriter.errors import ConfigError
from npu_shim.session.interception import training
from npu_shim.session.observers import dump

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "planted_training.py"
TUNE = "npu-shim tune --out out.json "


@pytest.fixture(scope="module")
def together():
    with forked.server(900) as run:
        yield run


def tuned(together, folder, words, script=None):
    if script is None:
        shutil.copy(str(SCRIPT), str(folder / "train.py"))
    else:
        (folder / "train.py").write_text(script)
    (done,) = together([(TUNE + words, folder)])
    return done


def kept(folder):
    """Names of the nodes and op types that were written."""
    nodes, types = folder / "out.customize_dtypes.txt", folder / "out.json"
    single = [line.partition("::")[0] for line in nodes.read_text().splitlines()] if nodes.exists() else []
    return single + (json.loads(types.read_text())["black-list"]["to-add"] if types.exists() else [])


NODES = {"mask": "planted", "square": "after/product", "product": "planted", "scale": "planted", "index": "planted"}
CASES = [(model, fault) for model in ("convolution", "transformer", "recurrent") for fault in NODES]


@pytest.mark.nightly  # minutes; tests/pure/test_tuning.py has the search, test_planted_precision_faults.py the findings
@pytest.mark.parametrize(("model", "fault"), CASES)
def test_a_planted_fault_is_fixed_and_products_stay_low(together, tmp_path, model, fault):
    done = tuned(together, tmp_path, "train.py %s %s 120" % (model, fault))
    assert done.status == 0, done.output
    assert any(name.endswith(NODES[fault]) for name in kept(tmp_path)), done.output
    assert int(re.search(r"after (\d+) trials", done.output).group(1)) <= 10
    _, low = re.search(r"share of their operations +([\d.]+) % +([\d.]+) %", done.output).groups()
    assert float(low) >= 90
    before, after = re.search(r"deviation of the loss +(\S+) +(\S+)", done.output).groups()
    assert float(after) <= 0.05 < float(before)
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".tune") == []


@pytest.mark.nightly  # test_relative_checkpoints_of_trials_are_apart_and_gone has a small one
@pytest.mark.parametrize("model", ["convolution", "recurrent", "transformer"])
def test_a_healthy_model_has_nothing_to_tune(together, tmp_path, model):
    done = tuned(together, tmp_path, "train.py %s none 120" % model)
    assert done.status == 0
    assert "nothing is to be tuned" in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


HEAD = """
import numpy as np
import tensorflow as tf
from npu_bridge.npu_init import *
config = tf.ConfigProto()
custom_op = config.graph_options.rewrite_options.custom_optimizers.add()
custom_op.name = "NpuOptimizer"
custom_op.parameter_map["precision_mode"].s = b"allow_mix_precision"
x = tf.placeholder(tf.float32, [None, 4], "x")
y = tf.layers.dense(x, 4, name="y")
"""
LOOP = """
with tf.Session(config=config) as session:
    saver = tf.train.Saver()
    session.run(tf.global_variables_initializer())
    if tf.train.latest_checkpoint(FOLDER):
        saver.restore(session, tf.train.latest_checkpoint(FOLDER))
    for _ in range(5):
        session.run(train, {x: np.ones([2, 4])})
    saver.save(session, FOLDER + "/model")
"""
TRAINED = HEAD + "odd = tf.reduce_mean(y)\ntrain = tf.train.AdamOptimizer().minimize(odd)\n"
LOSS = HEAD + "loss = tf.reduce_mean(y, name='my_loss')\ntrain = tf.train.AdamOptimizer().minimize(loss)\n"
WRONG = {
    "no loss is called so": ("", TRAINED + 'FOLDER = "c"' + LOOP, "no loss is recognized by its name; name it: --loss"),
    "another name": ("--loss my_los", LOSS + 'FOLDER = "c"' + LOOP, "no such tensor (did you mean 'my_loss:0'?)"),
    "a checkpoint": ("", LOSS + 'FOLDER = r"%s"' + LOOP, "which an earlier trial wrote"),
    "no NPU": ("", "print(1)", "no training step was seen in a session: the script made none"),
    "a fault of its own": ("", HEAD + "raise ValueError('mine')", "ends with status 1 in float32"),
}


@pytest.mark.parametrize("case", sorted(WRONG))
def test_a_script_that_cannot_be_tuned_is_one_error(together, tmp_path, tmp_path_factory, case):
    words, script, told = WRONG[case]
    script = script.replace("%s", str(tmp_path_factory.mktemp("absolute")))
    done = tuned(together, tmp_path, words + " train.py", script)
    assert done.status == 2
    assert told in done.output
    assert done.output.startswith("npu_shim: ")
    assert {path.name for path in tmp_path.iterdir()} <= {"train.py", "out.json.tune"}


def test_relative_checkpoints_of_trials_are_apart_and_gone(together, tmp_path):
    done = tuned(together, tmp_path, "train.py", LOSS + 'FOLDER = "c"' + LOOP)
    assert "nothing is to be tuned" in done.output, done.output
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def losses(graph, fetches, wanted=None):
    """Names of the losses of a run."""
    asked = training.run(graph, fetches, ())
    operations = dump.upstream(graph, asked.fetched, ())
    return [tensor.name for tensor in training.losses(graph, asked, operations, wanted)]


def test_the_loss_of_a_step_is_found():
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [None, 4])
        y = tf.layers.dense(x, 4)
        loss = tf.add(tf.reduce_mean(tf.square(y), name="data_loss"), 1e-3 * tf.nn.l2_loss(y), name="total_loss")
        odd = tf.reduce_mean(y, name="odd")
        train = tf.train.AdamOptimizer().minimize(loss)
        assert losses(graph, [train, loss, odd]) == ["total_loss:0"]  # called so and fetched
        assert losses(graph, [train, "data_loss:0"]) == ["data_loss:0"]
        assert losses(graph, train) == ["total_loss:0"]  # of what is not fetched, what is made of the others
        assert losses(graph, train, "odd") == ["odd:0"]
        with pytest.raises(ConfigError, match="did you mean 'odd:0'"):
            losses(graph, train, "odds")


def test_a_loss_of_another_name_is_the_only_number_or_in_the_collection():
    with tf.Graph().as_default() as graph:
        y = tf.layers.dense(tf.placeholder(tf.float32, [None, 4]), 4)
        norm = tf.nn.l2_loss(y)  # L2Loss is the name of an op, not of a loss
        train = tf.train.AdamOptimizer().minimize(norm)
        assert losses(graph, [train, norm]) == ["L2Loss:0"]
        with pytest.raises(ConfigError, match="name it: --loss NAME"):
            losses(graph, [train, norm, norm + 1.0])
        squared = tf.losses.mean_squared_error(tf.ones([1, 4]), y)
        train = tf.train.AdamOptimizer().minimize(squared)
        assert losses(graph, [train, norm, squared]) == ["mean_squared_error/value:0"]


def test_networks_that_train_in_turns_have_a_loss_each():
    with tf.Graph().as_default() as graph:
        real = tf.placeholder(tf.float32, [None, 4])
        fake = tf.layers.dense(tf.random_normal([8, 4]), 4, tf.nn.relu, name="G")

        def judged(x):
            hidden = tf.layers.dense(x, 8, tf.nn.relu, reuse=tf.AUTO_REUSE, name="D/a")
            return tf.layers.dense(hidden, 1, reuse=tf.AUTO_REUSE, name="D/b")

        one = tf.reduce_mean(tf.nn.softplus(-judged(real)) + tf.nn.softplus(judged(fake)), name="d_loss")
        other = tf.reduce_mean(tf.nn.softplus(-judged(fake)), name="g_loss")
        of = {scope: [v for v in tf.trainable_variables() if v.name.startswith(scope)] for scope in "DG"}
        d, g = (tf.train.AdamOptimizer().minimize(loss, var_list=of[k]) for loss, k in ((one, "D"), (other, "G")))
        assert losses(graph, d) == ["d_loss:0"]
        assert losses(graph, g) == ["g_loss:0"]
        assert losses(graph, g, "d_loss") == []
