"""Inputs of operations that are moved to other tensors, and control inputs (behaviour of TensorFlow 1.15.5)."""

from __future__ import annotations

from typing import Any

from npu_shim.compat.contrib.graph_editor import subgraph, util


def reroute_ts(ts0: Any, ts1: Any, can_modify: Any = None, cannot_modify: Any = None) -> int:
    """Makes the consumers of `ts1` take `ts0` instead.

    Args:
        ts0: tensors.
        ts1: as many tensors.
        can_modify: the operations that may be changed, or None for all.
        cannot_modify: operations that may not be, or None.

    Returns:
        int, how many inputs were changed.

    Raises:
        ValueError: `ts0` and `ts1` differ in number, dtype or shape.
    """
    new, old = util.to_tensors(ts0), util.to_tensors(ts1)
    if len(new) != len(old):
        raise ValueError("npu_shim: reroute_ts: %d tensors cannot stand for %d" % (len(new), len(old)))
    for one, other in zip(new, old):
        if one.dtype.base_dtype != other.dtype.base_dtype or not one.shape.is_compatible_with(other.shape):
            raise ValueError("Dtypes or shapes are not compatible: %s, %s" % (one, other))
    may = None if can_modify is None else set(util.to_ops(can_modify))
    may_not = set(util.to_ops(cannot_modify or ()))
    edges = [
        (op, index, after)
        for after, before in zip(new, old)
        for op in util.unique(before.consumers())
        if (may is None or op in may) and op not in may_not
        for index, tensor in enumerate(op.inputs)
        if tensor is before
    ]
    for op, index, after in edges:
        op._update_input(index, after)
    return len(edges)


def swap_ts(ts0: Any, ts1: Any, can_modify: Any = None, cannot_modify: Any = None) -> int:
    """Swaps the consumers of `ts0` and `ts1`; returns the number of inputs that were changed."""
    new, old = util.to_tensors(ts0), util.to_tensors(ts1)
    return reroute_ts([*new, *old], [*old, *new], can_modify, cannot_modify)


def reroute_inputs(sgv0: Any, sgv1: Any) -> tuple[subgraph.SubGraphView, subgraph.SubGraphView]:
    """Makes operations of the view `sgv1` take the inputs of `sgv0` instead of its own; returns both views."""
    view0, view1 = _views(sgv0, sgv1)
    reroute_ts(view0.inputs, view1.inputs, can_modify=_takers(view1))
    return _seen(view0, view0.inputs), _seen(view1, view0.inputs)


def swap_inputs(sgv0: Any, sgv1: Any) -> tuple[subgraph.SubGraphView, subgraph.SubGraphView]:
    """Swaps the inputs of two views; returns them."""
    view0, view1 = _views(sgv0, sgv1)
    inputs0, inputs1, of0, of1 = view0.inputs, view1.inputs, _takers(view0), _takers(view1)
    reroute_ts(inputs1, inputs0, can_modify=of0)
    reroute_ts(inputs0, inputs1, can_modify=[op for op in of1 if op not in of0])
    return _seen(view0, inputs1), _seen(view1, inputs0)


def reroute_outputs(sgv0: Any, sgv1: Any) -> tuple[subgraph.SubGraphView, subgraph.SubGraphView]:
    """Makes what takes the outputs of `sgv1` take those of `sgv0`; returns both views."""
    view0, view1 = _views(sgv0, sgv1)
    reroute_ts(view0.outputs, view1.outputs, cannot_modify=[*view0.ops, *view1.ops])
    return view0, view1


def swap_outputs(sgv0: Any, sgv1: Any) -> tuple[subgraph.SubGraphView, subgraph.SubGraphView]:
    """Swaps what takes the outputs of two views; returns them."""
    view0, view1 = _views(sgv0, sgv1)
    swap_ts(view0.outputs, view1.outputs, cannot_modify=[*view0.ops, *view1.ops])
    return view0, view1


def reroute_ios(sgv0: Any, sgv1: Any) -> tuple[subgraph.SubGraphView, subgraph.SubGraphView]:
    """reroute_outputs and reroute_inputs."""
    reroute_outputs(sgv0, sgv1)
    return reroute_inputs(sgv0, sgv1)


def swap_ios(sgv0: Any, sgv1: Any) -> tuple[subgraph.SubGraphView, subgraph.SubGraphView]:
    """swap_outputs and swap_inputs."""
    swap_outputs(sgv0, sgv1)
    return swap_inputs(sgv0, sgv1)


def _views(sgv0: Any, sgv1: Any) -> tuple[subgraph.SubGraphView, subgraph.SubGraphView]:
    views = subgraph.make_view(sgv0), subgraph.make_view(sgv1)
    util.check_graphs(*views)
    return views


def _takers(view: subgraph.SubGraphView) -> list[Any]:
    """The operations that take a view's inputs in its place: its own, and those behind what passes through."""
    return [*view.ops, *util.get_consuming_ops(view.passthroughs)]


def _seen(view: subgraph.SubGraphView, inputs: Any) -> subgraph.SubGraphView:
    """A view of the changed operations with these inputs, and the outputs that it had, as far as it has them."""
    seen = subgraph.SubGraphView(view.ops, view.passthroughs)
    kept = [t for t in util.unique(inputs) if t in seen.inputs]
    return seen.remap(kept, [t for t in view.outputs if t in seen.outputs])


def add_control_inputs(op: Any, cops: Any) -> None:
    """Makes an operation wait for others.

    Raises:
        ValueError: it waits for one of them already.
    """
    for other in util.to_ops(cops):
        if other in op.control_inputs:
            raise ValueError("%s is already a control_input of %s" % (other.name, op.name))
    op._add_control_inputs(util.to_ops(cops))


def remove_control_inputs(op: Any, cops: Any) -> None:
    """Makes an operation no longer wait for others.

    Raises:
        ValueError: it does not wait for one of them.
    """
    gone = set(util.to_ops(cops))
    missing = [other.name for other in gone if other not in op.control_inputs]
    if missing:
        raise ValueError("%s is not a control_input of %s" % (missing[0], op.name))
    kept = [other for other in op.control_inputs if other not in gone]
    op._remove_all_control_inputs()
    op._add_control_inputs(kept)
