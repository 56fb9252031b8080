"""What doctor and the first step say of cards, on a machine whose driver a program stands in for."""

import os

import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.options import engine
from npu_shim.pjrt import driver
from npu_shim.session import cards, lines

pytestmark = pytest.mark.usefixtures("patched", "own_graph")
B200 = "570.86, NVIDIA B200, 183359, 90000, 10.0"
BUILT = {"cuda_compute_capabilities": ["sm_60", "compute_90"]}


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch, caplog):
    """A B200, which TensorFlow sees, and was not built for."""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho '%s'\n" % B200)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", "%s%s%s" % (tmp_path, os.pathsep, os.environ["PATH"]))
    monkeypatch.setattr(driver, "FILES", [str(tmp_path)])
    for name in ("CUDA_VISIBLE_DEVICES", "JAX_PLATFORMS", engine.VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tf.sysconfig, "get_build_info", lambda: BUILT, raising=False)
    monkeypatch.setattr(tf.config.experimental, "list_physical_devices", lambda *kinds: ["GPU:0"])
    monkeypatch.setattr(engine, "jax_here", lambda: driver.Jax("", "cpu", "/python"))
    monkeypatch.setattr(cards, "_takers", set())
    for told in (cards.tell_of_engine, cards.tell_of_session, lines.once):
        told.cache_clear()


def trained(word):
    """A training step."""
    with tf.variable_scope("", reuse=tf.AUTO_REUSE):
        w = tf.get_variable("w", [8, 8], use_resource=True)
    loss = tf.reduce_sum(tf.square(tf.matmul(tf.ones([64, 8]), w)))
    train = tf.train.GradientDescentOptimizer(1e-3).minimize(loss)
    config = sessions.config(npu_shim_profile="gpu", **({"npu_shim_engine": word} if word else {}))
    with tf.Session(config=config) as session:
        session.run(tf.global_variables_initializer())
        session.run(train)


def test_auto_says_why_the_session_trains_on_no_card(caplog):
    trained("")
    trained_lines = [line for line in caplog.messages if "was built for" in line]
    assert len(trained_lines) == 1
    assert "sm_60, compute_90, and not for NVIDIA B200 (sm_100)" in trained_lines[0]
    assert trained_lines[0].endswith("; JAX (/python) has no CUDA: /python -m pip install 'jax[cuda12]'")


def test_nothing_is_said_where_the_session_was_asked_for_or_cards_are_hidden(caplog, monkeypatch):
    trained("session")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    trained("")
    assert "NVIDIA" not in caplog.text


@pytest.mark.parametrize("is_there", [True, False], ids=["it has no CUDA", "the driver does not answer"])
def test_the_engine_says_why_its_steps_run_on_the_cpu(caplog, tmp_path, is_there):
    if not is_there:
        (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 'No devices were found'\nexit 6\n")
    cards.tell_of_engine(driver.Jax("", "cpu", "/python"))
    cards.tell_of_engine(driver.Jax("cuda12", "gpu", "/other"))
    said = "JAX (/python) has no CUDA: " if is_there else "nvidia-smi says: No devices were found: "
    (line,) = [line for line in caplog.messages if "CPU" in line]
    assert "engine: steps run on the CPU: " + said in line


@pytest.mark.skipif(not (engine.has_jax() or engine.interpreter()), reason="no JAX, and NPU_SHIM_JAX names none")
def test_the_first_step_on_the_engine_says_so(caplog):
    trained("pjrt")
    assert caplog.text.count("engine: steps run on the CPU: JAX (") == 1


def test_a_session_that_takes_all_memory_before_one_with_the_engine_is_told_of(caplog):
    for word, allow_growth in (("session", True), ("pjrt", False), ("session", False)):
        cards.note(tf.ConfigProto(gpu_options=tf.GPUOptions(allow_growth=allow_growth)), word == "session")
    assert "allow_growth" not in caplog.text
    cards.note(None, False)
    assert "set config.gpu_options.allow_growth = True there" in caplog.text


def test_doctor_names_the_cards_and_what_keeps_them_from_training(capsys):
    status, out, _ = sessions.command(capsys, "doctor")
    assert status == 0
    said = [line.partition(" ")[2].strip() for line in out.splitlines() if line.startswith("cards ")]
    assert said[0] == "NVIDIA B200 (sm_100, 97.9 of 192.3 GB free), driver 570.86"
    assert [line for line in said if line.startswith("TensorFlow ")]
    assert [line for line in said if line.startswith("NVIDIA B200: programs hold 94.4 of its 192.3 GB")]
    assert [line for line in said if "cuda12" in line]
