"""Compiled steps written as programs that run without TensorFlow, and what a graph costs when it is compiled."""

from npu_shim.export.functions import as_jax, write_jax
from npu_shim.export.step import checkpoint, export, state_roles

__all__ = ["as_jax", "checkpoint", "export", "state_roles", "write_jax"]
