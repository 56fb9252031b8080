"""What `npu-shim run`, `tune` and processes say at their end: of what had no effect, and of skipped steps."""

import importlib.util
import os
import re

import forked
import pytest
import tensorflow.compat.v1 as tf

from npu_shim.options import engine

PLAIN = """
import tensorflow as tf
w = tf.Variable([1.0])
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    session.run(tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(tf.square(w))))
"""
OWN_ENGINE = """
import tensorflow as tf
import npu_bridge.npu_init
config = tf.ConfigProto()
entry = config.graph_options.rewrite_options.custom_optimizers.add()
entry.name = "NpuOptimizer"
entry.parameter_map["npu_shim_engine"].s = b"session"
with tf.Session(config=config) as session:
    session.run(tf.reduce_sum(tf.matmul(tf.ones([2, 2]), tf.ones([2, 2]))))
"""
IN_A_CHILD = """
import os, subprocess, sys
import tensorflow as tf
if not os.fork():
    import npu_bridge.npu_init
    with tf.Session() as session:
        session.run(tf.constant(1))
    os._exit(0)
os.wait()
"""
CLOSED = """
import tensorflow as tf
tf.Session().close()
"""
EAGER = """
import tensorflow as tf
tf.enable_eager_execution()
print(tf.matmul(tf.ones([2, 2]), tf.ones([2, 2])))
"""
EAGER_TRAINING = """
import tensorflow as tf
tf.enable_eager_execution()
w = tf.Variable([2.0])
with tf.GradientTape() as tape:
    loss = tf.reduce_sum(w * w)
print("GRADIENT", tape.gradient(loss, w).numpy())
"""
# a gradient of a tape in a graph, and an eager one in a script whose session trains
TAPE_IN_A_GRAPH = """
import tensorflow as tf
w = tf.constant([2.0])
with tf.GradientTape() as tape:
    tape.watch(w)
    loss = tf.reduce_sum(w * w)
slope = tape.gradient(loss, w)
"""
EAGER_BESIDE_A_SESSION = """
import tensorflow as tf
tf.enable_eager_execution()
with tf.Graph().as_default():
    w = tf.Variable([1.0])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(tf.square(w))))
""" + EAGER_TRAINING.partition("execution()")[2]
TENSORFLOW_2 = """
import tensorflow as tf
w = tf.Variable([2.0])
@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(w * w)
    w.assign_sub(tape.gradient(loss, w))
    return loss
print("LOSS", step())
"""
STEP = """
import numpy as np
import tensorflow as tf
x = tf.placeholder(tf.%s, [None, 4])
w = tf.get_variable("w", [4, 2], x.dtype, tf.ones_initializer())
loss = %s * tf.reduce_sum(tf.matmul(x, w))
train = tf.train.GradientDescentOptimizer(1e-7).minimize(loss)
with tf.Session(config=globals().get("config")) as session:
    session.run(tf.global_variables_initializer())
    for _ in range(20):
        session.run(train, {x: np.full([8, 4], 0.1)})
"""
FLOAT64, FLOAT32 = STEP % ("float64", "1.0"), STEP % ("float32", "1.0")
# a gradient of 8 * 4e4, where all that it is made of fits into float16
LARGE = FLOAT32.replace("0.1)", "4e4)").replace("tf.ones_initializer", "tf.zeros_initializer")
WITH = 'with tf.Session(config=globals().get("config")) as session:'
LEFT_OPEN = LARGE.replace(WITH, "session = tf.Session()\nif True:")
ENABLED = 'import npu_shim; npu_shim.enable(precision_mode="auto", loss_scale=8, watch=True)\n'
CONFIG = (
    """
import tensorflow as tf
import npu_bridge
config = tf.ConfigProto()
entry = config.graph_options.rewrite_options.custom_optimizers.add()
entry.name = "NpuOptimizer"
entry.parameter_map["precision_mode"].s = b"allow_mix_precision"
entry.parameter_map["iterations_per_loop"].i = 10
"""
    + FLOAT64
)
IN_A_FUNCTION = """
import tensorflow as tf
v = tf.get_variable("v", [4, 4], use_resource=True)
@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(tf.matmul(tf.ones([4, 4]), v)))
    v.assign_sub(tape.gradient(loss, v) * tf.py_function(lambda: 0.1, [], tf.float32))
    return loss
loss = step()
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    session.run(loss)
"""
FETCHES_GRADIENTS = """
import tensorflow as tf
v = tf.get_variable("v", [4, 4])
loss = tf.reduce_mean(tf.square(tf.matmul(tf.ones([4, 4]), v)))
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    session.run([loss, tf.gradients(loss, v)])
"""
SET = "--set precision_mode=force_fp32 has reached no session: it overrides the options of sessions"
FLOAT16 = "--precision-mode allow_mix_precision has reached no session: it lowers the graphs of sessions"
MODE = "--precision-mode auto has reached no session: it lowers the graphs of sessions"
ENGINE = "--engine pjrt has reached no session: it runs the training steps of sessions that name no engine themselves"
REPORT = "--report page.html has reached no session: it shows the graphs of sessions"
CALIBRATE = "--calibrate 2 has reached no session: it measures the training steps of sessions"
REPORTED = importlib.util.find_spec("plotly") is not None  # a page needs it
PAGE = "--report page.html" if REPORTED else ""
ALL = "--set precision_mode=force_fp32 --engine session --calibrate 2 " + PAGE
NONE = "--set precision_mode=force_fp32 --engine pjrt --calibrate 2 " + PAGE
IN_FLOAT64 = "lowered nothing in a training step: the network computes in float64 ('MatMul', MatMul), which no mode"
ENDS = re.compile("has reached no session|lowered nothing|steps were skipped|has (taken|scaled) no|had no effect")
SKIPPED = "18 of 20 training steps were skipped, since their gradients overflowed: step 1 the first, step 18 the last"
NO_STEP = "--engine pjrt has taken no training step, the session ran all: "
# script, options -> the exit status, the lines that are said; no others
CASES = {
    "no NpuOptimizer": (PLAIN, ALL, 0, ()),
    "no session": ("print(1)", NONE, 0, (SET, ENGINE, *([REPORT] if REPORTED else []), CALIBRATE)),
    "wrong input": ("print(1)", "--set precision_mode=force_fp32 --calibrate no", 2, ()),
    "a mode alone": ("import tensorflow as tf; tf.constant(1)", "--precision-mode auto", 0, (MODE,)),
    "an optimizer without a session": (
        "import tensorflow as tf; w = tf.Variable([1.0]); tf.train.AdamOptimizer().minimize(tf.reduce_sum(w * w))",
        "--precision-mode allow_mix_precision",
        0,
        (FLOAT16,),
    ),
    "fails": ("raise ValueError(1)", "--engine pjrt", 1, (ENGINE,)),
    "exits": ("import sys; sys.exit(3)", "--set precision_mode=force_fp32", 3, (SET,)),
    "NpuOptimizer": ("import npu_bridge.npu_init" + PLAIN, "--set precision_mode=force_fp32 --calibrate 2", 0, ()),
    "an engine of its own": (OWN_ENGINE, NONE, 0, (ENGINE,)),
    "a session in a child": (IN_A_CHILD, "--set precision_mode=force_fp32", 0, ()),
    "a session that is closed at once": (CLOSED, "--precision-mode auto", 0, (MODE,)),
    "eager execution": (EAGER, "--precision-mode auto", 0, (MODE,)),
    "eager training": (EAGER_TRAINING, "--precision-mode auto", 1, (MODE,)),
    "eager training of which nothing is asked": (EAGER_TRAINING, "--engine auto", 0, ()),
    "a tape in a graph": (TAPE_IN_A_GRAPH, "--precision-mode auto", 0, (MODE,)),
    "eager training beside a session's": (EAGER_BESIDE_A_SESSION, "--precision-mode auto", 0, ()),
    "a script for TensorFlow 2": (TENSORFLOW_2, "--engine auto", 1, ()),
    "nothing asked": (PLAIN, "--engine auto", 0, ()),
    "float64": (FLOAT64, "--precision-mode auto", 0, ("--precision-mode auto " + IN_FLOAT64,)),
    "steps that a scale skips": (
        LARGE,
        "--precision-mode allow_mix_precision",
        0,
        (SKIPPED + "; the loss scale is 0.125",),
    ),
    "a session that nobody closes": (LEFT_OPEN, "--precision-mode allow_mix_precision", 0, (SKIPPED,)),
    "a scale below 1": (LARGE, "--precision-mode allow_mix_precision --loss-scale 0.125", 0, ()),
    "a scale without float16": (
        LARGE,
        "--precision-mode force_fp32 --loss-scale 8",
        0,
        ("--loss-scale 8 has scaled no loss: the precision mode computes nothing in float16",),
    ),
    "a watch without summaries": (
        LARGE,
        "--set npu_shim_watch=true",
        0,
        ("--set npu_shim_watch=true had no effect: no run fetched a merged",),
    ),
    "a config's own requests": (
        CONFIG,
        "",
        0,
        (
            "option: precision_mode allow_mix_precision " + IN_FLOAT64,
            "option: iterations_per_loop 10 had no effect: NPUEstimator repeats steps",
        ),
    ),
}
if engine.has_jax() or engine.interpreter():
    CASES.update({
        "a step in a function": (IN_A_FUNCTION, "--engine pjrt", 0, (NO_STEP + "the run of '",)),
        "gradients that a script applies": (FETCHES_GRADIENTS, "--engine pjrt", 0, (NO_STEP + "no run of a session",)),
        "a step of the engine that a scale skips": (
            LARGE, "--precision-mode allow_mix_precision --engine pjrt", 0, (SKIPPED,)
        ),
    })  # fmt: skip
# what another case shows by another script
NIGHTLY = {
    "a mode alone", "exits", "nothing asked", "eager execution", "a tape in a graph", "an optimizer without a session",
    "a session in a child", "a scale below 1", "a scale without float16", "gradients that a script applies",
}  # fmt: skip
if not os.environ.get("NPU_SHIM_NIGHTLY"):
    CASES = {name: case for name, case in CASES.items() if name not in NIGHTLY}


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    commands = []
    for number, (script, options, _, _) in enumerate(CASES.values()):
        folder = tmp_path_factory.mktemp("script%d" % number)
        (folder / "script.py").write_text(script)
        commands.append(("npu-shim run %s script.py" % options, folder))
    return dict(zip(CASES, forked.run(commands)))


@pytest.mark.parametrize("name", CASES)
def test_what_reaches_no_session_is_said_at_the_end(said, name):
    _, _, status, lines = CASES[name]
    done = said[name]
    assert done.status == status, done.output
    told = [line for line in done.output.splitlines() if line.startswith("npu-shim: ") and ENDS.search(line)]
    assert len(told) == len(lines), done.output
    for line, wanted in zip(sorted(told), sorted(lines)):
        assert wanted in line
    if lines:
        assert done.output.splitlines()[-1] in told or "Error" in done.output
    assert "NPU_SHIM_REQUESTS" not in os.environ


def test_eager_training_is_an_error_that_says_what_this_is_for(said):
    refused = said["eager training"].output
    assert "GRADIENT [4.]" not in refused
    assert "npu-shim run --precision-mode auto: it lowers the graphs of sessions" in refused
    assert "and the script trains eagerly" in refused
    assert "take tf.enable_eager_execution() out of the script, or run it without --precision-mode" in refused
    for name in ("eager training of which nothing is asked", "eager training beside a session's"):
        assert "GRADIENT [4.]" in said[name].output


@pytest.mark.skipif(tf.__version__.startswith("1."), reason="TensorFlow 1: its functions make resource variables")
def test_a_script_for_tensorflow_2_is_told_what_this_is_for(said):
    done = said["a script for TensorFlow 2"]
    assert "npu-shim run is for the graphs and sessions of TensorFlow 1" in done.output
    assert "run a script for TensorFlow 2 with python itself" in done.output


def test_a_process_that_no_command_runs_tells_itself(tmp_path):
    beginning = "import tensorflow.compat.v1 as tf\ntf.disable_v2_behavior()\n" + ENABLED
    of_1 = FLOAT64.replace("import tensorflow as tf", beginning)
    (tmp_path / "script.py").write_text(of_1)
    (done,) = forked.run([("python script.py", tmp_path)])
    told = [line for line in done.output.splitlines() if line.startswith("npu_shim: npu_shim.enable: ")]
    wanted = ("precision_mode auto " + IN_FLOAT64, "npu_shim_watch True had no effect", "loss_scale 8 has scaled no")
    assert len(told) == len(wanted), done.output
    assert all(any(words in line for line in told) for words in wanted), done.output


def test_tune_says_what_it_would_have_taken(tmp_path):
    (tmp_path / "script.py").write_text("print(1)")
    (done,) = forked.run([("npu-shim tune --out out.json script.py", tmp_path)])
    assert done.status == 2, done.output
    assert "no training step was seen in a session: the script made none" in done.output
