"""What calibration measures of a tensor where it is computed: six numbers, by ordinary ops.

    x -> Reshape -> Abs -> IsFinite, Select, Max, Min, Sum ... -> ConcatV2      in the graph that a script has and saves
    x -> Reshape -> NpuShimMeasure                                              what a session on a CPU runs

The op reads the tensor once. It is defined in native/kernels.cc, so only sessions of processes that have loaded the
hook run it.
"""

from __future__ import annotations

from typing import Iterable, Mapping, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from npu_shim.rewriter.analysis import order
from npu_shim.rewriter.graph import arguments
from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.rewriter.ir.graph import Node, Value
from npu_shim.rewriter.ir.module import Module
from npu_shim.rewriter.tables.dtypes import INFINITE_FROM, ZERO_UP_TO
from npu_shim.session.passes import rounding

OP = "NpuShimMeasure"
MARK = "_npu_shim_measures"  # attribute of the last of a tensor's ordinary ops
FIRST = "Abs"  # the op that reads the tensor, as a vector
# the ops behind that one, and what Grappler makes of them
BEHIND = frozenset([
    "Cast", "ConcatV2", "Const", "Greater", "GreaterEqual", "Identity", "IsFinite", "LessEqual", "LogicalAnd",
    "LogicalNot", "Max", "Maximum", "Min", "OnesLike", "Pack", "SelectV2", "Sum",
])  # fmt: skip


class Limits(NamedTuple):
    """The constants of the ordinary ops, which the measures of many tensors share."""

    zero: tf.Tensor
    infinity: tf.Tensor
    infinite_from: tf.Tensor
    zero_up_to: tf.Tensor
    first: tf.Tensor  # axis
    flat: tf.Tensor  # shape


def limits() -> Limits:
    """Returns them, made in the current graph."""
    numbers = (0.0, np.inf, INFINITE_FROM, ZERO_UP_TO)
    return Limits(*(tf.constant(number, tf.float32) for number in numbers), tf.constant(0), tf.constant([-1]))


def of(tensor: tf.Tensor, given: Limits) -> tf.Tensor:
    """Returns the measures of a float tensor.

    Returns:
        float64 [6]: largest finite magnitude, 0 where there is none; smallest magnitude above zero, infinity where
        there is none; numbers of values: of all, of those that float16 makes infinite (or that are), of those that it
        makes zero, of those that are not finite.
    """
    ops = tf.raw_ops  # several times quicker to call: a group of tensors has thousands
    with tf.device(tensor.op.device or None):
        wide = tensor if tensor.dtype == tf.float32 else tf.cast(tensor, tf.float32)
        size = ops.Abs(x=ops.Reshape(tensor=wide, shape=given.flat))
        finite, positive = ops.IsFinite(x=size), ops.Greater(x=size, y=given.zero)
        largest = ops.Max(input=ops.SelectV2(condition=finite, t=size, e=given.zero), axis=given.first)
        smallest = ops.Min(input=ops.SelectV2(condition=positive, t=size, e=given.infinity), axis=given.first)
        counted = [
            ops.OnesLike(x=finite),
            ops.GreaterEqual(x=size, y=given.infinite_from),
            ops.LogicalAnd(x=positive, y=ops.LessEqual(x=size, y=given.zero_up_to)),
            ops.LogicalNot(x=finite),
        ]
        counts = [ops.Sum(input=ops.Cast(x=mask, DstT=tf.int64), axis=given.first) for mask in counted]
        magnitudes = ops.Pack(values=[ops.Maximum(x=largest, y=given.zero), smallest])
        both = [ops.Cast(x=part, DstT=tf.float64) for part in (magnitudes, ops.Pack(values=counts))]
        measures = ops.ConcatV2(values=both, axis=given.first)
    measures.op._set_attr(MARK, tf.AttrValue(b=True))
    return measures


def fuse(module: Module, keep: Iterable[str] = (), accelerator: str = "CPU") -> None:
    """Has one op measure each tensor on a CPU.

    Args:
        module: changed in place.
        keep: names of nodes or tensors that are fed, fetched or run.
        accelerator: device type of the nodes without a device.
    """
    graph, kept = module.graph, frozenset(map(source_of, keep))
    measuring = [(node, *_measured(node)) for node in graph if MARK in node.attrs]
    inside: dict[Node, None] = {}
    for node, source, before in measuring:
        if source is not None and rounding.runs_here(node, accelerator):
            inside.update((one, None) for one in before if one is not node and one.name not in kept)
            _measure(node, source)
    needed = order.ancestors([node for node in graph if node not in inside])
    graph.remove([node for node in inside if node not in needed])


def _measured(node: Node) -> tuple[Value | None, dict[Node, None]]:
    """As `measured`, of the graph that changes; the ops with the last one."""
    inside, pending, sources = {node: None}, [node], set()
    while pending:
        current = pending.pop()
        if current.op == FIRST:
            sources.add(current.inputs[0])
        elif current.op in BEHIND:
            before = dict.fromkeys(value.node for value in current.inputs if value.node not in inside)
            inside.update(before)
            pending.extend(before)
        else:
            return None, inside
    return (sources.pop() if len(sources) == 1 else None), inside


def _measure(node: Node, source: Value) -> None:
    for name in node.attrs:
        del node.attrs[name]
    node.set_op(OP)
    node.set_inputs([source])


def measured(node: tf.NodeDef, nodes: Mapping[str, tf.NodeDef]) -> tuple[str | None, set[str]]:
    """Finds what the ordinary ops before a node measure.

    Returns:
        (the tensor, the names of the ops but the last); None for the tensor where they are not those of `of`.
    """
    waiting, inside, sources = [node.name], set(), set()
    while waiting:
        current = nodes[waiting.pop()]
        inside.add(current.name)
        if current.op == FIRST:
            sources.add(current.input[0])
        elif current.op in BEHIND:
            waiting.extend({source_of(text) for text in arguments.data(current)} - inside)
        else:
            return None, inside
    return (sources.pop() if len(sources) == 1 else None), inside - {node.name}
