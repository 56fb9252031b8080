"""Ten idioms of TensorFlow 1 as scripts (tests/idioms): the losses of TensorFlow 1.15.5, and nearly in mixed precision.

golden.json has the losses that the scripts print in float32 under TensorFlow 1.15.5, with plain python and the real
tf.contrib. After a change that is meant, write it again there with NPU_SHIM_GOLDEN=write and read the difference.
"""

import collections
import importlib.util
import json
import os
import pathlib
import re

import forked
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from npu_shim.rewriter.lint.seen import WAY_OUT

IDIOMS = pathlib.Path(__file__).resolve().parents[1] / "idioms"
GOLDEN = IDIOMS / "golden.json"
ABOUT = "float32 losses under TensorFlow 1.15.5; written by tests/tf/test_idioms.py with NPU_SHIM_GOLDEN=write"
TENSORFLOW_1 = tf.__version__.startswith("1.")

# Relative tolerances. The seeds and initial weights are the same everywhere. What differs in float32 is the order of
# sums: matrix products of other versions, oneDNN's convolutions, softmax; a step of training multiplies that. In mixed
# precision an element is off by up to 2^-11, a loss of many elements by much less, and again more after each step.
Tolerance = collections.namedtuple("Tolerance", "float32 mixed why")
TOLERANCES = {
    "bert_tpu_estimator": Tolerance(1e-4, 1e-3, "two layers; layer norm and softmax stay float32"),
    "ctc_ocr": Tolerance(1e-5, 2e-3, "24 steps of two LSTM layers; the CTC loss stays float32"),
    "dqn": Tolerance(1e-4, 1e-2, "squares of small differences: losses near 0.002"),
    "gan": Tolerance(1e-4, 2e-3, "transposed convolutions, batch norm of 16 images"),
    "keras_session": Tolerance(1e-4, 5e-2, "momentum 0.9 at a loss that falls by half in each step"),
    "queue_runner": Tolerance(1e-5, 1e-3, "two dense layers"),
    "seq2seq_attention": Tolerance(1e-5, 1e-3, "7 steps of GRUs and attention; the loss stays float32"),
    "slim_resnet": Tolerance(1e-4, 5e-2, "14 layers with batch norm of 16 images and 16 pixels, momentum 0.9"),
    "wide_deep": Tolerance(1e-5, 1e-3, "sums of 32 losses; the wide part is not lowered"),
    "word2vec_nce": Tolerance(1e-5, 1e-3, "one product; the embedding itself stays float32"),
}
WITHOUT_SLIM = ("keras_session", "queue_runner", "wide_deep", "word2vec_nce")  # the others use tf.contrib.layers
HAS_SLIM = TENSORFLOW_1 or importlib.util.find_spec("tf_slim") is not None
needs_slim = pytest.mark.skipif(not HAS_SLIM, reason="tf-slim is not installed: npu-shim[contrib]")
NAMES = [pytest.param(name, marks=() if name in WITHOUT_SLIM else needs_slim) for name in sorted(TOLERANCES)]
ALL = os.environ.get("NPU_SHIM_NIGHTLY") or os.environ.get("NPU_SHIM_GOLDEN")
# by day a script of each way to train: TPUEstimator, Keras in a session, tf.contrib.seq2seq, feature columns; in
# float32 what our own tf.contrib trains
BY_DAY = ("bert_tpu_estimator", "keras_session", "seq2seq_attention", "wide_deep")
SHOWN = [row for row in NAMES if ALL or row.values[0] in BY_DAY]
IN_FLOAT32 = sorted(TOLERANCES) if ALL else ["seq2seq_attention"]
LAST_DIGIT = 2e-6  # the scripts print six
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """{(name, mode): Done} of all scripts, in float32 and in mixed precision."""
    folder = tmp_path_factory.mktemp("run")
    names = [row.values[0] for row in SHOWN if HAS_SLIM or row.values[0] in WITHOUT_SLIM]
    lines = {(name, "mixed"): "npu-shim run %s" % (IDIOMS / (name + ".py")) for name in names}
    plain = "python %s float32" if TENSORFLOW_1 else "npu-shim run %s float32"
    lines.update(((name, "float32"), plain % (IDIOMS / (name + ".py"))) for name in names if name in IN_FLOAT32)
    return dict(zip(lines, forked.run([(line, folder) for line in lines.values()], timeout=1200)))


def losses(out):
    matches = re.findall(r"^loss (\d+) (\S+)$", out, re.MULTILINE)
    assert [int(step) for step, _ in matches] == list(range(len(matches)))
    return [float(value) for _, value in matches]


def golden():
    return json.loads(GOLDEN.read_text())["losses"]


@pytest.mark.parametrize("name", [row for row in NAMES if row.values[0] in IN_FLOAT32])
def test_the_first_losses_are_those_of_tensorflow_1(name, ended):
    done = ended[name, "float32"]
    assert done.status == 0, done.output[-6000:]
    actual = losses(done.output)
    if os.environ.get("NPU_SHIM_GOLDEN") == "write":
        assert tf.__version__ == "1.15.5", "only there"
        write(name, actual)
    np.testing.assert_allclose(actual, golden()[name], TOLERANCES[name].float32, LAST_DIGIT)


def write(name, values):
    kept = golden() if GOLDEN.exists() else {}
    text = json.dumps({"about": ABOUT, "losses": {**kept, name: values}}, indent=1, sort_keys=True)
    GOLDEN.write_text(re.sub(r"\n {3}|\n  (?=\])", " ", text).replace("[ ", "[").replace(" ]", "]") + "\n")


@pytest.mark.parametrize("name", SHOWN)
def test_mixed_precision_follows_them(name, ended):
    status, output = ended[name, "mixed"]
    assert status == 0, output[-6000:]
    np.testing.assert_allclose(losses(output), golden()[name], TOLERANCES[name].mixed, LAST_DIGIT)
    line = re.compile(r"^npu_shim: allow_mix_precision: (\d+) of .* casts (\d+) down and (\d+) up", re.MULTILINE)
    counts = line.findall(output)
    lowered, down, up = np.array(counts, int).max(axis=0)
    assert lowered > 5
    assert down > 2
    assert up > 2
    assert not [line for line in output.splitlines() if WAY_OUT in line]  # they follow float32, so no rule has a cause


def test_every_script_has_its_row():
    assert {path.stem for path in IDIOMS.glob("*.py")} == set(TOLERANCES) == set(golden())


def test_the_bridge_alone_brings_no_removed_name_back():
    import npu_bridge.npu_init

    assert npu_bridge.npu_init.tf is not None
    from npu_shim.compat.python import aliases

    assert not aliases.installed()
