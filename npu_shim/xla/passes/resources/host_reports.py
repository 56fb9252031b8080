"""Removes prints and assertions from a step, with the ops that compute their messages.

XLA ignores assertions and has no strings. The op becomes a NoOp, or (Print) an Identity, so control edges through it
stay. Ops that only it needed are pruned, in the graph and in function bodies. What waited for it must stay in its loop:

    Assert(ok, x)  in a loop   becomes   NoOp(^ok)        PrintV2(StringFormat(x))  in a loop   becomes   NoOp(^x)
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Iterable, Iterator, Mapping, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.graph.arguments import controls, source_of
from npu_shim.session import lines
from npu_shim.session.clusters import pruning
from npu_shim.xla.passes.resources import v1_loops

SILENT = ("Assert", "PrintV2")
FORWARDING = ("Print",)
CHECKS = ("CheckNumerics", "CheckNumericsV2")  # forward too; a compiled step ignores them, and says so
TEXTS = ("AsString", "StringFormat", "StringJoin")


def leave_out(graph_def: Any, keep: Iterable[str]) -> Any:
    """Returns a GraphDef without prints and assertions; the same object if there are none.

    Args:
        graph_def: tf.GraphDef; it is not changed.
        keep: names of the nodes that are fetched or run.
    """
    bodies = [function.node_def for function in graph_def.library.function]
    found = Counter(node.op for nodes in [graph_def.node, *bodies] for node in nodes if node.op in SILENT + FORWARDING)
    if not found:
        return graph_def
    prints = ", ".join("%d %s" % (count, op) for op, count in sorted(found.items()) if op != "Assert")
    if prints:
        lines.once("the compiled step does not print: it leaves out %s" % prints)
    made = tf.GraphDef()
    made.CopyFrom(graph_def)
    nodes = {node.name: node for node in graph_def.node}
    looped = v1_loops.inside(graph_def)
    for node in made.node:
        if silence(node) and node.name in looped and not node.input:
            node.input.extend(_anchors(nodes[node.name], nodes))
    for function in made.library.function:
        silenced = [silence(node) for node in function.node_def]
        if any(silenced):
            _prune_body(function)
    return pruning.reachable(made, keep)


def silence(node: Any) -> bool:
    """Replaces a print or assertion by a NoOp or Identity, in place; returns whether it was one."""
    if node.op not in SILENT + FORWARDING:
        return False
    if node.op in FORWARDING:
        forward(node)
    else:
        _replace(node, "NoOp", controls(node))
    return True


def forward(node: Any) -> None:
    """Replaces a node by an Identity of its first input, in place."""
    dtype = node.attr["T"].type
    _replace(node, "Identity", [node.input[0], *controls(node)])
    node.attr["T"].type = dtype


def _replace(node: Any, op: str, inputs: Sequence[str]) -> None:
    node.op = op
    del node.input[:]
    node.input.extend(inputs)
    node.attr.clear()


def _anchors(report: Any, nodes: Mapping[str, Any]) -> Iterator[str]:
    """Yields control inputs for a report that would wait for nothing: its first input, or what that text is made of."""
    pending = list(report.input[:1])
    while pending:
        source = nodes[source_of(pending.pop())]
        if _makes_text(source):
            pending.extend(source.input)
        else:
            yield "^" + source.name


def _makes_text(node: Any) -> bool:
    """Whether a node makes text, or hands it on."""
    return node.op in TEXTS or any(each.type == tf.string.as_datatype_enum for each in node.attr.values())


def _prune_body(function: Any) -> None:
    """Prunes nodes of a FunctionDef that neither its results nor its stateful ops need."""
    ops = tf_internals.op_defs()
    nodes = {node.name: node for node in function.node_def}
    pending = [source_of(text) for text in [*function.ret.values(), *function.control_ret.values()]]
    pending += [node.name for node in function.node_def if node.op not in ops or ops[node.op].is_stateful]
    needed = set()
    while pending:
        name = pending.pop()
        if name in nodes and name not in needed:
            needed.add(name)
            pending += [source_of(text) for text in nodes[name].input]
    kept = [node for node in function.node_def if node.name in needed]
    del function.node_def[:]
    function.node_def.extend(kept)
