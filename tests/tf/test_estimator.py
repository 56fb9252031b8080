import inspect
import os
import random

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow.compat.v1")

from npu_shim.estimator import chief  # noqa: E402
from npu_shim.estimator.estimator import NPUEstimator, NPUEstimatorSpec  # noqa: E402
from npu_shim.options import table as options  # noqa: E402
from npu_shim.options.entrances import config_proto  # noqa: E402
from npu_shim.options.entrances.run_config import (  # noqa: E402
    DumpConfig,
    ExperimentalConfig,
    NPURunConfig,
    ProfilingConfig,
    session_config_of,
    values_of,
)

ModeKeys = tf.estimator.ModeKeys
X = np.linspace(-1, 1, 64, dtype=np.float32).reshape(64, 1)


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch):
    for name in ("TF_CONFIG", "LOCAL_CHECKPOINT_DIR", "RESTORE_FROM"):
        monkeypatch.delenv(name, raising=False)


def model_fn(features, labels, mode, params):
    slope = tf.get_variable("slope", initializer=0.0)
    prediction = features * slope
    if mode == ModeKeys.PREDICT:
        return NPUEstimatorSpec(mode, predictions={"y": prediction})
    loss = tf.reduce_mean(tf.square(prediction - labels))
    if mode == ModeKeys.EVAL:
        metrics = {"mae": tf.metrics.mean_absolute_error(labels, prediction)}
        return NPUEstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
    tf.summary.scalar("watched", slope)
    optimizer = tf.train.GradientDescentOptimizer(params.get("rate", 0.5))
    train_op = optimizer.minimize(loss, global_step=tf.train.get_global_step())
    return params.get("spec", NPUEstimatorSpec)(mode, loss=loss, train_op=train_op, **params.get("extra", {}))


def data(steps=None):
    def feed():
        pairs = tf.data.Dataset.from_tensor_slices((X, 3 * X)).repeat().batch(16)
        return pairs if steps is None else pairs.take(steps)

    return feed


def estimator(folder, params=None, **options_given):
    config = NPURunConfig(model_dir=str(folder), tf_random_seed=1, **options_given)
    return NPUEstimator(model_fn=model_fn, config=config, params=params or {})


def checkpoints(folder):
    names = [name for name in os.listdir(str(folder)) if name.endswith(".index")]
    return sorted(int(name[len("model.ckpt-") : -len(".index")]) for name in names)


def summary_steps(folder, tag="watched"):
    steps = []
    tf.summary.FileWriterCache.get(str(folder)).flush()
    for name in os.listdir(str(folder)):
        if "tfevents" in name:
            for event in tf.train.summary_iterator(os.path.join(str(folder), name)):
                steps += [event.step for value in event.summary.value if value.tag == tag]
    return sorted(steps)


def parameter_map(config):
    entries = config.graph_options.rewrite_options.custom_optimizers
    assert [entry.name for entry in entries].count("NpuOptimizer") == 1
    return config_proto.read(config)


def test_train_evaluate_predict(tmp_path):
    model = estimator(tmp_path)
    model.train(data(), max_steps=100)
    result = model.evaluate(data(4))
    assert result["global_step"] == 100
    assert result["mae"] < 0.05
    predicted = [p["y"] for p in model.predict(lambda: tf.data.Dataset.from_tensors(X))]
    np.testing.assert_allclose(predicted, 3 * X, atol=0.1)
    assert checkpoints(tmp_path) == [0, 100]
    assert summary_steps(tmp_path) == []


def test_train_and_evaluate(tmp_path):
    model = estimator(tmp_path, iterations_per_loop=7)
    tf.estimator.train_and_evaluate(
        model, tf.estimator.TrainSpec(data(), max_steps=30), tf.estimator.EvalSpec(data(4), steps=4)
    )
    assert model.get_variable_value("global_step") == 30


@pytest.mark.by_day("RESTORE_FROM", "argument")
@pytest.mark.parametrize("told_by", ["argument", "settings", "LOCAL_CHECKPOINT_DIR", "RESTORE_FROM"])
def test_warm_start(tmp_path, monkeypatch, told_by):
    """A new training begins with another's weights and its own global step; once it has a checkpoint, with that."""
    first = estimator(tmp_path / "first")
    first.train(data(), max_steps=5)
    given = None
    if told_by == "argument":
        given = str(tmp_path / "first")
    elif told_by == "settings":
        given = tf.estimator.WarmStartSettings(str(tmp_path / "first"), vars_to_warm_start="slope")
    else:
        monkeypatch.setenv(told_by, str(tmp_path / "first"))
    config = NPURunConfig(model_dir=str(tmp_path / "second"), precision_mode="allow_mix_precision")
    still = {"rate": 0.0}
    second = NPUEstimator(model_fn, config=config, params=still, warm_start_from=given)
    second.train(data(), steps=2)
    assert second.get_variable_value("slope") == first.get_variable_value("slope") != 0
    assert second.get_variable_value("global_step") == 2
    moving = NPUEstimator(model_fn, config=config, params={}, warm_start_from=given)
    moving.train(data(), steps=3)
    assert moving.get_variable_value("global_step") == 5
    assert moving.get_variable_value("slope") > first.get_variable_value("slope")


def zip_same(one, other):
    assert len(one) == len(other)
    return zip(one, other)


@pytest.mark.parametrize("per_loop", [1, 10, 30])
def test_loops_end_checkpoint_and_summarize_where_single_steps_do(tmp_path, per_loop):
    runs = []

    class Count(tf.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            runs.append(1)

    model = estimator(tmp_path, iterations_per_loop=per_loop, save_checkpoints_steps=50, save_summary_steps=40)
    model.train(data(), max_steps=105, hooks=[Count()])
    assert checkpoints(tmp_path) == [0, 50, 100, 105]
    # of single steps TensorFlow's own hook reads a global step that is a reference before or after its increment
    early = 1 if per_loop == 1 else 0
    assert all(0 <= due - step <= early for step, due in zip_same(summary_steps(tmp_path), [1, 41, 81]))
    assert len(runs) == 105 if per_loop == 1 else len(runs) < 20
    model.train(data(), steps=13)
    assert model.get_variable_value("global_step") == 118
    assert all(0 <= due - step <= early for step, due in zip_same(summary_steps(tmp_path), [1, 41, 81, 106]))


def test_loops_train_as_single_steps_do(tmp_path):
    slopes = []
    for per_loop in (1, 10):
        model = estimator(tmp_path / str(per_loop), iterations_per_loop=per_loop, params={"rate": 0.1})
        model.train(data(), max_steps=25)
        slopes.append(model.get_variable_value("slope"))
    assert slopes[0] == slopes[1]
    assert 0 < slopes[0] < 3


@pytest.mark.parametrize("per_loop", [1, 10])
def test_data_that_ends_early_ends_training(tmp_path, per_loop):
    model = estimator(tmp_path, iterations_per_loop=per_loop)
    model.train(data(13), max_steps=100)
    assert model.get_variable_value("global_step") == 13
    assert checkpoints(tmp_path) == [0, 13]


def test_host_call_runs_in_every_session_run(tmp_path):
    written = []

    def host_call(step, loss):
        assert loss.dtype == tf.float32
        return tf.py_func(lambda value: written.append(int(value)), [step], [])

    def with_host_call(features, labels, mode, params):
        spec = model_fn(features, labels, mode, params)
        if mode != ModeKeys.TRAIN:
            return spec
        step = tf.train.get_global_step()
        return spec._replace(host_call=(host_call, {"step": step, "loss": spec.loss}))

    model = NPUEstimator(with_host_call, config=NPURunConfig(model_dir=str(tmp_path)), params={})
    model.train(data(), max_steps=4)
    assert len(written) == 4


def test_a_plain_estimator_spec_will_do(tmp_path):
    model = estimator(tmp_path, params={"spec": tf.estimator.EstimatorSpec}, iterations_per_loop=2)
    model.train(data(), max_steps=3)
    assert model.get_variable_value("global_step") == 3


def test_another_result_in_training_is_a_runtime_error(tmp_path):
    config = NPURunConfig(model_dir=str(tmp_path))
    model = NPUEstimator(lambda features, labels, mode: {"loss": 1}, config=config)
    with pytest.raises(RuntimeError, match="npu_shim: NPUEstimator: model_fn must return an NPUEstimatorSpec"):
        model.train(data(), max_steps=1)


def test_an_error_of_the_model_fn_stays_its_own(tmp_path):
    """Even where it has Estimator's words."""
    for text in ("mine", "model_fn should return an EstimatorSpec."):

        def broken(features, labels, mode):
            raise ValueError(text)  # noqa: B023

        model = NPUEstimator(broken, config=NPURunConfig(model_dir=str(tmp_path)))
        with pytest.raises(ValueError, match=text):
            model.train(data(), max_steps=1)


@pytest.mark.parametrize("config", [None, "text"])
def test_config_must_be_an_npu_run_config(config):
    with pytest.raises(ValueError, match="npu_shim: NPUEstimator: config must be an NPURunConfig"):
        NPUEstimator(model_fn, config=config)
    with pytest.raises(ValueError, match="must be an NPURunConfig"):
        NPUEstimator(model_fn, config=tf.estimator.RunConfig())


def test_model_dir(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="model_dir"):
        NPUEstimator(model_fn, model_dir="a", config=NPURunConfig(model_dir="b"))
    assert NPUEstimator(model_fn, model_dir="a", config=NPURunConfig(), params={}).model_dir == "a"
    assert NPUEstimator(model_fn, model_dir="a", config=NPURunConfig(model_dir="a"), params={}).model_dir == "a"
    random.seed(3)
    expected = random.Random(3).random()
    folder = NPUEstimator(model_fn, config=NPURunConfig(), params={}).model_dir
    assert random.random() == expected
    assert os.listdir(str(tmp_path)) == [os.path.basename(folder)]
    assert os.path.basename(folder).startswith("model_dir_")
    assert len(os.path.basename(folder)) == len("model_dir_") + 10


def test_signatures():
    assert [(arg.name, arg.default) for arg in inspect.signature(NPUEstimator).parameters.values()] == [
        ("model_fn", None), ("model_dir", None), ("config", None), ("params", None), ("job_start_file", ""),
        ("warm_start_from", None),
    ]  # fmt: skip
    assert list(inspect.signature(NPUEstimatorSpec).parameters)[-1] == "host_call"
    assert list(inspect.signature(NPUEstimatorSpec).parameters)[:-1] == list(
        inspect.signature(tf.estimator.EstimatorSpec).parameters
    )


def test_the_config_is_what_the_caller_gave(tmp_path):
    session_config = tf.ConfigProto(inter_op_parallelism_threads=3)
    before = session_config.SerializeToString()
    config = NPURunConfig(model_dir=str(tmp_path), session_config=session_config, precision_mode="allow_mix_precision")
    model = NPUEstimator(model_fn, config=config, params={})
    assert session_config.SerializeToString() == before
    assert config.session_config is session_config
    assert type(model.config) is NPURunConfig
    assert model.config.session_config.inter_op_parallelism_threads == 3
    assert parameter_map(model.config.session_config)["precision_mode"] == "allow_mix_precision"


def test_keys_written_without_any_option():
    values = parameter_map(session_config_of(NPURunConfig()))
    always = """enable_data_pre_proc mix_compile_mode use_off_line iterations_per_loop is_tailing_optimization
        min_group_size hcom_parallel graph_run_mode enable_exception_dump enable_small_channel deterministic
        enable_reduce_precision enable_compress_weight hcom_multi_mode device_type jit_compile stream_sync_timeout
        event_sync_timeout external_weight frozen_variable variable_placement enable_dump enable_dump_debug job
        task_index experimental_logical_device_cluster_deploy_mode"""
    assert set(always.split()) <= set(values)
    for absent in ("precision_mode", "precision_mode_v2", "modify_mixlist", "op_precision_mode", "customize_dtypes"):
        assert absent not in values
    assert values["use_off_line"] is True
    assert values["enable_data_pre_proc"] is True
    assert values["enable_dump"] is False
    assert values["experimental_logical_device_cluster_deploy_mode"] == "LB"
    assert options.check_values(values) == ()


def test_keys_of_given_options():
    config = NPURunConfig(
        precision_mode="",
        iterations_per_loop=10,
        graph_memory_max_size=str(26 * 1024),
        profiling_config=ProfilingConfig(True, '{"output": "/tmp"}'),
        dump_config=DumpConfig(enable_dump=True, dump_path="/tmp", dump_step="0|5", dump_mode="all"),
        experimental_config=ExperimentalConfig(accelerate_train_mode="fast|step|0.9"),
    )
    values = parameter_map(session_config_of(config))
    expected = {
        "precision_mode": "",
        "iterations_per_loop": 10,
        "graph_memory_max_size": "26624",
        "profiling_mode": True,
        "profiling_options": '{"output": "/tmp"}',
        "enable_dump": True,
        "enable_dump_debug": False,
        "dump_path": "/tmp",
        "dump_step": "0|5",
        "dump_mode": "all",
        "experimental_accelerate_train_mode": "fast|step|0.9",
    }
    assert {name: values[name] for name in expected} == expected
    assert "dump_layer" not in values
    assert [problem.option for problem in options.check_values(values)] == ["precision_mode"]
    assert values == values_of(config)


def test_the_users_entry_is_completed_and_given_options_win():
    session_config = tf.ConfigProto()
    session_config.graph_options.rewrite_options.custom_optimizers.add().name = "Other"
    entry = session_config.graph_options.rewrite_options.custom_optimizers.add()
    entry.name = "NpuOptimizer"
    entry.parameter_map["precision_mode"].s = b"force_fp32"
    entry.parameter_map["modify_mixlist"].s = b"list.json"
    entry.parameter_map["hcom_parallel"].b = False
    entry.parameter_map["dump_mode"].s = b"input"
    dump = DumpConfig(dump_mode="all")
    config = session_config_of(
        NPURunConfig(session_config=session_config, precision_mode="force_fp16", dump_config=dump)
    )
    values = parameter_map(config)
    assert values["precision_mode"] == "force_fp16"
    assert values["modify_mixlist"] == "list.json"
    assert values["hcom_parallel"] is False
    assert values["dump_mode"] == "all"
    assert len(config.graph_options.rewrite_options.custom_optimizers) == 2
    assert dict(entry.parameter_map)["precision_mode"].s == b"force_fp32"
    assert len(entry.parameter_map) == 4


def test_a_precision_mode_that_is_no_text_fails_here_as_in_the_original(tmp_path):
    with pytest.raises(TypeError, match="npu_shim: precision_mode must be str, got bool True"):
        NPUEstimator(model_fn, config=NPURunConfig(model_dir=str(tmp_path), precision_mode=True), params={})


@pytest.mark.parametrize("host_call", ["text", (1, 2), (print,), print])
def test_host_call_must_be_a_function_and_tensors(host_call):
    with tf.Graph().as_default(), pytest.raises(ValueError, match=r"npu_shim: NPUEstimatorSpec: host_call must be"):
        NPUEstimatorSpec(ModeKeys.PREDICT, predictions=tf.constant(1), host_call=host_call)


def test_a_skipped_step_with_a_nan_loss_does_not_stop_training_and_is_summarized(tmp_path):
    """Batch 3 has an infinite value: the loss is not a number, the step is skipped, the next ones train on."""
    from npu_shim.loss_scale import ExponentialUpdateLossScaleManager, NPULossScaleOptimizer

    def model_fn(features, labels, mode):
        weight = tf.get_variable("w", [2, 1], use_resource=True)
        product = tf.matmul(features, weight)
        loss = tf.reduce_mean(tf.square(product - labels) + 0.0 * product)
        manager = ExponentialUpdateLossScaleManager(2.0**10, 1000, decr_every_n_nan_or_inf=1, decr_ratio=0.5)
        optimizer = NPULossScaleOptimizer(tf.train.GradientDescentOptimizer(0.1), manager)
        return NPUEstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss, tf.train.get_global_step()))

    def input_fn():
        values = np.ones([8, 4, 2], np.float32)
        values[3] = np.inf
        return tf.data.Dataset.from_tensor_slices((values, np.ones([8, 4, 1], np.float32)))

    config = NPURunConfig(model_dir=str(tmp_path), save_summary_steps=1)
    estimator = NPUEstimator(model_fn=model_fn, config=config)
    estimator.train(input_fn)
    assert estimator.get_variable_value("global_step") == 7  # 8 batches, one skipped
    assert estimator.get_variable_value("loss_scale") == 2.0**9
    assert np.isfinite(estimator.get_variable_value("w")).all()
    [events] = tmp_path.glob("events.out.tfevents.*")
    tags = {v.tag for event in tf.train.summary_iterator(str(events)) for v in event.summary.value}
    assert {"loss_scale", "skipped_steps"} <= tags


def test_a_saved_model_is_exported_and_serves_float32(tmp_path):
    def model_fn(features, labels, mode):
        weight = tf.get_variable("w", [2, 1], initializer=tf.ones_initializer(), use_resource=True)
        product = tf.matmul(features["x"], weight)
        if mode == tf.estimator.ModeKeys.PREDICT:
            return NPUEstimatorSpec(mode, predictions={"y": product})
        loss = tf.reduce_mean(tf.square(product - labels))
        step = tf.train.GradientDescentOptimizer(0.0).minimize(loss, tf.train.get_global_step())
        return NPUEstimatorSpec(mode, loss=loss, train_op=step)

    def input_fn():
        return tf.data.Dataset.from_tensors(({"x": np.ones([4, 2], np.float32)}, np.ones([4, 1], np.float32)))

    config = NPURunConfig(model_dir=str(tmp_path / "model"), precision_mode="allow_mix_precision")
    estimator = NPUEstimator(model_fn=model_fn, config=config)
    estimator.train(input_fn)
    with tf.Graph().as_default():
        receive = tf.estimator.export.build_raw_serving_input_receiver_fn({"x": tf.placeholder(tf.float32, [None, 2])})
    exported = estimator.export_saved_model(str(tmp_path / "export"), receive)
    with tf.Graph().as_default(), tf.Session() as session:
        signature = tf.saved_model.load(session, ["serve"], exported.decode()).signature_def["serving_default"]
        feeds = {signature.inputs["x"].name: [[1.0, 2.0]]}
        assert session.run(signature.outputs["y"].name, feeds).tolist() == [[3.0]]


def test_one_rank_writes_into_a_folder_that_ranks_share(tmp_path, monkeypatch):
    """Folders of machines that were set up from one image have equal numbers, and are two all the same."""
    real = os.stat
    monkeypatch.setattr(os, "stat", lambda *words, **more: os.stat_result((*real(*words, **more)[:1], 7, *[0] * 8)))

    def writing(of_the_first, of_another):
        """Whether another rank writes, which looks while rank 0 waits for it."""
        ends = []

        def meet(numbers):
            if not ends:
                ends.append(numbers)
                monkeypatch.setattr(chief.ranks, "world_rank", lambda: 1)
                monkeypatch.setattr(chief, "_of_the_first", lambda _: numbers)
                ends.append(chief.writes(of_another))
                monkeypatch.setattr(chief.ranks, "world_rank", lambda: 0)
            return numbers

        monkeypatch.setattr(chief.ranks, "world_rank", lambda: 0)
        monkeypatch.setattr(chief, "_of_the_first", meet)
        assert chief.writes(of_the_first)  # rank 0 always does
        return ends[1]

    one, other = str(tmp_path / "one"), str(tmp_path / "other")
    assert [writing(one, one), writing(one, other)] == [False, True]
    assert [writing("gs://a/b", "gs://a/b"), writing("gs://a/b", "gs://a/c")] == [False, True]
    assert [writing("gs://a/b", one), writing(one, "gs://a/b")] == [True, True]
    assert os.listdir(one) == os.listdir(other) == []
