"""Which engine runs a session's training steps: TensorFlow's own ("session") or PJRT ("pjrt"). No TensorFlow."""

import functools
import importlib.util
import os
from typing import Any, Mapping

from npu_shim.rewriter.errors import ConfigError, nearest

ENGINES = ("auto", "session", "pjrt")
OLDEST = (2, 15)  # release of TensorFlow that gives XLA's programs away
KEY, VARIABLE = "npu_shim_engine", "NPU_SHIM_ENGINE"
GPU_PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin", "jax_rocm60_plugin", "jax_rocm7_plugin")


def wanted(values: Mapping[str, Any]) -> str:
    """Returns "session" or "pjrt": what is asked for, or, for "auto", PJRT where JAX sees a GPU.

    Args:
        values: option values; `npu_shim_engine` wins over the environment's NPU_SHIM_ENGINE.

    Raises:
        ConfigError: another word in the environment. Of a wrong value of the option the session's first run tells, as
            of every option's; until then the engine is TensorFlow's.
    """
    asked = values.get(KEY)
    if asked and asked not in ENGINES:
        return "session"
    word = checked(asked or os.environ.get(VARIABLE) or "auto", VARIABLE)
    if word != "auto":
        return word
    return "pjrt" if _sees_gpu() else "session"


def checked(word: Any, what: str) -> str:
    """Returns a word that is one of ENGINES. Raises ConfigError for another; `what` is where it stands."""
    if word not in ENGINES:
        expected = ", ".join(ENGINES) + nearest(str(word), ENGINES)
        raise ConfigError("%s is '%s', expected one of %s" % (what, word, expected))
    return str(word)


def require(tensorflow: str) -> None:
    """Raises ConfigError where PJRT cannot run steps; `tensorflow` is the release that is here."""
    if tuple(map(int, tensorflow.split(".")[:2])) < OLDEST:
        found = (*OLDEST, tensorflow)
        raise ConfigError("engine 'pjrt' needs TensorFlow %d.%d or later, this is %s" % found)
    if importlib.util.find_spec("jax") is None:
        raise ConfigError("engine 'pjrt' needs JAX beside TensorFlow: pip install 'npu-shim[cpu-tf221,pjrt]'")


@functools.lru_cache(maxsize=None)
def _sees_gpu() -> bool:
    """Whether JAX is here with a plugin for GPUs and finds one; JAX is imported only where there is a plugin."""
    if importlib.util.find_spec("jax") is None or not any(map(importlib.util.find_spec, GPU_PLUGINS)):
        return False
    try:
        import jax

        return any(device.platform == "gpu" for device in jax.devices())
    except (ImportError, RuntimeError):
        return False
