"""Views that are cut off, joined or bypassed (behaviour of TensorFlow 1.15.5)."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.compat.contrib.graph_editor import reroute, select, subgraph, util


def detach_control_inputs(sgv: Any) -> None:
    """Makes the operations of a view wait for none outside of it."""
    view = subgraph.make_view(sgv)
    for op in view.ops:
        outside = [before for before in op.control_inputs if before not in view.ops]
        reroute.remove_control_inputs(op, outside)


def detach_control_outputs(sgv: Any, control_outputs: util.ControlOutputs) -> None:
    """Makes no operation outside of a view wait for one of it."""
    view = subgraph.make_view(sgv)
    for op in view.ops:
        for after in control_outputs.get(op):
            if after not in view.ops:
                reroute.remove_control_inputs(after, op)
    control_outputs.update()


def detach_inputs(sgv: Any, control_inputs: bool = False) -> tuple[subgraph.SubGraphView, list[tf.Tensor]]:
    """Makes the operations of a view take placeholders instead of its inputs.

    Args:
        sgv: the view.
        control_inputs: whether they wait for none outside either.

    Returns:
        (the view, list of placeholders).
    """
    view = subgraph.make_view(sgv)
    placeholders = _placeholders(view, view.inputs)
    swapped, _ = reroute.swap_inputs(view, subgraph.SubGraphView(passthrough_ts=placeholders))
    if control_inputs:
        detach_control_inputs(view)
    return swapped, placeholders


def detach_outputs(sgv: Any, control_outputs: Any = None) -> tuple[subgraph.SubGraphView, list[tf.Tensor]]:
    """Makes what takes the outputs of a view take placeholders instead.

    Args:
        sgv: the view.
        control_outputs: ControlOutputs, for operations that wait for one of the view, or None.

    Returns:
        (the view, list of placeholders).
    """
    view = subgraph.make_view(sgv)
    taken = [t for t in util.unique(view.outputs) if any(op not in view.ops for op in t.consumers())]
    placeholders = _placeholders(view, taken)
    reroute.reroute_ts(placeholders, taken, cannot_modify=view.ops)
    if control_outputs is not None:
        detach_control_outputs(view, control_outputs)
    return view, placeholders


def detach(
    sgv: Any, control_inputs: Any = False, control_outputs: Any = None, control_ios: Any = None
) -> tuple[subgraph.SubGraphView, list[tf.Tensor], list[tf.Tensor]]:
    """detach_inputs and detach_outputs.

    Returns:
        (the view, placeholders of the inputs, placeholders of the outputs).
    """
    inputs, outputs = select.check_cios(control_inputs, control_outputs, control_ios)
    view, of_inputs = detach_inputs(sgv, inputs)
    view, of_outputs = detach_outputs(view, outputs)
    return view, of_inputs, of_outputs


def connect(
    sgv0: Any, sgv1: Any, disconnect_first: bool = False
) -> tuple[subgraph.SubGraphView, subgraph.SubGraphView]:
    """Makes the view `sgv1` take the outputs of `sgv0` as its inputs.

    Args:
        sgv0: a view.
        sgv1: a view of the same graph.
        disconnect_first: whether what took the outputs of `sgv0` takes placeholders then.

    Returns:
        Both views.
    """
    view0, view1 = subgraph.make_view(sgv0), subgraph.make_view(sgv1)
    util.check_graphs(view0, view1)
    if disconnect_first:
        detach_outputs(view0)
    _, view1 = reroute.reroute_inputs(subgraph.SubGraphView(passthrough_ts=view0.outputs), view1)
    return view0, view1


def bypass(sgv: Any) -> tuple[subgraph.SubGraphView, list[tf.Tensor]]:
    """Makes what takes the outputs of a view take its inputs; the view takes placeholders.

    Returns:
        (the view, list of placeholders).
    """
    view = subgraph.make_view(sgv)
    inputs, outputs = list(view.inputs), list(view.outputs)
    view, placeholders = detach_inputs(view)
    reroute.reroute_ts(inputs, outputs)
    return view, placeholders


def _placeholders(view, tensors):
    if view.graph is None:
        return []
    with view.graph.as_default(), tf.name_scope(None):
        return [util.make_placeholder_from_tensor(t) for t in tensors]
