"""npu_bridge.embedding.tf_path, see npu_bridge.embedding."""

from npu_bridge.embedding import __getattr__
