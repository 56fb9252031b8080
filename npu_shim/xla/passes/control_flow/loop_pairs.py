"""Loops of TensorFlow 1 and the loops of their gradients, which run as often: a Stack leads from one to the other.

    forward:  while ...:  push(stack, x); n += 1        backward:  for k in n, n - 1, .., 1:  pop(stack)

Where n is known, both run n times, whatever the forward loop's condition says. An array that grows with each iteration,
written at a counter from 0, has n elements then. n is computed where the loop ends by constants alone. The engine
computes it from what is fed (attribute VALUE of the Enter of k), and compiles a program for each.
"""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple

import tensorflow.compat.v1 as tf

from npu_shim.rewriter import tf_internals
from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.graph.arguments import source_of
from npu_shim.session.clusters import pruning
from npu_shim.session.clusters.branches import Branches
from npu_shim.xla.passes.legalize.site import VALUE, NotConstant
from npu_shim.xla.passes.shapes import static_shapes, trip_counts

PASSES_ON = ("Identity", "Enter", "Switch")
UNKNOWN_LENGTH = (
    "node '%s' (TensorArrayV3) has an element for each iteration of loop '%s', and XLA must know how many: give "
    "as `constants` what the loop's end depends on, or tf.TensorArray a size, or run the step in the session instead"
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
    pairs = {}
    for stack, frames in pushed.items():
        back = popped.get(stack, ())
        if len(frames) == len(back) == 1 and back[0] in counters:
            start = nodes[source_of(counters[back[0]].input[0])]
            pairs[frames[0]] = Pair(back[0], start.name, start.attr[VALUE].i if VALUE in start.attr else None)
    return pairs


def count_of(graph_def: Any, frame: str, pairs: Mapping[str, Pair], text: str) -> int:
    """Returns how often a loop runs.

    Args:
        graph_def: tf.compat.v1.GraphDef with v1 control flow.
        frame: name of the loop's frame.
        pairs: what `of` returned.
        text: of the error.

    Raises:
        NotConstant: that is no constant; the error names the input that says it.
        PlanError: the loop has no gradient.
    """
    if frame not in pairs:
        raise PlanError(text)
    if pairs[frame].count is not None:
        return pairs[frame].count
    counters = _counters(graph_def, frame)
    computed = (_computed(graph_def, counter) for counter in counters)  # some wait for all that the loop keeps
    count = next((count for count in computed if count is not None), None)
    if count is None:
        raise NotConstant(text, pairs[frame].start, 0, equals=counters)
    return count


def _counters(graph_def, frame):
    """Names of the Switches of a loop's variables that are 0 at first and one more in each iteration."""
    nodes = {node.name: node for node in graph_def.node}
    merges = {node.input[0]: node.name for node in graph_def.node if node.op == "Switch"}
    return [
        merges[node.name] for node in graph_def.node
        if node.name in merges and trip_counts.frame_of_index(node.name, nodes) == frame
    ]  # fmt: skip


def _computed(graph_def, counter):
    """The last value of a loop's variable (name of its Switch), None if more than constants determine it."""
    alone = pruning.reachable(graph_def, [counter])
    if not all(_is_function_of_inputs(node) for node in alone.node):
        return None
    with tf.Graph().as_default() as graph, tf.Session(graph=graph) as session:
        tf.import_graph_def(alone, name="")
        left = graph.get_operation_by_name(counter).outputs[0]
        return int(session.run(graph.create_op("Exit", [left], [left.dtype]).outputs[0]))


def _is_function_of_inputs(node):
    definition = tf_internals.op_defs().get(node.op)
    return definition is not None and not definition.is_stateful and node.op not in pruning.PLACEHOLDERS


def frames_of_stacks(graph_def: Any, nodes: Mapping[str, Any], op: str) -> dict[str, list[str]]:
    """Maps each Stack to the frames its handle enters before what uses it, innermost first.

    Args:
        graph_def: tf.compat.v1.GraphDef.
        nodes: its nodes by name.
        op: what uses it, "StackPushV2" or "StackPopV2".
    """
    frames_of = {}
    for node in graph_def.node:
        if node.op != op:
            continue
        frames, source = [], nodes[source_of(node.input[0])]
        while source.op in PASSES_ON:
            if source.op == "Enter":
                frames.append(source.attr["frame_name"].s.decode())
            source = nodes[source_of(source.input[0])]
        frames_of[source.name] = frames
    return frames_of


def size_arrays(graph_def: Any) -> Any:
    """Returns a GraphDef whose TensorArrays that grow in a loop have their size at once; the same object if none grows.

    Args:
        graph_def: tf.compat.v1.GraphDef with v1 control flow; it is not changed.

    Raises:
        PlanError: as `count_of`.
    """
    nodes = {node.name: node for node in graph_def.node}
    growing = [node.name for node in graph_def.node if node.op == "TensorArrayV3" and node.attr["dynamic_size"].b]
    frames = _frames_of_writes(graph_def, nodes, growing) if growing else {}
    if not frames:
        return graph_def
    pairs = of(graph_def)
    copy = tf.GraphDef()
    copy.CopyFrom(graph_def)
    for node in list(copy.node):
        if node.name not in frames:
            continue
        frame = frames[node.name]
        count = count_of(graph_def, frame, pairs, UNKNOWN_LENGTH % (node.name, frame))
        size = copy.node.add(name=node.name + "/npu_shim_size", op="Const")
        size.attr["dtype"].type = tf.int32.as_datatype_enum
        size.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(count, tf.int32))
        node.input[0] = size.name
        node.attr["dynamic_size"].b = False
    return copy


def _frames_of_writes(graph_def, nodes, growing):
    """Maps each of these TensorArrays to the frame of the loop that writes it once an iteration, from element 0 on."""
    branches, frame_of = Branches(graph_def), {}
    for node in graph_def.node:
        if node.op != "TensorArrayWriteV3":
            continue
        array, is_gradient = static_shapes.origin(node.input[0], nodes)
        if array in growing and not is_gradient:
            frame = None if branches.of[node.name] else trip_counts.frame_of_index(node.input[1], nodes)
            frame_of[array] = frame if array not in frame_of else None
    return {array: frame for array, frame in frame_of.items() if frame is not None}
