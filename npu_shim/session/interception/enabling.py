"""The switch: every session of the process goes through NpuOptimizer, whatever its config says.

`npu_shim.enable` turns it on, and so does `npu-shim run` where something is asked of it. A session whose config names
NpuOptimizer keeps its own options where nothing else is asked; another one gets an entry in a copy of its config, so
that its graphs reach the rewriter. TensorFlow's own requests for mixed precision are read as NVIDIA's TensorFlow 1
reads them, and answered by our rewriter.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.behaviour import strategies
from npu_shim.loss_scale import automatic, masters
from npu_shim.options import devices, engine, table
from npu_shim.options.entrances import config_proto, forced
from npu_shim.options.precision import policy_of
from npu_shim.options.reports import doors, ledger
from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.errors import ConfigError, nearest
from npu_shim.rewriter.tables.dtypes import FLOAT16
from npu_shim.rewriter.tables.policy import Action
from npu_shim.session.interception import session_options

# the script knows no NPU: its ops run in every dtype, and nothing is lowered unless a mode is asked for
PLAIN = {"npu_shim_profile": "gpu", "precision_mode": session_options.UNCHANGED}
# TensorFlow's own request -> what it means: its lists and its rule; those have no bfloat16, ours do
_FLOAT16 = {"npu_shim_profile": "grappler", "precision_mode": "allow_mix_precision"}
_BFLOAT16 = {"npu_shim_profile": "gpu", "precision_mode": "allow_mix_precision_bf16"}
FIELDS = {
    "auto_mixed_precision": _FLOAT16,
    "auto_mixed_precision_cpu": _FLOAT16,
    "auto_mixed_precision_mkl": _BFLOAT16,
    "auto_mixed_precision_onednn_bfloat16": _BFLOAT16,
}
# environment variables of NVIDIA's TensorFlow 1 containers: the first asks for both others, which go before it
NVIDIA = "TF_ENABLE_AUTO_MIXED_PRECISION"
NVIDIA_REWRITE, NVIDIA_SCALE = NVIDIA + "_GRAPH_REWRITE", NVIDIA + "_LOSS_SCALING"
MASTERS = "NPU_SHIM_MASTER_WEIGHTS"  # environment variable: "1" gives 16-bit variables float32 masters
SCALE = "npu_shim.enable: loss_scale"
TRUE = ("1", "true", "yes", "on")

_lock = threading.RLock()
_every_session = False  # whether sessions whose config names no NpuOptimizer get one
_reads_requests = False  # whether TensorFlow's own requests are answered by our rewriter


def enable(
    precision_mode: str | None = None,
    loss_scale: Any = "auto",
    engine: str | None = None,
    master_weights: bool = False,
    devices: int | str | None = None,
    **options: Any,
) -> None:
    """Turns mixed precision, or an engine, on for every session that this process makes from now on.

    One line at the top of a TensorFlow 1 script, before its graph is built:

        npu_shim.enable(precision_mode="auto")

    A second call replaces the first. What `npu-shim run` and NPU_SHIM_OPTIONS ask for goes before it. A session whose
    config names NpuOptimizer keeps its own options where this is silent; without a mode, other sessions run as written.

    Args:
        precision_mode: a mode of precision_mode or precision_mode_v2, or "auto": bfloat16 where the device has it, else
            float16.
        loss_scale: what is done for optimizers of scripts that do not scale losses themselves, in modes with float16:
            "auto" scales them dynamically, a number by that factor, "off" or None leaves them alone.
        engine: what runs training steps: "auto", "session" or "pjrt"; None: as NPU_SHIM_ENGINE says.
        master_weights: whether float16 and bfloat16 variables of the script get float32 masters, which its optimizers
            update in their place.
        devices: on how many of this machine's devices the engine runs each training step, a number or "all"; None: as
            NPU_SHIM_DEVICES says.
        **options: as in NpuOptimizer's parameter_map; our own may omit their prefix (`profile`, `xla`).

    Raises:
        ConfigError: nothing is asked for; a mode, a scale, an engine, a number of devices or an option that is none;
            eager execution is on.
    """
    values = _checked(precision_mode, engine, devices, options)
    scale = forced.checked_scale(loss_scale, "enable: loss_scale")
    if not isinstance(master_weights, bool):
        raise ConfigError("enable: master_weights is %r, expected True or False" % (master_weights,))
    if not (values or master_weights):
        raise ConfigError("enable needs something to turn on: a precision_mode, an engine or another option")
    if tf.executing_eagerly():
        raise ConfigError(
            "enable is for TensorFlow 1 graphs and sessions, and eager execution is on: call "
            "tf.compat.v1.disable_eager_execution() first, or leave enable out"
        )
    from npu_shim.session.interception import patch  # which asks here about each session

    with _lock:
        patch.activate()
        forced.enable(values)
        if values:
            turn_on(scale)
        masters.install(master_weights or masters_wanted())
        for name, value, door in _doors(values, loss_scale):
            ledger.ask(name, value, door)


def disable() -> None:
    """Takes `enable` back: sessions made from now on are as their configs say; does nothing where it is not on."""
    global _every_session
    with _lock:
        for name, _, _ in _doors(forced.enabled(), "auto"):
            ledger.take_back(name)
        ledger.take_back(SCALE)
        forced.enable({})
        if _every_session:
            automatic.uninstall()
        masters.uninstall()
        _every_session = False


def _doors(values, scale):
    """What `enable` asks for: (name, word, key of `doors.DOORS`) each."""
    asked = [("npu_shim.enable: " + name, value, doors.of_option(name, value)) for name, value in values.items()]
    named = [] if scale in (None, "auto", "off") else [(SCALE, scale, "scale")]
    return [(name, value, door) for name, value, door in asked if door is not None] + named


def turn_on(scale: str | float | None = "auto") -> None:
    """Routes the graphs of every new session through NpuOptimizer; `scale` is as `forced.checked_scale` returns it."""
    global _every_session
    with _lock:
        automatic.install(scale, lowers_to_float16)
        strategies.ask(lambda: devices.of(forced.asked()) != 1)
        _every_session = True


def is_on() -> bool:
    """Whether this process is one of `npu-shim run`, or `enable` is on."""
    return _reads_requests or _every_session


def begin_run(every: bool, scale: str | float | None = "auto") -> None:
    """Begins a process of `npu-shim run`.

    Args:
        every: whether something is asked of every session.
        scale: as `forced.checked_scale` returns it.
    """
    from npu_shim.session.interception import patch

    patch.activate()
    read_requests()
    if every:
        turn_on(scale)
    masters.install(masters_wanted())


def masters_wanted() -> bool:
    """Whether the command line, or the environment, asks for float32 masters of 16-bit variables."""
    return os.environ.get(MASTERS) == "1"


def read_requests() -> None:
    """Answers TensorFlow's own requests for mixed precision, in configs and environment, from now on."""
    global _reads_requests
    with _lock:
        _reads_requests = True
        automatic.count_tensorflows()
        if _nvidia_asks(NVIDIA_SCALE):
            automatic.install("auto", lowers_to_float16)


def lowers_to_float16() -> bool:
    """Whether what is asked for outside of the script lets sessions train in float16."""
    values = session_options.with_forced({})
    if not any(values.get(name) for name in table.PRECISION_MODES):
        return _reads_requests and _nvidia_asks(NVIDIA_REWRITE)
    policy = policy_of(table.completed(values))
    return policy.low == FLOAT16 and Action.LOWER in (policy.white, policy.cube)  # rounded inputs alone are float32


def completed(config: tf.ConfigProto | None, graph: tf.Graph | None = None) -> tf.ConfigProto | None:
    """Returns the config of a new session, with an NpuOptimizer entry where one is asked for outside of the script.

    Args:
        config: what the script gave; it is not changed.
        graph: the session's, None for the default one.

    Raises:
        ConfigError: NPU_SHIM_OPTIONS cannot be read.
    """
    if config is not None and not isinstance(config, tf.ConfigProto):
        return config  # TensorFlow has an error of its own for it
    if config is not None and config_proto.find_npu_optimizer(config) is not None:
        return config
    request, values = _requested(config or tf.ConfigProto()) if _reads_requests else ("", None)
    if values is None or any(name in forced.asked() for name in table.PRECISION_MODES):
        values = PLAIN if _every_session else None
    elif values is _FLOAT16 and not automatic.is_installed():
        automatic.tell_of_request(graph or tf.get_default_graph(), request)
    return config if values is None else config_proto.added(config, values)


def _requested(config):
    """Returns what asks for mixed precision, in a config or else the process, and the option values that it means.

    The values are None where nothing asks.
    """
    rewrite = config.graph_options.rewrite_options
    for field in config_proto.own_fields(config):
        if getattr(rewrite, field) not in (rewrite.DEFAULT, rewrite.OFF):
            return "rewrite_options." + field, FIELDS[field]
    refused = rewrite.auto_mixed_precision == rewrite.OFF
    asked = tf_internals.is_mixed_precision_rewrite_on() or _nvidia_asks(NVIDIA_REWRITE)
    return NVIDIA_REWRITE, FIELDS["auto_mixed_precision"] if asked and not refused else None


def _nvidia_asks(variable):
    """Whether the environment asks for one of the two parts of NVIDIA's automatic mixed precision."""
    return os.environ.get(variable, os.environ.get(NVIDIA, "")).lower() in TRUE


def _checked(mode, engine_word, device_count, options):
    """Returns the option values of `enable`'s arguments."""
    values = table.of_keywords(options)
    if mode is not None:
        values.update(forced.of_mode(mode, "enable: precision_mode"))
    if engine_word is not None:
        values[engine.KEY] = engine.checked(engine_word, "enable: engine")
    if device_count is not None:
        values[devices.KEY] = str(devices.checked(device_count, "enable: devices"))
        if engine_word == "session" and values[devices.KEY] != "1":
            raise ConfigError("enable: devices is %r, and needs the engine: leave engine='session' out" % device_count)
    known = table.parameter_keys()
    unknown = [name for name in values if name not in known]
    if unknown:
        raise ConfigError(*("enable: '%s' is not a key of a parameter_map%s" % (n, nearest(n, known)) for n in unknown))
    try:
        config_proto.with_values(tf.ConfigProto(), values)
    except TypeError as reason:
        raise ConfigError("enable: %s" % str(reason).replace("npu_shim: ", "")) from reason
    given = {name: value for name, value in values.items() if value != forced.AUTO}
    problems = [problem for name, value in given.items() for problem in table.value_problems(known[name], value)]
    if problems:
        raise ConfigError(*("enable: %s" % problem for problem in problems))
    return {name: os.path.abspath(value) if name in forced.FILES else value for name, value in values.items()}
