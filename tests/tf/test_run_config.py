import copy
import inspect
import json
import os
import pickle

import pytest

tf = pytest.importorskip("tensorflow.compat.v1")

from npu_shim.options import table as options  # noqa: E402
from npu_shim.options.entrances import run_config  # noqa: E402
from npu_shim.options.entrances.run_config import DumpConfig, NPURunConfig  # noqa: E402
from npu_shim.options.ops import scopes  # noqa: E402

PUBLIC = set(
    """iterations_per_loop mix_compile_mode enable_data_pre_proc is_tailing_optimization variable_format_optimize
    horovod_mode graph_run_mode op_debug_level enable_scope_fusion_passes enable_exception_dump topo_sorting_mode
    aoe_config_file insert_op_file stream_sync_timeout event_sync_timeout es_cluster_config""".split()  # noqa: SIM905
)


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)


def test_signature_is_the_vendors():
    parameters = inspect.signature(NPURunConfig).parameters
    assert list(parameters)[:3] == ["iterations_per_loop", "profiling_config", "model_dir"]
    assert list(parameters)[75] == "ac_parallel_enable"
    defaults = {"buffer_optimize": "l2_optimize", "enable_exception_dump": 2, "save_summary_steps": 0, "oo_level": "O3"}
    for name, default in defaults.items():
        assert parameters[name].default == default
    # what a caller can do with the signature is what the constructor does
    assert inspect.signature(NPURunConfig).bind(10, precision_mode="x").arguments["iterations_per_loop"] == 10


def test_defaults_and_attributes():
    config = NPURunConfig()
    assert isinstance(config, tf.estimator.RunConfig)
    assert config.save_summary_steps == 0
    assert config.save_checkpoints_steps == 100
    assert config.save_checkpoints_secs is None
    assert config.keep_checkpoint_max == 5
    own = {n: o.run_config for n, o in options.options().items() if o.run_config and not o.run_config.get("parent")}
    assert {name for name in own if run_config.attribute(name) == name} == PUBLIC
    for name, row in own.items():
        assert getattr(config, run_config.attribute(name)) == row["default"], name


def test_own_attributes_hide_none_of_run_configs():
    ours = {run_config.attribute(n) for n, o in options.options().items() if o.run_config is not None} - {
        run_config.attribute(n) for n, o in options.options().items() if o.run_config and o.run_config.get("parent")
    }
    assert not ours & set(vars(tf.estimator.RunConfig()))
    assert not ours & set(dir(tf.estimator.RunConfig))


def test_every_argument_is_taken():
    other = {"horovod_mode": True, "mix_compile_mode": True, "dump_config": DumpConfig(True), "jit_compile": "true"}
    for name, option in options.options().items():
        if option.run_config is None or option.run_config.get("parent") or name == "distribute":
            continue
        parts = {
            "dynamic_input_config": run_config.DynamicInputConfig("x:1,-1", "1;2", 0),
            "experimental_config": run_config.ExperimentalConfig(),
        }
        value = {**other, **parts}.get(name, 1)
        assert getattr(NPURunConfig(**{name: value}), run_config.attribute(name)) == value


def test_positional_arguments():
    config = NPURunConfig(10, None, "folder", 7)
    assert (config.iterations_per_loop, config.model_dir, config.tf_random_seed) == (10, "folder", 7)


def test_checkpoints():
    assert NPURunConfig(save_checkpoints_secs=600).save_checkpoints_steps is None
    assert NPURunConfig(save_checkpoints_steps=7).save_checkpoints_steps == 7
    assert NPURunConfig(save_checkpoints_steps=0).save_checkpoints_steps == 0
    with pytest.raises(ValueError, match="cannot be both set"):
        NPURunConfig(save_checkpoints_steps=1, save_checkpoints_secs=1)


FORWARDED = {
    "model_dir": "folder",
    "tf_random_seed": 7,
    "save_summary_steps": 3,
    "save_checkpoints_steps": 11,
    "keep_checkpoint_max": 2,
    "keep_checkpoint_every_n_hours": 5,
    "log_step_count_steps": 13,
    "session_config": tf.ConfigProto(inter_op_parallelism_threads=3),
}


def test_what_run_config_keeps_is_forwarded():
    config = NPURunConfig(**FORWARDED)
    plain = tf.estimator.RunConfig(**FORWARDED)
    for name in FORWARDED:
        assert getattr(config, name) == getattr(plain, name) == FORWARDED[name]
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    config = NPURunConfig(train_distribute=strategy, eval_distribute=strategy)
    assert config.train_distribute is config.eval_distribute is strategy
    for wrong in ({"save_checkpoints_steps": -1}, {"save_checkpoints_secs": -1}, {"save_summary_steps": -1}):
        with pytest.raises(ValueError, match="should be >= 0"):
            NPURunConfig(**wrong)


@pytest.mark.parametrize(
    "name", ["device_fn", "protocol", "session_creation_timeout_secs", "evaluation_master", "experimental_distribute"]
)
def test_what_the_vendor_does_not_forward_is_no_argument(name):
    with pytest.raises(TypeError, match="no argument '%s'" % name):
        NPURunConfig(**{name: None})


def test_misspelt_argument_is_named_with_the_nearest():
    with pytest.raises(TypeError) as caught:
        NPURunConfig(precison_mode="allow_mix_precision", keep_checkpoints_max=1)
    assert str(caught.value) == (
        "npu_shim: NPURunConfig: no argument 'keep_checkpoints_max' (did you mean 'keep_checkpoint_max'?); "
        "no argument 'precison_mode' (did you mean 'precision_mode'?)"
    )


def test_precision_options_are_not_checked_here():
    config = NPURunConfig(precision_mode=True, precision_mode_v2="x", modify_mixlist=3, op_precision_mode="")
    assert config._precision_mode is True
    assert config._modify_mixlist == 3


PS = type("ParameterServerStrategyV1", (), {})()

WRONG = [
    ({"iterations_per_loop": "10"}, TypeError, "iterations_per_loop must be int, got <class 'str'>"),
    ({"iterations_per_loop": 1.0}, TypeError, "must be int"),
    ({"iterations_per_loop": 0}, ValueError, "must be positive, got 0"),
    ({"mix_compile_mode": 1}, TypeError, "mix_compile_mode must be bool"),
    ({"mix_compile_mode": True, "iterations_per_loop": 2}, ValueError, "needs iterations_per_loop=1, got 2"),
    ({"jit_compile": True}, TypeError, "Expected str .* got <class 'bool'>"),
    ({"jit_compile": None}, TypeError, "Expected str"),
    ({"distribute": PS}, ValueError, "the strategy only"),
    ({"dump_config": {"enable_dump": True}}, ValueError, "dump_config must be a DumpConfig, got <class 'dict'>"),
    ({"horovod_mode": 1}, ValueError, "horovod_mode must be bool"),
    ({"graph_run_mode": "1"}, TypeError, "graph_run_mode must be int"),
    ({"graph_run_mode": -1}, ValueError, "graph_run_mode must not be negative"),
    ({"graph_run_mode": 2}, ValueError, "graph_run_mode must be 0 or 1, got 2"),
    ({"enable_exception_dump": None}, TypeError, "enable_exception_dump must be int"),
    ({"enable_exception_dump": -1}, ValueError, "must not be negative"),
    ({"dynamic_input_config": "x"}, ValueError, "dynamic_input_config must be a DynamicInputConfig"),
    ({"experimental_config": DumpConfig()}, ValueError, "experimental_config must be a ExperimentalConfig"),
    ({"session_config": {}}, ValueError, "session_config must be instance of ConfigProto"),
    ({"model_dir": ""}, ValueError, "model_dir should be non-empty"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), WRONG)
def test_checks_of_the_constructor(arguments, error, message):
    with pytest.raises(error, match=message):
        NPURunConfig(**arguments)


def test_what_the_constructor_leaves_alone():
    config = NPURunConfig(enable_exception_dump=9, memory_config="x", profiling_config=3, graph_run_mode=0)
    assert (config.enable_exception_dump, config._memory_config, config._profiling_config) == (9, "x", 3)


def test_cluster_needs_strategy_and_mix_compile_mode(monkeypatch):
    cluster = {"cluster": {"chief": ["a:1"], "ps": ["b:1"]}, "task": {"type": "chief", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(cluster))
    with pytest.raises(ValueError, match="the cluster only"):
        NPURunConfig()
    with pytest.raises(ValueError, match="needs mix_compile_mode=True"):
        NPURunConfig(distribute=PS)


def test_workers_of_tf_config_are_ranks_and_no_cluster_of_servers(monkeypatch):
    cluster = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(cluster))
    config = NPURunConfig()
    assert (config.master, config.is_chief, config.num_worker_replicas) == ("", True, 1)
    assert json.loads(os.environ["TF_CONFIG"]) == cluster


def test_graph_memory_optimize_config():
    assert run_config.GraphMemoryOptimizeConfig("auto").recompute == "auto"
    with pytest.raises(ValueError, match=r"graph_slice must be .* got 'Auto' \(did you mean 'auto'\?\)"):
        run_config.GraphMemoryOptimizeConfig(graph_slice="Auto")


def test_replace_keeps_npu_attributes_and_takes_run_configs_only():
    config = NPURunConfig(precision_mode="force_fp16", iterations_per_loop=4, session_config=tf.ConfigProto())
    other = config.replace(model_dir="elsewhere")
    assert type(other) is NPURunConfig
    assert (other.model_dir, other._precision_mode, other.iterations_per_loop) == ("elsewhere", "force_fp16", 4)
    assert config.model_dir is None
    assert other.session_config is not config.session_config
    with pytest.raises(ValueError, match="precision_mode"):
        config.replace(precision_mode="force_fp32")


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda config: pickle.loads(pickle.dumps(config))])
def test_pickle_and_deepcopy(duplicate):
    session_config = tf.ConfigProto(inter_op_parallelism_threads=3)
    config = NPURunConfig(
        precision_mode="force_fp16",
        session_config=session_config,
        dump_config=DumpConfig(dump_step="0"),
        experimental_config=run_config.ExperimentalConfig(
            graph_memory_optimize_config=run_config.GraphMemoryOptimizeConfig("auto")
        ),
    )
    other = duplicate(config)
    assert other.session_config == session_config
    names = set(vars(config)) - {"_cluster_spec"}  # compares by identity
    assert {name: vars(other)[name] for name in names} == {name: vars(config)[name] for name in names}


def test_the_parts_have_the_vendors_signatures():
    expected = {
        run_config.ProfilingConfig: "enable_profiling=False, profiling_options=None",
        run_config.DumpConfig: "enable_dump=False, dump_path=None, dump_step=None, dump_mode='output', "
        "enable_dump_debug=False, dump_debug_mode='all', dump_data='tensor', dump_layer=None",
        run_config.GraphMemoryOptimizeConfig: "recompute=None, graph_slice=None",
    }
    for kind, text in expected.items():
        parameters = inspect.signature(kind).parameters.values()
        assert ", ".join("%s=%r" % (p.name, p.default) for p in parameters) == text
    assert [place.value for place in scopes.NpuExecutePlacement] == "all cube vector taishan dvpp host".split()  # noqa: SIM905


def test_every_source_of_the_table_exists():
    config = NPURunConfig(
        profiling_config=run_config.ProfilingConfig(),
        dump_config=DumpConfig(),
        memory_config=run_config.MemoryConfig(),
        dynamic_input_config=run_config.DynamicInputConfig("a", "b", 0),
        experimental_config=run_config.ExperimentalConfig(
            graph_memory_optimize_config=run_config.GraphMemoryOptimizeConfig()
        ),
    )
    sources = [option.source for option in options.options().values() if option.source]
    assert len(sources) > 20
    for source in sources:
        value = config
        for depth, name in enumerate(source.split(".")):
            value = getattr(value, "_" + name if depth == 0 else name)
