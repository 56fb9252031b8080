"""The kernels of this TensorFlow, in the form that the planner reads."""

import functools
from typing import Any, Dict, Tuple

from .. import tf_internals
from ..graph.kernel_table import ANY_DEVICE, Kernel


@functools.lru_cache(maxsize=None)
def registered_kernels() -> Dict[str, Tuple[Kernel, ...]]:
    """The kernels of this TensorFlow: op type -> tuple of Kernel."""
    return {op: tuple(map(_kernel, registered)) for op, registered in tf_internals.kernels().items()}


@functools.lru_cache(maxsize=None)
def xla_kernels() -> Dict[str, Tuple[Kernel, ...]]:
    """XLA's kernels, the same in every wheel of a TensorFlow: op type -> tuple of Kernel, for any device."""
    xla_kernels = {}
    for op, registered in tf_internals.xla_kernels().items():
        xla_kernels[op] = tuple(Kernel(ANY_DEVICE, _kernel(kernel).constraints) for kernel in registered)
    return xla_kernels


def _kernel(proto: Any) -> Kernel:
    """A registration's device and dtype constraints; constraints on other attributes do not concern a slot."""
    typed = ((constraint.name, frozenset(constraint.allowed_values.list.type)) for constraint in proto.constraint)
    return Kernel(proto.device_type, tuple((attr, dtypes) for attr, dtypes in typed if dtypes))
