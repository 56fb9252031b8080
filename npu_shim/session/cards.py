"""What a script is told, once, of a card of this machine on which it does not train, or whose memory is taken."""

from __future__ import annotations

import functools
import os
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.options import engine
from npu_shim.pjrt import driver
from npu_shim.session import lines

TAKEN = (
    "engine: a session that was made before has taken the GPU's memory, as its config has no allow_growth: set "
    "config.gpu_options.allow_growth = True there, or TF_FORCE_GPU_ALLOW_GROWTH=true"
)

_takers: set[bool] = set()  # whether a session was made that leaves no memory to others


def of_tensorflow(told: driver.Seen) -> str:
    """Says why TensorFlow does not train on the cards, "" where it does.

    Args:
        told: what the driver tells, of one card at least.
    """
    about: dict[str, Any] = getattr(tf.sysconfig, "get_build_info", dict)()
    built = about.get("cuda_compute_capabilities", ()) if about else None
    why = driver.why_not_tensorflow(told, tf.__version__, built)
    if why or tf.config.experimental.list_physical_devices("GPU"):
        return why
    return "TensorFlow %s sees no GPU: its log says why (TF_CPP_MIN_LOG_LEVEL=0)" % tf.__version__


@functools.lru_cache(maxsize=None)
def tell_of_engine(jax: driver.Jax) -> None:
    """Says why the engine's steps do not run on a card, where there is one.

    Args:
        jax: the engine's `driver.Jax`.
    """
    if jax.platform == "cpu" and driver.is_here() and not driver.are_hidden():
        told = driver.seen()
        why = driver.why_not_jax(told, jax) if told.cards else told.trouble
        lines.once("engine: steps run on the CPU: %s" % why)


@functools.lru_cache(maxsize=None)
def tell_of_session() -> None:
    """Says why steps run in sessions and not on a card, where there is one and no engine was asked for by name."""
    if not driver.is_here() or driver.are_hidden():
        return
    told = driver.seen()
    why = of_tensorflow(told) if told.cards else told.trouble
    if why:
        more = driver.why_not_jax(told, engine.jax_here()) if told.cards else ""
        lines.once("%s%s" % (why, "; " + more if more else ""))


def note(config: Any, in_session: bool) -> None:
    """Notes a session that is made; says so where one with the engine finds the memory of GPUs taken.

    Args:
        config: what it was given as its ConfigProto.
        in_session: whether TensorFlow runs its steps.
    """
    if not driver.is_here() or not tf.config.experimental.list_physical_devices("GPU"):
        return
    if not in_session and _takers:
        lines.once(TAKEN)
    grows = isinstance(config, tf.ConfigProto) and config.gpu_options.allow_growth
    if in_session and not grows and os.environ.get("TF_FORCE_GPU_ALLOW_GROWTH") != "true":
        _takers.add(True)
