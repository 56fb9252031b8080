"""Horovod's Compression: the dtype in which gradients travel."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


class Compressor:
    """How a tensor travels: `compress` before the collective, `decompress` after it."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:
        """Returns (the tensor that travels, what `decompress` needs)."""
        return tensor, None

    @staticmethod
    def decompress(tensor: tf.Tensor, context: Any) -> tf.Tensor:
        """Returns the tensor as it was given to `compress`, with the values that came."""
        return tensor


class NoneCompressor(Compressor):
    """Sends a tensor as it is."""


class FP16Compressor(Compressor):
    """Sends floating-point tensors in float16, and gives them back in their own dtype."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:
        """Returns (float16 Tensor, its own dtype)."""
        return (tf.cast(tensor, tf.float16) if tensor.dtype.is_floating else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: tf.Tensor, context: Any) -> tf.Tensor:
        """Returns the tensor in its own dtype."""
        return tf.cast(tensor, context) if context.is_floating else tensor


class Compression:
    """The choices of `DistributedOptimizer(compression=...)`."""

    none = NoneCompressor
    fp16 = FP16Compressor
