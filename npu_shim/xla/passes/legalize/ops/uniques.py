"""Lowers Unique to a sort, with holes in its result where allowed; else leaves it to XLA, or refuses it."""

from __future__ import annotations

from typing import Any, Callable, Collection, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.analysis import data_sizes
from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.graph import Graph, Node
from npu_shim.xla.passes import subgraphs
from npu_shim.xla.passes.legalize import bodies, duplicates, padding
from npu_shim.xla.passes.legalize.bodies import Given
from npu_shim.xla.passes.legalize.facts import UNIQUE, Facts
from npu_shim.xla.passes.legalize.site import Site

OPEN, COUNT = "unique_of_open", "count"  # a Unique of a tensor of open size, and how many rows that has


def rows(graph: Graph, keep: Collection[Node], facts: Facts) -> dict[Node, Callable[[Site], Any]]:
    """Returns node -> table row for the Uniques of a graph that are not left to XLA.

    Args:
        graph: has v1 control flow.
        keep: the nodes that are fetched or run.
        facts: `facts.Facts` of the graph.
    """
    chosen: dict[Node, Callable[[Site], Any]] = dict.fromkeys(padding.with_holes(graph, keep, facts), with_holes)
    for node in graph:
        if node.op in UNIQUE and node not in chosen:
            if 0 in facts.distinct(node):
                chosen[node] = of_different
            elif "WithCounts" in node.op:
                chosen[node] = with_counts
    return chosen


def with_holes(site: Site) -> Any:
    """Each value at the start of its run in sorted order, `padding.HOLE` elsewhere."""
    if 0 in site.distinct:
        return of_different(site)
    values = site.inputs[0]
    ordered, order, starts = duplicates.runs(values)
    first = tf.equal(starts, tf.range(values.shape[0]))
    values_found = tf.where_v2(first, ordered, tf.cast(padding.HOLE, values.dtype))
    return _outputs(site, values_found, duplicates.back(order, starts))


def of_different(site: Site) -> Any:
    """Unique of distinct values: the values and their own positions."""
    values = site.inputs[0]
    return _outputs(site, values, tf.range(tf.size(values)))


def with_counts(site: Site) -> Any:
    """Unique with the count of each value."""
    uniques, places = tf.raw_ops.Unique(x=site.inputs[0])
    return _outputs(site, uniques, places)


def _outputs(site: Site, uniques: Any, places: Any) -> list[Any]:
    outputs = [uniques, tf.cast(places, site.attr("out_idx"))]
    if "WithCounts" in site.node.op:
        outputs.append(tf.math.unsorted_segment_sum(tf.ones_like(outputs[1]), places, tf.size(uniques)))
    return outputs


def add_sizes(graph: Graph) -> None:
    """Gives the Uniques that are left to XLA no values where what they are of has no rows."""
    for node in [node for node in graph if node.op in UNIQUE and node.name.rpartition("/")[2] == OPEN]:
        scope, users = node.name[: -len(OPEN)], list(node.value.users)
        taken = [(node.name, tf.as_dtype(int(node.attrs["T"]))), (scope + COUNT, tf.int32)]
        graphdef.insert(graph, subgraphs.nodes(scope + "sized/", taken, _there, "values"), origin=node)
        node.value.replace_by(graph[scope + "sized/there"].value, users)


def _there(values: Any, count: Any) -> None:
    values = tf.identity(values, "values")
    subgraphs.with_rows(values, tf.constant(0), tf.minimum(tf.size(values), count), "there")


def refuse(graph: Graph, given: Sequence[Given]) -> None:
    """Raises PlanError for a Unique of a tensor of open size: XLA's Unique takes its padding for values.

    Args:
        graph: a graph, or a function's body.
        given: of a body, what is known of each of its arguments: sizes that are constants are not open.

    Source: TensorFlow 2.15.1, tf.unique(tf.unique([3, 1, 3])[0]) gave [3, 1, 3].
    """
    left = [node for node in graph if node.op in UNIQUE]
    told = graphdef.read(bodies.as_graph_def(graph, given)).graph if left else graph
    sized = {node.name for node in data_sizes.of(told).open} if left else ()
    for node in left:
        if node.inputs[0].node.name in sized:
            raise PlanError(
                "node '%s' (%s) takes a tensor whose size depends on data, and XLA's kernel would take its padding for "
                "values; feed the node's results, or run the step in the session" % (node.name, node.op)
            )
