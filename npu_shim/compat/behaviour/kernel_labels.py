"""Runs ops by their ordinary kernels where a graph asks for a kernel that no device of this process has.

    with graph._kernel_label_map({"Unique": "parallel"}):  # a kernel of Ascend's TensorFlow
        values, positions = tf.unique(x)

A label chooses one of several kernels of an op, which compute the same. TensorFlow refuses an op whose label it does
not know ("No OpKernel was registered"). Labels of kernels that are here stay. Imported graphs are treated alike.
"""

from __future__ import annotations

import functools
import logging
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from npu_shim.compat import callers
from npu_shim.rewriter import tf_internals

LOG = logging.getLogger("npu_shim")
ATTRIBUTE = "_kernel"  # of a node: the label of its kernel; "" and none mean the ordinary one


def install() -> None:
    """Takes unknown labels from ops as graphs get them; a second call does nothing."""
    if hasattr(tf.Graph._kernel_label_map, "takes_any_label"):
        return
    tf.Graph._kernel_label_map = _of_known(tf.Graph._kernel_label_map)
    importer = tf_internals.python_module("framework.importer")
    importer._ProcessGraphDefParam = _without_unknown(importer._ProcessGraphDefParam)


def _of_known(label_map: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(label_map)
    def call(self: tf.Graph, op_to_kernel_label_map: Any) -> Any:
        labels = op_to_kernel_label_map
        if isinstance(labels, dict):
            labels = {op: "" if _is_unknown(op, label) else label for op, label in labels.items()}
        return label_map(self, labels)

    vars(call)["takes_any_label"] = True
    return call


def _without_unknown(canonical: Callable[..., Any]) -> Callable[..., Any]:
    """TensorFlow's check of a GraphDef that is imported, which gives the one that it goes on with."""

    @functools.wraps(canonical)
    def call(graph_def: Any) -> Any:
        checked = canonical(graph_def)
        if not any(map(_asks_for_unknown, _nodes(checked))):
            return checked
        copy = tf.GraphDef()  # the caller's stays as it is
        copy.CopyFrom(checked)
        for node in filter(_asks_for_unknown, _nodes(copy)):
            del node.attr[ATTRIBUTE]
        return copy

    return call


def _nodes(graph_def: Any) -> list[Any]:
    return [*graph_def.node, *(node for function in graph_def.library.function for node in function.node_def)]


def _asks_for_unknown(node: Any) -> bool:
    return ATTRIBUTE in node.attr and _is_unknown(node.op, node.attr[ATTRIBUTE].s.decode())


def _is_unknown(op: Any, label: Any) -> bool:
    """Whether an op has kernels, but none with this label on a device of this process; says so."""
    if not label or not (isinstance(op, str) and isinstance(label, str)):
        return False
    # asked each time: a library that a script loads brings kernels
    kernels = tf_internals.python_module("framework.kernels").get_registered_kernels_for_op(op).kernel
    gpus = tf.config.experimental.list_physical_devices("GPU")
    here = {"CPU", "DEFAULT", *(["GPU"] if gpus else [])}
    unknown = bool(kernels) and not any(k.label == label and k.device_type in here for k in kernels)
    if unknown:
        _tell(op, label)
    return unknown


@functools.lru_cache(maxsize=None)
def _tell(op: str, label: str) -> None:
    text = "no device here has a kernel of %s with the label '%s': its ordinary kernel computes it" % (op, label)
    LOG.warning("%s", callers.message(text))
