"""The Estimator entrance: NPURunConfig and the small configs it takes.

Arguments, defaults and order come from the option table (`configs/options.json`), the checks from the Ascend adapter of
2023-12 (r1.15). Arguments of earlier and later releases are accepted too, so that old and new scripts run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import json
import os
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat import after_215
from npu_shim.distributed.job import description
from npu_shim.options import table
from npu_shim.options.entrances import config_proto
from npu_shim.rewriter.errors import nearest

# TensorFlow 2.16 and later have Estimator only with the package tensorflow-estimator; without it the import of this
# module still succeeds, and the class says what is missing when it is used
after_215.restore(tf)
_PARENT = getattr(getattr(tf, "estimator", None), "RunConfig", object)


@dataclasses.dataclass
class ProfilingConfig:
    """Profiling: `profiling_options` is JSON with the folder `output` and what is to be profiled."""

    enable_profiling: bool = False
    profiling_options: Any = None


@dataclasses.dataclass
class MemoryConfig:
    """Device memory policies; they have no meaning off the NPU."""

    atomic_clean_policy: int = 0
    static_memory_policy: int = 0
    memory_optimization_policy: Any = None
    variable_use_1g_huge_page: int = 0


@dataclasses.dataclass
class DumpConfig:
    """Tensors to write to `dump_path` (existing folder), at the steps of `dump_step` ("0|5|10-20")."""

    enable_dump: bool = False
    dump_path: Any = None
    dump_step: Any = None
    dump_mode: str = "output"
    enable_dump_debug: bool = False
    dump_debug_mode: str = "all"
    dump_data: str = "tensor"
    dump_layer: Any = None


@dataclasses.dataclass
class DynamicInputConfig:
    """Inputs whose shapes vary among the listed `dynamic_dims`; in TensorFlow they may vary freely."""

    input_shape: Any
    dynamic_dims: Any
    dynamic_node_type: Any
    compile_hybrid_mode: Any = None


@dataclasses.dataclass
class GraphMemoryOptimizeConfig:
    """Recomputation and slicing of the graph, each None, "auto" or "manual".

    Raises:
        ValueError: another value.
    """

    recompute: Any = None
    graph_slice: Any = None

    def __post_init__(self):
        for name in ("recompute", "graph_slice"):
            value = getattr(self, name)
            if value not in (None, "auto", "manual"):
                raise ValueError(
                    "npu_shim: GraphMemoryOptimizeConfig: %s must be 'auto' or 'manual', got %r%s"
                    % (name, value, nearest(value, ("auto", "manual")))
                )


@dataclasses.dataclass
class ExperimentalConfig:
    """Deployment over several devices, and faster first epochs (`accelerate_train_mode`)."""

    logical_device_cluster_deploy_mode: str = "LB"
    logical_device_id: Any = None
    model_deploy_mode: Any = None
    model_deploy_devicelist: Any = None
    graph_memory_optimize_config: Any = None
    enable_graph_parallel: Any = None
    graph_parallel_option_path: Any = None
    graph_compiler_cache_dir: Any = None
    resource_config_path: Any = None
    accelerate_train_mode: Any = None


@dataclasses.dataclass
class _Distribute:
    """The fields that RunConfig(experimental_distribute=...) reads in a cluster with parameter servers."""

    train_distribute: Any
    eval_distribute: Any
    remote_cluster: Any = None


@functools.lru_cache(maxsize=None)
def signature() -> inspect.Signature:
    """Returns NPURunConfig's signature, from the option table."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature(
        [
            inspect.Parameter(name, kind, default=option.run_config["default"])
            for name, option in table.options().items()
            if option.run_config is not None
        ]
    )


class _LazySignature:
    """Answers `inspect.signature(NPURunConfig)` without reading the table on import."""

    def __get__(self, instance, owner):
        return signature()


class NPURunConfig(_PARENT):
    """tf.estimator.RunConfig with every argument of every release of Ascend's NPURunConfig, see the option table.

    Two defaults differ from RunConfig's: no summaries, and a checkpoint every 100 steps. Of RunConfig's own arguments
    it takes only those in the table. Precision options are checked at the first run, as in the original; `check_config`
    checks them at once. Attributes of NPU options are private (`_precision_mode`) except where the original's are
    public. `replace` copies the NPU attributes and changes RunConfig's properties only.

    Raises:
        TypeError: an unknown argument, or an argument of the wrong type.
        ValueError: a value out of range, or a contradictory combination.
    """

    __signature__ = _LazySignature()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if _PARENT is object:
            raise after_215.without_estimator("NPURunConfig", tf)
        given = _bind(args, kwargs)
        _check(given)
        rows = table.options()
        parent = {name: given[name] for name in given if rows[name].run_config.get("parent")}
        if given["save_checkpoints_steps"] is None and given["save_checkpoints_secs"] is None:
            parent["save_checkpoints_steps"] = 100
        if given["distribute"] is not None:
            parent["experimental_distribute"] = _Distribute(given["distribute"], given["distribute"])
        with _without_workers_of_ours():
            super().__init__(**parent)
        for name in given:
            if name not in parent:
                setattr(self, attribute(name), given[name])


def attribute(name: str) -> str:
    """Returns the name of the attribute in which an NPURunConfig keeps one of its own options: `name` or `_name`."""
    return name if table.options()[name].run_config.get("public") else "_" + name


def _bind(args, kwargs):
    """Returns every argument with its value, defaults included."""
    known = signature().parameters
    unknown = sorted(set(kwargs) - set(known))
    if unknown:
        raise TypeError(
            "npu_shim: NPURunConfig: " + "; ".join("no argument '%s'%s" % (u, nearest(u, known)) for u in unknown)
        )
    bound = signature().bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


def _require(condition, error, message, *words):
    if not condition:
        raise error("npu_shim: NPURunConfig: " + message % words)


def _check(given):
    """Performs the checks of the original's constructor, in its order."""
    loop = given["iterations_per_loop"]
    _require(isinstance(loop, int), TypeError, "iterations_per_loop must be int, got %s", type(loop))
    _require(loop > 0, ValueError, "iterations_per_loop must be positive, got %d", loop)
    mixed = given["mix_compile_mode"]
    _require(isinstance(mixed, bool), TypeError, "mix_compile_mode must be bool, got %s", type(mixed))
    _require(not mixed or loop == 1, ValueError, "mix_compile_mode needs iterations_per_loop=1, got %d", loop)
    jit = given["jit_compile"]
    _require(isinstance(jit, str), TypeError, "jit_compile: Expected str ('true', 'false', 'auto'), got %s", type(jit))
    _check_parameter_servers(given["distribute"], mixed)
    _check_parts(given)
    horovod = given["horovod_mode"]
    _require(isinstance(horovod, bool), ValueError, "horovod_mode must be bool, got %s", type(horovod))
    for name in ("graph_run_mode", "enable_exception_dump"):
        value = given[name]
        _require(isinstance(value, int), TypeError, "%s must be int, got %s", name, type(value))
        _require(value >= 0, ValueError, "%s must not be negative, got %d", name, value)
    _require(given["graph_run_mode"] <= 1, ValueError, "graph_run_mode must be 0 or 1, got %d", given["graph_run_mode"])


def _check_parts(given):
    # memory_config and profiling_config are not checked: the original takes any object with the right attributes
    parts = {
        "dump_config": DumpConfig,
        "dynamic_input_config": DynamicInputConfig,
        "experimental_config": ExperimentalConfig,
    }
    for name, kind in parts.items():
        value = given[name]
        expected = value is None or isinstance(value, kind)
        _require(expected, ValueError, "%s must be a %s, got %s", name, kind.__name__, type(value))


def _check_parameter_servers(distribute, mix_compile_mode):
    ours = description.of_tf_config(os.environ) is not None
    cluster = not ours and bool(json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster"))
    servers = type(distribute).__name__.startswith("ParameterServerStrategy")
    _require(
        cluster == servers,
        ValueError,
        "a cluster in TF_CONFIG and distribute=ParameterServerStrategy(...) must both be set or neither, got %s",
        "the cluster only" if cluster else "the strategy only",
    )
    _require(not cluster or mix_compile_mode, ValueError, "a cluster in TF_CONFIG needs mix_compile_mode=True")


@contextlib.contextmanager
def _without_workers_of_ours():
    """Scope in which RunConfig sees no workers of TF_CONFIG that are ranks: it would give their sessions a server."""
    hidden = os.environ.pop("TF_CONFIG") if description.of_tf_config(os.environ) is not None else None
    try:
        yield
    finally:
        if hidden is not None:
            os.environ["TF_CONFIG"] = hidden


def session_config_of(config: NPURunConfig) -> tf.ConfigProto:
    """Returns a new ConfigProto: an NPURunConfig's session_config with the config's options in one NpuOptimizer entry.

    Raises:
        TypeError: an option whose value its parameter_map field cannot hold.
    """
    proto = tf.ConfigProto(allow_soft_placement=True)
    if config.session_config is not None:
        proto.CopyFrom(config.session_config)
    entry = config_proto.merge_entries(proto)
    if entry is None:
        entry = proto.graph_options.rewrite_options.custom_optimizers.add()
        entry.name = config_proto.OPTIMIZER
    already = set(entry.parameter_map)
    values = values_of(config)
    config_proto.write(entry, {name: values[name] for name in values if name not in already or _is_given(config, name)})
    return proto


def values_of(config: NPURunConfig) -> dict[str, Any]:
    """Returns the options that the original writes for an NPURunConfig: dict of parameter_map key to Python value.

    Some keys are always written, the others only if their value is not None: precision_mode="" is written, and refused
    at the first run.
    """
    values = {}
    for name, option in table.parameter_keys().items():
        value = _value_of(config, option)
        if value is None and option.write == "always":
            value = option.default
        if value is not None:
            values[name] = value
    return values


def _value_of(config, option):
    if option.source is None:
        return getattr(config, attribute(option.name)) if option.run_config is not None else None
    first, *inner = option.source.split(".")
    value = getattr(config, attribute(first))
    for name in inner:
        value = getattr(value, name, None)
    return value


def _is_given(config, name):
    """Whether the user gave an option to NPURunConfig: its value differs from the default."""
    option = table.options()[name]
    if option.source is not None:
        return _value_of(config, option) is not None
    return option.run_config is not None and _value_of(config, option) != option.run_config["default"]
