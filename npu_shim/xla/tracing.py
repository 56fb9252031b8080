"""Traces a training step's GraphDef as a function of TensorFlow's, which XLA compiles or gives as HLO."""

from __future__ import annotations

from typing import Any, Callable, Collection, Iterable, Mapping

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.graph.arguments import source_of, tensor_of
from npu_shim.xla.passes.resources import random_ops, writers

SCOPE = "step"  # keeps the graph's node names apart from those that tf.function adds


def handles_of(graph_def: Any) -> list[Any]:
    """The nodes that are handles of variables."""
    return [node for node in graph_def.node if node.op == "VarHandleOp"]


def traced(
    graph_def: Any, wanted: Iterable[Any], places: Mapping[str, str], feeds: Any, state: Any
) -> Callable[..., Any]:
    """Makes the `function` of a StepFunction, in eager mode.

    Args:
        graph_def: the step's GraphDef; it is not changed.
        wanted: the fetches, Arguments and names of operations.
        places: fetched name -> what stands for it in graph_def.
        feeds: name of a Placeholder in graph_def -> Argument, in order.
        state: the StateVariables.

    Raises:
        ValueError: the graph does not take such feeds.
    """
    variables = {variable.name: variable.variable for variable in state}
    handles = {node.name: variables[writers.variable_name(node)] for node in handles_of(graph_def)}
    imported = tf.GraphDef(versions=graph_def.versions, library=graph_def.library)
    imported.node.extend(node for node in graph_def.node if node.name not in handles and node.name not in feeds)
    _without_waits_for(imported, {*handles, *feeds})
    read = {text if ":" in text else text + ":0" for node in imported.node for text in node.input}
    targets = [source_of(places[fetch]) for fetch in wanted if isinstance(fetch, str)]
    targets += random_ops.advances(graph_def)

    def step(*arguments: Any) -> list[Any]:
        graph = tf.get_default_graph()
        given = {name + ":0": argument for name, argument in zip(feeds, arguments)}
        for output in state:  # in this order they become parameters
            graph.capture(output.variable.handle)
        captured = {name + ":0": graph.capture(variable.handle) for name, variable in handles.items()}
        before = set(graph.get_operations())
        replaced = {name: tensor for name, tensor in {**given, **captured}.items() if name in read}
        tf.import_graph_def(imported, replaced, name=SCOPE)
        everything = [op for op in graph.get_operations() if op not in before]
        named = lambda name: graph.as_graph_element("%s/%s" % (SCOPE, name))  # noqa: E731
        given.update((feed.name, argument) for feed, argument in zip(feeds.values(), arguments))
        results = []
        for output in wanted:
            if isinstance(output, str):
                continue
            is_variable = output.name in captured
            with tf.control_dependencies(everything if is_variable else [named(target) for target in targets]):
                if is_variable:  # its value after the step
                    results.append(tf.raw_ops.ReadVariableOp(resource=captured[output.name], dtype=output.dtype))
                else:
                    place = given.get(output.name)
                    results.append(tf.identity(named(tensor_of(places[output.name])) if place is None else place))
        return results

    function: Callable[..., Any] = tf.wrap_function(
        step, [tf.TensorSpec(feed.shape, feed.dtype) for feed in feeds.values()]
    )
    return function


def _without_waits_for(graph_def: Any, names: Collection[str]) -> None:
    """Removes control inputs on the function's arguments, which are available when it begins."""
    for node in graph_def.node:
        kept = [text for text in node.input if text[0] != "^" or text[1:] not in names]
        if len(kept) < len(node.input):
            del node.input[:]
            node.input.extend(kept)
