"""What is fetched from a step, by names that live through the conversions, behind which some tensors are gone.

A loop's Exit and a tf.cond's Merge become results of a While or If: an Identity (or NoOp) behind them stays. An
assignment's result, a reference, becomes none at all: its Identity becomes a read behind the write.
"""

from __future__ import annotations

from typing import Any, Iterable

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.session.clusters.pruning import source_of
from npu_shim.xla.late_reads import VARIABLES

SCOPE = "npu_shim/fetch_%d"
ENDS = ("Exit", "Merge", "RefExit", "RefMerge")


def anchored(graph_def: Any, names: Iterable[str]) -> tuple[Any, dict[str, str]]:
    """Returns (GraphDef, dict of a fetched name to the name that has its value, or runs it, in the GraphDef).

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


def _gives_reference(node, name):
    outputs = tf_internals.op_defs()[node.op].output_arg if node.op in tf_internals.op_defs() else ()
    port = int(name.partition(":")[2])
    return port < len(outputs) and outputs[port].is_ref


def _is_index(node, name):
    """Whether it is the second result of a Merge: the number of the input that came."""
    return node.op.endswith("Merge") and name.endswith(":1")
