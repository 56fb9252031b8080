"""Orders the writes of a variable where one of them is lowered.

A kernel reads, computes and writes a variable in one step; unordered kernels run one after another, in any order.
Lowered ops read first and write later, and another write in between would be lost. So the writes of one handle wait for
each other, in an order that the graph allows.
"""

from __future__ import annotations

import collections
from typing import Any, Container

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.analysis import writes
from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.xla.passes.resources import writers


def in_turn(graph_def: Any, lowered: Container[str]) -> Any:
    """Returns a GraphDef in which the writes of a handle wait for each other if one of them is lowered.

    Args:
        graph_def: tf.GraphDef; it is not changed.
        lowered: names of the nodes that are lowered.
    """
    groups = _writes(graph_def)
    groups = {handle: names for handle, names in groups.items() if len(names) > 1 and not names.isdisjoint(lowered)}
    if not groups:
        return graph_def
    copy = tf.GraphDef()
    copy.CopyFrom(graph_def)
    place = {node.name: number for number, node in enumerate(topological(copy))}
    nodes = {node.name: node for node in copy.node}
    for names in groups.values():
        ordered = sorted(names, key=place.__getitem__)
        for before, after in zip(ordered, ordered[1:]):
            if "^" + before not in nodes[after].input:
                nodes[after].input.append("^" + before)
    return copy


def _writes(graph_def):
    """Maps each handle's tensor to the names of the nodes that write to its variable."""
    bodies = {function.signature.name: function for function in graph_def.library.function}
    handles = _handles(graph_def)
    found = collections.defaultdict(set)
    for node in graph_def.node:
        for text in node.input:
            source = source_of(text)
            takes = text[0] != "^" and source in handles and node.op not in writes.PASSES_ON
            if takes and writers.written_by([node], {source: {source}}, bodies):
                found[text].add(node.name)
    return found


def _handles(graph_def):
    """Names of the nodes that output handles."""
    resource, handles = tf.resource.as_datatype_enum, set()
    for node in graph_def.node:
        passed_on = node.op in writes.PASSES_ON and node.attr["T"].type == resource
        argument = node.op == "Placeholder" and node.attr["dtype"].type == resource
        if node.op == "VarHandleOp" or passed_on or argument:
            handles.add(node.name)
    return handles


def topological(graph_def: Any) -> list[Any]:
    """Returns the nodes of a GraphDef in topological order, ignoring back edges of loops."""
    nodes = {node.name: node for node in graph_def.node}
    order, state = [], {}
    for start in sorted(nodes):
        stack = [] if start in state else [start]
        while stack:
            name = stack[-1]
            if name not in state:
                state[name] = "open"
                sources = () if nodes[name].op == "NextIteration" else sorted(map(source_of, nodes[name].input))
                stack += [source for source in sources if source not in state]
            else:
                stack.pop()
                if state[name] == "open":
                    state[name] = "done"
                    order.append(nodes[name])
    return order
