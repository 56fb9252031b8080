"""Profile grappler as a user meets it: in a session, and on the command line."""

import grappler_oracle as oracle
import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim import cli


@pytest.fixture(autouse=True)
def profile():
    return oracle.profile()


def network():
    x = tf.placeholder_with_default(np.ones([8, 4], np.float32), [8, 4])
    weight = tf.get_variable("w", [4, 4], initializer=tf.constant_initializer(0.5), use_resource=True)
    hidden = tf.tanh(tf.matmul(x, weight, name="first"), name="between")
    return tf.reduce_sum(tf.tanh(tf.matmul(hidden, weight, name="second"), name="behind"))


@pytest.mark.usefixtures("patched")
def test_a_session_trains_by_tensorflows_rule(profile):
    with tf.Graph().as_default():
        loss = network()
        step = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
        with sessions.started(config=sessions.config(npu_shim_profile=profile)) as session:
            forward = sessions.Ran(session, loss)
            training = sessions.Ran(session, [loss, step])
            after = session.run(loss)
    dtypes = {"first": "float16", "between": "float16", "second": "float16", "behind": "float32"}
    assert forward.dtypes("MatMul", "Tanh") == dtypes
    # a gradient's product comes behind it in a training step: by this rule that changes the forward pass as well
    assert training.dtypes("Tanh")["behind"] == "float16"
    assert after < forward.values


@pytest.mark.usefixtures("patched")
def test_the_gradient_of_a_loop_in_a_loop_runs(profile):
    """Regression: its lists are elements of a list, behind which a pop wanted float32 and the list was float16."""

    def looped(step, value):
        return tf.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, step(y)), [0, value])[1]

    with tf.Graph().as_default(), sessions.control_flow(2):
        x = tf.placeholder(tf.float32, [2, 2])
        weight = tf.constant([[0.5, 1.0], [-1.0, 0.5]])
        y = looped(lambda outer: looped(lambda inner: tf.maximum(tf.matmul(inner, weight), -2.0), outer), x)
        gradient = tf.gradients(y, [x])[0]
        values = []
        for config in (None, sessions.config(npu_shim_profile=profile)):
            with tf.Session(config=config) as session:
                values.append(session.run(gradient, {x: [[1.0, 2.0], [-1.0, 0.5]]}))
    np.testing.assert_allclose(values[1], values[0], rtol=2e-2)


@pytest.mark.usefixtures("patched")
def test_a_mode_that_the_profile_does_not_have_is_an_error(profile):
    with tf.Graph().as_default():
        network()
        config = sessions.config(npu_shim_profile=profile, precision_mode="force_fp16")
        with tf.Session(config=config) as session:
            with pytest.raises(tf.errors.InvalidArgumentError, match="goes with precision_mode allow_mix_precision"):
                session.run(tf.global_variables_initializer())


def command(capsys, *arguments):
    try:
        status = cli.main(list(arguments))
    except SystemExit as stopped:
        status = stopped.code
    return status, capsys.readouterr().out


def test_the_command_shows_what_the_pass_would_do_and_why(profile, capsys, tmp_path):
    with tf.Graph().as_default() as graph:
        loss = network()
    path = tmp_path / "graph.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    status, text = command(capsys, "plan", str(path), "--fetches", loss.name, "--profile", profile, "--device", "CPU")
    assert not status
    assert "between white-listed ops" in text
    assert "neither between white-listed ops nor beside a low-precision one" in text


def test_the_command_shows_the_lists(profile, capsys):
    status, text = command(capsys, "ops", "Softmax", "--profile", profile)
    assert not status
    assert {"grappler": "gray", "grappler_1.15": "black"}[profile] in text
