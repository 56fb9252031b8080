"""Rewrites a DynamicStitch that undoes a tf.dynamic_partition as selects, which need no constant indices.

XLA must know the indices of a DynamicStitch at compile time: it would compile the step again for each new value that
they depend on, such as fed ids, or refuse. If the indices are the partitions of a range, the idiom of TensorFlow's
documentation and of tf.nn.embedding_lookup, the partition numbers tell where each row comes from:

    i0, i1 = DynamicPartition(Range(0, n, 1), p)    s = DynamicStitch([i0, i1], [d0, d1])

    row k of s is the row of d0 or d1, as p[k] says, with the number of earlier places where p is the same
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.graph import arguments
from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.xla import written_out
from npu_shim.xla.compile_time import STITCHES

PASSES_ON = ("Identity", "Reshape", "Cast", "Enter", "Switch")


def as_choices(graph_def: Any) -> Any:
    """Returns a GraphDef whose stitches of a partitioned range are selects; the same object if there are none.

    Args:
        graph_def: tf.compat.v1.GraphDef; it is not changed.
    """
    nodes = {node.name: node for node in graph_def.node}
    chosen = {node.name: _partitions(node, nodes) for node in graph_def.node if node.op in STITCHES}
    if not any(chosen.values()):
        return graph_def
    made = tf.GraphDef(versions=graph_def.versions, library=graph_def.library)
    for node in graph_def.node:
        made.node.extend(_choice(node, *chosen[node.name]) if chosen.get(node.name) else [node])
    return made


def _partitions(node, nodes):
    """(tensor of the partitions, number of each index input among them); None if the indices are something else."""
    found = [_source(text, nodes) for text in node.input[: node.attr["N"].i]]
    makers = {name for name, _ in found}
    maker = nodes[makers.pop()]
    numbers = [number for _, number in found]
    whole = not makers and maker.op == "DynamicPartition" and sorted(numbers) == list(
        range(maker.attr["num_partitions"].i)
    )
    return (maker.input[1], numbers) if whole and _is_range(maker.input[0], nodes) else None


def _source(text, nodes):
    """(node name, output number) that a tensor comes from, through Identity."""
    while nodes[source_of(text)].op == "Identity":
        text = nodes[source_of(text)].input[0]
    return arguments.output_of(text)


def _is_range(text, nodes):
    """Whether a tensor is a range from 0 in steps of 1."""
    node = nodes[source_of(text)]
    while node.op in PASSES_ON:
        node = nodes[source_of(node.input[0])]
    return node.op == "Range" and [_constant(node.input[number], nodes) for number in (0, 2)] == [0, 1]


def _constant(text, nodes):
    node = nodes[source_of(text)]
    while node.op in PASSES_ON:
        node = nodes[source_of(node.input[0])]
    return tf.make_ndarray(node.attr["value"].tensor).tolist() if node.op == "Const" else None


def _choice(node, partitions, numbers):
    """The nodes that replace a stitch."""
    dtype = tf.as_dtype(node.attr["T"].type)

    def build(partitions, *parts):
        flat = tf.reshape(tf.identity(partitions, "partitions"), [-1])
        rows = None
        for number, part in zip(numbers, parts):
            mine = tf.equal(flat, number)
            one = tf.zeros(tf.concat([[1], tf.shape(part)[1:]], 0), dtype)  # XLA cannot gather from an empty tensor
            own = tf.gather(tf.concat([part, one], 0), tf.cumsum(tf.cast(mine, tf.int32), exclusive=True))
            rows = own if rows is None else tf.raw_ops.Select(condition=mine, x=own, y=rows)
        tf.identity(rows, "rows")

    scope, count = node.name + "/choice/", node.attr["N"].i
    taken = [(partitions, tf.int32), *((text, dtype) for text in arguments.data(node)[count:])]
    stitched = tf.NodeDef(name=node.name, op="Identity", input=[scope + "rows", *arguments.controls(node)])
    stitched.attr["T"].type = dtype.as_datatype_enum
    return [*written_out.nodes(scope, taken, build, "partitions"), stitched]
