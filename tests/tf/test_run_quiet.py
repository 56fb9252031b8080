"""A TensorFlow 1 script under `npu-shim run`: its own warnings are seen, TensorFlow's opinion of it is not."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
import tensorflow as tf

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = """
import warnings
import tensorflow as tf
tf.enable_resource_variables()
x = tf.placeholder(tf.float32, [None, 4])
tf.nn.dynamic_rnn(tf.nn.rnn_cell.LSTMCell(3), tf.layers.dense(x, 2)[:, None], dtype=tf.float32)
config = tf.estimator.RunConfig()
warnings.warn("my own warning")
tf.logging.warning("From my log: it is deprecated and will be removed")
tf.Session().run(tf.global_variables_initializer())
"""
TRAIN = """
import sys
import numpy as np
import tensorflow as tf
x = tf.placeholder(tf.float32, [None, 64])
loss = tf.reduce_mean(tf.square(tf.layers.dense(tf.layers.dense(x, 10), 10)))
train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    value, _ = session.run([loss, train], {x: np.ones([4, 64])})
print("trained", sys.argv, value.dtype)
"""
OWN = ("my own warning", "From my log: it is deprecated and will be removed")


def ran(folder, *words, **settings):
    """What `npu-shim run` of a process of its own prints: (status, output)."""
    done = subprocess.run(
        [sys.executable, "-m", "npu_shim", "run", *words], cwd=str(folder), env={**os.environ, **settings},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def test_deprecations_are_shown_on_demand(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    (status, quiet), (verbose_status, verbose) = ran(tmp_path, "script.py"), ran(tmp_path, "--verbose", "script.py")
    assert (status, verbose_status) == (0, 0), quiet + verbose
    assert all(text in quiet and text in verbose for text in OWN), quiet
    assert len(re.findall("deprecated|Unable to register", quiet)) == 1, quiet
    assert len(re.findall("deprecated", verbose)) > 3


def test_a_shell_script_s_programs_run_in_the_mode_that_is_asked_for(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "train_1p.sh").write_text('set -e\nfor step in 1; do\n  python3 train.py "$@" $step\ndone\nexit 5\n')
    status, output = ran(tmp_path, "--precision-mode", "allow_mix_precision_bf16", "train_1p.sh", "a b")
    lines = output.splitlines()
    assert status == 5, output
    assert lines[-1] == "trained ['train.py', 'a b', '1'] float32"
    # 2.21 looks for a GPU, and says so; the first process of an environment compiles the hook
    said = ("npu_shim: allow_mix_precision_bf16: ", "npu_shim: compiling the session hook", "E0000 ")
    assert [line for line in lines[:-1] if not line.startswith(said)] == []
    assert len(lines) > 1


def test_the_root_logger_shows_tensorflow_s_information(tmp_path):  # a level of its own hid it
    lines = [
        "import logging, tensorflow as tf",
        'logging.basicConfig(level=logging.INFO, format="mine: %(message)s")',
        'tf.logging.info("read 3 files")',
    ]
    (tmp_path / "script.py").write_text("\n".join(lines))
    _, output = ran(tmp_path, "script.py")
    assert "mine: read 3 files" in output.splitlines(), output


@pytest.mark.nightly
@pytest.mark.skipif(not tf.__version__.startswith("2.15"), reason="scripts/quickstart installs TensorFlow 2.15")
def test_quickstart_prints_its_progress_and_its_table(tmp_path):
    text = (ROOT / "scripts" / "quickstart_digits.py").read_text(encoding="utf-8")
    assert "\nSTEPS = 300\n" in text
    (tmp_path / "digits.py").write_text(text.replace("\nSTEPS = 300\n", "\nSTEPS = 3\n"), encoding="utf-8")
    (tmp_path / "data").symlink_to(ROOT / "scripts" / "data")
    settings = re.findall(r"\b([A-Z_]+)=(\w+)", (ROOT / "scripts" / "quickstart").read_text(encoding="utf-8"))
    _, output = ran(tmp_path, "digits.py", **dict(settings))  # 3 steps are too few for its accuracy, and its status
    lines = [line for line in output.splitlines() if line]
    forms = [r"(sess.run|Estimator) +\w+ +step +3 of 3, loss [\d.]+", r"accuracy on 297 digits not trained on",
             r" +float32 +allow_mix_precision", r"(sess.run|Estimator) +0\.\d+ +0\.\d+"]  # fmt: skip
    assert not [line for line in lines if not any(re.fullmatch(form, line) for form in forms)]
    assert len(lines) == 8
