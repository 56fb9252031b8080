"""Updates that a script writes by hand: gradients of tf.gradients that reach a variable without an optimizer."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from npu_shim.loss_scale.automatic.gate import BFLOAT16, say
from npu_shim.loss_scale.automatic.made import Call, registry_of
from npu_shim.loss_scale.automatic.origin import WRITER


def tell_of(graph: tf.Graph) -> None:
    """Logs one line about the trained variables of a graph that are updated by hand, if there are any."""
    registry = registry_of(graph)
    waiting = [call for call in registry.calls if call not in registry.scales and call not in registry.left]
    updated = sorted({name for call in waiting for name in _updated_by(call, graph)})
    if updated:
        shown = ", ".join(updated[:3]) + (" and %d more" % (len(updated) - 3) if len(updated) > 3 else "")
        say(
            registry,
            "gradients of tf.gradients update %s without an optimizer's apply_gradients: their loss is not scaled; %s"
            % (shown, BFLOAT16),
        )


def _updated_by(call: Call, graph: tf.Graph) -> set[str]:
    """Returns the names of the trained variables that a call's gradients are written into."""
    with graph.as_default():
        trained = {variable.op.name for variable in tf.trainable_variables()}
    found, seen, ahead = set(), set(), list(call.results)
    while ahead:
        for op in ahead.pop().consumers():
            if op in seen:
                continue
            seen.add(op)
            if WRITER.match(op.type) and _holder(op) in trained:
                found.add(_holder(op))
            else:
                ahead += list(op.outputs)
    return found


def _holder(writer: Any) -> str:
    """Returns the name of the variable that an op writes into, through the branches and loops it is in."""
    tensor = writer.inputs[0]
    while tensor.op.inputs:
        tensor = tensor.op.inputs[0]
    return str(tensor.op.name)
