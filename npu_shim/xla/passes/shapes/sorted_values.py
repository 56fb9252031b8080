"""Reads what tf.nn.top_k, tf.sort and tf.argsort give by way of gathers, where sizes depend on it.

XLA asks of a size, and of a mask whose rows are counted, whether the data decide it. For that it evaluates a sort with
zeros in place of the data, and takes what comes out for known: a tf.boolean_mask of sorted values has no rows then, and
a tf.range of their number has all that there may be. What it gathers it takes for data:

    values, places = top_k(x, k)     becomes     places' = gather(range(n), places)     values' = gather(x, places')

Source: TensorFlow 2.15.1 and JAX 0.12, with masks and sizes of 40 ops.
"""

from __future__ import annotations

from typing import Any, Callable, Iterator, NamedTuple

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.analysis import calls, order
from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.graph import Graph, Node
from npu_shim.rewriter.ir.module import Function, Module
from npu_shim.xla.passes import subgraphs
from npu_shim.xla.passes.control_flow.functionalization import IN_SESSION
from npu_shim.xla.passes.shapes.compile_time import SHAPES
from npu_shim.xla.passes.shapes.dynamic_shapes import SOURCES, View
from npu_shim.xla.passes.shapes.open_counts import SIZES

SORTS = frozenset(["TopK", "TopKV2"])
SCOPE = "/gathered/"


class _Sort(NamedTuple):
    """A sort whose results decide sizes, and the shape of what it sorts."""

    node: Node
    shape: tf.TensorShape


def gather(module: Module, context: Any = None) -> None:
    """Has whoever takes the results of sorts take gathered ones, in function bodies too.

    Raises:
        PlanError: the rank of what is sorted is not known.
    """
    if _decides(module.graph) or any(map(_has_sorts, _bodies(module))):
        chosen = {sort.node: sort for sort in _chosen(View(module.graph))}
        for sort in chosen.values():
            _insert(sort)


def _bodies(module: Module) -> Iterator[Graph]:
    return (graph for graph in module.graphs_with(SORTS.__contains__) if isinstance(graph, Function))


def _has_sorts(graph: Graph) -> bool:
    return any(node.op in SORTS for node in graph)


def _decides(graph: Graph) -> bool:
    """Whether what sorts give may decide sizes: a mask, a number of rows, or what a function is given."""
    sorts = [node for node in graph if node.op in SORTS]
    reached = order.descendants(sorts, lambda node: node.op not in SHAPES)
    for node in reached:
        deciding = [node.inputs[number] for number in SIZES.get(node.op, ()) if number < len(node.inputs)]
        if node.op in SOURCES or calls.kind(node) is not None or any(value.node in reached for value in deciding):
            return True
    return False


def _chosen(view: View) -> Iterator[_Sort]:
    """The sorts of a graph, where they may decide sizes, and of the bodies that it calls."""
    graph = view.graph
    if isinstance(graph, Function) or _decides(graph):
        yield from (_Sort(node, view.static_shape(node.inputs[0])) for node in graph if node.op in SORTS)
    for node in graph:
        for inner in view.inside(node, every=True):
            yield from _chosen(inner)


def _insert(sort: _Sort) -> None:
    node, rank = sort.node, sort.shape.rank
    if rank is None:
        text = "node '%s' (%s) sorts what has no known rank, and a size may depend on it: XLA cannot tell; %s"
        raise PlanError(text % (node.name, node.op, IN_SESSION))
    values, places = node.output(0), node.output(1)
    users = {value: list(value.users) for value in (values, places)}
    taken = [(str(value), dtype) for value, dtype in zip((node.inputs[0], places), _dtypes(node))]
    scope = node.name + SCOPE
    graphdef.insert(node.graph, subgraphs.nodes(scope, taken, _gathered(sort.shape), "taken"), after=node, origin=node)
    for value, name in ((values, "values"), (places, "places")):
        value.replace_by(node.graph[scope + name].value, users[value])


def _dtypes(node: Node) -> tuple[Any, Any]:
    """The dtypes of what is sorted, and of the places."""
    return tf.as_dtype(int(node.attrs["T"])), tf.as_dtype(int(node.attrs.get("index_type", tf.int32.as_datatype_enum)))


def _gathered(shape: tf.TensorShape) -> Callable[[Any, Any], None]:
    axis, size = shape.rank - 1, shape.as_list()[-1]

    def build(sorted_ones: Any, places: Any) -> None:
        places = tf.identity(places, "taken")
        count = tf.shape(sorted_ones)[-1] if size is None else tf.constant(size)
        every = tf.cast(tf.range(count), places.dtype)
        places = tf.raw_ops.GatherV2(params=every, indices=places, axis=tf.constant(0), name="places")
        tf.raw_ops.GatherV2(params=sorted_ones, indices=places, axis=tf.constant(axis), batch_dims=axis, name="values")

    return build
