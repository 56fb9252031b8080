"""tensorflow.examples.tutorials, of which there is mnist.input_data."""

from __future__ import annotations

from npu_shim.compat.modules import mnist as input_data

__all__ = ["input_data"]
# scripts import its inner modules by name
__path__: list[str] = []
