"""The scripts of examples/, as a user runs them: what they reach, in which precision, and what stays float32."""

import os
import pathlib
import re
import subprocess
import sys

import forked
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES, DIGITS = ROOT / "examples", ROOT / "scripts" / "data" / "digits.npz"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))
LOWERED = re.compile(r"^npu_shim: allow_mix_precision: (\d+) of \d+ float slots to float16, casts", re.MULTILINE)

pytestmark = pytest.mark.slow

# runs a script as `npu-shim run` does, and prints what really ran in the first step that has a gradient, and the dtypes
# that its values are rounded to; oneDNN's rewrites would drop the mark of these
WATCH = """
import sys
from npu_shim.compat import launcher, tensorflow_v1
tensorflow_v1.install()
import tensorflow as tf
run, seen = tf.Session.run, []
def watched(self, fetches, feed_dict=None):
    if seen or not isinstance(fetches, list):
        return run(self, fetches, feed_dict)
    data = tf.RunMetadata()
    values = run(self, fetches, feed_dict, tf.RunOptions(output_partition_graphs=True), data)
    heavy = ('Conv2D', 'MatMul', '_FusedConv2D', '_FusedMatMul', 'Conv2DBackpropFilter', 'Conv2DBackpropInput')
    nodes = [n for g in data.partition_graphs for n in g.node]
    low = lambda n: n.attr['_npu_shim_rounded' if '_npu_shim_rounded' in n.attr else 'T'].type
    op = lambda n: n.op.replace('_MklNative', '')  # gradients of convolutions run by oneDNN's kernels
    seen.append(sorted((op(n), tf.as_dtype(low(n)).name) for n in nodes if op(n) in heavy))
    variables = {tf.as_dtype(n.attr['dtype'].type).name for n in nodes if n.op in ('VarHandleOp', 'VariableV2')}
    seen.append(sorted(variables - {'int32', 'int64'}))
    return values
tf.Session.run = watched
status = launcher.run(sys.argv[1], sys.argv[2:])
print('ran', seen)
sys.exit(status)
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """dict of command's name -> Done: every example, one written against compat.v1, one without its data."""
    folder = tmp_path_factory.mktemp("examples")
    plain = (EXAMPLES / "estimator.py").read_text().replace(
        "import tensorflow as tf\n", "import tensorflow.compat.v1 as tf\n\ntf.disable_v2_behavior()\n"
    )  # fmt: skip
    (folder / "plain.py").write_text(plain)
    lines = {name: "npu-shim run %s %s" % (EXAMPLES / (name + ".py"), DIGITS) for name in NAMES}
    lines["plain"] = "python plain.py %s" % DIGITS
    lines["no data"] = "npu-shim run %s nowhere.npz" % (EXAMPLES / "sess_run.py")
    return dict(zip(lines, forked.run([(line, folder) for line in lines.values()])))


def accuracy(ended):
    assert ended.status == 0, ended.output
    return float(re.findall(r"^accuracy (\S+)$", ended.output, re.MULTILINE)[-1])


@pytest.mark.parametrize("name", [*NAMES, "plain"])
def test_an_example_learns(done, name):
    assert accuracy(done[name]) >= 0.85  # chance is 0.1; Keras shuffles as it likes: 0.89 to 0.94


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"manual_float16"}))
def test_it_learns_in_mixed_precision(done, name):
    assert int(LOWERED.findall(done[name].output)[-1]) >= 5


def test_masters_by_hand_are_float32_and_restore_into_float16(done):
    assert "stored as ['float32']\n" in done["manual_float16"].output
    assert "the same from float16 True\n" in done["manual_float16"].output


@pytest.mark.nightly  # test_session.py has the dtypes that run in a session
def test_products_and_convolutions_ran_in_float16(tmp_path):
    """In a process of its own: TensorFlow reads the environment variable when it is imported."""
    ended = subprocess.run(
        [sys.executable, "-c", WATCH, str(EXAMPLES / "sess_run.py"), str(DIGITS)], cwd=str(tmp_path), check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "TF_ENABLE_ONEDNN_OPTS": "0"},
    )  # fmt: skip
    assert accuracy(forked.Done(ended.returncode, ended.stdout)) >= 0.90
    heavy = "('Conv2D', 'float16'), ('Conv2D', 'float16'), ('Conv2DBackpropFilter', 'float16'), "
    heavy += "('Conv2DBackpropFilter', 'float16'), ('Conv2DBackpropInput', 'float16'), "
    heavy += "('MatMul', 'float16'), ('MatMul', 'float16'), ('MatMul', 'float16')"
    assert "ran [[%s], ['float32']]" % heavy in ended.stdout


def test_a_script_without_its_data_fails_as_under_python(done):
    assert done["no data"].status == 1
    assert "FileNotFoundError" in done["no data"].output
