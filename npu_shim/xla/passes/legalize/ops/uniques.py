"""Lowers Unique to a sort, with holes in its result where allowed; else leaves it to XLA, or refuses it."""

from __future__ import annotations

from typing import Any, Callable, Iterable

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.analysis import data_sizes
from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.rewriter.ir import graphdef
from npu_shim.xla.passes import subgraphs
from npu_shim.xla.passes.legalize import duplicates, padding
from npu_shim.xla.passes.legalize.facts import UNIQUE, Facts
from npu_shim.xla.passes.legalize.site import Site

OPEN, COUNT = "unique_of_open", "count"  # a Unique of a tensor of open size, and how many rows that has


def rows(graph_def: Any, keep: Iterable[str], facts: Facts) -> dict[str, Callable[[Site], Any]]:
    """Returns name -> table row for the Uniques of a GraphDef that are not left to XLA.

    Args:
        graph_def: tf.GraphDef with v1 control flow.
        keep: names of the nodes that are fetched or run.
        facts: `facts.Facts` of the graph.
    """
    chosen: dict[str, Callable[[Site], Any]] = dict.fromkeys(padding.with_holes(graph_def, keep, facts), with_holes)
    for node in graph_def.node:
        if node.op in UNIQUE and node.name not in chosen:
            if 0 in facts.distinct(node):
                chosen[node.name] = of_different
            elif "WithCounts" in node.op:
                chosen[node.name] = with_counts
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
    if "WithCounts" in site.proto.op:
        outputs.append(tf.math.unsorted_segment_sum(tf.ones_like(outputs[1]), places, tf.size(uniques)))
    return outputs


def with_sizes(graph_def: Any) -> Any:
    """Returns a GraphDef whose Uniques that are left to XLA have no values where what they are of has no rows."""
    opened = [node for node in graph_def.node if node.op in UNIQUE and node.name.rpartition("/")[2] == OPEN]
    if not opened:
        return graph_def
    copy = tf.GraphDef()
    copy.CopyFrom(graph_def)
    for node in opened:
        scope = node.name[: -len(OPEN)]
        taken = [(node.name, tf.as_dtype(node.attr["T"].type)), (scope + COUNT, tf.int32)]
        for user in copy.node:
            for number, text in enumerate(user.input):
                if text == node.name:
                    user.input[number] = scope + "sized/there"
        copy.node.extend(subgraphs.nodes(scope + "sized/", taken, _there, "values"))
    return copy


def _there(values: Any, count: Any) -> None:
    values = tf.identity(values, "values")
    subgraphs.with_rows(values, tf.constant(0), tf.minimum(tf.size(values), count), "there")


def refuse(graph_def: Any) -> None:
    """Raises PlanError for a Unique of a tensor of open size: XLA's Unique takes its padding for values.

    Source: TensorFlow 2.15.1, tf.unique(tf.unique([3, 1, 3])[0]) gave [3, 1, 3].
    """
    left = [node for node in graph_def.node if node.op in UNIQUE]
    sized = {node.name for node in data_sizes.of(graphdef.read(graph_def).graph).open} if left else ()
    for node in left:
        if source_of(node.input[0]) in sized:
            raise PlanError(
                "node '%s' (%s) takes a tensor whose size depends on data, and XLA's kernel would take its padding for "
                "values; feed the node's results, or run the step in the session" % (node.name, node.op)
            )
