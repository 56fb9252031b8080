"""Loops of TensorFlow 1 and the loops of their gradients, which run as often: a Stack leads from one to the other.

    forward:  while ...:  push(stack, x); n += 1        backward:  for k in n, n - 1, .., 1:  pop(stack)

Where n is known, both run n times, whatever the forward loop's condition says. An array that grows with each iteration,
written at a counter from 0, has n elements then. n is computed where the loop ends by constants alone. The engine
computes it from what is fed (attribute VALUE of the Enter of k), and compiles a program for each.
"""

from __future__ import annotations

from typing import Iterable, Mapping, NamedTuple

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.analysis import branches, order
from npu_shim.rewriter.errors import PlanError
from npu_shim.rewriter.ir import graphdef
from npu_shim.rewriter.ir.attributes import DType, Tensor
from npu_shim.rewriter.ir.definitions import registered
from npu_shim.rewriter.ir.graph import Graph, Node, Value
from npu_shim.xla.passes import pruning
from npu_shim.xla.passes.legalize.site import VALUE, NotConstant
from npu_shim.xla.passes.shapes import static_shapes, trip_counts

PASSES_ON = ("Identity", "Enter", "Switch")
INT32 = DType(tf.int32.as_datatype_enum)
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


def of(graph: Graph) -> dict[str, Pair]:
    """Returns frame name -> Pair, for the outermost loops that a gradient has a loop for."""
    pushed, popped = (frames_of_stacks(graph, op) for op in ("StackPushV2", "StackPopV2"))
    enters, pairs = starts(graph), {}
    for stack, frames in pushed.items():
        back = popped.get(stack, ())
        if len(frames) == len(back) == 1 and back[0] in enters:
            start = enters[back[0]]
            pairs[frames[0]] = Pair(back[0], start.name, start.attrs.get(VALUE))
    return pairs


def gradients(graph: Graph) -> dict[str, str]:
    """Returns frame name -> frame name of the gradient's loop, for loops in loops too."""
    pushed, popped = (frames_of_stacks(graph, op) for op in ("StackPushV2", "StackPopV2"))
    both = [(frames, popped[stack]) for stack, frames in pushed.items() if len(popped.get(stack, ())) == len(frames)]
    return {frame: back for frames, backs in both for frame, back in zip(frames, backs)}


def starts(graph: Graph) -> dict[str, Node]:
    """Returns frame name -> Enter of its counter, for the loops that count down, as gradients' do."""
    return {
        test.frame: test.counter.inputs[0].node for node in graph if node.op == "LoopCond"
        for test in trip_counts.tests(node.inputs[0]) if test.counts_down
    }  # fmt: skip


def count_of(graph: Graph, frame: str, pairs: Mapping[str, Pair], text: str) -> int:
    """Returns how often a loop runs.

    Args:
        graph: has v1 control flow.
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
    switches = counters(graph, frame)
    computed = map(_computed, switches)  # some wait for all that the loop keeps
    count = next((count for count in computed if count is not None), None)
    if count is None:
        raise NotConstant(text, pairs[frame].start, 0, equals=[counter.name for counter in switches])
    return count


def counters(graph: Graph, frame: str) -> list[Node]:
    """The Switches of a loop's variables that are 0 at first and one more in each iteration."""
    switches = {node.inputs[0].node: node for node in graph if node.op == "Switch"}
    return [switches[node] for node in graph
            if node in switches and trip_counts.frame_of_index(node.value) == frame]  # fmt: skip


def _computed(counter: Node) -> int | None:
    """The last value of a loop's variable (its Switch), None if more than constants determine it."""
    nodes = order.ancestors([counter])
    if not all(map(_is_function_of_inputs, nodes)):
        return None
    alone = tf.GraphDef(versions=counter.graph.module.source.versions)
    for node in nodes:
        graphdef.written(node, alone.node.add())
    with tf.Graph().as_default() as graph, tf.Session(graph=graph) as session:
        tf.import_graph_def(alone, name="")
        left = graph.get_operation_by_name(counter.name).outputs[0]
        return int(session.run(graph.create_op("Exit", [left], [left.dtype]).outputs[0]))


def _is_function_of_inputs(node: Node) -> bool:
    definition = registered(node.op)
    return definition is not None and not definition.is_stateful and node.op not in pruning.PLACEHOLDERS


def frames_of_stacks(graph: Graph, op: str) -> dict[Node, list[str]]:
    """Maps each Stack to the frames its handle enters before what uses it (`op`), innermost first."""
    frames_of = {}
    for node in graph:
        if node.op != op:
            continue
        frames, source = [], node.inputs[0].node
        while source.op in PASSES_ON:
            if source.op == "Enter":
                frames.append(source.attrs["frame_name"].decode())
            source = source.inputs[0].node
        frames_of[source] = frames
    return frames_of


def size_arrays(graph: Graph) -> None:
    """Gives TensorArrays that grow in a loop their size at once; errors as of `count_of`."""
    growing = [node for node in graph if node.op == "TensorArrayV3" and node.attrs.get("dynamic_size")]
    frames = _frames_of_writes(graph, growing) if growing else {}
    pairs = of(graph) if frames else {}
    for node in growing:
        if node in frames:
            count = count_of(graph, frames[node], pairs, UNKNOWN_LENGTH % (node.name, frames[node]))
            node.set_input(0, constant(graph, node.name + "/npu_shim_size", count))
            node.attrs["dynamic_size"] = False


def constant(graph: Graph, name: str, number: int) -> Value:
    """Adds an int32 constant."""
    attrs = {"dtype": INT32, "value": Tensor(INT32, (), (number,))}
    return graph.add(graph.free_name(name), "Const", attrs=attrs).value


def _frames_of_writes(graph: Graph, growing: Iterable[Node]) -> dict[Node, str]:
    """Maps each of these TensorArrays to the frame of the loop that writes it once an iteration, from element 0 on."""
    inside, frame_of = branches.branches(graph), {}
    for node in graph:
        if node.op != "TensorArrayWriteV3":
            continue
        array, is_gradient = _array(node.inputs[0])
        if array in growing and not is_gradient:
            frame = None if inside[node] else trip_counts.frame_of_index(node.inputs[1])
            frame_of[array] = frame if array not in frame_of else None
    return {array: frame for array, frame in frame_of.items() if frame is not None}


def _array(handle: Value) -> tuple[Node, bool]:
    """The node that creates a handle, and whether it is a gradient's handle."""
    node, is_gradient = handle.node, False
    while node.op in static_shapes.FORWARDS or node.op == "Merge":
        is_gradient = is_gradient or node.op == "TensorArrayGradV3"
        node = node.inputs[0].node
    return node, is_gradient
