"""Gives fetches names that survive the conversions, which remove some tensors.

A loop's Exit and a tf.cond's Merge become outputs of a While or If; an Identity (or NoOp) that consumes them stays. An
assignment returns a reference, which the conversion removes; its Identity becomes a read after the write.
"""

from __future__ import annotations

from typing import Any, Iterable

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.xla.late_reads import VARIABLES

SCOPE = "npu_shim/fetch_%d"
ENDS = ("Exit", "Merge", "RefExit", "RefMerge")


def anchored(graph_def: Any, names: Iterable[str]) -> tuple[Any, dict[str, str]]:
    """Returns (GraphDef, dict from each fetched name to the tensor or operation that stands for it).

    Args:
        graph_def: tf.compat.v1.GraphDef, v1 control flow; it is not changed.
        names: of tensors ("x:0") and operations ("x").
    """
    nodes = {node.name: node for node in graph_def.node}
    made = tf.GraphDef()
    made.CopyFrom(graph_def)
    places = {}
    for number, name in enumerate(dict.fromkeys(names)):
        node, is_tensor = nodes[source_of(name)], ":" in name
        is_reference = is_tensor and node.op not in VARIABLES and _gives_reference(node, name)
        if node.op not in ENDS and not is_reference:
            places[name] = name
            continue
        added = made.node.add(name=SCOPE % number, op="Identity" if is_tensor else "NoOp")
        added.input.append(name if is_tensor else "^" + name)
        places[name] = added.name + ":0" if is_tensor else added.name
        if is_tensor:
            added.attr["T"].type = tf.int32.as_datatype_enum if _is_index(node, name) else node.attr["T"].type
    return made, places


def _gives_reference(node: Any, name: str) -> bool:
    outputs = tf_internals.op_defs()[node.op].output_arg if node.op in tf_internals.op_defs() else ()
    port = int(name.partition(":")[2])
    return port < len(outputs) and outputs[port].is_ref


def _is_index(node: Any, name: str) -> bool:
    """Whether it is a Merge's second output, the index of the input that arrived."""
    return node.op.endswith("Merge") and name.endswith(":1")
