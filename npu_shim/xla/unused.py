"""Prunes nodes without effects that only a tf.group waits for: nothing uses their values.

    x ** 3 has a gradient for its exponent, which nothing uses, but the gradients of an op wait for each other:
    gy:Mul(.., Log(x))   group:NoOp(^gx, ^gy)   gx/dep:Identity(gx, ^group)     becomes     group:NoOp()

XLA would prune it too, but only after TensorFlow makes tensors as large as activations for it: 14 GB for BERT-large.
"""

from __future__ import annotations

import collections
from typing import Any, Iterable, Mapping

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.session.clusters import pruning
from npu_shim.xla import random_ops
from npu_shim.xla.control_flow import V1_OPS

# stateful ops that change none of the step's state; random ops depend only on the step number
READS = frozenset(["VarHandleOp", "ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VariableV2",
                   "Variable", *random_ops.STATELESS])  # fmt: skip


def leave_out(graph_def: Any, keep: Iterable[str]) -> Any:
    """Returns a GraphDef of what the nodes named by `keep` need, less groups' waits for nodes without effects.

    A read that waits for a write through a group still does. A write that waits only for a read no longer does, but
    `ordering` restores that order.

    Args:
        graph_def: tf.compat.v1.GraphDef with v1 control flow; it is not changed.
        keep: names of nodes.
    """
    idle = _without_effect(graph_def)
    made = tf.GraphDef()
    made.CopyFrom(graph_def)
    for node in made.node:
        if node.op == "NoOp":
            kept = [text for text in node.input if source_of(text) not in idle]
            del node.input[:]
            node.input.extend(kept)
    return pruning.reachable(made, keep)


def _without_effect(graph_def: Any) -> set[str]:
    """Names of the nodes outside of loops and branches that have no effects, and whose inputs have none."""
    ops = tf_internals.op_defs()
    consumers, waiting = collections.defaultdict(list), {}
    for node in graph_def.node:
        sources = {source_of(text) for text in node.input}
        waiting[node.name] = len(sources)
        for source in sources:
            consumers[source].append(node)
    pending = [node for node in graph_def.node if not node.input]
    idle = set()
    for node in pending:  # grows while it is iterated; nodes in a cycle are never reached
        if not _changes_nothing(node, ops):
            continue
        idle.add(node.name)
        for consumer in consumers[node.name]:
            waiting[consumer.name] -= 1
            if not waiting[consumer.name]:
                pending.append(consumer)
    return idle


def _changes_nothing(node: Any, ops: Mapping[str, Any]) -> bool:
    if node.op in READS:
        return True
    if node.op not in ops or node.op in V1_OPS:
        return False
    return not ops[node.op].is_stateful and not any(argument.is_ref for argument in ops[node.op].input_arg)
