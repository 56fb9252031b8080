"""Loops of TensorFlow 1 and the loops of their gradients, which run as often: a Stack leads from one to the other.

    forward:  while ...:  push(stack, x); n += 1        backward:  for k in n, n - 1, .., 1:  pop(stack)

Where n is known, both run n times, whatever the forward loop's condition says. An array that grows with each iteration,
written at a counter from 0, has n elements then. The engine computes n from what is fed (attribute VALUE of the Enter
of k), and compiles a program for each.
"""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.session.clusters.branches import Branches
from npu_shim.xla import static_shapes, trip_counts
from npu_shim.xla.lowering.site import VALUE, NotConstant

PASSES_ON = ("Identity", "Enter", "Switch")
UNKNOWN_LENGTH = (
    "node '%s' (TensorArrayV3) has an element for each iteration of loop '%s', and XLA must know how many: give "
    "tf.TensorArray a size, or run the step in the session instead"
)


class Pair(NamedTuple):
    """The loop of a gradient.

    Attributes:
        frame: name of its frame.
        start: name of the Enter of its counter, which counts down from how often the forward loop has run.
        count: how often both run, None where that is not known.
    """

    frame: str
    start: str
    count: int | None


def of(graph_def: Any) -> dict[str, Pair]:
    """Returns frame name -> Pair, for the outermost loops that a gradient has a loop for."""
    nodes = {node.name: node for node in graph_def.node}
    pushed, popped = (frames_of_stacks(graph_def, nodes, op) for op in ("StackPushV2", "StackPopV2"))
    counters = {
        test.frame: test.counter for node in graph_def.node if node.op == "LoopCond"
        for test in trip_counts.tests(node.input[0], nodes) if test.counts_down
    }  # fmt: skip
    found = {}
    for stack, frames in pushed.items():
        back = popped.get(stack, ())
        if len(frames) == len(back) == 1 and back[0] in counters:
            start = nodes[source_of(counters[back[0]].input[0])]
            found[frames[0]] = Pair(back[0], start.name, start.attr[VALUE].i if VALUE in start.attr else None)
    return found


def not_constant(text: str, graph_def: Any, frame: str, pair: Pair) -> NotConstant:
    """Returns the error that XLA must know how often a loop runs: its text, the graph, the loop's frame and Pair."""
    nodes = {node.name: node for node in graph_def.node}
    merges = {node.input[0]: node.name for node in graph_def.node if node.op == "Switch"}
    equals = [
        merges[node.name] for node in graph_def.node
        if node.name in merges and trip_counts.frame_of_index(node.name, nodes) == frame
    ]  # fmt: skip
    return NotConstant(text, pair.start, 0, equals=equals)


def frames_of_stacks(graph_def: Any, nodes: Mapping[str, Any], op: str) -> dict[str, list[str]]:
    """Maps each Stack to the frames its handle enters before what uses it, innermost first.

    Args:
        graph_def: tf.compat.v1.GraphDef.
        nodes: its nodes by name.
        op: what uses it, "StackPushV2" or "StackPopV2".
    """
    found = {}
    for node in graph_def.node:
        if node.op != op:
            continue
        frames, source = [], nodes[source_of(node.input[0])]
        while source.op in PASSES_ON:
            if source.op == "Enter":
                frames.append(source.attr["frame_name"].s.decode())
            source = nodes[source_of(source.input[0])]
        found[source.name] = frames
    return found


def size_arrays(graph_def: Any) -> Any:
    """Returns a GraphDef whose TensorArrays that grow in a loop have their size at once; the same object if none grows.

    Args:
        graph_def: tf.compat.v1.GraphDef with v1 control flow; it is not changed.

    Raises:
        NotConstant: how often the loop runs is no constant; the error names the input that says it.
    """
    nodes = {node.name: node for node in graph_def.node}
    growing = [node.name for node in graph_def.node if node.op == "TensorArrayV3" and node.attr["dynamic_size"].b]
    frames = _frames_of_writes(graph_def, nodes, growing) if growing else {}
    if not frames:
        return graph_def
    pairs = of(graph_def)
    made = tf.GraphDef()
    made.CopyFrom(graph_def)
    for node in list(made.node):
        if node.name not in frames:
            continue
        frame = frames[node.name]
        if frame not in pairs:
            raise PlanError(UNKNOWN_LENGTH % (node.name, frame))
        if pairs[frame].count is None:
            raise not_constant(UNKNOWN_LENGTH % (node.name, frame), graph_def, frame, pairs[frame])
        size = made.node.add(name=node.name + "/npu_shim_size", op="Const")
        size.attr["dtype"].type = tf.int32.as_datatype_enum
        size.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(pairs[frame].count, tf.int32))
        node.input[0] = size.name
        node.attr["dynamic_size"].b = False
    return made


def _frames_of_writes(graph_def, nodes, growing):
    """Maps each of these TensorArrays to the frame of the loop that writes it once an iteration, from element 0 on."""
    branches, found = Branches(graph_def), {}
    for node in graph_def.node:
        if node.op != "TensorArrayWriteV3":
            continue
        array, is_gradient = static_shapes.origin(node.input[0], nodes)
        if array in growing and not is_gradient:
            frame = None if branches.of[node.name] else trip_counts.frame_of_index(node.input[1], nodes)
            found[array] = frame if array not in found else None
    return {array: frame for array, frame in found.items() if frame is not None}
