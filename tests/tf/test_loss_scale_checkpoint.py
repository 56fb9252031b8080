"""Checkpoints between the plain optimizer, ours, contrib's and experimental's, in every direction."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from npu_shim.loss_scale.checkpoints import checkpoint
from npu_shim.loss_scale.managers import managers
from npu_shim.loss_scale.optimizers.accumulate import AccumulatingOptimizer
from npu_shim.loss_scale.optimizers.optimizer import NPULossScaleOptimizer
from npu_shim.rewriter.errors import ConfigError

# what contrib and experimental call what differs from the plain optimizer (facts: run on TensorFlow 1.15.5)
CONTRIB = {"cond/beta1_power": 0.81, "cond/beta2_power": 0.998001}
EXPERIMENTAL = {"cond_1/beta1_power": 0.81, "cond_1/beta2_power": 0.998001}


def plain():
    return tf.train.AdamOptimizer(0.1).minimize(_loss(), tf.train.get_or_create_global_step())


def ours():
    manager = managers.ExponentialUpdateLossScaleManager(512.0, 1000, decr_ratio=0.5)
    optimizer = NPULossScaleOptimizer(tf.train.AdamOptimizer(0.1), manager)
    return optimizer.minimize(_loss(), tf.train.get_or_create_global_step())


def contrib():
    """The variables that tf.contrib.mixed_precision makes: int32 counters, powers in the conditional."""
    _variables(CONTRIB)
    _variables({"loss_scale": 2048.0, "good_steps": np.int32(7), "bad_steps": np.int32(1)})


def experimental():
    """The variables that tf.train.experimental makes: another name, int64 counter."""
    _variables(EXPERIMENTAL)
    _variables({"current_loss_scale": 2048.0, "good_steps": np.int64(7)})


def _loss():
    w = tf.get_variable("w", initializer=[1.0, 2.0])
    return tf.reduce_sum(tf.square(w))


def _variables(values):
    for name, value in values.items():
        tf.Variable(value, name=name, trainable=False)
    _loss()
    with tf.variable_scope(tf.get_variable_scope(), reuse=tf.AUTO_REUSE):
        for slot in ("w/Adam", "w/Adam_1"):
            tf.get_variable(slot, initializer=[0.25, 0.5], trainable=False)
        tf.train.get_or_create_global_step()


def _loss_once(function):
    with tf.variable_scope(tf.get_variable_scope(), reuse=tf.AUTO_REUSE):
        return function()


GRAPHS = {"plain": plain, "ours": ours, "contrib": contrib, "experimental": experimental}
MODEL = ("w", "w/Adam", "w/Adam_1", "beta1_power", "beta2_power", "global_step")


def values(session):
    value_of = {v.op.name: session.run(v) for v in tf.global_variables()}
    return {checkpoint.canonical(name): value for name, value in value_of.items()}


def save(name, folder):
    """Returns (path, values) of two steps of a graph; the imitated ones have their values from the start."""
    with tf.Graph().as_default(), tf.Session() as session:
        step = _loss_once(GRAPHS[name])
        session.run(tf.global_variables_initializer())
        for _ in range(2 if step is not None else 0):
            session.run(step)
        return tf.train.Saver().save(session, str(folder / name)), values(session)


@pytest.mark.parametrize("target", sorted(GRAPHS))
@pytest.mark.parametrize("source", sorted(GRAPHS))
def test_saver_matrix(tmp_path, source, target):
    path, saved = save(source, tmp_path)
    with tf.Graph().as_default(), tf.Session() as session:
        _loss_once(GRAPHS[target])
        saver = checkpoint.LossScaleSaver()
        session.run(tf.global_variables_initializer())
        start = values(session)
        session.graph.finalize()
        saver.restore(session, path)
        restored = values(session)
    assert set(MODEL) <= set(restored)
    for name in restored:
        # loss-scale state that the file does not have starts anew
        expected = saved[name] if name in saved else start[name]
        assert name in saved or name in ("loss_scale", "good_steps", "bad_steps")
        np.testing.assert_array_equal(restored[name], expected, err_msg=name)
        assert restored[name].dtype == start[name].dtype


def test_gathered_gradients_start_anew(tmp_path):
    """Regression: no checkpoint could be restored into a graph with AccumulatingOptimizer, but its own."""
    path, saved = save("ours", tmp_path)
    with tf.Graph().as_default(), tf.Session() as session:
        optimizer = AccumulatingOptimizer(tf.train.AdamOptimizer(0.1), 2)
        step = optimizer.minimize(_loss(), tf.train.get_or_create_global_step())
        saver = checkpoint.LossScaleSaver()
        session.run(tf.global_variables_initializer())
        session.run(step)
        saver.restore(session, path)
        restored = values(session)
    assert restored["accumulated_steps"] == 0
    assert not restored["w/accumulated"].any()
    for name in MODEL:
        np.testing.assert_array_equal(restored[name], saved[name], err_msg=name)


def test_the_ordinary_saver_takes_our_checkpoint_into_the_plain_graph(tmp_path):
    path, saved = save("ours", tmp_path)
    with tf.Graph().as_default(), tf.Session() as session:
        _loss_once(plain)
        tf.train.Saver().restore(session, path)
        restored = values(session)
    assert {name: saved[name] for name in MODEL if saved[name].shape == ()} == {
        name: restored[name] for name in MODEL if restored[name].shape == ()
    }


def test_the_ordinary_saver_takes_its_own_checkpoint_of_ours(tmp_path):
    path, saved = save("ours", tmp_path)
    with tf.Graph().as_default(), tf.Session() as session:
        step = _loss_once(ours)
        tf.train.Saver().restore(session, path)  # and no initializer is run
        assert values(session)["loss_scale"] == saved["loss_scale"]
        session.run(step)
        assert session.run(tf.train.get_global_step()) == 3


def test_all_that_is_missing_is_named_and_nothing_is_changed(tmp_path):
    path, _ = save("plain", tmp_path)
    with tf.Graph().as_default(), tf.Session() as session:
        _loss_once(ours)
        for name in ("first", "second"):
            tf.get_variable(name, initializer=1.0)
        session.run(tf.global_variables_initializer())
        before = values(session)
        with pytest.raises(ConfigError) as refused:
            checkpoint.LossScaleSaver().restore(session, path)
        assert [p.split(": ")[1] for p in refused.value.problems] == [
            "'first' is not in the checkpoint",
            "'second' is not in the checkpoint",
        ]
        after = values(session)
    assert {n: str(v) for n, v in before.items()} == {n: str(v) for n, v in after.items()}


def _model_fn(graph, init=None):
    def model_fn(features, labels, mode):
        train_op = _loss_once(graph)
        if init:
            checkpoint.init_from_checkpoint(init)
        scaffold = tf.train.Scaffold(saver=checkpoint.LossScaleSaver())
        # the step leaves the values that were restored: no training, only the step counter
        train_op = tf.assign_add(tf.train.get_global_step(), 1)
        return tf.estimator.EstimatorSpec(mode, loss=tf.constant(1.0), train_op=train_op, scaffold=scaffold)

    return model_fn


def _trained_by_estimator(folder, model_fn, **settings):
    config = tf.estimator.RunConfig(model_dir=str(folder / "run"), save_summary_steps=None)
    estimator = tf.estimator.Estimator(model_fn, config=config, **settings)
    estimator.train(lambda: tf.data.Dataset.from_tensors(({"x": 1.0}, 1.0)).repeat(), steps=1)
    return {checkpoint.canonical(n): estimator.get_variable_value(n) for n in estimator.get_variable_names()}


@pytest.mark.parametrize(
    ("source", "target"),
    [("plain", "ours"), ("ours", "plain"), ("contrib", "ours"), ("ours", "contrib"), ("experimental", "ours"),
     ("ours", "experimental")],
)
@pytest.mark.parametrize("way", ["settings", "init"])
def test_estimator_warm_start(tmp_path, source, target, way):
    path, saved = save(source, tmp_path)
    if way == "settings":
        settings = checkpoint.warm_start_settings(path)
        trained = _trained_by_estimator(tmp_path, _model_fn(GRAPHS[target]), warm_start_from=_for(settings, target))
    else:
        trained = _trained_by_estimator(tmp_path, _model_fn(GRAPHS[target], init=path))
    for name in set(MODEL) - {"global_step"}:
        np.testing.assert_array_equal(trained[name], saved[name], err_msg=name)
    assert trained["global_step"] == 1
    if way == "init" and "loss_scale" in saved and "loss_scale" in trained:
        assert trained["loss_scale"] == saved["loss_scale"]
        assert trained["good_steps"] == saved["good_steps"]


@pytest.mark.parametrize("saved_parts", [1, 2])
@pytest.mark.parametrize("way", ["settings", "init", "init of the whole"])
def test_parts_of_a_variable_and_of_its_slots_start_from_a_checkpoint(tmp_path, way, saved_parts):
    def build(parts):
        with tf.variable_scope("", partitioner=tf.fixed_size_partitioner(parts) if parts > 1 else None):
            w = tf.get_variable("a/w", [4, 3], initializer=tf.zeros_initializer())
        optimizer = NPULossScaleOptimizer(tf.train.MomentumOptimizer(0.1, 0.9), managers.FixedLossScaleManager(8.0))
        optimizer.minimize(tf.reduce_sum(tf.convert_to_tensor(w)))
        return w, [v for v in tf.global_variables() if "a/w" in v.name]

    path = str(tmp_path / "m.ckpt")
    with tf.Graph().as_default(), tf.Session() as session:
        _, variables = build(saved_parts)
        session.run(tf.global_variables_initializer())
        session.run([variable.assign(tf.ones_like(variable)) for variable in variables])
        tf.train.Saver(variables).save(session, path)
    with tf.Graph().as_default(), tf.Session() as session:
        w, variables = build(2)
        assert len(variables) == 4
        if way == "settings":
            settings = checkpoint.warm_start_settings(path)
            tf.train.warm_start(path, settings.vars_to_warm_start, settings.var_name_to_prev_var_name)
        else:
            checkpoint.init_from_checkpoint(path, variables if way == "init" else [w])
        session.run(tf.global_variables_initializer())
        ones = [np.ones_like(value) for value in session.run(variables)]
        taken = variables[:2] if way == "init of the whole" else variables
        np.testing.assert_array_equal(session.run(taken), ones[: len(taken)])


def test_estimator_trains_and_resumes_with_its_own_scale(tmp_path):
    def model_fn(features, labels, mode):
        w = tf.get_variable("w", initializer=[1.0, 1.0])
        loss = tf.reduce_sum(tf.square(tf.cast(tf.cast(w, tf.float16), tf.float32) - labels))
        manager = managers.ExponentialUpdateLossScaleManager(2.0**20, 4, 1, decr_ratio=0.5)
        optimizer = NPULossScaleOptimizer(tf.train.AdamOptimizer(0.1), manager)
        train_op = optimizer.minimize(loss, tf.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    data = lambda: tf.data.Dataset.from_tensors(({"x": 1.0}, [3.0, 4.0])).repeat()  # noqa: E731
    runs = []
    for folder, parts in (("whole", [12]), ("resumed", [5, 12])):
        config = tf.estimator.RunConfig(model_dir=str(tmp_path / folder))
        for steps in parts:
            estimator = tf.estimator.Estimator(model_fn, config=config)
            estimator.train(data, max_steps=steps)
        runs.append({name: estimator.get_variable_value(name) for name in estimator.get_variable_names()})
    assert runs[0]["global_step"] == 12
    assert runs[0]["loss_scale"] < 2.0**17
    for name, value in runs[0].items():
        np.testing.assert_array_equal(value, runs[1][name], err_msg=name)


def _for(settings, target):
    """TensorFlow's warm start wants the target's own names; only graphs of the originals have others than the plain."""
    prefix = {"contrib": "cond/", "experimental": "cond_1/"}.get(target, "")
    if not prefix:
        return settings
    powers = ("beta1_power", "beta2_power")
    names = [n.replace("^beta", "^%sbeta" % prefix) for n in settings.vars_to_warm_start]
    renamed = {prefix + name: name for name in powers}
    return settings._replace(vars_to_warm_start=names, var_name_to_prev_var_name=renamed)
