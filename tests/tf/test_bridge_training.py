"""Hooks, distributed optimizers, Keras, strategy and loops: what a single process gets from them."""

import os

import numpy as np
import pytest
import sessions
import tensorflow.compat.v1 as tf

from npu_shim.bridge.ops import resources
from npu_shim.distributed.collectives import exchange
from npu_shim.distributed.collectives import hccl as distributed
from npu_shim.distributed.job.strategy import NPUStrategy
from npu_shim.estimator import hooks, keras
from npu_shim.estimator.loops import IterationPerLoop
from npu_shim.options.entrances import plugin
from npu_shim.options.entrances.run_config import NPURunConfig
from npu_shim.session.observers import profiling

X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(32, 1)


@pytest.fixture(autouse=True)
def one_process(monkeypatch):
    for name in ("RANK_SIZE", "RANK_ID", "CM_WORKER_SIZE", "TF_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def trained(wrap, steps=5):
    with tf.Graph().as_default():
        v = tf.get_variable("v", initializer=3.0)
        optimizer = wrap(tf.train.MomentumOptimizer(0.1, 0.9))
        train = optimizer.minimize(tf.square(v - 1.0), tf.train.get_or_create_global_step())
        names = sorted(variable.op.name for variable in tf.global_variables())
        with sessions.started() as session:
            for _ in range(steps):
                session.run(train)
            return names, session.run(v)


@pytest.mark.parametrize(
    "wrap",
    [
        distributed.NPUDistributedOptimizer,
        distributed.npu_tf_optimizer,
        keras.npu_distributed_optimizer_wrapper,
        lambda opt: distributed.NPUDistributedOptimizer(opt, is_weight_update_sharding=True),
    ],
)
def test_alone_a_distributed_optimizer_is_the_plain_one(wrap):
    assert trained(wrap) == trained(lambda opt: opt)


def test_distributed_optimizer_answers_for_the_wrapped_one():
    with tf.Graph().as_default():
        v = tf.get_variable("v", initializer=3.0)
        optimizer = distributed.NPUDistributedOptimizer(tf.train.AdamOptimizer(0.1))
        optimizer.minimize(tf.square(v))
        assert optimizer.get_name() == "DistributedAdamOptimizer"
        assert optimizer.get_slot_names() == ["m", "v"]
        assert optimizer.get_slot(v, "m").shape == []
        assert len(optimizer.variables()) == 4
        assert optimizer._lr == 0.1


def collective(build):
    with tf.Graph().as_default(), tf.Session() as session:
        return session.run(build())


def test_collectives_of_one_rank():
    x = np.arange(6.0).reshape(3, 2)
    for reduction in ("sum", "prod", "max", "min"):
        assert (collective(lambda r=reduction: distributed.allreduce(x, r)) == x).all()
    assert (collective(lambda: distributed.allgather(x, 1)) == x).all()
    assert (collective(lambda: distributed.reduce(x, "sum", 0)) == x).all()
    assert (collective(lambda: distributed.reduce_scatter(x, "sum", 1)) == x).all()
    assert [array.tolist() for array in collective(lambda: distributed.broadcast([x, x + 1], 0))] == [
        x.tolist(),
        (x + 1).tolist(),
    ]
    assert collective(lambda: exchange.all_to_all_v(x[:, 0], [2], [1], [2], [1])).tolist() == [0.0, 2.0, 4.0]
    assert collective(lambda: exchange.all_to_all_v_c(x[:, 0], [[2]], 0)).tolist() == [0.0, 2.0]


def test_broadcast_gives_ops_to_group_as_the_converted_scripts_do():
    with tf.Graph().as_default():
        v = tf.get_variable("v", initializer=3.0)
        outputs = distributed.broadcast(tensor=[v], root_rank=0)
        group = tf.group(outputs[0].op, tf.assign(v, outputs[0]))
        with sessions.started() as session:
            session.run(group)
            assert session.run(v) == 3.0


def test_npu_allreduce_keeps_lists_and_none():
    with tf.Graph().as_default():
        x = tf.ones([2])
        assert distributed.npu_allreduce(x) is x
        assert distributed.npu_allreduce((x, None)) == [x, None]
        with pytest.raises(ValueError, match="did you mean 'mean'"):
            distributed.npu_allreduce(x, reduction="meen")


def test_collectives_check_their_arguments():
    with tf.Graph().as_default():
        with pytest.raises(ValueError, match=r"^npu_shim: allreduce: reduction 'avg' is unknown"):
            distributed.allreduce(tf.ones([2]), "avg")
        with pytest.raises(ValueError, match=r"^npu_shim: allgather: rank_size is 2, but group hccl_world_group has 1"):
            distributed.allgather(tf.ones([2]), 2)
        with pytest.raises(ValueError, match="has ranks below 1, got 1"):
            distributed.broadcast([tf.ones([2])], 1)


def test_average_of_sparse_gradients_is_the_gradient():
    with tf.Graph().as_default(), tf.Session() as session:
        slices = tf.IndexedSlices(tf.constant([[1.0], [2.0]]), tf.constant([3, 1]), tf.constant([5, 1]))
        result = session.run(distributed.average(slices))
    assert (result.values.tolist(), result.indices.tolist()) == ([[1.0], [2.0]], [3, 1])


def test_gradients_of_one_rank_are_their_own_mean_and_sum():
    x = np.arange(4.0)
    assert (collective(lambda: distributed.average(tf.constant(x))) == x).all()
    assert (collective(lambda: distributed.reduce_gradient(tf.constant(x), None, 0, average=False)) == x).all()


def monitored(train_hooks, steps=4):
    with tf.Graph().as_default():
        step = tf.train.get_or_create_global_step()
        tf.identity(step, name="step")
        train, loss = tf.assign_add(step, 1), tf.cast(step, tf.float32, name="loss") * -1.0 + 10.0
        extra_hooks = train_hooks(step, loss)
        with tf.train.MonitoredTrainingSession(hooks=[*extra_hooks, tf.train.StopAtStepHook(steps)]) as session:
            while not session.should_stop():
                session.run(train)


def test_output_tensor_hook_hands_over_every_n_runs_and_at_the_end():
    seen = []
    monitored(lambda step, loss: [hooks.NPUOutputTensorHook({"loss": loss}, None, seen.append, output_every_n_steps=3)])
    assert [len(part) for part in seen] == [3, 1]
    assert [set(fetched) for part in seen for fetched in part] == [{"loss"}] * 4


def test_output_tensor_hook_waits_for_its_dependencies():
    ran = []

    def make_hooks(step, loss):
        note = tf.py_func(lambda: ran.append(1) or np.int64(0), [], tf.int64)
        return [hooks.NPUOutputTensorHook({"loss": loss}, [note], lambda values: None, 0)]

    monitored(make_hooks)
    assert len(ran) == 4


def test_output_tensor_hook_takes_names_and_nothing():
    seen = []
    nothing = hooks.NPUOutputTensorHook(None)
    monitored(lambda step, loss: [hooks.NPUOutputTensorHook(["loss:0"], None, seen.extend), nothing])
    assert [list(fetched) for fetched in seen] == [["loss:0"]] * 4
    with pytest.raises(ValueError, match="output_fn must be a function"):
        hooks.NPUOutputTensorHook({"a": "a:0"})


def test_tell_me_step_or_loss(one_process):
    for name in ("STEP_NOW", "TOTAL_STEP", "LOSS_NOW", "TARGET_LOSS"):
        one_process.setenv(name, "unset")
    monitored(lambda step, loss: [hooks.TellMeStepOrLossHook(step="step:0", total_step=4)])
    assert os.environ["TOTAL_STEP"] == "4"
    assert os.environ["STEP_NOW"] in ("3", "4")
    assert os.environ["LOSS_NOW"] == "unset"
    monitored(lambda step, loss: [hooks.TellMeStepOrLossHook(loss=loss, final_loss=7.1)])
    assert os.environ["TARGET_LOSS"] == "7.1"
    assert 6.0 <= float(os.environ["LOSS_NOW"]) <= 7.0
    with pytest.raises(ValueError, match="expected total_step=, or loss= and final_loss="):
        hooks.TellMeStepOrLossHook(step="global_step:0")


def test_hooks_append_keeps_a_list_and_replaces_anything_else():
    mine = [hooks.NpuEmptyHook()]
    result = hooks.npu_hooks_append(hooks_list=mine)
    assert result is mine
    assert isinstance(result[-1], hooks.NPUBroadcastGlobalVariablesHook)
    assert len(hooks.npu_hooks_append()) == len(hooks.npu_hooks_append(None)) == 1
    monitored(lambda step, loss: result)


def test_checkpoint_saver_hook_saves(tmp_path):
    monitored(lambda step, loss: [hooks.NPUCheckpointSaverHook(str(tmp_path), save_steps=2)])
    assert tf.train.latest_checkpoint(str(tmp_path)).endswith("-4")


def test_init_resource_opens_a_session_and_shutdown_closes_nothing():
    with tf.Graph().as_default():
        x = tf.constant(2.0)
        session, shutdown = resources.init_resource()
        assert session.run(x) == 2.0
        resources.shutdown_resource(session, shutdown)
        resources.close_session(session)
        with pytest.raises(RuntimeError, match="closed"):
            session.run(x)
    config = tf.ConfigProto(intra_op_parallelism_threads=3)
    with tf.Graph().as_default():
        tf.no_op()
        resources.close_session(resources.init_resource(config=config)[0])
    names = [optimizer.name for optimizer in config.graph_options.rewrite_options.custom_optimizers]
    assert (names, config.intra_op_parallelism_threads) == (["NpuOptimizer"], 3)
    assert resources.npu_session_config_init(config) is config


def test_ranks_of_the_only_process():
    assert (resources.get_npu_rank_id(), resources.get_npu_local_rank_id()) == (0, 0)
    assert (resources.get_npu_rank_size(), resources.get_npu_local_rank_size()) == (1, 1)


def test_keras_uses_the_prepared_session():
    with tf.Graph().as_default():
        session = resources.set_keras_session_npu_config()
        assert tf.keras.backend.get_session() is session
    resources.npu_clear_session()
    with tf.Graph().as_default():
        assert tf.keras.backend.get_session() is not session
    tf.keras.backend.clear_session()


def keras_model(optimizer):
    first, second = [tf.keras.initializers.glorot_uniform(seed=seed) for seed in (1, 2)]
    hidden = tf.keras.layers.Dense(4, activation="tanh", kernel_initializer=first, input_shape=(1,))
    model = tf.keras.Sequential([hidden, tf.keras.layers.Dense(1, kernel_initializer=second)])
    model.compile(loss="mse", optimizer=optimizer)
    return model


def fitted(optimizer, callbacks=()):
    with tf.Graph().as_default():
        model = keras_model(optimizer())
        with tf.Session() as session:
            tf.keras.backend.set_session(session)
            history = model.fit(X, 3 * X, batch_size=8, epochs=3, verbose=0, shuffle=False, callbacks=list(callbacks))
            weights, rate = model.get_weights(), tf.keras.backend.get_value(model.optimizer.lr)
    tf.keras.backend.clear_session()
    return history.history["loss"], weights, rate


def test_keras_optimizer_alone_is_the_plain_one():
    plain = fitted(lambda: tf.keras.optimizers.Adam(0.01))
    for wrap in (keras.KerasDistributeOptimizer, keras.npu_keras_optimizer, keras.npu_distributed_optimizer_wrapper):
        losses, weights, rate = fitted(lambda wrap=wrap: wrap(tf.keras.optimizers.Adam(0.01)))
        assert losses == plain[0]
        assert all((one == other).all() for one, other in zip(weights, plain[1]))
        assert rate == plain[2]


def test_keras_callbacks_reach_the_wrapped_optimizer():
    schedule = tf.keras.callbacks.LearningRateScheduler(lambda epoch: 0.5 if epoch < 2 else 0.25)
    rate = fitted(lambda: keras.KerasDistributeOptimizer(tf.keras.optimizers.SGD(0.01)), [schedule])[2]
    assert rate == 0.25


def test_optimizer_wrapper_takes_a_name():
    assert type(keras.npu_distributed_optimizer_wrapper("adam")).__name__ == "Adam"


def test_callbacks_append():
    mine = []
    assert keras.npu_callbacks_append(callbacks_list=mine) is mine
    assert isinstance(mine[0], keras.NPUBroadcastGlobalVariablesCallback)
    assert len(keras.npu_callbacks_append()) == 1
    losses = fitted(lambda: tf.keras.optimizers.SGD(0.1), mine)[0]
    assert mine[0].broadcast_done
    assert losses[-1] < losses[0]


def test_a_keras_model_becomes_an_npu_estimator(tmp_path):
    with tf.Graph().as_default():
        model = keras_model(tf.keras.optimizers.SGD(0.2))
        with tf.Session() as session:
            tf.keras.backend.set_session(session)
            before = model.get_weights()
            config = NPURunConfig(model_dir=str(tmp_path / "m"), tf_random_seed=1, precision_mode="allow_mix_precision")
            estimator = keras.model_to_npu_estimator(keras_model=model, config=config)
    tf.keras.backend.clear_session()

    def feed():
        return tf.data.Dataset.from_tensor_slices(({model.input_names[0]: X}, 3 * X)).repeat().batch(16)

    predicted = _first(estimator.predict(feed), 4)
    first = np.concatenate([next(iter(p.values())) for p in predicted])
    expected = np.tanh(X[:4] @ before[0] + before[1]) @ before[2] + before[3]
    np.testing.assert_allclose(first, expected[:, 0], atol=np.finfo(np.float16).eps)  # products may run in float16
    estimator.train(feed, steps=20)
    assert estimator.evaluate(feed, steps=2)["global_step"] == 20
    assert type(estimator).__name__ == "NPUEstimator"
    with pytest.raises(ValueError, match="config must be an NPURunConfig"):
        keras.model_to_npu_estimator(keras_model=model)


def _first(items, count):
    return [item for _, item in zip(range(count), items)]


def test_strategy_trains_as_one_device():
    strategy = NPUStrategy()
    with tf.Graph().as_default(), strategy.scope():
        v = tf.get_variable("v", initializer=3.0)
        with sessions.started() as session:
            assert session.run(v) == 3.0
    assert strategy.num_replicas_in_sync == 1


def test_iteration_per_loop_may_change():
    with tf.Graph().as_default():
        v = tf.get_variable("v", initializer=0)
        loop = IterationPerLoop()
        with pytest.raises(ValueError, match="create_iteration_per_loop_var first"):
            loop.load_iteration_per_loop_var(None, 2)
        step = loop.create_iteration_per_loop_var(tf.assign_add(v, 1).op)
        with sessions.started() as session:
            counts = []
            for length in (4, 1, 3):
                loop.load_iteration_per_loop_var(session, length)
                session.run(step)
                counts.append(session.run(v))
            with pytest.raises(ValueError, match="must be positive"):
                loop.load_iteration_per_loop_var(session, 0)
    assert counts == [4, 5, 8]


def test_resource_options_are_checked():
    plugin.npu_resource_init(graph_run_mode=0, enable_profiling=True, profiling_options="{}", aoe_mode="2")
    plugin.npu_resource_shutdown()
    for options, error, words in [
        ({"graph_run_mode": 2}, ValueError, "must be 0 or 1"),
        ({"graph_run_mode": "1"}, TypeError, "graph_run_mode must be int"),
        ({"enable_exception_dump": -1}, ValueError, "must not be negative"),
        ({"enable_profiling": 1}, TypeError, "enable_profiling must be True or False"),
        ({"enable_profiling": True}, ValueError, "needs profiling_options"),
        ({"aoe_mode": "3"}, ValueError, "one of 1, 2, 4"),
    ]:
        with pytest.raises(error, match=words):
            plugin.npu_resource_init(**options)


def test_overflow_mode_of_this_platform():
    plugin.set_device_sat_mode(1)
    assert plugin.is_inf_nan_enabled() is True
    with pytest.raises(ValueError, match="must be 0"):
        plugin.set_device_sat_mode(2)


def test_profiler_writes_a_profile(tmp_path):
    if profiling._profiler() is None:
        pytest.skip("this TensorFlow has no profiler to start")
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.matmul(tf.ones([64, 64]), tf.ones([64, 64]))
        with profiling.Profiler(level="L1", aic_metrics="ArithmeticUtilization", output_path=str(tmp_path / "p")):
            session.run(x)
    assert list((tmp_path / "p").rglob("*.xplane.pb"))


def test_sharding_needs_a_gradient_for_each_rank(one_process):
    one_process.setenv("RANK_SIZE", "2")
    with tf.Graph().as_default():
        v = tf.get_variable("v", initializer=3.0)
        optimizer = distributed.NPUDistributedOptimizer(tf.train.GradientDescentOptimizer(0.1), True)
        with pytest.raises(ValueError, match="1 gradients for RANK_SIZE=2 ranks"):
            optimizer.compute_gradients(tf.square(v))
