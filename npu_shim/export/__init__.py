"""Compiled steps written as programs that run without TensorFlow, and what a graph costs when it is compiled."""

from npu_shim.export.step import export

__all__ = ["export"]
