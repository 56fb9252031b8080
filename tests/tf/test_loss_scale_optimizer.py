"""LossScaleOptimizer against the contract of tf.train.Optimizer and against each fault of the originals."""

import time

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from optimizers import AdamWeightDecay
from sessions import named

from npu_shim.loss_scale.managers import managers
from npu_shim.loss_scale.optimizers.optimizer import LossScaleOptimizer, NPULossScaleOptimizer
from npu_shim.rewriter.errors import ConfigError

MODES = {"v1-ref": (False, False), "v1-resource": (False, True), "v2-resource": (True, True), "v2-ref": (True, False)}
BAD = (np.inf, -np.inf, np.nan)


@pytest.fixture(autouse=True)
def _switches_put_back():
    before = tf.control_flow_v2_enabled(), tf.resource_variables_enabled()
    yield
    _switch(*before)


# the crossed ones show nothing that the others do not, as a rule
CROSSED = ("v1-resource", "v2-ref")


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.nightly] * (name in CROSSED)) for name in sorted(MODES)])
def mode(request, _switches_put_back):
    """Runs a test under each control flow and kind of variable."""
    _switch(*MODES[request.param])
    return request.param


def _switch(control_flow_v2, resource):
    (tf.enable_control_flow_v2 if control_flow_v2 else tf.disable_control_flow_v2)()
    (tf.enable_resource_variables if resource else tf.disable_resource_variables)()


INNER = {
    "adam": lambda: tf.train.AdamOptimizer(0.1),
    "momentum": lambda: tf.train.MomentumOptimizer(0.1, 0.9),
    "rmsprop": lambda: tf.train.RMSPropOptimizer(0.1),
    "adagrad": lambda: tf.train.AdagradOptimizer(0.1),
    "sgd": lambda: tf.train.GradientDescentOptimizer(0.1),
    "ftrl": lambda: tf.train.FtrlOptimizer(0.1),
    "bert": lambda: AdamWeightDecay(0.1),
}


def exponential(init=2.0**10, every=1000, **settings):
    return managers.ExponentialUpdateLossScaleManager(init, every, **dict({"decr_ratio": 0.5}, **settings))


class Model:
    """w, an embedding and an unused variable; the gradients are multiplied by the fed `x`."""

    def __init__(self, dtype=tf.float32):
        self.x = tf.placeholder(tf.float32, [])
        self.w = tf.get_variable("w", initializer=tf.constant([1.0, 2.0, 3.0], dtype))
        self.table = tf.get_variable("table", initializer=np.ones((5, 2), np.float32))
        self.unused = tf.get_variable("unused", initializer=1.0)
        looked_up = tf.reduce_sum(tf.nn.embedding_lookup(self.table, [1, 3, 1]))
        self.loss = tf.reduce_sum(tf.square(tf.cast(self.w, tf.float32))) * self.x + looked_up * self.x
        self.global_step = tf.train.get_or_create_global_step()


def trained(inner, wrap, feeds):
    """Returns (names of all variables, their values by name) after some steps."""
    with tf.Graph().as_default(), tf.Session() as session:
        model = Model()
        opt = INNER[inner]()
        opt = wrap(opt) if wrap else opt
        step = opt.minimize(model.loss, model.global_step)
        session.run(tf.global_variables_initializer())
        for x in feeds:
            session.run(step, {model.x: x})
        values = {v.name: session.run(v) for v in tf.global_variables()}
        return values, [op.name for op in tf.get_collection(tf.GraphKeys.TRAIN_OP)], step.name


@pytest.mark.by_day("v2-resource-bert", "v1-ref-adam", "v2-resource-ftrl", "v1-ref-momentum", "v1-ref-rmsprop")
@pytest.mark.parametrize("inner", sorted(INNER))
def test_same_variables_and_same_training_as_the_plain_optimizer(mode, inner):
    plain, _, _ = trained(inner, None, [1.0, 0.5, 2.0])
    wrapped, train_ops, name = trained(
        inner, lambda opt: NPULossScaleOptimizer(opt, exponential(init=1.0)), [1.0, np.inf, 0.5, np.nan, 2.0]
    )
    state = {"loss_scale:0", "good_steps:0", "bad_steps:0"}
    assert set(wrapped) - set(plain) == state
    assert set(plain) <= set(wrapped)
    for key in set(plain) - {"global_step:0"}:
        np.testing.assert_array_equal(plain[key], wrapped[key], err_msg=key)
    assert train_ops[-1:] == [name]
    assert wrapped["global_step:0"] == plain["global_step:0"]


@pytest.mark.parametrize("inner", ["adam", "bert"])
def test_names_under_a_scope_and_for_two_optimizers(mode, inner):
    def names(wrapped):
        with tf.Graph().as_default():
            with tf.variable_scope("gan"):
                model = Model()
                for scope in ("d", "g"):
                    with tf.variable_scope(scope):
                        opt = INNER[inner]()
                        opt = NPULossScaleOptimizer(opt, exponential()) if wrapped else opt
                        opt.minimize(model.loss, var_list=[model.w if scope == "d" else model.table])
            return {v.name for v in tf.global_variables() if "loss_scale" not in v.name and "_steps" not in v.name}

    assert names(True) == names(False)


def test_optimizer_contract(mode):
    with tf.Graph().as_default(), tf.Session() as session:
        model = Model()
        adam = tf.train.AdamOptimizer(0.25)
        optimizer = NPULossScaleOptimizer(adam, exponential())
        assert isinstance(optimizer, tf.train.Optimizer)
        assert session.run(optimizer.learning_rate) == 0.25
        step = optimizer.minimize(model.loss, model.global_step, name="train")
        assert optimizer.get_name() == "NPULossScaleOptimizer"
        assert step.name == "train"
        assert optimizer.get_slot_names() == adam.get_slot_names() == ["m", "v"]
        assert optimizer.get_slot(model.w, "m") is adam.get_slot(model.w, "m")
        state = optimizer._loss_scale_manager.variables().values()
        assert optimizer.variables() == [*adam.variables(), *state]
        assert optimizer._opt is adam
        assert optimizer._lr == 0.25
        session.run(tf.global_variables_initializer())
        # the blog's way to print the rate, which fails on the original
        assert session.run([step, optimizer._opt._lr_t, named("loss_scale:0")], {model.x: 1.0})[1:] == [0.25, 1024.0]


def test_learning_rate_schedule_is_fetchable_and_moves_with_global_step(mode):
    with tf.Graph().as_default(), tf.Session() as session:
        model = Model()
        rate = tf.train.polynomial_decay(1.0, model.global_step, 10, 0.0)
        optimizer = NPULossScaleOptimizer(tf.train.MomentumOptimizer(rate, 0.9), exponential())
        step = optimizer.minimize(model.loss, model.global_step)
        session.run(tf.global_variables_initializer())
        seen = []
        for x in (1.0, np.inf, 1.0):
            session.run(step, {model.x: x})
            seen.append(float(session.run(optimizer.learning_rate)))
        np.testing.assert_allclose(seen, [0.9, 0.9, 0.8], rtol=1e-6)


def test_none_gradients_and_iterators(mode):
    with tf.Graph().as_default(), tf.Session() as session:
        model = Model()
        optimizer = NPULossScaleOptimizer(tf.train.GradientDescentOptimizer(1.0), exponential())
        pairs = optimizer.compute_gradients(model.loss)
        assert [g is None for g, _ in pairs] == [False, False, True]
        gradients, variables = zip(*pairs)
        step = optimizer.apply_gradients(zip(gradients, variables), model.global_step)
        session.run(tf.global_variables_initializer())
        session.run(step, {model.x: 0.5})
        np.testing.assert_array_equal(session.run(model.w), [0.0, 0.0, 0.0])


def test_no_gradients_at_all_is_an_error():
    with tf.Graph().as_default():
        optimizer = NPULossScaleOptimizer(tf.train.GradientDescentOptimizer(1.0), exponential())
        for pairs in ([], [(None, tf.get_variable("w", initializer=1.0))]):
            with pytest.raises(ValueError, match="npu_shim: no gradients provided for any variable"):
                optimizer.apply_gradients(pairs)


def test_sparse_gradients_stay_sparse(mode):
    with tf.Graph().as_default(), tf.Session() as session:
        model = Model()
        optimizer = NPULossScaleOptimizer(tf.train.AdamOptimizer(0.1), exponential())
        pairs = {v.op.name: g for g, v in optimizer.compute_gradients(model.loss) if g is not None}
        sparse = pairs["table"]
        assert isinstance(sparse, tf.IndexedSlices)
        session.run(tf.global_variables_initializer())
        values, indices = session.run([sparse.values, sparse.indices], {model.x: 0.25})
        np.testing.assert_array_equal(values, np.full((3, 2), 0.25))
        np.testing.assert_array_equal(indices, [1, 3, 1])


@pytest.mark.parametrize("bad", BAD)
def test_one_bad_value_in_a_sparse_gradient_skips(mode, bad):
    with tf.Graph().as_default(), tf.Session() as session:
        table = tf.get_variable("table", initializer=np.ones((5, 2), np.float32))
        values = tf.placeholder(tf.float32, [1, 2])
        optimizer = NPULossScaleOptimizer(tf.train.GradientDescentOptimizer(1.0), exponential())
        step = optimizer.apply_gradients([(tf.IndexedSlices(values, [2]), table)])
        session.run(tf.global_variables_initializer())
        session.run(step, {values: [[1.0, bad]]})
        np.testing.assert_array_equal(session.run(table), np.ones((5, 2)))
        session.run(step, {values: [[1.0, 0.5]]})
        np.testing.assert_array_equal(session.run(table)[2], [0.0, 0.5])


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64])
def test_loss_of_any_float_dtype_is_scaled_wide(mode, dtype):
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", initializer=1.0)
        # the loss passes through the narrow dtype, its gradient does not exceed it: 2**-20 * 2**30
        loss = tf.cast(w * 2.0**-20, dtype) * tf.constant(1.0, dtype)
        optimizer = NPULossScaleOptimizer(tf.train.GradientDescentOptimizer(1.0), exponential(init=2.0**15))
        (gradient, _), = optimizer.compute_gradients(loss)
        session.run(tf.global_variables_initializer())
        assert gradient.dtype == tf.float32
        assert session.run(gradient) == 2.0**-20


def test_callable_loss_is_called_once(mode):
    if mode.endswith("ref"):
        pytest.skip("TensorFlow's own optimizers take no function as loss with reference variables")
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", initializer=3.0)
        calls = []

        def loss():
            calls.append(1)
            return w * w

        optimizer = NPULossScaleOptimizer(tf.train.GradientDescentOptimizer(0.5), exponential())
        step = optimizer.minimize(loss, var_list=[w])
        session.run(tf.global_variables_initializer())
        session.run(step)
        assert session.run(w) == 0.0
        assert calls == [1]


def test_grad_loss_and_losses_with_a_shape(mode):
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", initializer=[1.0, 2.0])
        optimizer = NPULossScaleOptimizer(tf.train.GradientDescentOptimizer(1.0), exponential())
        (weighted, _), = optimizer.compute_gradients(w * w, grad_loss=tf.constant([1.0, 10.0]))
        (plain, _), = optimizer.compute_gradients(w * w)
        session.run(tf.global_variables_initializer())
        np.testing.assert_array_equal(session.run(weighted), [2.0, 40.0])
        np.testing.assert_array_equal(session.run(plain), [2.0, 4.0])


@pytest.mark.parametrize("power", [15, 24, 25, 40, 100])
def test_float16_gradients_are_unscaled_in_float32(mode, power):
    """The original's factor 1 / 2**25 is 0 in float16, and the step is applied with a gradient of 0."""
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", initializer=tf.constant(1.0, tf.float16))
        x = tf.constant(2.0**-(power + 5), tf.float64)
        loss = tf.cast(w, tf.float64) * x
        optimizer = NPULossScaleOptimizer(tf.train.GradientDescentOptimizer(1.0), exponential(init=2.0**power))
        (gradient, _), = optimizer.compute_gradients(loss)
        unscaled = gradient.op.inputs[0]
        session.run(tf.global_variables_initializer())
        assert gradient.dtype == tf.float16
        assert unscaled.dtype == tf.float32
        assert session.run(unscaled) == np.float32(2.0**-(power + 5))


def test_arithmetic_of_the_scale_is_kept_from_the_rewriter(mode):
    with tf.Graph().as_default() as graph:
        model = Model()
        before = {op.name for op in graph.get_operations()}
        optimizer = NPULossScaleOptimizer(tf.train.GradientDescentOptimizer(1.0), exponential())
        pairs = optimizer.compute_gradients(model.loss)
        optimizer.apply_gradients(pairs)
        own = [op for op in graph.get_operations() if op.name not in before]
        scopes = ("unscale/", "scale_loss/", "magnitudes/", "all_finite/", "next_loss_scale/")
        arithmetic = {"Mul", "Reciprocal", "L2Loss", "IsFinite", "Cast", "Maximum", "Sum"}
        ops = [op for op in own if op.name.startswith(scopes) and op.type in arithmetic]
        assert {"Mul", "L2Loss", "IsFinite", "Reciprocal"} <= {op.type for op in ops}
        assert [op.name for op in ops if op.node_def.attr["_keep_dtype"].i != 1] == []


def test_huge_finite_gradients_are_applied_and_small_ones_are_not_lost(mode):
    """A sum of squares overflows long before float32 does; the check must not."""
    with tf.Graph().as_default(), tf.Session() as session:
        w = tf.get_variable("w", initializer=[0.0, 0.0])
        gradient = tf.placeholder(tf.float32, [2])
        optimizer = NPULossScaleOptimizer(tf.train.GradientDescentOptimizer(1.0), exponential())
        step = optimizer.apply_gradients([(gradient, w)])
        session.run(tf.global_variables_initializer())
        session.run(step, {gradient: [3e38, -3e38]})
        np.testing.assert_array_equal(session.run(w), np.float32([-3e38, 3e38]))
        assert session.run(optimizer.skipped_steps) == 0


@pytest.mark.parametrize("check", [True, False])
def test_fixed_scale_and_enable_overflow_check(mode, check):
    with tf.Graph().as_default(), tf.Session() as session:
        model = Model()
        manager = managers.FixedLossScaleManager(1024, enable_overflow_check=check)
        optimizer = NPULossScaleOptimizer(tf.train.GradientDescentOptimizer(1.0), manager)
        step = optimizer.minimize(model.loss, model.global_step)
        session.run(tf.global_variables_initializer())
        session.run(step, {model.x: np.inf})
        assert session.run("loss_scale:0") == 1024.0
        assert session.run(model.global_step) == (0 if check else 1)
        assert bool(np.all(np.isfinite(session.run(model.w)))) is check
        assert manager.get_enable_overflow_check() is check


def test_fixed_scale_below_one_is_refused_with_its_value():
    expected = r"loss_scale=0\.5 .*loss scale must be at least 1\."
    with tf.Graph().as_default(), pytest.raises(ConfigError, match=expected):
        managers.FixedLossScaleManager(0.5)


def test_attempted_steps_move_where_global_step_does_not(mode):
    with tf.Graph().as_default(), tf.Session() as session:
        model = Model()
        optimizer = NPULossScaleOptimizer(tf.train.AdamOptimizer(0.1), exponential())
        step = optimizer.minimize(model.loss, model.global_step)
        session.run(tf.global_variables_initializer())  # no local initializer: a plain script runs none
        for x in (1.0, np.inf, np.nan, 1.0):
            session.run(step, {model.x: x})
        counts = session.run([optimizer.attempted_steps, optimizer.skipped_steps, model.global_step])
        assert counts == [4, 2, 2]


def test_a_skipped_step_changes_nothing_but_the_schedule(mode):
    with tf.Graph().as_default(), tf.Session() as session:
        model = Model()
        optimizer = NPULossScaleOptimizer(tf.train.AdamOptimizer(0.1), exponential())
        step = optimizer.minimize(model.loss, model.global_step)
        session.run(tf.global_variables_initializer())
        session.run(step, {model.x: 1.0})
        kept = [v for v in tf.global_variables() if v.op.name not in ("loss_scale", "good_steps", "bad_steps")]
        before = session.run(kept)
        for bad in BAD:
            session.run(step, {model.x: bad})
        for one, other in zip(before, session.run(kept)):
            np.testing.assert_array_equal(one, other)


def test_state_is_built_outside_control_dependencies(mode):
    """The original's initializers inherit the dependency and need the placeholder."""
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [])
        with tf.control_dependencies([x * 2.0]):
            manager = exponential()
            w = tf.get_variable("w", initializer=1.0)
            optimizer = NPULossScaleOptimizer(tf.train.AdamOptimizer(0.1), manager)
            optimizer.minimize(w * w)
        session.run([v.initializer for v in manager.variables().values()])
        assert session.run(named("loss_scale:0")) == 1024.0


def test_objects_made_outside_the_graph_work(mode):
    """As in an input of `params`: made once, used by the model_fn of every call. The originals fail."""
    before = [exponential(), managers.FixedLossScaleManager(256)]
    with tf.Graph().as_default():
        before += [exponential(), managers.FixedLossScaleManager(256)]
    for manager in before:
        optimizer = NPULossScaleOptimizer(tf.train.GradientDescentOptimizer(0.1), manager)
        for _ in range(2):
            with tf.Graph().as_default(), tf.Session() as session:
                model = Model()
                step = optimizer.minimize(model.loss, model.global_step)
                session.run(tf.global_variables_initializer())
                session.run(step, {model.x: 1.0})
                assert session.run(manager.get_loss_scale()) in (256.0, 1024.0)


def test_inside_an_outer_cond(mode):
    if mode == "v2-ref":
        pytest.skip("TensorFlow's If takes no reference variables")
    with tf.Graph().as_default(), tf.Session() as session:
        model = Model()
        manager = exponential(every=1)
        optimizer = NPULossScaleOptimizer(tf.train.MomentumOptimizer(0.1, 0.9), manager)
        pairs = optimizer.compute_gradients(model.loss)
        due = tf.placeholder(tf.bool, [])
        step = tf.cond(due, lambda: tf.group(optimizer.apply_gradients(pairs, model.global_step)), tf.no_op)
        session.run(tf.global_variables_initializer())
        for apply in (True, False, False, True):
            session.run(step, {model.x: 1.0, due: apply})
        assert session.run([model.global_step, manager.get_loss_scale()]) == [2, 4096.0]


def test_inside_an_outer_cond_of_control_flow_v2_says_what_to_do():
    _switch(True, True)
    with tf.Graph().as_default():
        model = Model()
        optimizer = NPULossScaleOptimizer(tf.train.MomentumOptimizer(0.1, 0.9), exponential(use_resource=False))
        pairs = optimizer.compute_gradients(model.loss)
        due = tf.placeholder(tf.bool, [])
        with pytest.raises(ConfigError, match="use_resource=True"):
            tf.cond(due, lambda: tf.group(optimizer.apply_gradients(pairs)), tf.no_op)


def test_two_optimizers_with_their_own_scales(mode):
    with tf.Graph().as_default(), tf.Session() as session:
        a, b = (tf.get_variable(name, initializer=1.0) for name in "ab")
        x, y = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
        steps = [
            NPULossScaleOptimizer(tf.train.AdamOptimizer(0.1), exponential(decr_every_n_nan_or_inf=1)).minimize(
                variable * fed, var_list=[variable]
            )
            for variable, fed in ((a, x), (b, y))
        ]
        session.run(tf.global_variables_initializer())
        session.run(steps, {x: np.inf, y: 1.0})
        assert session.run([named("loss_scale:0"), named("loss_scale_1:0")]) == [512.0, 1024.0]
        assert session.run(a) == 1.0
        assert session.run(b) < 1.0


def test_user_managers(mode):
    class Halving(managers.LossScaleManager):
        def __init__(self):
            self.scale = tf.get_variable("my_scale", initializer=64.0, trainable=False)

        def get_loss_scale(self):
            return self.scale

        def update_loss_scale(self, finite_grads):
            return tf.cond(finite_grads, tf.no_op, lambda: tf.group(self.scale.assign(self.scale * 0.5)))

    with tf.Graph().as_default(), tf.Session() as session:
        model = Model()
        optimizer = LossScaleOptimizer(tf.train.AdamOptimizer(0.1), Halving())
        step = optimizer.minimize(model.loss, model.global_step)
        session.run(tf.global_variables_initializer())
        for x in (np.nan, 1.0):
            session.run(step, {model.x: x})
        assert session.run([optimizer._loss_scale_manager.scale, model.global_step]) == [32.0, 1]


def test_detector_and_reducer(mode):
    with tf.Graph().as_default(), tf.Session() as session:
        model = Model()
        mine, others = tf.placeholder(tf.bool, []), tf.placeholder(tf.bool, [])
        optimizer = LossScaleOptimizer(
            tf.train.AdamOptimizer(0.1),
            exponential(decr_every_n_nan_or_inf=1),
            detector=lambda gradients: mine,
            reducer=lambda finite: tf.logical_and(finite, others),
        )
        step = optimizer.minimize(model.loss, model.global_step)
        session.run(tf.global_variables_initializer())
        for a, b in ((True, True), (True, False), (False, True), (True, True)):
            session.run(step, {model.x: 1.0, mine: a, others: b})
        assert session.run([model.global_step, named("loss_scale:0")]) == [2, 256.0]


def test_wrapping_and_wrapped_by_a_delegating_optimizer(mode):
    class Averaging(tf.train.Optimizer):
        """Delegates as NPUDistributedOptimizer and Horovod do."""

        def __init__(self, opt):
            super().__init__(False, "Averaging")
            self._opt = opt

        def compute_gradients(self, *args, **kwargs):
            return [(None if g is None else tf.convert_to_tensor(g) * 1.0, v) for g, v in
                    self._opt.compute_gradients(*args, **kwargs)]

        def apply_gradients(self, *args, **kwargs):
            return self._opt.apply_gradients(*args, **kwargs)

    results = []
    for order in (lambda a: NPULossScaleOptimizer(Averaging(a), exponential()),
                  lambda a: Averaging(NPULossScaleOptimizer(a, exponential()))):
        with tf.Graph().as_default(), tf.Session() as session:
            model = Model()
            step = order(tf.train.AdamOptimizer(0.1)).minimize(model.loss, model.global_step)
            session.run(tf.global_variables_initializer())
            for x in (1.0, np.inf, 2.0):
                session.run(step, {model.x: x})
            assert session.run(model.global_step) == 2
            results.append(session.run(model.w))
            assert "beta1_power:0" in [v.name for v in tf.global_variables()]
    np.testing.assert_array_equal(*results)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_sync_replicas_wraps_it():
    """The original fails to build: its apply_gradients iterates a zip twice."""
    _switch(False, False)

    def steps(wrap):
        with tf.Graph().as_default():
            model = Model()
            optimizer = tf.train.SyncReplicasOptimizer(
                wrap(tf.train.GradientDescentOptimizer(0.1)), replicas_to_aggregate=1, total_num_replicas=1
            )
            step = optimizer.minimize(model.loss, model.global_step)
            hook = optimizer.make_session_run_hook(is_chief=True, num_tokens=1)
            with tf.train.MonitoredTrainingSession(hooks=[hook], stop_grace_period_secs=1) as session:
                for _ in range(4):
                    session.run(step, {model.x: 1.0})
                before = None
                while before != session.run(model.global_step):  # a thread of its own makes the updates
                    before = session.run(model.global_step)
                    time.sleep(0.3)
                return before, session.run(model.w)

    plain, wrapped = steps(lambda opt: opt), steps(lambda opt: NPULossScaleOptimizer(opt, exponential()))
    assert wrapped[0] == plain[0] >= 1
    np.testing.assert_array_equal(wrapped[1], plain[1])


def test_mirrored_strategy_agrees_and_skips_on_all_replicas():
    _switch(True, True)
    with tf.Graph().as_default(), tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
        strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
        fed = [tf.placeholder(tf.float32, []) for _ in range(2)]
        with strategy.scope():
            w = tf.get_variable("w", initializer=1.0)
            optimizer = NPULossScaleOptimizer(
                tf.train.AdamOptimizer(0.1), exponential(decr_every_n_nan_or_inf=1), on_stuck="ignore"
            )

            def step():
                replica = tf.distribute.get_replica_context().replica_id_in_sync_group
                x = fed[int(tf.get_static_value(replica))] if tf.get_static_value(replica) is not None else fed[0]
                return optimizer.minimize(w * x, tf.train.get_or_create_global_step())

            run = getattr(strategy, "run", None) or strategy.experimental_run_v2  # its name in TensorFlow 1.15
            train = tf.group(*strategy.experimental_local_results(run(step)))
        session.run(tf.global_variables_initializer())
        names = [v.name for v in tf.global_variables()]
        assert "beta1_power:0" in names
        for feeds in ((1.0, 1.0), (np.inf, 1.0), (1.0, np.nan), (1.0, 1.0)):
            session.run(train, dict(zip(fed, feeds)))
        scale = session.run(optimizer._loss_scale_manager.get_loss_scale())
        assert session.run(tf.train.get_global_step()) == 2
        assert scale == 256.0
        copies = session.run(list(strategy.experimental_local_results(w)))
        assert copies[0] == copies[1] < 1.0
