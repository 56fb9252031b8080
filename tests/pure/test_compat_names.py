"""The table of TensorFlow 1's names, and the reader of sources, without importing TensorFlow."""

import subprocess
import sys

import pytest

from npu_shim.compat.names import exports, names

pytestmark = pytest.mark.skipif(not exports.file_of("tensorflow"), reason="no TensorFlow to read")
only_2 = pytest.mark.skipif(names.tensorflow_1(), reason="TensorFlow 1 has the real tf.contrib")


def test_nothing_is_imported_to_resolve_a_name():
    code = "import sys; from npu_shim.compat.names import names\n"
    code += "print(names.resolve('tf.contrib.rnn.LSTMCell'), 'tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    target, imported = done.stdout.decode().split()
    assert target.endswith("LSTMCell")
    assert imported == "False"


@pytest.mark.parametrize(
    "name",
    ["tf.nn.conv2d", "tf.train.AdamOptimizer.minimize", "tensorflow.contrib.framework.nest", "tf.flags.DEFINE_string",
     "tf.layers.dense", "tf.keras.layers.Dense",
     pytest.param("tf.mul", marks=only_2),
     "tf.train.Example", "tf.train.ClusterDef", "tf.estimator.Estimator", "tensorflow.python.framework.ops",
     "tf.contrib.layers.python.layers", "tf.contrib"],
)  # fmt: skip
def test_names_that_exist(name):
    if name.startswith(("tf.layers", "tf.estimator")) and not exports.has(names.home(names.V1 + name[2:])):
        pytest.skip("this TensorFlow comes without " + name)
    assert names.resolve(name)


@pytest.mark.parametrize(
    "name", ["tf.nn.conv3", "tf.contrib.rnn.LSTMCel", "tf.contrib.rn", "tf.python.nope", "tf.train.Exampl"]
)
def test_names_that_do_not_exist(name):
    assert names.resolve(name) is None


@only_2
@pytest.mark.parametrize(
    ("name", "near"),
    [("tf.contrib.rnn.LSTMCel", "tf.contrib.rnn.LSTMCell"), ("tf.contrib.rn.GRUCell", "tf.contrib.rnn.GRUCell"),
     ("tf.contrib.rnn.sequence_loss", "tf.contrib.seq2seq.sequence_loss"), ("tf.nn.sofmax", "tf.nn.softmax")],
)  # fmt: skip
def test_nearest(name, near):
    assert names.nearest(name) == near
    assert "did you mean '%s'?" % near in names.explain(name)


@only_2
@pytest.mark.parametrize("name", ["tf.profiler.experimental.start", "tf.contrib.compiler.xla.estimator_model_fn"])
def test_a_hint_never_contradicts_itself(name):
    near = names.nearest(name)
    assert near is None or (near != name and names.resolve(near))


@only_2
def test_what_is_gone_says_what_to_use():
    assert names.resolve("tf.contrib.learn.binary_svm_head") is None
    assert names.explain("tf.contrib.learn.binary_svm_head").endswith("multi_class_head and its sisters")


def test_a_file_is_read_as_python_would_bind_it(tmp_path, monkeypatch):
    package = tmp_path / "bound"
    package.mkdir()
    (package / "__init__.py").write_text("from .inner import *\nfrom .inner import hidden as shown\nimport os.path\n")
    (package / "inner.py").write_text(
        "class Some: pass\nif True:\n    x, y = 1, 2\ntry:\n    import json as j\n"
        "except ImportError:\n    gone = None\n"
        "def hidden():\n    local = 1\n_private = 0\nraise SystemExit('not to be run')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert exports.locate("bound.Some.method") == ("bound.inner", "Some.method")
    assert exports.locate("bound.shown") == ("bound.inner", "hidden")
    assert exports.locate("bound.inner") == ("bound.inner", "")
    for name in ("bound.x", "bound.y", "bound.j", "bound.gone", "bound.os"):
        assert exports.has(name), name
    for name in ("bound._private", "bound.local", "bound.nope", "unbound.x"):
        assert not exports.has(name), name
