"""Writes the copies of a plan into a graph, behind optimization barriers.

    x -> tanh -> y ... g -> grad(g, y)     becomes     x, g -> barrier -> x', g'     x' -> tanh' -> y' -> grad(g', y')

XLA's common-subexpression pass would make the copy and the original one again: behind a barrier their inputs differ.
The barrier also takes a gradient, so that the copy does not run before the backward pass has come to it.
"""

from __future__ import annotations

import collections
from typing import Iterable, Sequence

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.attributes import DType
from npu_shim.rewriter.ir.graph import Graph, Node, Value
from npu_shim.rewriter.tables import dtypes
from npu_shim.session import devices
from npu_shim.xla.passes.rematerialization import table
from npu_shim.xla.passes.rematerialization.plan import Region
from npu_shim.xla.passes.rematerialization.step import Step, Tensor

SCOPE = "/recomputed"
BARRIER = "XlaOptimizationBarrier"


def apply(graph: Graph, step: Step, regions: Iterable[Region]) -> None:
    """Adds the regions' copies to a graph.

    Args:
        graph: a Graph.
        step: the Step read from it.
        regions: of `plan.plan`.
    """
    groups: dict[Tensor, list[Region]] = collections.defaultdict(list)
    for region in regions:
        groups[region.trigger].append(region)
    for trigger, together in groups.items():
        _write(graph, step, trigger, together)


def _write(graph: Graph, step: Step, trigger: Tensor, regions: Sequence[Region]) -> None:
    """Adds one barrier for the regions of a trigger, their copies behind it, and their readers' new inputs."""
    passed = [*dict.fromkeys(t for region in regions for t in region.kept), trigger]
    barrier = _barrier(graph, step, passed)
    new = {tensor: barrier.output(number) for number, tensor in enumerate(passed)}
    for place in sorted({place for region in regions for place in region.copied}):
        inputs = [new.get(tensor) or _value(graph, step, tensor) for tensor in step.nodes[place].inputs]
        new[place, 0] = _copy(graph, graph[step.nodes[place].name], inputs)
    for reader, tensor in dict.fromkeys(use for region in regions for use in region.uses):
        _rewire(graph, step, reader, tensor, new[tensor])
    for reader in step.readers[trigger]:
        _rewire(graph, step, reader, trigger, new[trigger])


def _value(graph: Graph, step: Step, tensor: Tensor) -> Value:
    place, port = tensor
    return graph[step.nodes[place].name].output(port)


def _barrier(graph: Graph, step: Step, passed: Sequence[Tensor]) -> Node:
    place, port = passed[-1]
    origin = graph[step.nodes[place].name]
    name = origin.name + SCOPE + ("_%d" % port if port else "")  # a call may trigger several
    kinds = tuple(DType(dtypes.NUMBERS[step.results(at)[output].dtype]) for at, output in passed)
    values = [_value(graph, step, tensor) for tensor in passed]
    return graph.add(name, BARRIER, values, attrs={"T": kinds}, origin=origin)


def _rewire(graph: Graph, step: Step, reader: int, tensor: Tensor, value: Value) -> None:
    node = graph[step.nodes[reader].name]
    for number, taken in enumerate(step.nodes[reader].inputs):
        if taken == tensor:
            node.set_input(number, value)


def _copy(graph: Graph, node: Node, inputs: Sequence[Value]) -> Value:
    """Adds nodes that compute the first output of a node again."""
    if node.op in table.NORMALISED:
        return _normalised(graph, node, inputs)
    attrs = dict(node.attrs.items())
    return graph.add(node.name + SCOPE, node.op, inputs, attrs=attrs, device=node.device, origin=node).value


def _normalised(graph: Graph, node: Node, inputs: Sequence[Value]) -> Value:
    """Batch normalization with the mean and variance that the forward pass found, in the order of XLA's own steps.

    Source: XLA's batchnorm_expander.cc; tf2xla's batch_norm_op.cc, whose output 4 is the variance, on GPUs already
    rsqrt(variance + epsilon).
    """
    name, attrs = node.name + SCOPE, node.attrs
    low = tf.as_dtype(int(attrs["T"]))
    wide = tf.as_dtype(int(attrs.get("U") or attrs["T"]))
    vector = [1, -1, 1, 1] if attrs.get("data_format") == b"NCHW" else [-1]
    epsilon = attrs.get("epsilon", 1e-4)
    values = dict(zip(("x", "scale", "offset", "mean", "spread"), [*inputs[:3], node.output(3), node.output(4)]))
    with tf.Graph().as_default() as steps:
        with tf.name_scope(name + "/"):
            given = {key: tf.placeholder(wide if key != "x" else low, None, key) for key in values}
            scale, offset, mean, spread = (tf.reshape(given[key], vector) for key in list(values)[1:])
            if devices.accelerator() != "GPU":
                spread = tf.math.rsqrt(spread + tf.constant(epsilon, wide))
            result = (tf.cast(given["x"], wide) - mean) * spread * scale + offset
        tf.identity(tf.cast(result, low, name=name + "/low"), name=name)
    written = {given[key].op.name: value for key, value in values.items()}
    for part in graphdef.read(steps.as_graph_def()).graph:
        if part.name not in written:
            taken = [written[value.node.name] for value in part.inputs]  # each of them has one output
            written[part.name] = graph.add(part.name, part.op, taken, attrs=dict(part.attrs.items()), origin=node).value
    return written[name]
