"""What XLA would fold to a constant, which stays outside of clusters where several workers run.

Before TensorFlow compiles a cluster it folds what depends on constants alone, on a device "/job:localhost" of its own.
The devices of several workers have another job, and XLA refuses a cluster on two devices ("Multiple CPU devices").
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.graph.arguments import source_of


def left_out(graph_def: tf.GraphDef) -> set[str]:
    """Returns the names of the nodes that depend on constants alone, without the constants themselves."""
    ops = tf_internals.op_defs()
    nodes = {node.name: node for node in graph_def.node}
    known: dict[str, bool] = {}  # whether a node's value is constant
    for name in nodes:
        waiting = [name]
        while waiting:
            node = nodes[waiting[-1]]
            inputs = [source_of(each) for each in node.input if not each.startswith("^")]
            if not inputs or node.op not in ops or ops[node.op].is_stateful:
                known[node.name] = node.op == "Const"
            elif node.name not in known:
                known[node.name] = False  # where a loop comes back to it
                waiting.extend(taken for taken in inputs if taken not in known)
                continue
            else:
                known[node.name] = all(known[taken] for taken in inputs)
            waiting.pop()
    return {name for name, is_constant in known.items() if is_constant and nodes[name].op != "Const"}
