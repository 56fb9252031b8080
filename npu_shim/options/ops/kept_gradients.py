"""Gradient ops get the attribute of their op's `keep_dtype_scope(gradients=True)` when TensorFlow makes them.

Only then is it known what an op is the gradient of: names no longer tell once functions are inlined, and the gradient
of a loop or a function is a function of its own, in which TensorFlow gives other names.
"""

from __future__ import annotations

import functools
import logging
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.graph.graph_view import KEEP, KEEP_WITH_GRADIENTS

ON_TAPE = (
    "keep_dtype_scope(gradients=True) in '%s' is recorded by a tf.GradientTape, which does not tell whose gradient it "
    "makes: only the forward ops keep their dtype; tf.gradients keeps the gradient ops too"
)


@functools.lru_cache(maxsize=None)
def follow() -> None:
    """Lets new gradient ops follow their ops, in all graphs from now on; a second call does nothing."""
    gradients = tf_internals.python_module("ops.gradients_util")
    gradients._MaybeCompile = _kept(gradients._MaybeCompile)  # through which it makes the gradient of each op


def tell_of_tapes() -> None:
    """Logs a line if a tf.GradientTape records what is built now."""
    try:
        record = tf_internals.python_module("eager.record")
    except ImportError:  # TensorFlow 1
        record = tf_internals.python_module("eager.tape")
    if record.could_possibly_record():
        graph = tf.get_default_graph()
        place = graph.get_name_scope() or getattr(graph, "name", "the graph")
        logging.getLogger("npu_shim").warning("npu_shim: " + ON_TAPE, place)


def _kept(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def gradient_of(scope: str, op: tf.Operation, *how: Any) -> Any:
        if not _asks(op):
            return original(scope, op, *how)
        with tf.get_default_graph()._attr_scope({KEEP: tf.AttrValue(i=KEEP_WITH_GRADIENTS)}):
            return original(scope, op, *how)

    return gradient_of


def _asks(op: tf.Operation) -> bool:
    try:
        return bool(op.get_attr(KEEP) == KEEP_WITH_GRADIENTS)
    except ValueError:
        return False
