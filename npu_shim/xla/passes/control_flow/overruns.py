"""Makes what a loop gives NaN where it has run longer than its condition was taken to allow.

XLA keeps a loop's values for its gradient in buffers of a fixed size, and writes what is too much over the last one:
a bound that is too small would change gradients, and nothing would tell. Where one comparison of integers decides how
often a loop runs, the bound is the count, and nothing is added. Elsewhere (counters that are floats, a second
condition, a Minimum) each float that leaves the loop, or its gradient's loop, is checked:

    y = Exit(..)      becomes     y = SelectV2(Greater(count, bound), NaN, Exit(..))

What a loop in a loop of version 2 keeps lies on a list of the outer one, and is checked where it is kept.
"""

from __future__ import annotations

import math
from typing import Any, Iterable, Mapping, Sequence

from npu_shim.rewriter.ir.attributes import DType, Tensor
from npu_shim.rewriter.ir.graph import Graph, Node, Value
from npu_shim.rewriter.tables.dtypes import NUMBERS
from npu_shim.xla.passes.control_flow import loop_pairs
from npu_shim.xla.passes.shapes import trip_counts

FLOATS = frozenset(NUMBERS[name] for name in ("float16", "bfloat16", "float32", "float64"))


def mark(graph: Graph, bounds: Mapping[str, int], gradients: Mapping[str, str]) -> None:
    """Checks loops of TensorFlow 1.

    Args:
        graph: has v1 control flow.
        bounds: frame name -> largest trip count that its buffers have room for.
        gradients: frame name -> frame name of the gradient's loop, which runs as often.
    """
    exits = _exits(graph) if bounds else {}
    for frame, most in bounds.items():
        for counter in loop_pairs.counters(graph, frame)[:1]:
            check(_behind_loop(counter), most, exits.get(frame, ()))
    _check_gradients(graph, {back: bounds[frame] for frame, back in gradients.items() if frame in bounds}, exits)


def mark_gradients(graph: Graph, bounds: Mapping[str, int]) -> None:
    """Checks loops of gradients, which count down from where the loop's counter was.

    Args:
        graph: has v1 control flow.
        bounds: frame name -> largest trip count.
    """
    _check_gradients(graph, bounds, _exits(graph) if bounds else {})


def _check_gradients(graph: Graph, bounds: Mapping[str, int], exits: Mapping[str, Sequence[Value]]) -> None:
    starts = loop_pairs.starts(graph) if bounds else {}
    for frame, most in bounds.items():
        if frame in starts:
            check(starts[frame].inputs[0], most, exits.get(frame, ()))


def check(counter: Value, most: int, results: Iterable[Value]) -> None:
    """Makes floats that leave a loop NaN where a counter of the loop, int32 or int64, has passed its largest value."""
    values = [(value, dtype) for value, dtype in ((value, _dtype(value)) for value in results) if dtype in FLOATS]
    if not values:
        return
    graph, name = counter.node.graph, counter.node.name
    limit = _constant(counter, name + "/most", _dtype(counter), most)
    passed = graph.add(graph.free_name(name + "/passed"), "Greater", [counter, limit], attrs={"T": _dtype(counter)})
    for value, dtype in values:
        users, nan = list(value.users), _constant(counter, name + "/nan", dtype, math.nan)
        chosen = graph.add(
            graph.free_name(value.node.name + "/checked"), "SelectV2", [passed.value, nan, value], attrs={"T": dtype}
        ).value
        value.replace_by(chosen, users)
        graph.replace_results(value, chosen)


def spoil(counter: Value, limit: int, stores: Iterable[Node]) -> None:
    """Makes floats that a body stores NaN once a counter has reached a limit, for which there is no room.

    XLA writes what is too much over the last item: whoever takes the list, in whatever loop, finds NaN there.

    Args:
        counter: of the loop, int32 or int64, a value in its body.
        limit: what the counter stays below as long as the lists have room.
        stores: nodes of the body whose last input goes onto a list.
    """
    graph, name, attrs = counter.node.graph, counter.node.name, {"T": _dtype(counter)}
    for node in stores:
        dtype = node.attrs["element_dtype"]
        if dtype in FLOATS:
            compared = [counter, _constant(counter, node.name + "/most", _dtype(counter), limit)]
            passed = graph.add(graph.free_name(name + "/passed"), "GreaterEqual", compared, attrs=attrs, before=node)
            values = [passed.value, _constant(counter, node.name + "/nan", dtype, math.nan), node.inputs[-1]]
            checked = graph.free_name(node.name + "/checked")
            chosen = graph.add(checked, "SelectV2", values, attrs={"T": dtype}, before=node)
            node.set_input(len(node.inputs) - 1, chosen.value)


def _exits(graph: Graph) -> dict[str, list[Value]]:
    """Frame name -> what leaves its loop, without what stands for the order of a TensorArray's writes."""
    exits: dict[str, list[Value]] = {}
    for node in graph:
        if node.op == "Exit" and not _source(node).op.startswith("TensorArray"):
            enter = node.inputs[0].node.inputs[0].node.inputs[0].node  # behind the Switch and the Merge
            exits.setdefault(enter.attrs["frame_name"].decode(), []).append(node.value)
    return exits


def _behind_loop(switch: Node) -> Value:
    """The last value of a loop variable; TensorFlow's conversion takes one Exit of each."""
    for node in switch.value.users:
        if node.op == "Exit":
            return node.value
    graph, attrs = switch.graph, {"T": switch.attrs["T"]}
    return graph.add(graph.free_name(switch.name + "/ran"), "Exit", [switch.value], attrs=attrs).value


def _source(node: Node) -> Node:
    """What a loop variable is before all loops."""
    while node.op in (*trip_counts.PASSES_ON, "Exit", "Merge") and node.inputs:
        node = node.inputs[0].node
    return node


def _dtype(value: Value) -> DType:
    attrs = value.node.attrs
    dtype: Any = attrs["T" if "T" in attrs else "elem_type"]  # of a StackPopV2
    return dtype[value.index] if isinstance(dtype, tuple) else dtype  # type: ignore[no-any-return]


def _constant(where: Value, name: str, dtype: DType, number: float) -> Value:
    """Adds a constant that is as often alive as another value, in its loop and branch."""
    attrs = {"dtype": dtype, "value": Tensor(dtype, (), (number,))}
    graph = where.node.graph
    return graph.add(graph.free_name(name), "Const", controls=[where.node], attrs=attrs).value
