"""Programs of the engine and of compile_step that an earlier process has compiled are loaded."""

import logging
import os
import subprocess
import sys

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim import compile_step, loss_scale
from npu_shim.pjrt import program_cache

pytestmark = sessions.NEEDS_ENGINE
ASKED = {"precision_mode": "allow_mix_precision", "npu_shim_profile": "gpu"}
FEEDS = {"x:0": np.linspace(-1, 1, 96, dtype="f").reshape(4, 4, 6), "y:0": np.arange(4) % 2}


def built():
    """A graph with a loop, a branch, dropout without a seed and a loss scale: whatever might differ by process."""
    with tf.Graph().as_default() as graph, sessions.control_flow(1):
        tf.set_random_seed(3)
        x, y = tf.placeholder(tf.float32, [4, 4, 6], "x"), tf.placeholder(tf.int32, [4], "y")
        w = tf.get_variable("w", [6, 6], initializer=tf.glorot_uniform_initializer(1))
        kernel = tf.identity(w)
        h = tf.while_loop(
            lambda n, _: n < 4, lambda n, h: [n + 1, tf.tanh(tf.matmul(h, kernel) + x[:, n])], [0, x[:, 0]],
            maximum_iterations=4,
        )[1]  # fmt: skip
        h = tf.cond(tf.reduce_sum(h) > 0, lambda: tf.nn.dropout(h, rate=0.2), lambda: h * 2)
        logits = tf.matmul(h, tf.get_variable("v", [6, 2], initializer=tf.glorot_uniform_initializer(2)))
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits), name="loss")
        manager = loss_scale.ExponentialUpdateLossScaleManager(2.0**10, 3, 1, decr_ratio=0.5)
        optimizer = loss_scale.NPULossScaleOptimizer(tf.train.AdamOptimizer(0.01), manager)
        optimizer.minimize(loss, tf.train.get_or_create_global_step(), name="train")
        tf.global_variables_initializer()
        tf.local_variables_initializer()
    return graph


def trained(**asked):
    """Losses of three steps of a session on PJRT."""
    with tf.Session(config=sessions.config(npu_shim_engine="pjrt", **ASKED, **asked), graph=built()) as session:
        session.run(["init", "init_1"])
        return [float(session.run(["loss:0", "train"], FEEDS)[0]) for _ in range(3)]


def stepped(**asked):
    """The same by compile_step, as a loop."""
    step = compile_step(
        built(), ["loss:0", "train"], ["x", "y"], initializer="init", engine="pjrt", iterations_per_loop=2,
        precision_mode="allow_mix_precision", profile="gpu", **asked,
    )  # fmt: skip
    return [float(step({name: np.stack([value] * 2) for name, value in FEEDS.items()})[0]) for _ in range(2)]


@pytest.fixture
def told(caplog):
    logging.getLogger("npu_shim").propagate = True
    caplog.set_level(logging.INFO, "npu_shim")
    return lambda word: [line for line in map(logging.LogRecord.getMessage, caplog.records) if word in line]


# other functions than the first process had made by then, and other hashes
OTHERS = """
with t.tf.Graph().as_default(), t.tf.Session() as session:
    data = t.tf.data.Dataset.range(3).map(lambda n: n + 1)
    session.run(t.tf.data.make_one_shot_iterator(data).get_next())
"""


def test_a_later_process_loads_what_an_earlier_one_compiled(tmp_path):
    cache, here = str(tmp_path / "kept"), os.path.dirname(os.path.abspath(__file__))
    code = "import sys; sys.path[:0] = %r; import conftest, npu_shim, test_engine_cache as t; npu_shim.patch()\n%s\n%s"

    def ran(seed, before):
        script = code % ([here, os.path.dirname(here)], before, "print(t.trained(), t.stepped())")
        own = dict(os.environ, PYTHONHASHSEED=seed, NPU_SHIM_XLA_CACHE=cache)
        ended = subprocess.run([sys.executable, "-c", script], env=own, capture_output=True, check=True)
        return ended.stdout, ended.stderr.decode().count("; from the cache in "), sorted(os.listdir(cache))

    first, loaded, kept = ran("7", "")
    assert loaded == 0
    assert sum(name.endswith(".program") for name in kept) == 2
    assert sum(name.endswith(".step") for name in kept) == 2  # the same in both processes: none is traced again
    assert ran("8", OTHERS) == (first, 1, kept)  # bit for bit; compile_step says nothing


def test_a_session_s_option_wins_and_a_folder_that_does_not_serve_is_said_once(patched, told, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(program_cache.VARIABLE, str(tmp_path / "unused"))
    for _ in range(2):
        losses = trained(npu_shim_xla_cache=str(tmp_path / "file"))
    assert np.isfinite(losses).all()
    assert len(told("; compiled in ")) == 2
    assert len(told("compiled programs are not kept in '")) == 1
    assert os.listdir(str(tmp_path)) == ["file"]
