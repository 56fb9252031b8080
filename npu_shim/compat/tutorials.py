"""tensorflow.examples.tutorials, of which there is mnist.input_data."""

from npu_shim.compat import mnist as input_data

__all__ = ["input_data"]
# scripts import its inner modules by name
__path__ = []
