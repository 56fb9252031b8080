"""Prunes a graph to one step: the ancestors of the fetches, with Placeholders for the feeds.

A session's GraphDef holds more than a step, often much more: `cut_out` reads no node of it that the step does not need.
`extract` does the same in a Module.
"""

from __future__ import annotations

from typing import Any, Container, Iterable, Mapping, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.analysis import order
from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.module import Module

PLACEHOLDERS = ("Placeholder", "PlaceholderWithDefault", "PlaceholderV2")


def cut_out(
    graph_def: tf.GraphDef,
    fetches: Iterable[str],
    feeds: Sequence[Any] = (),
    constants: Mapping[str, Any] | None = None,
) -> tuple[tf.GraphDef, list[str]]:
    """Returns the ancestors of the fetches, with Placeholders for the feeds.

    Args:
        graph_def: tf.GraphDef; it is not changed.
        fetches: names of nodes.
        feeds: list of `sources.Argument`.
        constants: tensor name -> np.ndarray that replaces it.

    Returns:
        (GraphDef, list of the feeds' names in it); a feed that is not a placeholder gets a Placeholder of its own.
    """
    nodes = {node.name: node for node in graph_def.node}
    placeholders = [placeholder_of(feed.name, nodes) for feed in feeds]
    replaced = dict(zip((feed.name for feed in feeds), placeholders))
    replaced.update((name, placeholder_of(name, nodes)) for name in constants or ())
    replaced.update((name[:-2], new) for name, new in list(replaced.items()) if name.endswith(":0"))
    stand_ins = {replaced[feed.name]: _make_placeholder(replaced[feed.name], feed) for feed in feeds}
    stand_ins.update(
        (replaced[name], make_constant(replaced[name], value)) for name, value in (constants or {}).items()
    )
    chosen = {**stand_ins, **_ancestors(nodes, fetches, replaced, stand_ins)}
    cut = tf.GraphDef(versions=graph_def.versions, library=graph_def.library)
    cut.node.extend(chosen[name] for name in sorted(chosen))
    return cut, placeholders


def _ancestors(
    nodes: Mapping[str, Any], fetches: Iterable[str], replaced: Mapping[str, str], stand_ins: Container[str]
) -> dict[str, Any]:
    """Name -> NodeDef of what some nodes need, with these, up to what has been made in place of others.

    Args:
        nodes: name -> NodeDef of the graph.
        fetches: names.
        replaced: input as text -> name of what it becomes.
        stand_ins: names of what these are.
    """
    ancestors: dict[str, Any] = {}
    pending = list(fetches)
    while pending:
        name = pending.pop()
        if name in ancestors or name in stand_ins:
            continue
        ancestors[name] = node = nodes[name]
        texts = node.input[:]
        if not replaced.keys().isdisjoint(texts):
            texts = [replaced.get(text, text) for text in texts]
            ancestors[name] = _reading(node, texts)
        pending += map(source_of, texts)
    return ancestors


def _reading(node: Any, texts: Sequence[str]) -> Any:
    """A copy of a node with other inputs."""
    copy = tf.NodeDef()
    copy.CopyFrom(node)
    copy.input[:] = texts
    return copy


def extract(module: Module, results: Iterable[str], feeds: Sequence[Any]) -> list[str]:
    """Leaves the ancestors of some nodes in a module's graph, with Placeholders for the feeds; sorts them by name.

    Args:
        module: a Module without results.
        results: names of nodes.
        feeds: list of `sources.Argument`.

    Returns:
        The names of the Placeholders, which all stay; a feed that is not a placeholder gets a Placeholder of its own.
    """
    graph = module.graph
    names = [placeholder_of(feed.name, graph.nodes) for feed in feeds]
    kept = [graph[name] for name in results]
    for name, feed in zip(names, feeds):
        proto = _make_placeholder(name, feed)
        if name in graph:
            graphdef.become(graph[name], proto)
        else:
            graphdef.insert(graph, [proto], origin=graph.value(feed.name).node)
            graph.value(feed.name).replace_by(graph[name].value)
    graph.keep(order.ancestors([*kept, *map(graph.__getitem__, names)]))
    graph.sort()
    return names


def placeholder_of(tensor: str, nodes: Mapping[str, Any]) -> str:
    """Name of the Placeholder for a fed tensor: its own if it is one, else a new one; `nodes` are NodeDefs or Nodes."""
    name, _, port = tensor.partition(":")
    return name if nodes[name].op in PLACEHOLDERS else "%s_%s/fed" % (name, port)


def without_places(graph_def: tf.GraphDef) -> tf.GraphDef:
    """Returns a copy of a GraphDef without devices and colocation: a program runs on one device."""
    copy = tf.GraphDef()
    copy.CopyFrom(graph_def)
    for nodes in [copy.node, *(function.node_def for function in copy.library.function)]:
        for node in nodes:
            if node.device:
                node.device = ""
            if "_class" in node.attr:
                del node.attr["_class"]
    return copy


def _make_placeholder(name: str, feed: Any) -> Any:
    node = tf.NodeDef(name=name, op="Placeholder")
    node.attr["dtype"].type = feed.dtype.as_datatype_enum
    node.attr["shape"].shape.CopyFrom(feed.shape.as_proto())
    return node


def make_constant(name: str, value: Any) -> Any:
    """The NodeDef of a constant."""
    node = tf.NodeDef(name=name, op="Const")
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
    node.attr["dtype"].type = node.attr["value"].tensor.dtype
    return node
