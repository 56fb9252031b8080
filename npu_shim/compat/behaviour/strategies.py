"""Has tf.distribute's mirrored strategies do without collectives between devices that TensorFlow does not have.

    MirroredStrategy(["/gpu:0", "/gpu:1"]), no GPU here -> two replicas in one graph, gradients reduced on one device
    MirroredStrategy(), the engine has N devices        -> one replica, whose steps the engine divides

TensorFlow 2 lets a session wait for NCCL wherever all devices are called GPUs, and without these it waits for ever;
TensorFlow 1.15 asks what is there first. On the engine such a collective would divide a step into programs as well.
"""

from __future__ import annotations

import functools
import logging
import os
from typing import Any, Callable, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals

LOG = logging.getLogger("npu_shim")
DEVICES = "NPU_SHIM_DEVICES"  # options.devices, a layer above, says what it may be
_INSTALLED: list[bool] = []
_ASKED: list[Callable[[], bool]] = []


def install() -> None:
    """Strategies made from now on are so; a second call does nothing."""
    if not _INSTALLED:
        _INSTALLED.append(True)
        extended = tf_internals.python_module("distribute.mirrored_strategy").MirroredExtended
        extended.__init__ = _guarded(extended.__init__)


def engine_divides() -> bool:
    """Whether the engine runs each training step of this process on several devices."""
    return _ASKED[-1]() if _ASKED else os.environ.get(DEVICES, "1") not in ("", "1")


def ask(divides: Callable[[], bool]) -> None:
    """Has `engine_divides` ask a layer above, which knows options beside the environment's variable."""
    _ASKED[:] = [divides]


def _guarded(original: Any) -> Any:
    @functools.wraps(original)
    def init(self: Any, container_strategy: Any, devices: Any = None, cross_device_ops: Any = None) -> None:
        gpus = len(tf.config.experimental.list_physical_devices("GPU"))
        if devices is None and engine_divides():
            devices = ["/gpu:0" if gpus else "/cpu:0"]
        elif devices is not None and (gpus < _gpus_among(devices) or engine_divides()):
            cross_device_ops = cross_device_ops or tf.distribute.ReductionToOneDevice()
            _tell(len(devices))
        original(self, container_strategy, devices=devices, cross_device_ops=cross_device_ops)

    return init


def _gpus_among(devices: Sequence[str]) -> int:
    return sum("gpu" in device.lower() for device in devices)


def _tell(count: int) -> None:
    if count > 1:
        LOG.info(
            "npu_shim: MirroredStrategy names %d devices: a step has as many replicas, each with a batch and a copy of "
            "the variables of its own. MirroredStrategy() has one, which `npu-shim run --devices N` divides",
            count,
        )
