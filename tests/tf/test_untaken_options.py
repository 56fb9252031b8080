"""What `npu-shim run` and `npu-shim tune` say of options that none of a script's sessions takes."""

import importlib.util
import os

import forked
import pytest

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
SET = "--set precision_mode=force_fp32 has reached no session: it goes before the options of sessions"
FLOAT16 = "--precision-mode allow_mix_precision has reached no session: it lowers the graphs of sessions"
MODE = "--precision-mode auto has reached no session: it lowers the graphs of sessions"
ENGINE = "--engine pjrt has reached no session: it runs the training steps of sessions that name no engine themselves"
REPORT = "--report page.html has reached no session: it shows the graphs of sessions"
CALIBRATE = "--calibrate 2 has reached no session: it measures the training steps of sessions"
REPORTED = importlib.util.find_spec("plotly") is not None  # a page needs it
PAGE = "--report page.html" if REPORTED else ""
ALL = "--set precision_mode=force_fp32 --engine session --calibrate 2 " + PAGE
NONE = "--set precision_mode=force_fp32 --engine pjrt --calibrate 2 " + PAGE
# script, options -> the exit status, the lines that are said; no others
CASES = {
    "no NpuOptimizer": (PLAIN, ALL, 0, ()),
    "no session": ("print(1)", NONE, 0, (SET, ENGINE, *([REPORT] if REPORTED else []), CALIBRATE)),
    "wrong input": ("print(1)", "--set precision_mode=force_fp32 --calibrate no", 2, ()),
    "a mode alone": ("import tensorflow as tf; tf.constant(1)", "--precision-mode auto", 0, (MODE,)),
    "an optimizer without a session": (
        "import tensorflow as tf; w = tf.Variable([1.0]); tf.train.AdamOptimizer().minimize(tf.reduce_sum(w * w))",
        "--precision-mode allow_mix_precision", 0, (FLOAT16,),
    ),
    "fails": ("raise ValueError(1)", "--engine pjrt", 1, (ENGINE,)),
    "exits": ("import sys; sys.exit(3)", "--set precision_mode=force_fp32", 3, (SET,)),
    "NpuOptimizer": ("import npu_bridge.npu_init" + PLAIN, "--set precision_mode=force_fp32 --calibrate 2", 0, ()),
    "an engine of its own": (OWN_ENGINE, NONE, 0, (ENGINE,)),
    "a session in a child": (IN_A_CHILD, "--set precision_mode=force_fp32", 0, ()),
    "a session that is closed at once": (CLOSED, "--precision-mode auto", 0, (MODE,)),
    "eager execution": (EAGER, "--precision-mode auto", 0, (MODE,)),
    "nothing asked": (PLAIN, "--engine auto", 0, ()),
}


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
    told = [line for line in done.output.splitlines() if "has reached no session" in line]
    assert len(told) == len(lines), done.output
    for line, wanted in zip(sorted(told), sorted(lines)):
        assert wanted in line
    if lines:
        assert done.output.splitlines()[-1] in told or "Error" in done.output
    assert "NPU_SHIM_REQUESTS" not in os.environ


def test_tune_says_what_it_would_have_taken(tmp_path):
    (tmp_path / "script.py").write_text("print(1)")
    (done,) = forked.run([("npu-shim tune --out out.json script.py", tmp_path)])
    assert done.status == 2, done.output
    assert "no training step was seen in a session: the script made none" in done.output
