"""Which engine runs a session's training steps: TensorFlow's own ("session") or PJRT ("pjrt"). No TensorFlow."""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
from typing import Any, Mapping

from npu_shim.configs import extras
from npu_shim.options import devices
from npu_shim.options.reports import ledger
from npu_shim.pjrt import driver, other_python
from npu_shim.rewriter.errors import ConfigError, one_of

ENGINES = ("auto", "session", "pjrt")
KEY, VARIABLE = "npu_shim_engine", "NPU_SHIM_ENGINE"
RANKS, WAYS = "NPU_SHIM_RANKS", ("together", "apart")  # environment variable: how ranks run a step; the default first
JAX = "NPU_SHIM_JAX"  # environment variable: an interpreter with JAX
SEES = 120  # seconds for another interpreter to say what JAX sees
GPU_PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin", "jax_rocm60_plugin", "jax_rocm7_plugin")


def wanted(values: Mapping[str, Any]) -> str:
    """Returns "session" or "pjrt": what is asked for, or, for "auto", PJRT where JAX sees a GPU.

    Several devices ask for PJRT too.

    Args:
        values: option values; `npu_shim_engine` wins over the environment's NPU_SHIM_ENGINE.

    Raises:
        ConfigError: another word in the environment, or a number of devices that is none. Of a wrong value of the
            engine's option the session's first run tells, as of every option's; until then the engine is TensorFlow's.
    """
    word = asked(values)
    if not values.get(KEY):
        ledger.note(ledger.FREE_SESSION)
        if word == "pjrt" and ledger.VARIABLE not in os.environ:  # else the command that named it has asked
            ledger.ask(VARIABLE, word, "engine")
    if is_demanded(values):
        return "session" if word == "session" else "pjrt"
    return "pjrt" if _sees_gpu() else "session"


def is_demanded(values: Mapping[str, Any]) -> bool:
    """Whether an engine is asked for by name, or by a number of devices; as `wanted`."""
    return devices.of(values) != 1 or asked(values) != "auto"


def asked(values: Mapping[str, Any]) -> str:
    """Returns the word that stands in option values or in the environment; as `wanted`."""
    word = values.get(KEY)
    if word and word not in ENGINES:
        return "session"
    return checked(word or os.environ.get(VARIABLE) or "auto", VARIABLE)


def checked(word: Any, what: str) -> str:
    """Returns a word that is one of ENGINES. Raises ConfigError for another; `what` is where it stands."""
    return one_of(word, ENGINES, what)


def ranks_meet_inside() -> bool:
    """Whether ranks shall meet inside of programs; ConfigError for a word that is none of WAYS."""
    return one_of(os.environ.get(RANKS) or WAYS[0], WAYS, RANKS) == "together"


def require() -> None:
    """Raises ConfigError where PJRT cannot run steps."""
    require_jax("engine 'pjrt'")


def require_jax(what: str) -> None:
    """Raises ConfigError where JAX is neither here nor in a named interpreter; `what` is who needs it."""
    if not has_jax() and interpreter() is None:
        raise ConfigError(
            "%s needs JAX: beside TensorFlow (%s), or elsewhere: npu-shim engine install, or %s=PYTHON of an "
            "environment with it" % (what, extras.pip_install("cpu-tf221,pjrt"), JAX)
        )


def has_jax() -> bool:
    """Whether JAX is in this interpreter's environment, so that the engine needs no worker."""
    return importlib.util.find_spec("jax") is not None


def interpreter() -> str | None:
    """Returns the Python with JAX for what this one lacks: $NPU_SHIM_JAX, or `npu-shim engine install`'s, or None."""
    installed = os.path.join(installation(), "bin", "python")
    return os.environ.get(JAX) or (installed if os.path.exists(installed) else None)


def installation() -> str:
    """Returns the folder of `npu-shim engine install`'s environment; it need not exist."""
    base = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    return os.path.join(base, "npu_shim", "engine")


def nvidia_here() -> bool:
    """Whether this machine has an NVIDIA GPU."""
    return driver.is_here()


@functools.lru_cache(maxsize=None)
def jax_here() -> driver.Jax | None:
    """What JAX is here or in the named interpreter, and sees; None where there is none, or it cannot be asked."""
    if not has_jax():
        other = interpreter()
        words = [] if other is None else _platform(other).split()
        return driver.Jax(words[1] if words[1:] else "", words[0], str(other)) if words else None
    try:
        import jax

        platforms = [device.platform for device in jax.devices()]
    except (ImportError, RuntimeError):
        return None
    return driver.Jax(driver.kind_of_jax(), "gpu" if "gpu" in platforms else platforms[0])


def _sees_gpu() -> bool:
    """Whether JAX is here or in the named interpreter and finds a GPU; neither is started where there can be none."""
    may = any(map(importlib.util.find_spec, GPU_PLUGINS)) if has_jax() else interpreter() is not None and nvidia_here()
    jax = jax_here() if may else None
    return jax is not None and jax.platform == "gpu"


def _platform(python: str) -> str:
    """Returns the platform of another interpreter's JAX and its kind, if it has one; "" where it cannot be asked."""
    own, plugins = other_python.environment(), driver.PLUGINS
    code = "import sys; sys.path[:1] = []; import importlib.util, jax; print(jax.devices()[0].platform, *["
    code += "kind for name, kind in %r.items() if importlib.util.find_spec(name)][:1])" % plugins
    try:
        asked = subprocess.run(
            [python, "-c", code], env=own, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=SEES, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return asked.stdout.decode(errors="replace").strip()
