"""Undoes batch-norm and moving-average updates of a step that is skipped.

The updates run before the gradients are known (the training op depends on them), so they cannot wait for the finite
flag. Their variables are copied before they run and restored if the step is skipped. An update includes the writes it
depends on: a zero-debiased average first writes its sum and its count, and computes the average from these. Only
optimizer steps and the global step are excluded: they are skipped or applied by themselves.
"""

from __future__ import annotations

import re
from typing import Any, Iterable

import tensorflow.compat.v1 as tf

from npu_shim.rewriter.errors import ConfigError

# what writes to the resource variable that is its first input; a reference's writers say so in their signature
RESOURCE_WRITERS = re.compile(r"Assign\w*VariableOp$|Resource\w*(Assign|Scatter\w*|CountUpTo)$")
PASSES_REFERENCES_ON = re.compile(r"Ref(Switch|Merge|Enter|Exit|NextIteration|Identity|Select)$|IsVariableInitialized$")
OPTIMIZER_STEP = re.compile(r"(Resource)?(Sparse)?Apply[A-Z]\w*$")


def snapshots(updates: Iterable[Any]) -> list[tuple[Any, tf.Tensor]]:
    """Returns what `rollback` needs: list of (assigned handle or reference, tensor with the value before the step).

    Args:
        updates: iterable of ops, tensors or variables as assignments return them, for example
            tf.get_collection(tf.GraphKeys.UPDATE_OPS).

    Raises:
        ConfigError: an update does not write to a variable, or it does in a loop.
    """
    found = {}
    steps = {getattr(op, "op", op) for op in tf.get_collection(tf.GraphKeys.TRAIN_OP)}
    for update in updates:
        writers = _writers(update, steps)
        if not writers:
            raise ConfigError(
                "protect_update_ops: '%s' does not assign to a variable; take it out of UPDATE_OPS or build it with "
                "optimizer.when_finite" % update.name
            )
        for op in writers:
            found.setdefault(_variable(op.inputs[0]), {})[op.name] = op
    return [(target, _copy_before(target, list(ops.values()))) for target, ops in found.items()]


def rollback(taken: Iterable[tuple[Any, tf.Tensor]]) -> tf.Operation:
    """Returns an op that restores the copies of `snapshots`."""
    return tf.group(*[_assign(target, value) for target, value in taken])


def _copy_before(target, writers):
    for op in writers:
        if op._control_flow_context is not None and op._control_flow_context.GetWhileContext() is not None:
            raise ConfigError(
                "protect_update_ops: '%s' assigns to a variable in a loop; take the update out of UPDATE_OPS or build "
                "it with optimizer.when_finite" % op.name
            )
    # no control dependency: the caller often stands under the very updates that must come later
    with tf.init_scope(), tf.colocate_with(target.op):
        if target.dtype == tf.resource:
            before = tf.raw_ops.ReadVariableOp(resource=target, dtype=target.op.get_attr("dtype"))
        else:
            # Identity of a reference shares its buffer, and the update writes into it
            before = tf.raw_ops.DeepCopy(x=target)
    for op in writers:
        op._add_control_input(before.op)
    return before


def _assign(target, value):
    if target.dtype == tf.resource:
        return tf.raw_ops.AssignVariableOp(resource=target, value=value)
    return tf.raw_ops.Assign(ref=target, value=value).op


def _writers(update, steps):
    """Returns the ops that write to variables at or before an update, but not before `steps`."""
    found, seen, ahead = [], set(steps), [getattr(update, "op", update)]
    global_step = tf.train.get_global_step()
    while ahead:
        op = ahead.pop()
        if op in seen or OPTIMIZER_STEP.match(op.type):
            continue
        seen.add(op)
        if _writes_to_variable(op) and (global_step is None or _variable(op.inputs[0]).op.name != global_step.op.name):
            found.append(op)
        ahead += list(op.control_inputs) + [tensor.op for tensor in op.inputs]
    return found


def _writes_to_variable(op):
    if not len(op.inputs):
        return False
    if op.inputs[0].dtype == tf.resource:
        return RESOURCE_WRITERS.match(op.type) is not None
    arguments = op.op_def.input_arg
    return bool(arguments) and arguments[0].is_ref and not PASSES_REFERENCES_ON.match(op.type)


def _variable(written):
    """Returns the reference or the handle as the variable's own op gives it: through assignments and switches."""
    while written.op.inputs:
        written = written.op.inputs[0]
    return written
