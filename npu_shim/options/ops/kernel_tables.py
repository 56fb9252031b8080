"""The kernels that run an op: a device's, or XLA's where a step is compiled as a whole.

    CPU, GPU  the kernels that this TensorFlow has. A wheel without GPU kernels plans for a GPU with the table that is
              shipped for its version (configs/gpu_kernels, written by scripts/gpu_kernels.py)
    XLA       what XLA compiles: the same in every wheel, and for every device; TensorFlow 1 has no such kernels, and
              GPUs' stand for them

A session's clusters are planned with their device's kernels: an op that TensorFlow leaves out of a cluster runs by
itself, and TensorFlow leaves out every op for which XLA has no kernel.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim import configs
from npu_shim.rewriter.errors import one_of
from npu_shim.rewriter.graph.kernel_table import ANY_DEVICE, Kernel, KernelTable, of_rows
from npu_shim.rewriter.graphdef import registry
from npu_shim.rewriter.tables.slow_kernels import SLOW
from npu_shim.step import op_names

DEVICES = ("CPU", "GPU", "XLA")
FOLDER = "gpu_kernels"  # one file a TensorFlow version: 1.15.json, 2.15.json, ...

# ops that XLA never sees: in a compiled step, loops and conditionals of any dtype become functional first
CONTROL_FLOW = ("Enter", "Exit", "Merge", "NextIteration", "Switch")


@functools.lru_cache(maxsize=None)
def of(device: str) -> KernelTable:
    """Returns the KernelTable of "CPU" or "GPU", which hold for nodes that name no device, or of "XLA".

    Raises:
        ConfigError: another device.
    """
    if one_of(device, DEVICES, "device") == "XLA":
        if not compiles_steps():
            return _interpreted()
        return KernelTable({**registry.xla_kernels(), **{op: (Kernel(ANY_DEVICE),) for op in CONTROL_FLOW}}, device)
    return KernelTable(_shipped_gpu_or_own(), device, SLOW)


def compiles_steps() -> bool:
    """Whether this TensorFlow can compile a step as a whole: compile_step, export, engine pjrt."""
    return not tf.__version__.startswith("1.")


def _interpreted() -> KernelTable:
    """What stands for XLA's kernels where a TensorFlow has none: the interpreter computes what GPUs do."""
    kernels = _shipped_gpu_or_own()
    return KernelTable({op: kernels.get(op) or (Kernel(ANY_DEVICE),) for op in op_names.NAMES}, "GPU")


def has_gpu_kernels() -> bool:
    """Whether this TensorFlow has kernels for GPUs; a CPU wheel registers only a few, with tensors on the host."""
    return any(kernel.device == "GPU" for kernel in registry.registered_kernels().get("MatMul", ()))


@functools.lru_cache(maxsize=None)
def _shipped_gpu_or_own() -> Any:
    own = registry.registered_kernels()
    if has_gpu_kernels():
        return own
    shipped = of_gpu(tf.__version__)
    return {
        op: tuple(kernel for kernel in own.get(op, ()) if kernel.device != "GPU") + shipped.get(op, ())
        for op in {**own, **shipped}
    }


def of_gpu(version: str) -> dict[str, tuple[Kernel, ...]]:
    """Returns the shipped kernels of GPUs: op type -> tuple of Kernel.

    Args:
        version: TensorFlow's, such as "2.15.1". The table is of the newest shipped version that is not newer, else of
            the oldest.
    """
    files = [name for name in os.listdir(configs.folder(FOLDER)) if name.endswith(".json")]
    shipped = sorted((_parse_version(name), name) for name in files)
    older = [name for number, name in shipped if number <= _parse_version(version)]
    rows = configs.load(FOLDER, older[-1] if older else shipped[0][1])["kernels"]
    return {op: of_rows(op_rows, "GPU") for op, op_rows in rows.items()}


def _parse_version(version: str) -> tuple[int, int]:
    """(2, 15) of "2.15.1" or "2.15.json"."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)
