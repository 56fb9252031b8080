"""What the calls of a function give it, and a function's body as a graph, for TensorFlow to infer its shapes.

f(x): y = Op(x:0)    is read as    x:Placeholder  y:Op(x)
"""

from __future__ import annotations

from typing import Any, Collection, Iterator, NamedTuple, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.rewriter.analysis import calls
from npu_shim.rewriter.graph.walks import behind
from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.graph import Graph, Node
from npu_shim.rewriter.ir.module import Function, Library
from npu_shim.rewriter.tables.function_calls import LOOP
from npu_shim.xla.passes import inlined


class Given(NamedTuple):
    """Known facts about an argument of a call.

    Attributes:
        shape: tf.TensorShape; of a handle, that of its variable.
        distinct: whether its values are all different.
        value: np.ndarray if it is a constant, else None.
    """

    shape: Any
    distinct: bool
    value: Any


UNKNOWN = Given(tf.TensorShape(None), False, None)


def of_calls(graph: Graph, called: Collection[Function], facts: Any) -> Iterator[tuple[Function, list[Given]]]:
    """Yields (function, what it is given) for each of some functions that the nodes of a graph call.

    Args:
        graph: a graph, or a function's body.
        called: the functions.
        facts: `facts.Facts` of the graph.
    """
    for node in graph:
        functions = [function for function in calls.functions(node) if function in called]
        if functions:
            taken = calls.given(node)
            given = [Given(facts.shape(value), facts.is_distinct(value), facts.constant(value)) for value in taken]
            if calls.kind(node) == LOOP:
                given = _of_loop(given, graph.module.functions, calls.names(node)[-1])
            yield from ((function, given) for function in functions)


def _of_loop(given: list[Given], library: Library, body: str) -> list[Given]:
    """Facts that hold in every iteration of a loop: of arguments that its body changes, only the shape."""
    passed = _passed_on(library[body]) if body in library else set()
    return [fact if number in passed else Given(fact.shape, False, None) for number, fact in enumerate(given)]


def _passed_on(body: Function) -> set[int]:
    """Numbers of the arguments that a loop's body returns unchanged."""
    passed = set()
    for number, (argument, value) in enumerate(zip(body.arguments, body.returned)):
        if behind(value).node is argument:
            passed.add(number)
    return passed


def merged(one: list[Given] | None, other: list[Given]) -> list[Given]:
    """Facts that hold for the arguments of both calls; None stands for no call."""
    if one is None or len(one) != len(other):
        return other
    return [_of_both(*pair) for pair in zip(one, other)]


def _of_both(one: Given, other: Given) -> Given:
    same = one.value is not None and other.value is not None and np.array_equal(one.value, other.value)
    shape = one.shape if repr(one.shape) == repr(other.shape) else UNKNOWN.shape
    return Given(shape, one.distinct and other.distinct, one.value if same else None)


def as_graph_def(graph: Graph, given: Sequence[Given] = ()) -> Any:
    """Returns a graph as a GraphDef; of a function the body, its arguments Placeholders or the constants they are.

    Args:
        graph: a graph, or a function's body.
        given: of a function, what is known of each argument; nothing of any if it is of another length.
    """
    if not isinstance(graph, Function):
        return graphdef.write(graph.module)
    graph_def = tf.GraphDef()
    graphdef.write_library(graph.module, graph_def.library)
    arguments = dict.fromkeys(graph.arguments, UNKNOWN)
    if len(given) == len(arguments):
        arguments = dict(zip(arguments, given))
    for node in graph:
        if node in arguments:
            _argument(node, arguments[node], graph_def.node.add())
        else:
            inputs = [*map(str, node.inputs), *("^" + control.name for control in node.controls)]
            inlined.written_as(node, node.name, inputs, graph_def.node.add())
    return graph_def


def _argument(argument: Node, given: Given, proto: Any) -> None:
    """A Placeholder, or the constant that every call passes."""
    proto.name, proto.op = argument.name, "Placeholder"
    if given.value is not None:
        proto.op = "Const"
        proto.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(given.value))
    else:
        proto.attr["shape"].shape.CopyFrom(given.shape.as_proto())
    proto.attr["dtype"].type = argument.attrs["T"]
