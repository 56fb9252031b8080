"""Float32 masters of unmodified scripts: 16-bit variables train as float32 ones whose forward pass is rounded."""

import functools
import logging
import re

import numpy as np
import optimizers
import pytest
import sessions
import tensorflow.compat.v1 as tf

import npu_shim
from npu_shim.compat.contrib.opt import plain, wrappers
from npu_shim.loss_scale import masters
from npu_shim.rewriter.errors import ConfigError

OPTIMIZERS = {
    "adam": lambda: tf.train.AdamOptimizer(0.01),
    "rmsprop": lambda: tf.train.RMSPropOptimizer(0.01, momentum=0.9),
    "adagrad": lambda: tf.train.AdagradOptimizer(0.01),
    "bert": lambda: optimizers.AdamWeightDecay(0.01),
}
VALUES = np.random.RandomState(0).normal(size=[6, 2]).astype(np.float32)


@pytest.fixture
def given(patched):
    npu_shim.enable(master_weights=True)
    yield
    npu_shim.disable()


def losses(w):
    """A loss of dense and of sparse gradients of a 16-bit w, in its dtype up to the sum."""
    rows = tf.nn.embedding_lookup(w, [1, 3, 1])
    return tf.reduce_sum(tf.cast(tf.tanh(w), tf.float32)) + tf.reduce_sum(tf.square(tf.cast(rows, tf.float32)))


def script(name, dtype, resource):
    with tf.variable_scope(name, use_resource=resource):
        w = tf.get_variable("w", initializer=tf.cast(VALUES, dtype))
    return w, OPTIMIZERS[name]().minimize(losses(w), var_list=[w], name="train_" + name)


def rounded_script(name, dtype, resource):
    """What `script` means: a float32 variable, whose rounded value is computed with."""
    with tf.variable_scope(name + "_float32", use_resource=resource):
        w = tf.get_variable("w", initializer=tf.cast(tf.cast(VALUES, dtype), tf.float32))
        low = tf.cast(w, dtype)
        [gradient] = tf.gradients(losses(low), [low])
        gradient = tf.convert_to_tensor(gradient)
        return w, OPTIMIZERS[name]().apply_gradients([(tf.cast(gradient, tf.float32), w)])


@pytest.mark.parametrize("resource", [False, True], ids=["reference", "resource"])
@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16], ids=["float16", "bfloat16"])
def test_variables_train_as_their_float32_masters_rounded(given, dtype, resource, tmp_path):
    with tf.Graph().as_default() as graph:
        pairs = {name: (script(name, dtype, resource), rounded_script(name, dtype, resource)) for name in OPTIMIZERS}
        trains = [[train for _, train in pair] for pair in pairs.values()]
        assert {v.dtype.base_dtype for v in tf.trainable_variables() if "float32" not in v.name} == {dtype}
        assert all(graph.get_operation_by_name("train_" + name) for name in ("adam", "rmsprop", "adagrad"))
        saver, alone = tf.train.Saver(), tf.train.Saver([w for (w, _), _ in pairs.values()])
        init = tf.global_variables_initializer()
        kept = masters.masters_of(graph)
        with tf.Session() as session:

            def compare():
                for (w, _), (float32, _) in pairs.values():
                    low, master, wanted = session.run([w, kept[w.op.name], float32])
                    assert low.tobytes() == master.astype(low.dtype).tobytes()
                    np.testing.assert_allclose(master, wanted, rtol=0.01, atol=2e-4)  # rows are summed otherwise
                    assert np.abs(master - VALUES).max() > 0.005  # it trains

            session.run(init)
            for _ in range(3):
                session.run(trains)
            compare()
            path, weights = saver.save(session, str(tmp_path / "all")), alone.save(session, str(tmp_path / "weights"))
            before = session.run([kept[w.op.name] for (w, _), _ in pairs.values()])
            session.run(trains)
            after = session.run([kept[w.op.name] for (w, _), _ in pairs.values()])
            session.run(init)
            saver.restore(session, path)
            sessions.assert_close(session.run([kept[w.op.name] for (w, _), _ in pairs.values()]), before)
            session.run(trains)
            sessions.assert_close(session.run([kept[w.op.name] for (w, _), _ in pairs.values()]), after)
            alone.restore(session, weights)  # the script writes its variables: the masters follow
            for (w, _), (float32, _) in pairs.values():
                float32.load(session.run(w).astype(np.float32), session)
            session.run(trains)
            compare()


class ByName(optimizers.AdamWeightDecay):
    """Its weights decay unless their names are excluded, as in BERT; one of them learns ten times as fast."""

    def __init__(self, excluded, fast):
        super().__init__(0.125)
        self.excluded, self.fast, self.rates = excluded, fast, {id(fast): 10.0}

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        updates = []
        for gradient, variable in grads_and_vars:
            rate = self.rates.get(id(variable), 1.0) * (2.0 if variable is self.fast else 1.0)
            decay = 0.0 if re.search(self.excluded, variable.op.name + ";" + variable.name) else 0.25
            updates.append(variable.assign_sub(rate * (gradient / 1024 + decay * variable)))
        return tf.group(*updates, name=name)


def constrained(make):
    """A pair of variables of which `make(variable, dtype)` makes (its optimizer, options of apply_gradients)."""
    return lambda dtype: _variables(dtype, make, lambda value: tf.clip_by_norm(tf.minimum(value, 0.5), 0.75))


def free(make):
    return lambda dtype: _variables(dtype, make, None)


def _variables(dtype, make, constraint):
    w, other = (
        tf.get_variable(name, initializer=tf.constant([0.25, -0.5, 1.0], dtype), constraint=constraint)
        for name in ("w", "other")
    )
    optimizer, options = make(w)
    pairs = [(tf.constant([0.5, 1.0, -2.0], dtype), w), (tf.constant([1.0, -1.0, 0.25], dtype), other)]
    train = optimizer.apply_gradients(pairs, **options)
    slots = [optimizer.get_slot(w, name) for name in optimizer.get_slot_names() if hasattr(optimizer, "get_slot")]
    return optimizer, w, train, slots


MOMENTUM = functools.partial(tf.train.MomentumOptimizer, 0.125, 0.9)
# what a script has said of a 16-bit variable; a gradient is the same in each dtype, so that the weights are the same
SAID = {
    "constraint": constrained(lambda w: (MOMENTUM(), {})),
    "decay_var_list": free(lambda w: (wrappers.AdamWOptimizer(0.01, 0.01), {"decay_var_list": [w]})),
    "clipping": free(lambda w: (wrappers.VariableClippingOptimizer(MOMENTUM(), {w: [0]}, 0.7), {})),
    "names": free(lambda w: (ByName("^[^/]*/w;[^/]*/w:0$", w), {})),
    "skip_list": free(lambda w: (plain.LARSOptimizer(0.125, eeta=0.5, skip_list=["/other:"]), {})),
    "averages": free(lambda w: (wrappers.MovingAverageOptimizer(MOMENTUM(), 0.5), {})),
}


@pytest.mark.parametrize("resource", [False, True], ids=["reference", "resource"])
def test_what_a_script_says_of_a_variable_holds_for_its_master(given, resource):
    """As in float32 to the bit, with slots of the same names."""
    with tf.Graph().as_default() as graph:
        built = {}
        for case, build in SAID.items():
            for dtype in (tf.float32, tf.bfloat16):
                with tf.variable_scope("%s_%s" % (case, dtype.name), use_resource=resource):
                    built[case, dtype] = build(dtype)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for _ in range(3):
                session.run([train for _, _, train, _ in built.values()])
            for case in SAID:
                (_, w, _, slots), (_, low, _, of_low) = (built[case, dtype] for dtype in (tf.float32, tf.bfloat16))
                assert low.dtype.base_dtype == tf.bfloat16, case
                assert [slot.dtype.base_dtype for slot in of_low] == [tf.float32] * len(slots), case
                assert [slot.name.replace("bfloat16", "float32") for slot in of_low] == [slot.name for slot in slots]
                master = masters.masters_of(graph)[low.op.name]
                want, got = session.run([[w, *slots], [master, *of_low]])
                sessions.assert_close(got, want)
                assert np.abs(want[0] - [0.25, -0.5, 1.0]).max() > 0.01, case
    assert sum(len(slots) for _, _, _, slots in built.values())


@pytest.mark.parametrize("resource", [False, True], ids=["reference", "resource"])
def test_a_swapping_saver_keeps_the_dtypes_and_restores_what_it_saved(given, resource, tmp_path):
    """Averages are as in float32; a script without masters loads a variable's average by its name."""
    start = np.float32([[0.25, -0.5], [1.0, 3.0], [0.5, 2.0]])
    with tf.Graph().as_default(), tf.Session() as session:
        parts = tf.get_variable(
            "parts", [3, 2], tf.float16, tf.constant_initializer(0.3), use_resource=resource,
            partitioner=tf.fixed_size_partitioner(2),
        )  # fmt: skip
        low, wide = (
            tf.get_variable(name, [3, 2], dtype, tf.constant_initializer(start), use_resource=resource)
            for name, dtype in (("low", tf.bfloat16), ("wide", tf.float32))
        )
        optimizer = wrappers.MovingAverageOptimizer(MOMENTUM(), 0.5)
        variables = [*parts, low, wide]
        train = optimizer.apply_gradients([(tf.cast(v, v.dtype.base_dtype) / 2, v) for v in variables])
        saver, initializer = optimizer.swapping_saver(), tf.global_variables_initializer()
        session.run(initializer)
        for _ in range(3):
            session.run(train)
        held = [tf.cast(v, tf.float32) for v in tf.global_variables()]  # NumPy compares no bfloat16 with float16
        path, before = saver.save(session, str(tmp_path / "model")), session.run(held)
        session.run(initializer)
        saver.restore(session, path)
        sessions.assert_close(session.run(held), before)
        values = dict(zip([v.op.name for v in tf.global_variables()], before))
    saved = tf.train.load_checkpoint(path)
    dtypes = saved.get_variable_to_dtype_map()
    for name, dtype in (("low", tf.bfloat16), ("parts", tf.float16)):
        assert (dtypes[name], dtypes[name + "/ExponentialMovingAverage"]) == (dtype, tf.float32)
    mean = values["low/ExponentialMovingAverage"]
    sessions.assert_close(saved.get_tensor("low/float32_master"), mean)
    sessions.assert_close(saved.get_tensor("low").astype("f"), mean, rtol=2.0**-8)
    sessions.assert_close(saved.get_tensor("low/ExponentialMovingAverage"), values["low/float32_master"])
    sessions.assert_close(saved.get_tensor("wide"), values["wide/ExponentialMovingAverage"])
    mean_of_parts = saved.get_tensor("parts/float32_master")
    with tf.Graph().as_default(), tf.Session() as session:
        parts = tf.get_variable("parts", [3, 2], tf.float16, partitioner=tf.fixed_size_partitioner(2))
        weights = [tf.get_variable("low", [3, 2], tf.bfloat16), *parts]
        tf.train.Saver({"low": weights[0], "parts": parts}).restore(session, path)
        sessions.assert_close(session.run(weights[0]).astype("f"), mean, rtol=2.0**-8)
        sessions.assert_close(np.concatenate(session.run(weights[1:])).astype("f"), mean_of_parts, rtol=2.0**-11)


def test_the_variables_of_an_optimizer_are_all_that_its_step_needs(given):
    with tf.Graph().as_default():
        w = tf.get_variable("w", initializer=tf.constant([1.0], tf.float16), constraint=lambda w: tf.minimum(w, 0.5))
        optimizer = tf.train.AdamOptimizer(0.25)
        train = optimizer.apply_gradients([(tf.constant([-1.0], tf.float16), w)])
        names = [variable.op.name for variable in optimizer.variables()]
        assert sorted(names) == ["beta1_power", "beta2_power", "w/Adam", "w/Adam_1", "w/float32_master"]
        with tf.Session() as session:
            session.run([w.initializer, tf.variables_initializer(optimizer.variables())])
            session.run(train)
            assert session.run(w) == 0.5


def test_what_cannot_have_a_master_is_an_error_or_a_line_that_names_it(given, caplog, monkeypatch):
    def trained(optimizer, shape=(1,), **options):
        with tf.Graph().as_default():
            w = tf.get_variable("w", initializer=tf.ones([1], tf.float16), **options)
            w._shape = tf.TensorShape(shape)
            return optimizer.apply_gradients([(tf.ones([1], tf.float16), w)])

    own_dtype = lambda w: tf.minimum(w, tf.constant(0.5, tf.float16))  # noqa: E731
    with pytest.raises(ConfigError, match=r"AdamOptimizer updates the float32 master of 'w:0'.*own dtype.*float16"):
        trained(tf.train.AdamOptimizer(0.01), constraint=own_dtype)
    with pytest.raises(ConfigError, match=r"'w' gets no float32 master.*its shape is .*expected one that is known"):
        trained(tf.train.AdamOptimizer(0.01), (None,), use_resource=True)
    monkeypatch.setattr(logging.getLogger("npu_shim"), "propagate", True)
    monkeypatch.setattr(tf.distribute, "has_strategy", lambda: True)
    trained(tf.train.GradientDescentOptimizer(0.01))
    assert [text for text in caplog.messages if "'w:0' gets no float32 master" in text and "strategy" in text]


def test_keras_and_an_estimator_train_masters(given, tmp_path):
    with tf.Graph().as_default() as graph:
        bound = functools.partial(tf.maximum, 0.975)
        w = tf.Variable(tf.ones([3], tf.bfloat16), use_resource=True, name="w", constraint=bound)
        optimizer = tf.keras.optimizers.Adam(0.01)
        train = optimizer.apply_gradients([(tf.ones([3], tf.bfloat16), w)])
        assert [optimizer.get_slot(w, name).name for name in ("m", "v")] == ["Adam/w/m:0", "Adam/w/v:0"]
        assert len(optimizer.weights) == 3
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for _ in range(3):
                session.run(train)
            np.testing.assert_allclose(session.run(masters.masters_of(graph)["w"]), [0.975] * 3, rtol=1e-5)

    def model_fn(features, labels, mode):
        w = tf.get_variable("w", [3], tf.bfloat16, tf.ones_initializer())
        loss = tf.reduce_sum(tf.cast(w, tf.float32) * features)
        step = tf.train.get_global_step()
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=tf.train.AdamOptimizer(0.01).minimize(loss, step))

    estimator = tf.estimator.Estimator(model_fn, str(tmp_path))
    for _ in range(2):  # the second one resumes
        estimator.train(lambda: tf.data.Dataset.from_tensors(tf.ones([3])).repeat(), steps=2)
    np.testing.assert_allclose(estimator.get_variable_value("w/float32_master"), [0.96] * 3, rtol=1e-5)
    assert estimator.get_variable_value("global_step") == 4


@pytest.mark.parametrize("kind", [
    pytest.param("pjrt", marks=sessions.NEEDS_ENGINE), "session",
])  # fmt: skip
def test_bfloat16_with_adam_goes_as_in_float32(given, kind):
    """.99 .98 .97; in bfloat16 alone 1, -126464, 6e9."""
    with tf.Graph().as_default() as graph:
        w = tf.get_variable("w", [3], tf.bfloat16, tf.ones_initializer(), use_resource=True)
        train = tf.train.AdamOptimizer(0.01).minimize(tf.reduce_sum(tf.cast(w, tf.float32)))
        config = sessions.config(precision_mode="must_keep_origin_dtype", npu_shim_engine=kind)
        with tf.Session(config=config) as session:
            session.run(tf.global_variables_initializer())
            seen = []
            for _ in range(3):
                session.run(train)
                seen.append(session.run(masters.masters_of(graph)["w"])[0])
    np.testing.assert_allclose(seen, [0.99, 0.98, 0.97], rtol=1e-5)


def test_constants_that_vanish_are_told_once_and_name_master_weights(patched, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("npu_shim"), "propagate", True)
    npu_shim.enable(engine="session")
    try:
        lost = {tf.bfloat16: "beta2 of 0.999 is 1", tf.float16: "epsilon of 1e-08 is 0", tf.float32: ""}
        for dtype, told in lost.items():
            caplog.clear()
            with tf.Graph().as_default():
                w = tf.get_variable("w", [3], dtype, tf.ones_initializer())
                loss = tf.reduce_sum(tf.cast(w, tf.float32))
                for _ in range(2):
                    tf.train.AdamOptimizer(0.01).minimize(loss)
                tf.train.GradientDescentOptimizer(0.01).minimize(loss)
                assert [v.dtype.base_dtype for v in tf.trainable_variables()] == [dtype]
            texts = [text for text in caplog.messages if "--master-weights" in text]
            assert len(texts) == bool(told)
            assert all(told in text and "'w'" in text for text in texts)
    finally:
        npu_shim.disable()


def test_a_lost_loss_of_16_bit_variables_names_them_and_not_65504(patched, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("npu_shim"), "propagate", True)
    with tf.Graph().as_default():
        w = tf.get_variable("w", [3], tf.float16, tf.ones_initializer())
        loss = tf.identity(tf.reduce_sum(w) * np.float16(np.nan), name="loss")
        with tf.Session(config=sessions.config(precision_mode="allow_mix_precision")) as session:
            session.run(w.initializer)
            session.run(loss)
    [text] = [text for text in caplog.messages if "'loss:0' is nan" in text]
    assert "--master-weights" in text
    assert "65504" not in text


def test_what_is_not_true_or_false_is_refused():
    with pytest.raises(ConfigError, match="master_weights is 'yes', expected True or False"):
        npu_shim.enable(master_weights="yes")
