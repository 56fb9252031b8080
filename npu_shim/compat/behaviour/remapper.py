"""Keeps TensorFlow 2.15's remapper from graphs at which it ends the process.

The remapper fuses `gamma * (x - mean) / sqrt(variance + epsilon) + beta`, as many scripts write a layer norm. With
oneDNN on, 2.15.1 reads gamma and beta as constants without asking what they are: where they are variables and nothing
trains, Python ends with "[libprotobuf FATAL ...] CHECK failed: it != end(): key not found: value". 2.21 asks.

A session's remapper is switched when the session is made: off where its graph has what the pattern needs, or may still
get it. A script that switches it by itself is left alone.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals

# a variance is a mean of the first, and is divided by by way of the second; functions are not looked into
SQUARES = frozenset(["SquaredDifference", "Square"])
ROOTS = frozenset(["Rsqrt", "Sqrt", "Pow"])
FUNCTIONS = frozenset(["PartitionedCall", "StatefulPartitionedCall", "If", "StatelessIf", "While", "StatelessWhile"])
FIXED = (2, 16)  # the first TensorFlow of which it is not said; 2.21 was tried
_INSTALLED: list[bool] = []


def install() -> None:
    """Sessions made from now on have no remapper where it could end the process; a second call does nothing."""
    version = tuple(int(part) for part in tf.__version__.split(".")[:2])
    if _INSTALLED or not (2, 0) <= version < FIXED or not tf_internals.onednn_is_on():
        return
    _INSTALLED.append(True)
    base = tf.Session.__mro__[1]
    base.__init__ = _guarded(base.__init__)


def _guarded(original: Any) -> Any:
    @functools.wraps(original)
    def init(self: Any, target: str = "", graph: Any = None, config: Any = None) -> None:
        original(self, target, graph, config=without_remapper(graph or tf.get_default_graph(), config))

    return init


def without_remapper(graph: tf.Graph, config: Any) -> Any:
    """Returns a ConfigProto for a session of a graph: `config` itself, or one like it whose remapper is off.

    Args:
        graph: tf.Graph.
        config: tf.ConfigProto, which is not changed, or None; anything else is returned for TensorFlow to refuse.
    """
    if config is not None and not isinstance(config, tf.ConfigProto):
        return config
    types = {op.type for op in graph.get_operations()}
    asked = config is not None and config.graph_options.rewrite_options.remapping
    if asked or not _may_have_it(types):
        return config
    copy = tf.ConfigProto()
    copy.CopyFrom(tf_internals.default_config() if config is None else config)
    copy.graph_options.rewrite_options.remapping = copy.graph_options.rewrite_options.OFF
    return copy


def _may_have_it(types: set[str]) -> bool:
    """Whether a graph with ops of these types may have the pattern, now or when it is built."""
    return not types or bool(types & SQUARES and types & ROOTS) or bool(types & FUNCTIONS)
