"""Orders a variable's readers before its writers where the graph leaves their order open.

A session runs `learning_rate(global_step)` and `global_step.assign_add(1)` in either order if no edge orders them. Here
a read that waits for no write sees the value from before the step.
"""

from __future__ import annotations

import collections
from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.xla.passes.resources import writers


def reads_first(graph_def: Any) -> Any:
    """Returns a copy of a functional GraphDef with resource variables, with control edges from readers to writers."""
    made = tf.GraphDef()
    made.CopyFrom(graph_def)
    users = _users(made)
    late = {name for used in users.values() for name, writes in used.items() if writes}
    place = {name: number for number, name in enumerate(_order(made, late))}
    nodes = {node.name: node for node in made.node}
    for used in users.values():
        for writer in sorted(name for name, writes in used.items() if writes):
            earlier = [name for name in sorted(used) if not used[name] and place[name] < place[writer]]
            known = set(nodes[writer].input)
            nodes[writer].input.extend("^" + name for name in earlier if "^" + name not in known)
    return made


def _users(graph_def):
    """Maps each variable's handle to {node that takes it: whether the node writes to it}."""
    bodies = {function.signature.name: function for function in graph_def.library.function}
    handles = {node.name for node in graph_def.node if node.op == "VarHandleOp"}
    users = collections.defaultdict(dict)
    for node in graph_def.node:
        taken = [handle for handle in map(source_of, node.input) if handle in handles]
        if taken:
            written = writers.written_by([node], {handle: {handle} for handle in taken}, bodies)
            for handle in taken:
                users[handle][node.name] = handle in written
    return users


def _order(graph_def, late):
    """Topological order of all nodes, with those of `late` as late as possible."""
    waits_for = {node.name: {source_of(text) for text in node.input} for node in graph_def.node}
    consumers = collections.defaultdict(list)
    for name in sorted(waits_for):
        for source in waits_for[name]:
            consumers[source].append(name)
    open_inputs = {name: len(sources) for name, sources in waits_for.items()}
    ready, last = collections.deque(), collections.deque()
    for name in sorted(waits_for):
        if not open_inputs[name]:
            (last if name in late else ready).append(name)
    order = []
    while ready or last:
        name = (ready or last).popleft()
        order.append(name)
        for consumer in consumers[name]:
            open_inputs[consumer] -= 1
            if not open_inputs[consumer]:
                (last if consumer in late else ready).append(consumer)
    return order
