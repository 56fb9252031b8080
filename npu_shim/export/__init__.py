"""Compiled steps written as programs that run without TensorFlow, and what a graph costs when it is compiled."""

from npu_shim.export.description import state_roles
from npu_shim.export.functions import as_jax, write_jax
from npu_shim.export.step import checkpoint, export

__all__ = ["as_jax", "checkpoint", "export", "state_roles", "write_jax"]
