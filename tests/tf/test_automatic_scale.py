"""The automatic loss scale against plain TensorFlow: same weights, names and checkpoints where nothing is lowered."""

import logging

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf
from optimizers import AdamWeightDecay

from npu_shim.loss_scale import automatic
from npu_shim.loss_scale.automatic import patches
from npu_shim.rewriter.errors import ConfigError

pytestmark = pytest.mark.usefixtures("control_flow_of_version_1", "without_automatic_scale")
STEPS = 6
START = 2.0**15


class Derived(tf.train.AdamOptimizer):
    """Has an apply_gradients of its own, which calls that of the base."""

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        return super().apply_gradients([(2.0 * tf.convert_to_tensor(g), v) for g, v in grads_and_vars], global_step)


OPTIMIZERS = {
    "sgd": lambda: tf.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: tf.train.MomentumOptimizer(0.1, 0.9),
    "nesterov": lambda: tf.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "adam": lambda: tf.train.AdamOptimizer(0.1),
    "adagrad": lambda: tf.train.AdagradOptimizer(0.1),
    "adadelta": lambda: tf.train.AdadeltaOptimizer(0.1),
    "rmsprop": lambda: tf.train.RMSPropOptimizer(0.1, centered=True),
    "ftrl": lambda: tf.train.FtrlOptimizer(0.1),
    "proximal": lambda: tf.train.ProximalGradientDescentOptimizer(0.1),
    "decayed": lambda: tf.train.AdamOptimizer(tf.train.exponential_decay(0.1, tf.train.get_global_step(), 2, 0.5)),
    "bert": lambda: AdamWeightDecay(0.1),
    "derived": lambda: Derived(0.1),
}


def batches(count=STEPS):
    generator = np.random.RandomState(1)
    return [generator.normal(size=[3, 4]).astype(np.float32) for _ in range(count)]


def model(resource):
    """Returns (placeholder of [rows, 4], scalar loss): one layer behind the input and behind rows of an embedding."""
    x = tf.placeholder(tf.float32, [None, 4], "x")
    values = np.random.RandomState(0).normal(size=[6, 2]).astype(np.float32)
    with tf.variable_scope("net", use_resource=resource):
        embedding = tf.get_variable("embedding", initializer=values)
        w = tf.get_variable("w", initializer=values[::-1])
    hidden = tf.concat([x, tf.nn.embedding_lookup(embedding, [1, 3, 1])], 1)
    return x, tf.reduce_mean(tf.square(tf.tanh(tf.matmul(hidden, w)) - 1.0), name="loss")


def minimized(optimizer, loss):
    return optimizer().minimize(loss, tf.train.get_global_step())


class Seen:
    """What a script can see of its graph, and its variables' values after some steps."""

    def __init__(self, optimizer, resource=True, train=minimized, fed=None):
        with tf.Graph().as_default() as graph:
            step = tf.train.get_or_create_global_step()
            x, loss = model(resource)
            self.train = train(optimizer, loss)
            self.names = [variable.name for variable in tf.global_variables()]
            self.trainable = [variable.name for variable in tf.trainable_variables()]
            self.local = [variable.name for variable in tf.local_variables()]
            self.train_ops = [op.name for op in tf.get_collection(tf.GraphKeys.TRAIN_OP)]
            saver, init = tf.train.Saver(), tf.global_variables_initializer()
            self.ready = tf.report_uninitialized_variables()
            self.outside = {op.name for op in graph.get_operations() if not op.name.startswith("npu_shim")}
            graph.finalize()
            self.keys = sorted(variable.op.name for variable in saver._var_list)
            with tf.Session() as session:
                session.run(init)
                assert not len(session.run(self.ready))
                for batch in batches() if fed is None else fed:
                    session.run(self.train, {x: batch})
                self.step = session.run(step)
                self.values = session.run(tf.global_variables())
                self.state = {v.op.name.split("/")[-1]: session.run(v) for v in automatic.variables()}


@pytest.mark.by_day(
    "momentum-resource", "nesterov-reference", "rmsprop-resource", "ftrl-reference", "derived-resource",
    "proximal-reference", "sgd-reference", "decayed-resource", "bert-reference", "adam-resource",
)  # fmt: skip
@pytest.mark.parametrize("resource", [False, True], ids=["reference", "resource"])
@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_weights_and_names_are_plain_tensorflow_s(name, resource):
    plain = Seen(OPTIMIZERS[name], resource)
    automatic.install()
    scaled = Seen(OPTIMIZERS[name], resource)
    assert scaled.state["loss_scale_steps"].tolist()[:3] == [STEPS, 0, 0]  # it was at work
    sessions.assert_close(scaled.values, plain.values)
    for what in ("names", "trainable", "local", "keys", "step"):
        assert getattr(scaled, what) == getattr(plain, what)
    assert scaled.train.name == plain.train.name
    if name != "bert":  # a hand-written one adds nothing to TRAIN_OP
        assert scaled.train_ops == plain.train_ops
    assert {name.split("/")[0] for name in scaled.outside} <= {name.split("/")[0] for name in plain.outside}


@pytest.mark.by_day("nan-adam", "inf-momentum", "inf-bert")
@pytest.mark.parametrize("name", ["momentum", "adam", "bert"])
@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_a_step_that_overflows_is_skipped_and_counted(name, bad):
    fed = batches()
    planted = [*fed[:3], np.full([3, 4], bad, np.float32), *fed[3:]]
    automatic.install()
    without, scaled = Seen(OPTIMIZERS[name]), Seen(OPTIMIZERS[name], fed=planted)
    sessions.assert_close(scaled.values, without.values)
    assert scaled.state["loss_scale_steps"].tolist()[:3] == [STEPS + 1, 1, 0]
    assert scaled.state["loss_scale"] == START / 2
    assert scaled.state["good_steps"] == 3
    assert scaled.step == without.step == (0 if name == "bert" else STEPS)


def test_a_fixed_scale_stays_and_skips():
    automatic.install(1024)
    fed = batches()
    plain = Seen(OPTIMIZERS["adam"])
    scaled = Seen(OPTIMIZERS["adam"], fed=[np.full([3, 4], np.inf, np.float32), *fed])
    sessions.assert_close(scaled.values, plain.values)
    assert scaled.state["loss_scale_steps"].tolist()[:3] == [STEPS + 1, 1, 0]
    assert "loss_scale" not in scaled.state


def test_the_scale_doubles_after_2000_steps_and_halves_at_an_overflow():
    automatic.install()
    with tf.Graph().as_default(), tf.Session() as session:
        x, loss = model(True)
        train = OPTIMIZERS["sgd"]().minimize(loss)
        session.run(tf.global_variables_initializer())
        named = {variable.op.name.split("/")[-1]: variable for variable in automatic.variables()}
        good, scale = named["good_steps"], named["loss_scale"]
        session.run(train, {x: batches(1)[0]})
        good.load(1998, session)
        scales = []
        for batch in (*batches(2), np.full([1, 4], np.inf)):
            session.run(train, {x: np.tile(batch[:1], [3, 1])})
            scales.append(session.run(scale))
        assert scales == [START, 2 * START, START]


HALF = {"reference": False, "resource": True}


def tiny(x, w):
    """A layer in float16, of a loss whose gradient is 1e-9 of the usual: 0 in float16."""
    return tf.reduce_sum(tf.cast(tf.matmul(tf.cast(x, tf.float16), tf.cast(w, tf.float16)), tf.float32)) * 1e-9


@pytest.mark.parametrize("installed", [False, True])
@pytest.mark.parametrize("resource", sorted(HALF))
def test_gradients_of_1e_9_train_in_float16(installed, resource):
    if installed:
        automatic.install()
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", [4, 2], initializer=tf.ones_initializer(), use_resource=HALF[resource])
        loss = tiny(tf.ones([3, 4]), w)
        gradients = tf.train.GradientDescentOptimizer(1e8).compute_gradients(loss)
        train = tf.train.GradientDescentOptimizer(1e8).apply_gradients(gradients)
        session.run(tf.global_variables_initializer())
        session.run(train)
        moved = 1.0 - session.run(w)
        if installed:  # 3e-9 * 2**15 is a float16 of ten bits
            np.testing.assert_allclose(moved, 0.3, rtol=2e-3)
            np.testing.assert_allclose(session.run(gradients[0][0]), 3e-9, rtol=2e-3)
        else:
            np.testing.assert_array_equal(moved, 0.0)


def test_checkpoints_load_with_and_without(tmp_path):
    def trained(load=None, save=None):
        with tf.Graph().as_default(), tf.Session() as session:
            x, loss = model(True)
            train = minimized(OPTIMIZERS["adam"], loss)
            saver = tf.train.Saver()
            session.run(tf.global_variables_initializer())
            if load:
                saver.restore(session, load)
            for batch in batches(3):
                session.run(train, {x: batch})
            if save:
                saver.save(session, save)
            return session.run(tf.global_variables())

    one, two = str(tmp_path / "plain"), str(tmp_path / "scaled")
    trained(save=one)
    wanted = trained(load=one)
    automatic.install()
    trained(save=two)
    from_plain = trained(load=one)
    automatic.uninstall()
    from_scaled = trained(load=two)
    assert dict(tf.train.list_variables(one)) == dict(tf.train.list_variables(two))
    for a, b, c in zip(wanted, from_plain, from_scaled):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)


def test_a_saver_that_is_given_the_scale_keeps_it(tmp_path):
    automatic.install()
    scales = []
    for restore in (False, True):
        with tf.Graph().as_default(), tf.Session() as session:
            x, loss = model(True)
            train = minimized(OPTIMIZERS["adam"], loss)
            saver = tf.train.Saver(tf.global_variables() + automatic.variables())
            session.run(tf.global_variables_initializer())
            if restore:
                saver.restore(session, str(tmp_path / "kept"))
            session.run(train, {x: np.full([3, 4], np.inf)})
            saver.save(session, str(tmp_path / "kept"))
            scales.append(session.run(tf.get_collection("npu_shim/loss_scale")))
    assert scales == [[START / 2], [START / 4]]


SAVERS = {
    "of all": lambda: tf.train.Saver(tf.global_variables() + automatic.variables()),
    "of the scale": lambda: tf.train.Saver(automatic.variables()),
    "by name": lambda: tf.train.Saver({variable.op.name: variable for variable in automatic.variables()}),
}


@pytest.mark.by_day("of all-auto", "by name-1024", "of the scale-auto")
@pytest.mark.parametrize("scale", ["auto", 1024])
@pytest.mark.parametrize("kind", sorted(SAVERS))
def test_a_saver_that_is_given_the_scale_saves_its_start_before_the_first_step(tmp_path, kind, scale):
    automatic.install(scale)

    def build():
        x, loss = model(True)
        tf.train.get_or_create_global_step()
        return x, minimized(OPTIMIZERS["adam"], loss), SAVERS[kind]()

    with tf.Graph().as_default(), tf.Session() as session:
        x, train, saver = build()
        scale_of = tf.get_collection("npu_shim/loss_scale")
        start = session.run(scale_of)
        session.run(tf.global_variables_initializer())
        path = saver.save(session, str(tmp_path / "start"))
        saved = {name.split("/")[-1]: tf.train.load_variable(path, name) for name, _ in tf.train.list_variables(path)}
        assert saved.get("loss_scale", START) == START
        assert not np.any(saved.get("good_steps", 0))
        assert not np.any(saved.get("loss_scale_steps", 0))
        assert not len(session.run(tf.report_uninitialized_variables()))
        for batch in (np.full([3, 4], np.inf), np.ones([3, 4])):
            session.run(train, {x: batch})
        moved = {variable.op.name: session.run(variable) for variable in automatic.variables()}
        kept = {name.split("/")[-1]: value for name, value in moved.items()}
        assert kept["loss_scale_steps"].tolist() == [2, 1, 0, 1, 1]
        assert kept.get("good_steps", 1) == 1
        assert kept.get("loss_scale", START / 2) == START / 2
        later = saver.save(session, str(tmp_path / "later"))
    with tf.Graph().as_default(), tf.Session() as session:
        x, train, saver = build()
        session.run(tf.global_variables_initializer())
        for source, expected in ((later, start[0] if scale != "auto" else START / 2), (path, start[0])):
            saver.restore(session, source)
            assert session.run(tf.get_collection("npu_shim/loss_scale")) == [expected]
        session.run(train, {x: np.ones([3, 4])})


def test_each_scale_reads_as_its_start_before_its_first_step():
    automatic.install()
    with tf.Graph().as_default(), tf.Session() as session:
        x, loss = model(True)
        tf.train.get_or_create_global_step()
        train = minimized(OPTIMIZERS["adam"], loss)
        minimized(OPTIMIZERS["sgd"], tf.reduce_sum(tf.square(tf.get_variable("other", initializer=1.0))))
        variables = {variable.op.name: variable for variable in automatic.variables()}
        assert automatic.variables() == list(variables.values())
        session.run(tf.global_variables_initializer())
        session.run(train, {x: np.full([3, 4], np.inf)})
        values = session.run(variables)
    assert sorted(value for name, value in values.items() if "_scale/loss_scale" in name and not np.ndim(value)) == [
        START / 2,
        START,
    ]
    assert sorted(value.tolist()[:3] for value in values.values() if np.ndim(value)) == [[0, 0, 0], [1, 1, 0]]


def test_a_script_that_does_not_ask_for_the_scale_has_no_op_for_it():
    automatic.install()
    with tf.Graph().as_default() as graph:
        _, loss = model(True)
        tf.train.get_or_create_global_step()
        minimized(OPTIMIZERS["adam"], loss)
        tf.train.Saver()
        before = [op.name for op in graph.get_operations()]
        kept = tf.global_variables(), tf.local_variables()
        assert not any("npu_shim_loss_scale/start" in name for name in before)
        automatic.variables()
        added = [op.name for op in graph.get_operations()][len(before) :]
        assert added
        assert all(name.startswith("npu_shim_loss_scale/") for name in added)
        assert (tf.global_variables(), tf.local_variables()) == kept
        graph.finalize()
        assert automatic.variables()


@pytest.mark.parametrize("wrong", ["Auto", "dynamic", 0, -1.0, float("nan"), float("inf"), True, [8.0]])
def test_a_wrong_scale_is_an_error_in_the_user_s_words(wrong):
    with pytest.raises(ConfigError, match=r"loss_scale is .*, expected 'auto', 'off' or a number above 0"):
        automatic.install(wrong)
    assert not automatic.is_installed()


@pytest.mark.parametrize("none", [None, "off"])
def test_no_scale_is_as_uninstall(none):
    automatic.install()
    automatic.install(none)
    assert not automatic.is_installed()


def test_uninstall_restores_every_function_and_method():
    before, watch = attributes(), vars(tf.train.Optimizer).get("__init_subclass__")
    automatic.install()
    automatic.install(8.0, lambda: False)
    during = attributes()

    class Later(tf.train.AdamOptimizer):
        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            return super().apply_gradients(grads_and_vars, global_step, name)

    replaced = vars(Later)["apply_gradients"]
    assert replaced.__wrapped__.__qualname__ == replaced.__qualname__
    automatic.uninstall()
    assert vars(Later)["apply_gradients"] is replaced.__wrapped__
    after = attributes()
    assert {key for key in before if before[key] is not during.get(key)} >= {
        ("Optimizer", "apply_gradients"),
        ("gradients_util", "_GradientsHelper"),
    }
    assert all(after[key] is before[key] for key in before)
    assert set(after) == set(before)
    # None, or what another has left that was installed before, and restored while this one was on
    assert vars(tf.train.Optimizer).get("__init_subclass__") is watch


def attributes():
    """What is replaced, and the methods of all optimizers."""
    from npu_shim.rewriter import tf_internals

    attributes = {
        ("gradients_util", "_GradientsHelper"): tf_internals.python_module("ops.gradients_util")._GradientsHelper
    }
    attributes["GradientTape", "gradient"] = vars(tf.GradientTape)["gradient"]
    attributes["BaseSession", "_extend_graph"] = vars(tf.Session.__mro__[1])["_extend_graph"]
    for cls in [tf.train.Optimizer, *tf.train.Optimizer.__subclasses__()]:
        if "apply_gradients" in vars(cls) and cls.__name__ != "Later":
            attributes[cls.__qualname__, "apply_gradients"] = vars(cls)["apply_gradients"]
    return attributes


def test_nothing_changes_where_no_scale_is_wanted(caplog):
    def graph():
        with tf.Graph().as_default() as built:
            _, loss = model(False)
            OPTIMIZERS["adam"]().minimize(loss)
            return built.as_graph_def()

    plain = graph()
    automatic.install(is_wanted=lambda: False)
    assert graph() == plain
    assert not caplog.records


def test_a_session_that_ran_before_the_optimizer_was_built():
    """It has the gradients without the scale: a graph's ops cannot change once they have run. A new one has it."""
    automatic.install()
    with tf.Graph().as_default(), tf.Session() as session:
        x, loss = model(True)
        variables = tf.trainable_variables()
        gradients = tf.gradients(loss, variables)
        session.run(tf.global_variables_initializer())
        before = session.run(gradients[1], {x: batches(1)[0]})
        train = tf.train.GradientDescentOptimizer(0.1).apply_gradients(zip(gradients, variables))
        start = session.run(variables[1])
        session.run(train, {x: batches(1)[0]})
        np.testing.assert_array_equal(session.run(variables[1]), start - np.float32(0.1) * before)
        with sessions.started() as other:
            other.run(train, {x: batches(1)[0]})
            np.testing.assert_array_equal(other.run(variables), session.run(variables))


def test_a_graph_that_is_imported_trains_with_its_scale(tmp_path):
    automatic.install()
    path = str(tmp_path / "model")
    with tf.Graph().as_default(), tf.Session() as session:
        x, loss = model(True)
        train = minimized(OPTIMIZERS["adam"], loss)
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, path)
    automatic.uninstall()
    with tf.Graph().as_default() as graph, tf.Session() as session:
        tf.train.import_meta_graph(path + ".meta").restore(session, path)
        session.run(train.name, {x.name: batches(1)[0]})
        session.run(train.name, {x.name: np.full([3, 4], np.inf)})
        assert session.run(graph.get_collection("npu_shim/loss_scale")) == [START / 2]
        assert session.run(graph.get_collection("npu_shim/skipped_steps")) == [1]


def test_scales_that_were_made_are_counted():
    before = automatic.scales_made()
    automatic.install()
    with tf.Graph().as_default():
        assert automatic.scales_made() == before
        minimized(OPTIMIZERS["adam"], model(True)[1])
    assert automatic.scales_made() == before + 1


def test_what_is_built_with_it_still_trains_after_uninstall():
    automatic.install()
    assert patches.settings() is not None
    with tf.Graph().as_default(), tf.Session() as session:
        x, loss = model(True)
        train = minimized(OPTIMIZERS["adam"], loss)
        automatic.uninstall()
        session.run(tf.global_variables_initializer())
        session.run(train, {x: np.full([3, 4], np.inf)})
        assert session.run(tf.get_collection("npu_shim/skipped_steps")) == [1]


def test_an_update_by_hand_is_as_it_was_and_is_told(caplog):
    def trained():
        with tf.Graph().as_default(), tf.Session() as session:
            x, loss = model(True)
            variables = tf.trainable_variables()
            gradients = map(tf.convert_to_tensor, tf.gradients(loss, variables))
            train = tf.group(*[v.assign_sub(0.1 * g) for g, v in zip(gradients, variables)])
            session.run(tf.global_variables_initializer())
            for batch in batches():
                session.run(train, {x: batch})
            return session.run(variables)

    plain = trained()
    automatic.install()
    with caplog.at_level(logging.WARNING, "npu_shim"):
        scaled = trained()
    sessions.assert_close(scaled, plain)
    told = [record.getMessage() for record in caplog.records if record.name == "npu_shim"]
    assert len(told) == 1
    assert "net/embedding, net/w without an optimizer" in told[0]
    assert "bfloat16" in told[0]


def test_gradients_that_only_are_read_are_not_told(caplog):
    automatic.install()
    with tf.Graph().as_default(), tf.Session() as session:
        x, loss = model(True)
        norm = tf.global_norm(tf.gradients(loss, tf.trainable_variables()))
        train = minimized(OPTIMIZERS["adam"], loss)
        session.run(tf.global_variables_initializer())
        session.run([norm, train], {x: batches(1)[0]})
    assert not [record for record in caplog.records if record.name == "npu_shim"]


@pytest.mark.parametrize("name", [None, "train", "own/train", "own/train/"])
def test_the_training_op_is_named_as_without(request, name):
    names = []
    for is_on in (False, True):
        if is_on:
            automatic.install()
            request.addfinalizer(automatic.uninstall)
        with tf.Graph().as_default():
            w = tf.get_variable("w", [2])
            names.append(tf.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(w * w), name=name).name)
    assert names[0] == names[1]
