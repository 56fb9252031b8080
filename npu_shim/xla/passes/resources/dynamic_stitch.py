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

from npu_shim.rewriter.graph.walks import behind
from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.graph import Node, Value
from npu_shim.rewriter.ir.module import Module
from npu_shim.xla.passes import subgraphs
from npu_shim.xla.passes.shapes.compile_time import STITCHES

PASSES_ON = ("Identity", "Reshape", "Cast", "Enter", "Switch")


def lower(module: Module, context: Any = None) -> None:
    """Replaces the stitches of partitioned ranges."""
    for node in module.graph:
        partitions = _partitions(node) if node.op in STITCHES else None
        if partitions is not None:
            _replace(node, *partitions)


def _partitions(node: Node) -> tuple[Value, list[int]] | None:
    """(the partitions, number of each index input among them); None if the indices are something else."""
    indices = [behind(value) for value in node.inputs[: node.attrs["N"]]]
    makers = {value.node for value in indices}
    maker = makers.pop()
    numbers = [value.index for value in indices]
    if makers or maker.op != "DynamicPartition" or sorted(numbers) != list(range(maker.attrs["num_partitions"])):
        return None
    data, partitions = maker.inputs
    return (partitions, numbers) if _is_range(data) else None


def _is_range(value: Value) -> bool:
    """Whether a tensor is a range from 0 in steps of 1."""
    node = behind(value, PASSES_ON).node
    return node.op == "Range" and [_constant(node.inputs[number]) for number in (0, 2)] == [(0,), (1,)]


def _constant(value: Value) -> Any:
    node = behind(value, PASSES_ON).node
    return node.attrs["value"].numbers() if node.op == "Const" else None


def _replace(node: Node, partitions: Value, numbers: list[int]) -> None:
    dtype = tf.as_dtype(node.attrs["T"])

    def build(partitions: Any, *parts: Any) -> None:
        flat = tf.reshape(tf.identity(partitions, "partitions"), [-1])
        rows = None
        for number, part in zip(numbers, parts):
            mine = tf.equal(flat, number)
            one = tf.zeros(tf.concat([[1], tf.shape(part)[1:]], 0), dtype)  # XLA cannot gather from an empty tensor
            own = tf.gather(tf.concat([part, one], 0), tf.cumsum(tf.cast(mine, tf.int32), exclusive=True))
            rows = own if rows is None else tf.raw_ops.Select(condition=mine, x=own, y=rows)
        tf.identity(rows, "rows")

    scope = node.name + "/choice/"
    taken = [(str(partitions), tf.int32), *((str(value), dtype) for value in node.inputs[node.attrs["N"] :])]
    graphdef.insert(node.graph, subgraphs.nodes(scope, taken, build, "partitions"), before=node, origin=node)
    node.set_op("Identity")
    node.set_inputs([node.graph[scope + "rows"].value])
    for name in [name for name in node.attrs if name != "T"]:
        del node.attrs[name]
