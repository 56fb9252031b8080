"""What can be fetched from a compiled step and fed to it, and what its checkpoints keep."""

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim

pytestmark = [*sessions.COMPILED, pytest.mark.usefixtures("control_flow_of_version_1")]


def network(use_resource):
    """(graph, what is fetched); each of these was a KeyError or None."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [3], "x")
        w = tf.get_variable("w", [3], initializer=tf.ones_initializer(), use_resource=use_resource)
        count = tf.get_variable("c", [], tf.int64, tf.zeros_initializer(), use_resource=use_resource)
        number, product = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2.0), [0, x * w])
        either = tf.cond(x[0] > 1.0, lambda: tf.assign(w, x), lambda: tf.assign_add(w, x))
        fetches = [tf.assign_add(count, 1), number, product, either, "c", "c:0"]
        tf.global_variables_initializer()
    return graph, fetches


@pytest.mark.parametrize("use_resource", [True, False])
def test_assignments_loops_and_variables_are_fetched(use_resource):
    graph, fetches = network(use_resource)
    step = npu_shim.compile_step(graph, fetches, ["x"], initializer="init")
    expected = [
        [1, 3, [0.0, 8.0, 16.0], [1.0, 2.0, 3.0], 1, 1],
        [2, 3, [8.0, 32.0, 72.0], [2.0, 4.0, 6.0], 2, 2],
        [3, 3, [32.0, 96.0, 192.0], [2.0, 3.0, 4.0], 3, 3],
    ]
    for number, wanted in enumerate(expected):
        for actual, value in zip(step({"x": np.arange(3.0) + number}), wanted):
            assert np.array_equal(actual, value)


def test_what_is_fed_in_the_place_of_a_value_is_what_is_fetched():  # 'x' was asked for, which nothing needs
    with tf.Graph().as_default() as graph:
        first, second = tf.unstack(tf.placeholder(tf.float32, [2, 3], "x") * 2)
        tf.global_variables_initializer()
    step = npu_shim.compile_step(graph, [second, second + first, first], [first, second])
    fed = np.float32([1, 2, 3])
    assert np.array_equal(step({first: fed, second: fed * 3}), [fed * 3, fed * 4, fed])


def test_what_a_loop_or_conditional_does_is_run():
    graph, _ = network(True)
    step = npu_shim.compile_step(graph, ["cond/Merge", "while/Exit"], ["x"], initializer="init")
    assert step({"x": np.arange(3.0)}) == [None, None]
    assert step.state()["w"].tolist() == [1.0, 2.0, 3.0]


def test_a_tensor_inside_of_a_loop_is_named():
    graph, _ = network(True)
    step = npu_shim.compile_step(graph, ["while/mul:0"], ["x"], initializer="init")
    with pytest.raises(npu_shim.PlanError, match=r"node 'while/mul' \(Mul\): it is fetched, and it is inside of a"):
        step({"x": np.arange(3.0)})


@pytest.mark.parametrize("use", [lambda step, path: step.save(path), lambda step, path: step.state()])
def test_variables_without_values_are_not_saved_as_zeros(use, tmp_path):
    graph, _ = network(True)
    step = npu_shim.compile_step(graph, ["c"])
    with pytest.raises(npu_shim.ConfigError, match="the step's variables have no values"):
        use(step, tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_step_without_variables_draws_random_numbers():
    with tf.Graph().as_default() as graph:
        drawn = tf.random_uniform([100], seed=1)
    step = npu_shim.compile_step(graph, drawn)
    assert not np.array_equal(step(), step())


def products():
    with tf.Graph().as_default() as graph:
        x, y = tf.placeholder(tf.float32, [None, 2], "x"), tf.placeholder(tf.float32, [None, 2], "y")
        tf.multiply(tf.add(x, y, "sum"), tf.cast(tf.placeholder(tf.int32, [], "n"), tf.float32), "out")
    return graph


GIVEN = [
    ({"feeds": ["x", "n"]}, "placeholder 'y' is needed, and is neither a feed nor a constant"),
    ({"feeds": ["x", "y", "n"], "constants": {"n:0": 2}}, "tensor 'n:0' is given twice, as a feed or constant"),
    ({"feeds": {"x": [3, 2], "x:0": [4, 2], "y": [3, 2], "n": []}}, "tensor 'x:0' is given twice"),
    ({"feeds": ["x", "y", "n"], "fetches": []}, r"fetches is \[\], expected at least one tensor or operation"),
    ({"feeds": ["x", "y"], "constants": {"n": 2.7}}, "constant 'n:0' has 2.7, which int32 cannot hold"),
    ({"feeds": {"x": [3, "two"], "y": [3, 2], "n": []}}, r"feed 'x:0' has shape \[3, 'two'\], expected sizes"),
]


@pytest.mark.parametrize(("given", "message"), GIVEN)
def test_what_is_given_wrongly_is_named(given, message):
    with pytest.raises(npu_shim.ConfigError, match=message):
        npu_shim.compile_step(products(), **{"fetches": "out:0", **given})


def test_feeds_whose_shapes_contradict_each_other_are_named():
    step = npu_shim.compile_step(products(), "out:0", ["x", "y", "n"])
    given = r"so the graph does not take feeds 'x:0' of shape \(3, 2\), 'y:0' of shape \(4, 2\)"
    with pytest.raises(npu_shim.ConfigError, match="Dimensions must be equal.*; " + given):
        step({"x": np.ones([3, 2]), "y": np.ones([4, 2]), "n": 1})


def test_a_step_without_variables_of_its_own_loads_nothing(tmp_path):
    """Regression: InvalidArgumentError of RestoreV2, which reads one tensor at least."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [2], "x")
        tf.identity(tf.nn.relu(tf.identity(x * tf.get_variable("w", [2]), "inner")), "y")
        tf.global_variables_initializer()
    step = npu_shim.compile_step(graph, "y:0", ["inner:0"], initializer="init")
    step.load(step.save(str(tmp_path / "saved")))
    np.testing.assert_array_equal(step({"inner:0": [-1.0, 2.0]}), [0, 2])


def test_a_saver_goes_on_with_the_checkpoints_of_a_step(tmp_path):
    graph, fetches = network(True)
    with graph.as_default(), tf.Session() as session:
        session.run("init")
        saver = tf.train.Saver()
        step = npu_shim.compile_step(session, fetches, ["x"])
        for number in (1, 2):
            saver.save(session, str(tmp_path / "model"), number)
    for name in ("model-3", "model-3", "model-4"):
        step.save(tmp_path / name)
    known = tf.train.get_checkpoint_state(str(tmp_path))
    expected = [str(tmp_path / ("model-%d" % number)) for number in (1, 2, 3, 4)]
    assert list(known.all_model_checkpoint_paths) == expected
    assert known.model_checkpoint_path == expected[-1]
    assert sorted(path.name for path in tmp_path.iterdir() if "model" not in path.name) == ["checkpoint"]


def test_a_checkpoint_that_cannot_be_written_is_named(tmp_path):
    """Regression: FileExistsError and NotFoundError came as they were."""
    (tmp_path / "file").write_text("")
    graph, fetches = network(True)
    step = npu_shim.compile_step(graph, fetches, ["x"], initializer="init")
    with pytest.raises(npu_shim.ConfigError, match="file/model' cannot be written: "):
        step.save(tmp_path / "file" / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
