"""npu-shim scan against the installed TensorFlow: one process runs every scan, since it changes `import tensorflow`."""

import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest

IDIOMS = pathlib.Path(__file__).resolve().parents[1] / "idioms"
PLANTED = """\
import tensorflow as tf
from tensorflow.contrib import slim, no_such_part
from npu_bridge.npu_init import *

x = tf.placeholder(tf.float32, [None, 8])
y = slim.fully_conected(x, 4)
y = tf.nn.rellu(y)
config = NPURunConfigg(precision_mode="allow_mix_precision")
manager = FixedLossScaleManager(1)
z = tf.keras.layers.Densee(3)
tf.FixedLenFeature
FLAGS = tf.app.flags.FLAGS
FLAGS.whatever.the_script.defines
open(__file__ + ".ran", "w")
"""
EITHER = """\
try:
    from tensorflow.nowhere import x
except ImportError:
    from tensorflow.nn import relu as x
x.y
"""
MOVED = """\
from tensorflow.nn import bidirectional_dynamic_rnn, rnn_cell
from tensorflow.python.framework import ops
from tensorflow.python.layers.normalization import BatchNormalization
from tensorflow.python.ops import array_ops, control_flow_ops, variable_scope
from tensorflow.python.training import training_ops
import tensorflow.train as train
ops.Tensor, ops.IndexedSlices, array_ops.stack, control_flow_ops.cond, control_flow_ops.while_loop
training_ops.apply_adam, variable_scope.variable, train.AdamOptimizer
"""
ELSEWHERE = """\
import tensorflow as tf
def rarely():
    tf.nn.rellu(1)
if tf.__name__ == "x":
    rarely()
"""
ARGUMENTS = """\
import tensorflow as tf
x = tf.layers.dense(tf.zeros([1, 1]), unit=3)
tf.nn.softmax(x, dim=1, name="y")
tf.Session(config=tf.ConfigProto(allow_soft_placment=True, log_device_placement=True))
tf.train.Saver(max_to_kep=3)
tf.train.AdamOptimizer(learning_rate=0.1, beta1=0.9)
if x:
    tf.cast(x, type=tf.float32)
import keras
keras.optimizers.SGD(lr=0.1, clipnorm=1.0, nestrov=True)
"""
APP = """
import tensorflow as tf

def main(_):
    tf.nn.conv9(1)

def unused(_):
    tf.nn.conv9(1)

if __name__ == "__main__":
    tf.app.run()
"""
OBJECTS = """\
import tensorflow as tf
data = tf.data.Dataset.from_tensor_slices([1.0]).map(abs)
data.shufle(3).make_one_shot_iterator(), data.make_one_shot_iterator().get_net()
with tf.Session() as session:
    session.graph.get_tensor_by_nam("x:0")
    session.run([], feed_dct={})
config = tf.ConfigProto()
print(config.gpu_options.allow_groth)
x = tf.placeholder(tf.float32)
x.get_shape().as_lst()
class Net:
    def __init__(self):
        self.layer = tf.layers.Dense(3)
        self.optimizer = tf.train.AdamOptimizer()
    def __call__(self):
        self.layer.wieghts
        return self.optimizer.minimise(x)
Net()()
"""
NUMPY = """\
import numpy as np
import tensorflow as tf
x = np.zeros([3], np.float).astype(np.float32) + np.random.RandomState(1).rand(3)
tf.constant(x)
def read(row):
    return np.lodtxt(row), np.zeros_like(row, dtyp=np.float32)
"""
INSIDE = """\
import os, sys
root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(root)
sys.path.insert(0, os.path.join(root, "lib"))
import tensorflow as tf
from core.net import f
tf.abs(f())
"""
# what the objects of 1.15 have, and what scripts give them
FINE = """\
import tensorflow as tf
data = tf.data.Dataset.from_tensor_slices([1.0]).map(abs).batch(2)
print(data.output_shapes, data.output_types)
batch = data.make_one_shot_iterator().get_next()
layer = tf.layers.Dense(3)
y = layer(batch)
y.set_shape([None, 3])
print(layer.kernel, layer.units, layer.trainable_weights, y.get_shape().as_list()[0].value, y.op.node_def.attr)
y.note = 1
print(y.note, tf.cond(True, lambda: [y], lambda: [y]).append)
strategy = tf.distribute.MirroredStrategy()
strategy.experimental_run_v2(abs)
print(tf.Variable(1.0, use_resource=True).handle, tf.train.get_or_create_global_step().numpy)
variable = tf.get_variable("v", [4], partitioner=tf.fixed_size_partitioner(2))
variable.as_tensor()
config = tf.ConfigProto(allow_soft_placement=True)
config.gpu_options.allow_growth = True
config.graph_options.rewrite_options.custom_optimizers.add().name = "other"
cell = tf.nn.rnn_cell.BasicLSTMCell(3)
print(cell.state_size.c, cell.zero_state(2, tf.float32).h, cell(y, None).append)
attention = tf.contrib.seq2seq.LuongAttention(3, tf.zeros([2, 4, 3]))
tf.contrib.seq2seq.AttentionWrapper(cell, attention).zero_state(2, tf.float32).clone(cell_state=y)
optimizer = tf.train.AdamOptimizer(learning_rate=0.1)
train = optimizer.minimize(y, global_step=tf.train.get_or_create_global_step())
print(optimizer.get_slot(variable, "m").name, train.name, optimizer.variables())
saver = tf.train.Saver(max_to_keep=3)
with tf.Session(config=config) as session:
    writer = tf.summary.FileWriter("logs", session.graph)
    writer.add_summary(session.run(train, feed_dict={}), global_step=1)
    saver.save(session, "model", global_step=1)
    session.graph.finalize()
class Net(tf.keras.Model):
    def __init__(self):
        super(Net, self).__init__()
        self.dense = tf.keras.layers.Dense(3)
    def call(self, x):
        return self.dense(x).shape.as_list() + self.dense.kernel.shape.as_list()
Net()(y)
"""
TREES = {
    "objects": {"train.py": OBJECTS},
    "fine": {"train.py": FINE},
    "moved": {"a.py": MOVED},
    "planted": {"train.py": PLANTED},
    "app": {"train.py": APP},
    "module": {"train.py": "import tensorflow as tf\nimport nowhere_to_be_found\ntf.zeros([1])\n"},
    "python2": {"old.py": "import tensorflow as tf\nprint 'x'\n", "new.py": "import tensorflow as tf\ntf.abs\n"},
    "either": {"a.py": EITHER},
    "python2 needed": {"old.py": "print 'x'\n", "new.py": "import tensorflow as tf\nimport old\nold.f(tf.abs)\n"},
    "elsewhere": {"a.py": ELSEWHERE},
    "core": {"a.py": "from tensorflow_core.python.tools import freeze_grap\nprint(freeze_grap)\n"},
    "own fault": {"a.py": "from npu_bridge.npu_init import *\nprint(gobble, NPURunConfigg)\n"},
    "set": {"a.py": "import tensorflow as tf\ntf.contrib._warning = None\nprint(tf.contrib._warning)\n"},
    "silent": {"a.py": "import tensorflow as tf\nc = tf.ConfigProto()\nc.name = 'NpuOptimizer'\n"},
    "config": {"a.py": "from npu_bridge.estimator.npu.npu_config import NPURunConfig\nNPURunConfig()\n"},
    "nothing": {"a.py": "import numpy\n"},
    "arguments": {"a.py": ARGUMENTS},
    "two": {"train.py": "import tensorflow as tf\ntf.abs(1)\n", "gpu.py": "import no_such_module\nprint()\n"},
    "one": {"gpu.py": "import net\nnet.f()\n", "net.py": "import no_such_module\ndef f(): pass\n"},
    "empty": {"readme.txt": ""},
    "numpy": {"train.py": NUMPY},
    "inside": {"examples/first/train.py": INSIDE, "core/net.py": "import beside\ndef f(): pass\n", "lib/beside.py": ""},
}
RUN = """
import contextlib, io, json, sys
from npu_shim import cli
results = {}
for name, argv in json.loads(sys.argv[1]).items():
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = cli.main(["scan", *argv])
    results[name] = [status, out.getvalue(), err.getvalue()]
json.dump(results, open(sys.argv[2], "w"))
"""


SLIM = importlib.util.find_spec("tf_slim")
TENSORFLOW_1 = importlib.util.find_spec("tensorflow_core") is not None
needs_slim = pytest.mark.skipif(
    SLIM is None and not TENSORFLOW_1,
    reason="tf-slim is not installed: npu-shim[contrib]",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("scripts")
    for name, files in TREES.items():
        for file, text in files.items():
            (root / name / file).parent.mkdir(parents=True, exist_ok=True)
            (root / name / file).write_text(text)
    return root


@pytest.fixture(scope="module")
def scans(folder):
    """{name: (status, lines of output, standard error)} of every scan that the tests look at."""
    argv = {path.name: ["--all", str(path)] for path in folder.iterdir()}
    if SLIM is not None:
        argv["slim"] = [*SLIM.submodule_search_locations]
    argv.update(idioms=["--all", str(IDIOMS)], nowhere=[str(folder / "nowhere")])
    argv["file"] = ["--all", str(folder / "planted" / "train.py")]
    argv["script"] = [str(folder / "two" / "gpu.py")]
    argv["far"] = [str(folder / "inside" / "examples" / "first" / "train.py")]
    argv["unresolved"] = [str(folder / "planted")]
    out = folder / "results.json"
    subprocess.run([sys.executable, "-c", RUN, json.dumps(argv), str(out)], check=True)
    return {name: (code, text.splitlines(), err) for name, (code, text, err) in json.loads(out.read_text()).items()}


@needs_slim
def test_every_name_of_the_idioms_resolves(scans):
    status, lines, _ = scans["idioms"]
    assert [line for line in lines if not line.startswith("ok ")] == lines[-1:]
    assert "(all, by name; values are not seen); 10 files" in lines[-1]
    assert status == 0
    assert any("tf.contrib.seq2seq.AttentionWrapper " in line and "seq2seq_attention.py:" in line for line in lines)


@needs_slim
def test_planted_names_are_found_with_their_lines(folder, scans):
    status, lines, _ = scans["unresolved"]
    path = folder / "planted" / "train.py"
    assert status == 1
    assert [int(line[len(str(path)) + 1 :].split(":")[0]) for line in lines[:-1]] == [2, 6, 7, 8, 10]
    assert all(line.startswith(str(path)) for line in lines[:-1])
    wanted = ["no_such_part", "fully_connected", "relu", "NPURunConfig'", "Dense'"]
    assert [word in line for word, line in zip(wanted, lines)] == [True] * 5, lines
    assert "8 of 13 symbols resolve" in lines[-1]
    assert "(it will stop); 1 file" in lines[-1]
    assert [line for line in scans["planted"][1] if not line.startswith("ok ")] == lines
    assert scans["file"] == scans["planted"]


def test_app_run_runs_main(scans):
    status, lines, _ = scans["app"]
    assert status == 1
    assert "train.py:5: tf.nn.conv9" in lines[0]
    assert "train.py:8: perhaps: tf.nn.conv9" in lines[1]


def test_what_stops_comes_first_and_no_share_stands_under_it(scans):
    status, lines, _ = scans["module"]
    assert status == 1
    assert lines[0].endswith("there is no module 'nowhere_to_be_found', neither installed nor in this tree")
    assert lines[1].startswith("ok ")
    assert "(it needs nowhere_to_be_found); 1 file" in lines[-1]


def test_attributes_of_objects_are_the_scripts_own(scans):
    assert any("tf.app.flags.FLAGS " in line and line.endswith("train.py:12,13") for line in scans["planted"][1])


def test_nothing_of_the_script_runs(folder, scans):
    assert sorted(path.name for path in (folder / "planted").iterdir()) == ["train.py"]


def test_names_that_tensorflow_has_moved_are_where_they_were(scans):
    assert scans["moved"][0] == 0, scans["moved"][1]


@pytest.mark.skipif(SLIM is None, reason="tf-slim is not installed: npu-shim[contrib]")
def test_every_name_that_tf_slim_uses_resolves(scans):
    lines = scans["slim"][1]
    own_fault = "TensorShape.ndim:"  # of its layer GDN
    assert [line for line in lines if "_test.py:" not in line and own_fault not in line] == lines[-1:]


def test_a_python_2_file_is_said_and_the_others_are_scanned(scans):
    status, lines, _ = scans["python2"]
    assert status == 0
    assert scans["python2 needed"][0] == 1
    assert "old.py:2: not Python 3" in lines[0]
    assert "2 of 2 symbols" in lines[-1]
    assert lines[-1].endswith("2 files, 1 of them cannot be read")


def test_what_objects_lack_is_said(scans):
    status, lines, _ = scans["objects"]
    assert status == 1
    said = [line.split("train.py:")[1] for line in lines if "there is no" in line or "takes no" in line]
    assert [(int(line.split(":")[0]), line.split("did you mean '")[1].split("'")[0]) for line in said] == [
        (3, "shuffle"), (3, "get_next"), (5, "get_tensor_by_name"), (6, "feed_dict"), (8, "allow_growth"),
        (10, "as_list"), (16, "weights"), (17, "minimize"),
    ]  # fmt: skip
    assert said[0] == "3: tf.data.Dataset.shufle: there is no 'shufle' in tf.data.Dataset (did you mean 'shuffle'?)"


def test_what_objects_have_is_not_missed(scans):
    status, lines, _ = scans["fine"]
    assert (status, [line for line in lines if not line.startswith(("ok ", "optional "))]) == (0, lines[-1:])
    assert any(line.startswith("ok ") and "tf.data.Dataset.make_one_shot_iterator " in line for line in lines)


def test_what_may_never_run_is_listed_and_does_not_count_as_a_stop(scans):
    status, lines, _ = scans["elsewhere"]
    assert status == 0
    assert "a.py:3: perhaps: tf.nn.rellu: there is no 'rellu' in tf.nn (did you mean 'relu'?)" in lines[0]


def test_tensorflow_core_is_looked_into(scans):
    status, lines, _ = scans["core"]
    assert status == 1
    assert "(did you mean 'freeze_graph'?)" in lines[0]


def test_a_scripts_own_undefined_name_is_not_blamed_on_the_bridge(scans):
    status, lines, _ = scans["own fault"]
    assert status == 1
    assert not any("gobble" in line for line in lines)
    assert any("NPURunConfigg" in line for line in lines)


def test_what_the_script_sets_is_there(scans):
    assert scans["set"][0] == 0


def test_options_that_nothing_reads_are_said(scans):
    assert scans["silent"][1][0].endswith("a.py:3: NpuOptimizer has no effect: no script imports npu_bridge")
    assert "a.py:1: NPURunConfig has no effect: there is no NPUEstimator" in scans["config"][1][0]


def test_what_has_an_alternative_is_not_missing(scans):
    status, lines, _ = scans["either"]
    assert status == 0
    assert [line.split()[:2] for line in lines[:-1]] == [["ok", "tf.nn.relu"], ["optional", "tf.nowhere.x"]]


def test_nothing_to_scan(scans):
    assert scans["nothing"][0] == 0
    assert scans["nothing"][1] == ["no name of TensorFlow, npu_bridge or hccl in 1 file"]
    assert (scans["empty"][0], "there is no Python file" in scans["empty"][2]) == (2, True)
    assert (scans["nowhere"][0], "cannot be read: No such file" in scans["nowhere"][2]) == (2, True)


def test_arguments_that_nothing_takes_are_said(scans):
    status, lines, _ = scans["arguments"]
    wrong = [line.split(":", 1)[1] for line in lines if "takes no argument" in line]
    # 1.15.5 has no face of ours for a Keras that is not installed
    keras = ["10: keras.optimizers.SGD takes no argument 'nestrov' (did you mean 'nesterov'?)"]
    if TENSORFLOW_1 and importlib.util.find_spec("keras") is None:
        keras = []
        assert any("10: keras.optimizers.SGD: there is no module 'keras'" in line for line in lines)
    assert wrong == [
        "2: tf.layers.dense takes no argument 'unit' (did you mean 'units'?)",
        "4: tf.ConfigProto takes no argument 'allow_soft_placment' (did you mean 'allow_soft_placement'?)",
        "5: tf.train.Saver takes no argument 'max_to_kep' (did you mean 'max_to_keep'?)",
        *keras,
        "8: perhaps: tf.cast takes no argument 'type' (did you mean 'dtype'?)",
    ]
    assert status == 1


def test_a_module_that_is_nowhere_stops_its_script_but_not_a_folder_of_others(scans):
    said = "gpu.py:1: %sthere is no module 'no_such_module', neither installed nor in this tree"
    assert (scans["two"][0], scans["two"][1][0][-len(said) - 7 :].endswith(said % "perhaps: ")) == (0, True)
    assert (scans["script"][0], scans["script"][1][0].endswith(said % "")) == (1, True)
    assert (scans["one"][0], "net.py:1: there is no module" in scans["one"][1][0]) == (1, True)


def test_what_numpy_has_lost_is_said_but_not_what_comes_back_with_run(scans):
    status, lines, errors = scans["numpy"]
    assert [line.split("train.py:")[1] for line in lines[:2]] == [
        "6: perhaps: numpy.lodtxt: there is no 'lodtxt' in numpy (did you mean 'loadtxt'?)",
        "6: perhaps: numpy.zeros_like takes no argument 'dtyp' (did you mean 'dtype'?)",
    ]
    assert (status, errors) == (0, "")
    assert lines[-1].startswith("2 of 4 symbols resolve")  # those of NumPy count only where they are lost


def test_modules_in_folders_that_the_script_adds_are_read(scans):
    assert (scans["far"][0], len(scans["far"][1])) == (0, 1), scans["far"][1]
    assert scans["far"][1][-1].endswith("; 3 files")
