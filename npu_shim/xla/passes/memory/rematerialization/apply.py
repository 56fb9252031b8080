"""Writes the copies of a plan into a GraphDef, behind optimization barriers.

    x -> tanh -> y ... g -> grad(g, y)     becomes     x, g -> barrier -> x', g'     x' -> tanh' -> y' -> grad(g', y')

XLA's common-subexpression pass would make the copy and the original one again: behind a barrier their inputs differ.
The barrier also takes a gradient, so that the copy does not run before the backward pass has come to it.
"""

from __future__ import annotations

import collections
from typing import Any, Iterable

import tensorflow.compat.v1 as tf

from npu_shim.session import devices
from npu_shim.xla.passes.memory.rematerialization import table
from npu_shim.xla.passes.memory.rematerialization.plan import Region
from npu_shim.xla.passes.memory.rematerialization.step import Step

SCOPE = "/recomputed"
BARRIER = "XlaOptimizationBarrier"


def apply(graph_def: Any, step: Step, regions: Iterable[Region]) -> Any:
    """Returns a GraphDef with the regions' copies; the same object if there are none.

    Args:
        graph_def: tf.compat.v1.GraphDef; it is not changed.
        step: the Step read from it.
        regions: of `plan.plan`.
    """
    groups = collections.defaultdict(list)
    for region in regions:
        groups[region.trigger].append(region)
    if not groups:
        return graph_def
    copy = tf.GraphDef()
    copy.CopyFrom(graph_def)
    writer = _Writer(copy, step)
    for trigger, together in groups.items():
        writer.write(trigger, together)
    return copy


class _Writer:
    """Adds copies to a GraphDef."""

    def __init__(self, graph_def, step):
        self._graph_def, self._step = graph_def, step
        self._nodes = {node.name: node for node in graph_def.node}

    def write(self, trigger, regions):
        """Adds one barrier for the regions of a trigger, their copies behind it, and their readers' new inputs."""
        step = self._step
        passed = [*dict.fromkeys(t for region in regions for t in region.kept), trigger]
        barrier = self._barrier(passed)
        new = {tensor: "%s:%d" % (barrier, number) for number, tensor in enumerate(passed)}
        copied = sorted({place for region in regions for place in region.copied})
        new.update(((place, 0), step.nodes[place].name + SCOPE) for place in copied)
        for place in copied:
            inputs = [new.get(tensor) or self._text(tensor) for tensor in step.nodes[place].inputs]
            self._graph_def.node.extend(_copies(self._nodes[step.nodes[place].name], inputs))
        for reader, tensor in dict.fromkeys(use for region in regions for use in region.uses):
            self._rewire(reader, tensor, new[tensor])
        for reader in step.readers[trigger]:
            self._rewire(reader, trigger, new[trigger])

    def _barrier(self, passed):
        place, port = passed[-1]
        name = self._step.nodes[place].name + SCOPE + ("_%d" % port if port else "")  # a call may trigger several
        node = self._graph_def.node.add(name=name, op=BARRIER, input=map(self._text, passed))
        dtypes = [self._step.results(place)[port].dtype for place, port in passed]
        node.attr["T"].list.type.extend(tf.as_dtype(dtype).as_datatype_enum for dtype in dtypes)
        return name

    def _text(self, tensor):
        place, port = tensor
        return "%s:%d" % (self._step.nodes[place].name, port) if port else self._step.nodes[place].name

    def _rewire(self, reader, tensor, text):
        node = self._nodes[self._step.nodes[reader].name]
        for number, value in enumerate(self._step.nodes[reader].inputs):
            if value == tensor:
                node.input[number] = text


def _copies(node, inputs):
    """The nodes that compute the first output of a node again."""
    if node.op in table.NORMALISED:
        return _normalised(node, inputs)
    copy = tf.NodeDef()
    copy.CopyFrom(node)
    copy.name += SCOPE
    del copy.input[:]
    copy.input.extend(inputs)
    return [copy]


def _normalised(node, inputs):
    """Batch normalization with the mean and variance that the forward pass found, in the order of XLA's own steps.

    Source: XLA's batchnorm_expander.cc; tf2xla's batch_norm_op.cc, whose output 4 is the variance, on GPUs already
    rsqrt(variance + epsilon).
    """
    name = node.name + SCOPE
    low = tf.as_dtype(node.attr["T"].type)
    wide = tf.as_dtype(node.attr["U"].type or low.as_datatype_enum)
    vector = [1, -1, 1, 1] if node.attr["data_format"].s == b"NCHW" else [-1]
    texts = dict(zip(("x", "scale", "offset", "mean", "spread"), [*inputs[:3], node.name + ":3", node.name + ":4"]))
    with tf.Graph().as_default() as graph:
        with tf.name_scope(name + "/"):
            given = {key: tf.placeholder(wide if key != "x" else low, None, key) for key in texts}
            scale, offset, mean, spread = (tf.reshape(given[key], vector) for key in list(texts)[1:])
            if devices.accelerator() != "GPU":
                spread = tf.math.rsqrt(spread + tf.constant(node.attr["epsilon"].f, wide))
            result = (tf.cast(given["x"], wide) - mean) * spread * scale + offset
        tf.identity(tf.cast(result, low, name=name + "/low"), name=name)
    places = {tensor.op.name: texts[key] for key, tensor in given.items()}
    nodes = [node for node in graph.as_graph_def().node if node.name not in places]
    for node_of_step in nodes:
        node_of_step.input[:] = [places.get(text, text) for text in node_of_step.input]
    return nodes
