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
import subprocess
import sys

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

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
NAMES = [
    pytest.param(name, marks=pytest.mark.skipif(not HAS_SLIM and name not in WITHOUT_SLIM, reason="tf-slim is missing"))
    for name in sorted(TOLERANCES)
]
LAST_DIGIT = 2e-6  # the scripts print six
# runs scripts one after another in one process, each as `npu-shim run` does
RUN_ALL = """
import sys
import tensorflow.compat.v1 as tf
from npu_shim.compat import launcher
for script in sys.argv[1:]:
    print("script", script, flush=True)
    tf.reset_default_graph()
    try:
        status = launcher.run(script, [])
    except SystemExit as end:
        status = end.code
    print("status", status or 0, flush=True)
"""
pytestmark = pytest.mark.slow


def run(argv, cwd):
    """Runs python with the arguments; returns its output, standard error with it. It must succeed."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *map(str, argv)], cwd=str(cwd), check=False, text=True, timeout=600,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout


def losses(out):
    found = re.findall(r"^loss (\d+) (\S+)$", out, re.MULTILINE)
    assert [int(step) for step, _ in found] == list(range(len(found)))
    return [float(value) for _, value in found]


def golden():
    return json.loads(GOLDEN.read_text())["losses"]


@pytest.mark.parametrize("name", NAMES)
def test_the_first_losses_are_those_of_tensorflow_1(name, tmp_path):
    launcher = [] if TENSORFLOW_1 else ["-m", "npu_shim", "run"]
    found = losses(run([*launcher, IDIOMS / (name + ".py"), "float32"], tmp_path))
    if os.environ.get("NPU_SHIM_GOLDEN") == "write":
        assert tf.__version__ == "1.15.5", "only there"
        write(name, found)
    np.testing.assert_allclose(found, golden()[name], TOLERANCES[name].float32, LAST_DIGIT)


def write(name, found):
    kept = golden() if GOLDEN.exists() else {}
    text = json.dumps({"about": ABOUT, "losses": {**kept, name: found}}, indent=1, sort_keys=True)
    GOLDEN.write_text(re.sub(r"\n {3}|\n  (?=\])", " ", text).replace("[ ", "[").replace(" ]", "]") + "\n")


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """{name: output} of all scripts in mixed precision, from one process."""
    scripts = [IDIOMS / (name + ".py") for name in (sorted(TOLERANCES) if HAS_SLIM else WITHOUT_SLIM)]
    out = run(["-c", RUN_ALL, *scripts], tmp_path_factory.mktemp("run"))
    parts = re.split(r"^script .*/(\w+)\.py$", out, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2]))


@pytest.mark.parametrize("name", NAMES)
def test_mixed_precision_follows_them(name, mixed):
    assert "\nstatus 0\n" in mixed[name], mixed[name][-6000:]
    np.testing.assert_allclose(losses(mixed[name]), golden()[name], TOLERANCES[name].mixed, LAST_DIGIT)
    line = re.compile(r"^npu_shim: allow_mix_precision: (\d+) of .* casts (\d+) down and (\d+) up", re.MULTILINE)
    counts = line.findall(mixed[name])
    lowered, down, up = np.array(counts, int).max(axis=0)
    assert lowered > 5
    assert down > 2
    assert up > 2


def test_every_script_has_its_row():
    assert {path.stem for path in IDIOMS.glob("*.py")} == set(TOLERANCES) == set(golden())


def test_the_bridge_alone_brings_no_removed_name_back():
    import npu_bridge.npu_init

    assert npu_bridge.npu_init.tf is not None
    from npu_shim.compat import aliases

    assert not aliases.installed()
