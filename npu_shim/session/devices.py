"""What the devices of this process compute in, and graphs that name devices that it does not have."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.session import lines

FIRST_WITH_BFLOAT16 = (8, 0)  # CUDA compute capability, Ampere's; source: NVIDIA's CUDA programming guide
FLOAT16, BFLOAT16 = "allow_mix_precision", "allow_mix_precision_bf16"
_SOFTENED = "_npu_shim_softened"  # attribute of a session that has run nothing yet: its config was changed


@functools.lru_cache(maxsize=None)
def has_gpu() -> bool:
    """Whether TensorFlow has a GPU in this process."""
    return bool(tf.config.experimental.list_physical_devices("GPU"))


def accelerator() -> str:
    """Device type that training runs on: "GPU" if TensorFlow sees one, else "CPU"."""
    return "GPU" if has_gpu() else "CPU"


def softened(config: tf.ConfigProto | None) -> tf.ConfigProto | None:
    """Returns a session's config with which graphs that name GPUs run on the CPU where TensorFlow has no GPU.

    Such a graph is an error in plain TensorFlow unless its script asks for soft placement. Here the engine may have
    the GPU that TensorFlow does not know, and a script can be tried without one.
    """
    is_config = config is None or isinstance(config, tf.ConfigProto)  # TensorFlow has an error of its own for others
    if not is_config or (config and config.allow_soft_placement) or has_gpu():
        return config
    soft = tf.ConfigProto()
    soft.CopyFrom(tf_internals.default_config() if config is None else config)
    soft.allow_soft_placement = True
    return soft


def keep(session: Any) -> None:
    """Notes that the config of a session was softened."""
    setattr(session, _SOFTENED, True)


def tell_of_placement(session: Any) -> None:
    """Logs, before the first run of a session with a softened config, that its graph names GPUs."""
    if not vars(session).pop(_SOFTENED, False):
        return
    named = next((op for op in session.graph.get_operations() if ":gpu:" in op.device.lower()), None)
    if named is not None:
        lines.once(
            "TensorFlow has no GPU here, and the graph places ops on one ('%s' on %s): in the session they run on the "
            "CPU" % (named.name, named.device)
        )


@functools.lru_cache(maxsize=None)
def mixed_mode() -> str:
    """Returns the precision_mode that `auto` stands for: bfloat16 where every GPU has it, else float16.

    On CPUs it is bfloat16, which needs no loss scale. TensorFlow 1 has no bfloat16 on GPUs.
    """
    gpus = tf.config.experimental.list_physical_devices("GPU")
    return BFLOAT16 if all(map(_has_bfloat16, gpus)) else FLOAT16


def _has_bfloat16(gpu):
    if not hasattr(tf.config.experimental, "get_device_details"):  # TensorFlow 1
        return False
    capability = tf.config.experimental.get_device_details(gpu).get("compute_capability")
    return capability is not None and tuple(capability) >= FIRST_WITH_BFLOAT16
