"""TensorFlow 1 scripts, unmodified, through `npu-shim run`, and against tf.compat.v1 with plain python."""

import os
import subprocess
import sys

import pytest

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
    seen.append(sorted((n.op, tf.as_dtype(low(n)).name) for n in nodes if n.op in heavy))
    variables = {tf.as_dtype(n.attr['dtype'].type).name for n in nodes if n.op in ('VarHandleOp', 'VariableV2')}
    seen.append(sorted(variables - {'int32', 'int64'}))
    return values
tf.Session.run = watched
status = launcher.run(sys.argv[1], sys.argv[2:])
print('ran', seen)
sys.exit(status)
"""


def run(argv, cwd, **environment):
    done = subprocess.run(
        [sys.executable, *map(str, argv)], cwd=str(cwd), env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **environment},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def accuracy(out):
    return float([line for line in out.splitlines() if line.startswith("accuracy ")][-1].split()[1])


@pytest.mark.parametrize("name", ["estimator", "manual_fp16"])
def test_script_runs_unmodified(shared, tmp_path, name):
    script, data = shared / "tf1_scripts" / (name + ".py"), shared / "data" / "digits.npz"
    assert accuracy(run(["-m", "npu_shim", "run", script, data], tmp_path)) >= 0.90


def test_sess_run_script_computes_in_float16(shared, tmp_path):
    script, data = shared / "tf1_scripts" / "sess_run.py", shared / "data" / "digits.npz"
    out = run(["-c", WATCH, script, data], tmp_path, TF_ENABLE_ONEDNN_OPTS="0")
    assert accuracy(out) >= 0.90
    heavy = "('Conv2D', 'float16'), ('Conv2D', 'float16'), ('Conv2DBackpropFilter', 'float16'), "
    heavy += "('Conv2DBackpropFilter', 'float16'), ('Conv2DBackpropInput', 'float16'), "
    heavy += "('MatMul', 'float16'), ('MatMul', 'float16'), ('MatMul', 'float16')"
    assert "ran [[%s], ['float32']]" % heavy in out


def test_the_same_code_against_compat_v1_runs_with_plain_python(shared, tmp_path):
    text = (shared / "tf1_scripts" / "estimator.py").read_text()
    text = text.replace("import tensorflow as tf\n", "import tensorflow.compat.v1 as tf\ntf.disable_v2_behavior()\n")
    script = tmp_path / "script.py"
    script.write_text(text)
    assert accuracy(run([script, shared / "data" / "digits.npz"], tmp_path)) >= 0.90
